/** Faults that were found by attack, each with what it led to. */
import {
  type Clock,
  fairShares,
  fixedWindow,
  PermitsExceedCapacityError,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { LimiterClosedError, RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { share } from "../../src/algorithms/index.ts";
import { move } from "../../src/regions/move.ts";
import { exchange } from "../../src/stores/ledger.ts";
import { writeMessage } from "../../src/stores/ledger-text.ts";
import { listPolicies } from "../../src/stores/policies.ts";
import { openPolicyState } from "../../src/stores/state/several.ts";
import { seeded } from "../support/random.ts";
import { World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, attacks");

const REGIONS = ["eu", "us", "asia"];
const bucket: Policies = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });

function open(options: Partial<RegionalOptions> = {}, policy = bucket) {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const all = { home, clock, region: "eu", regions: REGIONS, ...options };
  return { clock, limiter: RegionalLimiter.create("limit", policy, all) };
}

type Limiter = ReturnType<typeof open>["limiter"];

async function ask(limiter: Pick<Limiter, "tryAcquire">, requests: number): Promise<void> {
  for (let i = 0; i < requests; i++) await limiter.tryAcquire();
}

async function busy(limiter: Limiter, clock: FakeClock, ms: number): Promise<void> {
  for (let t = 0; t < ms; t += 50) {
    await ask(limiter, 50);
    await clock.advance(50);
  }
}

const errorOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error) => error,
  );

/** A home whose messages the test sees, holds back and answers. */
class SlowHome {
  delayMs = 0;
  losesReplies = false;
  readonly sent: { readonly key: string; readonly message: readonly string[] }[] = [];
  readonly #records = new Map<string, string>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get store(): Store {
    return { run: () => {}, exchange: this.exchange } as unknown as Store;
  }

  readonly exchange = async (key: string, message: readonly string[]): Promise<string> => {
    this.sent.push({ key, message });
    const now = 1e9 + Math.floor(this.#clock.now());
    const { reply, record } = exchange(this.#records.get(key), message, now);
    if (record !== undefined) this.#records.set(key, record);
    if (this.losesReplies) return new Promise(() => {});
    const { delayMs } = this;
    if (delayMs > 0) {
      await new Promise<void>((resolve) => {
        this.#clock.wakeAt(this.#clock.now() + delayMs, resolve);
      });
    }
    return reply;
  };
}

async function slow() {
  const clock = new FakeClock();
  const home = new SlowHome(clock);
  const { limiter } = open({ home: home.store, clock });
  await limiter.peek();
  await clock.advance(10_000);
  return { clock, home, limiter };
}

for (const [title, lie] of Object.entries<(reply: string) => string>({
  "less than the region holds": (reply) => reply.replace(/^\d+ \d+/, "0 0"),
  bytes: (reply) => Buffer.from(reply) as unknown as string,
})) {
  test(`a home that answers ${title} once is an outage, and no part is lost`, async () => {
    const clock = new FakeClock();
    const records = new Map<string, string>();
    let lies = 0;
    const home = {
      run: () => Promise.reject(new Error("a home runs no requests")),
      exchange: async (key: string, message: readonly string[]) => {
        const { reply, record } = exchange(
          records.get(key),
          message,
          1e12 + Math.floor(clock.now()),
        );
        if (record !== undefined) records.set(key, record);
        const isLie = lies === 1 && Number(message[6]) > 0;
        if (isLie) lies = 2;
        return isLie ? lie(reply) : reply;
      },
    } as unknown as Store;
    const policy = slidingLog({ limit: 300, windowMs: 60_000 });
    const all = { home, clock, region: "eu", regions: ["eu", "us"] };
    const limiter = RegionalLimiter.create("limit", policy, all);
    await limiter.peek();
    await clock.advance(180_000);
    let least = 1;
    for (let t = 0; t < 30_000; t += 100) {
      if (t === 10_000) lies = 1;
      for (let i = 0; i < 5; i++) await limiter.tryAcquire();
      await clock.advance(100);
      least = Math.min(least, limiter.fraction);
    }
    const { outages } = limiter.stats;
    const { fraction } = limiter;
    await Promise.all([limiter.close(), clock.advance(5000)]);
    assert.equal([lies, outages], [2, 1]);
    assert.ok(least >= 0.049 && fraction > 0.9, `${least}, then ${fraction}`);
  });
}

/** Where in a message the pieces begin that were released, each with three numbers. */
const RELEASED = 16;

test("a key that becomes idle while the home hangs becomes hot again later", async () => {
  const { clock, home, limiter } = await slow();
  await busy(limiter, clock, 3000);
  // the messages that give its part back take longer than half a lease
  home.delayMs = 4000;
  await clock.advance(20_000);
  home.delayMs = 0;
  await clock.advance(20_000);
  await busy(limiter, clock, 4000);
  assert.ok(limiter.fraction > 0.9, String(limiter.fraction));
});

test("what is fresh is said with the number of one message, also if no reply comes", async () => {
  const clock = new FakeClock();
  const slow = new SlowHome(clock);
  const fresh = new Map<string, number>();
  const send = async (key: string, message: readonly string[]) => {
    const reply = await slow.exchange(key, message);
    if (message[1] !== "eu" || message.length === RELEASED) return reply;
    for (let i = RELEASED; i < message.length; i += 3) {
      const [number, parts, restMs] = message.slice(i, i + 3);
      if (restMs === "0") fresh.set(`${number} ${parts}`, Number(parts));
    }
    return new Promise(() => {});
  };
  const home = { run: () => {}, exchange: send } as unknown as Store;
  const [eu, us] = ["eu", "us"].map(
    (region) => open({ home, clock, region, regions: ["eu", "us"] }).limiter,
  );
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(10_000);
  await busy(eu, clock, 4000);
  for (let t = 0; t < 10_000 && fresh.size === 0; t += 50) await busy(us, clock, 50);
  assert.is(fresh.size, 1);
  void eu.close();
  await clock.advance(2100);
  assert.ok(fresh.size > 1);
  const sum = [...fresh.values()].reduce((all, each) => all + each, 0);
  assert.ok(sum <= 0.9e9, `${[...fresh]}`);
  await us.close();
});

test("demand that rises while a reply is under way is no outage", async () => {
  const { clock, home, limiter } = await slow();
  home.delayMs = 400;
  for (let requests = 1; requests < 400; requests = Math.ceil(requests * 1.3)) {
    await ask(limiter, requests);
    await clock.advance(50);
  }
  await busy(limiter, clock, 3000);
  assert.is(limiter.stats.outages, 0);
});

test("a request that no part of this region can ever hold is an error, and does not wait for ever", async () => {
  const { limiter } = open();
  assert.instance(await errorOf(limiter.acquire(281)), PermitsExceedCapacityError);
  const equal = open({ reserve: 1 }).limiter;
  assert.instance(await errorOf(equal.acquire(101)), PermitsExceedCapacityError);
  const many = Array.from({ length: 20 }, (_, i) => `region ${i}`);
  const options = { region: "region 7", regions: many };
  const small = open(options, fixedWindow({ limit: 1, windowMs: 1000 })).limiter;
  assert.instance(await errorOf(small.acquire()), PermitsExceedCapacityError);
  await limiter.update(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }));
  assert.instance(await errorOf(limiter.tryAcquire(29)), PermitsExceedCapacityError);
});

test("a request that is an error is no demand, also of a hot key", async () => {
  const { clock, home, limiter } = await slow();
  await busy(limiter, clock, 2000);
  const before = home.sent.length;
  for (let t = 0; t < 3000; t += 50) {
    await ask(limiter, 1);
    for (let i = 0; i < 9; i++) {
      assert.instance(await errorOf(limiter.acquire(281)), PermitsExceedCapacityError);
      assert.instance(await errorOf(limiter.decide(281)), PermitsExceedCapacityError);
    }
    await clock.advance(50);
  }
  const demands = home.sent.slice(before + 4).map(({ message }) => Number(message[8]));
  assert.ok(demands.length > 0);
  assert.ok(Math.max(...demands) < 0.1e9, `${demands}`);
});

test("with a local store, a request that is larger than the reserve is served by a part", async () => {
  const clock = new FakeClock();
  const { limiter } = open({ local: memoryStore({ clock }), home: memoryStore({ clock }), clock });
  assert.is(await limiter.tryAcquire(20), false);
  assert.is((await limiter.decide(20)).waitMs, Infinity);
  const waits = limiter.acquire(20);
  const reserved = limiter.reserve(20);
  await clock.advance(20_000);
  assert.ok((await waits) > 0);
  assert.ok((await (await reserved).ready()) >= 0);
  for (const call of [() => limiter.tryAcquire(271), () => limiter.acquire(271)]) {
    assert.instance(await errorOf(call()), PermitsExceedCapacityError);
  }
  await limiter.close();
});

test("with a local store, maxWaiting bounds what waits for the reserve too", async () => {
  const clock = new FakeClock();
  const options = { local: memoryStore({ clock }), home: memoryStore({ clock }), clock };
  const { limiter } = open({ ...options, maxWaiting: 2 });
  const errors: unknown[] = [];
  for (let i = 0; i < 30; i++) void limiter.acquire().catch((error) => errors.push(error.name));
  await clock.advance(1);
  // 10 are granted
  assert.equal(errors, Array(18).fill("QueueFullError"));
  await limiter.close();
});

test("a key stays hot while a caller waits for a larger part, however small its demand", async () => {
  const { limiter, clock } = open({}, tokenBucket({ capacity: 10, refill: 1000, everyMs: 1000 }));
  let waitedMs = 0;
  void limiter.acquire().then((ms) => {
    waitedMs = ms;
  });
  // the new ledger is closed for longer than a key without demand stays hot
  await clock.advance(20_000);
  assert.ok(waitedMs > 5500, `${waitedMs}`);
});

test("so it does while a reservation waits for one", async () => {
  const { limiter, clock } = open({}, tokenBucket({ capacity: 10, refill: 1000, everyMs: 1000 }));
  const reservation = await limiter.reserve(2);
  let waitedMs = 0;
  void reservation.ready().then((ms) => {
    waitedMs = ms;
  });
  await clock.advance(20_000);
  assert.ok(waitedMs > 5500, `${waitedMs}`);
});

test("a home that calls every message late is not asked without pause", async () => {
  let asked = 0;
  const exchange = async () => {
    asked += 1;
    if (asked > 1000) throw new Error("down");
    return "late 1000000";
  };
  const { limiter, clock } = open({ home: { run: () => {}, exchange } as unknown as Store });
  await busy(limiter, clock, 5000);
  assert.ok(asked < 30, `${asked}`);
  await limiter.close();
});

test("without a reserve an idle key gives its part back too", async () => {
  const clock = new FakeClock();
  const home = new SlowHome(clock);
  const { limiter } = open({ home: home.store, clock, reserve: 0 });
  await busy(limiter, clock, 10_000);
  assert.is(limiter.fraction, 1);
  for (let t = 0; t < 20_000; t += 1000) {
    await ask(limiter, 2);
    await clock.advance(1000);
  }
  await clock.advance(60_000);
  assert.is(limiter.fraction, 0);
  const before = home.sent.length;
  await clock.advance(60_000);
  assert.is(home.sent.length, before);
});

test("a key that was forgotten and comes back numbers its messages on", async () => {
  const { clock, home, limiter } = await slow();
  const numbers: number[] = [];
  for (let i = 0; i < 2; i++) {
    await busy(limiter.for("ann") as Limiter, clock, 2000);
    await clock.advance(20_000);
    for (let key = 0; key < 50; key++) await limiter.for(`${i} ${key}`).tryAcquire();
    await clock.advance(5000);
    for (let key = 0; key < 50; key++) await limiter.for(`${i} ${key}`).tryAcquire();
  }
  for (const { key, message } of home.sent) {
    if (key.endsWith("[ann")) numbers.push(Number(message[2]));
  }
  assert.ok(numbers.length > 6);
  assert.equal(
    numbers,
    [...new Set(numbers)].sort((a, b) => a - b),
  );
});

test("each record has its own clock: in a cluster they are on several servers", async () => {
  const clock = new FakeClock();
  const records = new Map<string, string>();
  let late = 0;
  const send = async (key: string, message: readonly string[]) => {
    const aheadMs = key.endsWith("[b") ? 60_000 : 0;
    const now = 1e9 + Math.floor(clock.now()) + aheadMs;
    const { reply, record } = exchange(records.get(key), message, now);
    if (record !== undefined) records.set(key, record);
    if (reply.startsWith("late")) late += 1;
    return reply;
  };
  const home = { run: () => {}, exchange: send } as unknown as Store;
  const { limiter } = open({ home, clock });
  await limiter.peek();
  await clock.advance(10_000);
  for (let t = 0; t < 5000; t += 50) {
    for (const key of ["a", "b"]) await ask(limiter.for(key), 20);
    await clock.advance(50);
  }
  assert.is(late, 0);
  await limiter.close();
});

test("the empty key is a key, and no limiter without a key; a region needs a name", async () => {
  const { clock, home, limiter } = await slow();
  for (const one of [limiter, ...["", "%", "%%", "[", " {}"].map((key) => limiter.for(key))]) {
    await busy(one as Limiter, clock, 500);
  }
  const keys = new Set(home.sent.map(({ key }) => key));
  assert.equal(
    [...keys].sort(),
    ["", "[", "[ {}", "[%", "[%%", "[%%%", "[["].map((key) => `l:limit%regions${key}`).sort(),
  );
  assert.throws(() => open({ region: "", regions: ["", "us"] }), /regions must be names/);
});

test("a timer keeps the process alive only while callers wait", async () => {
  const clock = new FakeClock();
  const timers = { kept: 0 };
  const counting: Clock = {
    now: () => clock.now(),
    wakeAt: (timeMs, wake) => {
      const timer = clock.wakeAt(timeMs, () => {
        end();
        wake();
      });
      let isKept = true;
      timers.kept += 1;
      const end = () => {
        if (isKept) timers.kept -= 1;
        isKept = false;
      };
      return {
        cancel: () => {
          end();
          timer.cancel();
        },
        unref: end,
      };
    },
  };
  const home = new SlowHome(clock);
  const policy = smoothBursty({ permitsPerSecond: 30 });
  const { limiter } = open({ clock: counting, home: home.store, leaseMs: 60_000 }, policy);
  const ended: Promise<number>[] = [];
  for (const permits of [1, 1, 2, 1]) ended.push(limiter.acquire(permits));
  home.losesReplies = true;
  await clock.advance(500);
  assert.ok(timers.kept > 0);
  await clock.advance(9500);
  await Promise.all(ended);
  assert.is(timers.kept, 0);
});

test("a process that was suspended for longer than its lease grants nothing of it any more", async () => {
  const clock = new FakeClock();
  let jumpMs = 0;
  const jumping: Clock = {
    now: () => clock.now() + jumpMs,
    wakeAt: (timeMs, wake) => clock.wakeAt(Math.max(clock.now(), timeMs - jumpMs), wake),
  };
  const home = new SlowHome(jumping);
  for (const policy of [slidingLog({ limit: 300, windowMs: 2000 }), bucket]) {
    const { limiter } = open({ clock: jumping, home: home.store }, policy);
    await limiter.peek();
    await clock.advance(10_000);
    await busy(limiter, clock, 5000);
    assert.ok(limiter.fraction > 0.9);
    let granted = 0;
    const count = () => {
      granted += 1;
    };
    for (let i = 0; i < 300; i++) limiter.acquire().then(count, () => {});
    await clock.advance(1);
    home.losesReplies = true;
    granted = 0;
    jumpMs += 6000;
    await ask(limiter, 2);
    await clock.advance(1);
    assert.ok(granted <= 11, `${granted} with ${limiter.fraction} of the limit`);
    home.losesReplies = false;
    await limiter.close();
  }
});

test("a call with a timeout ends in time although its part has shrunk below the request", async () => {
  const { clock, home, limiter } = await slow();
  await busy(limiter, clock, 3000);
  home.losesReplies = true;
  const pending = new Set<number>();
  for (let t = 0; t < 6000; t += 100) {
    pending.add(t);
    void limiter.tryAcquire(100, 900).then(() => pending.delete(t));
    await busy(limiter, clock, 100);
  }
  assert.ok(limiter.fraction < 0.04);
  await clock.advance(1000);
  assert.is(pending.size, 0);
});

test("a call with a timeout that the reserve serves makes no key hot", async () => {
  const { clock, home, limiter } = await slow();
  for (let i = 0; i < 20; i++) {
    assert.ok(await limiter.for("ann").tryAcquire(1, 100));
    await clock.advance(1000);
  }
  assert.not(home.sent.some(({ key }) => key.endsWith("[ann")));
});

/** With a local store that answers after 50 ms. */
async function withLocal(options: Partial<RegionalOptions> = {}) {
  const clock = new FakeClock();
  const home = new SlowHome(clock);
  const store = memoryStore({ clock });
  const run = async (...call: Parameters<typeof store.run>) => {
    const answer = await store.run(...call);
    await new Promise<void>((resolve) => {
      clock.wakeAt(clock.now() + 50, resolve);
    });
    return answer;
  };
  const local = { ...store, run } as Store;
  const { limiter } = open({ home: home.store, clock, local, ...options });
  return { clock, home, limiter };
}

const hourly = { limit: 10, windowMs: 3_600_000 };
for (const hour of [
  slidingLog(hourly),
  slidingWindow(hourly),
  fixedWindow(hourly),
  tokenBucket({ capacity: 10, refill: 10, everyMs: 3_600_000 }),
]) {
  test(`what a key has used is not forgotten beside a smooth limiter, which is new for an hour: ${hour.algorithm.name}`, async () => {
    const clock = new FakeClock();
    const policies = { hour, second: smoothBursty({ permitsPerSecond: 100 }) };
    const options = { region: "eu", regions: ["eu"], reserve: 1 };
    const home = memoryStore({ clock });
    const limiter = RegionalLimiter.create("limit", policies, { ...options, home, clock });
    let granted = 0;
    for (let i = 0; i < 60; i++) {
      await clock.advance(2000);
      if (await limiter.for("ann").tryAcquire()) granted += 1;
      // each looks whether two keys are over
      for (let other = 0; other < 5; other++) await limiter.for(`${i} ${other}`).tryAcquire();
    }
    assert.is(granted, 10);
    await limiter.close();
  });
}

test("a key that is forgotten while its reserve is asked has one part, not two", async () => {
  const { clock, home, limiter } = await withLocal();
  void limiter.for("ann").tryAcquire();
  await clock.advance(10_000);
  void limiter.for("ann").tryAcquire(60);
  await clock.advance(1);
  for (let i = 0; i < 20; i++) void limiter.for(`${i}`).tryAcquire();
  void limiter.for("ann").tryAcquire(16);
  for (let t = 0; t < 5000; t += 50) {
    for (let i = 0; i < 10; i++) void limiter.for("ann").tryAcquire();
    await clock.advance(50);
  }
  const held = home.sent.filter(({ key }) => key.endsWith("[ann")).map(({ message }) => message[6]);
  assert.ok(held.length > 6);
  // it never gives its part back
  assert.equal(
    held,
    [...held].sort((a, b) => Number(a) - Number(b)),
  );
  await limiter.close();
});

test("close ends the calls that have not begun to wait yet", async () => {
  const { limiter } = open();
  const ended = errorOf((await limiter.reserve(20)).ready());
  await limiter.close();
  assert.instance(await ended, LimiterClosedError);
  for (const call of ["acquire", "reserve"] as const) {
    const { limiter, clock } = await withLocal();
    const ended = errorOf(limiter[call](20));
    void limiter.close();
    await clock.advance(100);
    assert.instance(await ended, LimiterClosedError);
  }
});

test("with a local store, shares and signals of a call count as without one", async () => {
  const { clock, limiter } = await withLocal({ order: fairShares() });
  for (let t = 0; t < 12_000; t += 50) {
    for (let i = 0; i < 20; i++) void limiter.tryAcquire();
    await clock.advance(50);
  }
  await clock.advance(1000);
  assert.ok(limiter.fraction > 0.8);
  assert.is(await limiter.acquire(1, { share: "a" }), 0);
  assert.is(await limiter.tryAcquire(1, { timeoutMs: 10, share: "b" }), true);
  const reason = new Error("gone");
  const signal = AbortSignal.abort(reason);
  assert.is(await errorOf(limiter.acquire(1, { signal })), reason);
  await limiter.close();
});

test("a message that arrives when the lease is over brings nothing back that others have by then", async () => {
  for (const startMs of [3500, 3600, 3700, 3800]) {
    for (const keptMs of [5700, 5800, 5900, 6850]) {
      const clock = new FakeClock();
      const home = new SlowHome(clock);
      let kept: (() => void)[] | undefined;
      const send = async (key: string, message: readonly string[]) => {
        if (kept !== undefined) await new Promise<void>((resolve) => kept?.push(resolve));
        return home.exchange(key, message);
      };
      const options = { clock, regions: ["eu", "us"] };
      const cut = { run: () => {}, exchange: send } as unknown as Store;
      const eu = open({ ...options, home: cut }).limiter;
      const us = open({ ...options, home: home.store, region: "us" }).limiter;
      for (const limiter of [eu, us]) await limiter.peek();
      await clock.advance(10_000);
      await busy(eu, clock, 4000);
      kept = [];
      await busy(eu, clock, startMs);
      for (let t = startMs; t < keptMs; t += 50) {
        await ask(eu, 50);
        await busy(us, clock, 50);
      }
      const sent = kept;
      kept = undefined;
      for (const go of sent) go();
      await clock.advance(1);
      const together = eu.fraction + us.fraction;
      assert.ok(together < 1.0001, `${together} after ${startMs} and ${keptMs} ms`);
      for (const limiter of [eu, us]) await limiter.close();
    }
  }
});

test("a region that gets a little with each reply also gets what is free", async () => {
  const { clock, home, limiter } = await slow();
  const key = "l:limit%regions[";
  let number = 0;
  const say = (held: number, want: number, waitedMs = 0) => {
    number += 1;
    const none = { answered: 0, since: 0, sent: 0, claim: 0, demand: 0, released: [] };
    const times = { leaseMs: 5500, gapMs: 1000, keepMs: 1000, pool: 0.9e9, rests: 0 };
    const amounts = { number, held, want, waitedMs };
    return home.exchange(
      key,
      writeMessage({ ...none, ...times, ...amounts, id: "b", region: "us" }),
    );
  };
  await say(0, 0.1e9);
  await say(0, 0.1e9, 1000);
  for (let left = 0.1e9, t = 0; t < 8000; t += 50) {
    await say(left, left);
    left -= 1000;
    await busy(limiter, clock, 50);
  }
  assert.ok(limiter.fraction > 0.8, `${limiter.fraction}`);
});

test("a home that throws at once is asked once in an interval", async () => {
  let asked = 0;
  const exchange = () => {
    asked += 1;
    throw new Error("down");
  };
  const { limiter, clock } = open({ home: { run: () => {}, exchange } as unknown as Store });
  await busy(limiter, clock, 10_000);
  // each time for the ledger as a whole, and for the limit
  assert.ok(asked >= 18 && asked <= 24, `${asked}`);
  await limiter.close();
});

for (const losesReplies of [false, true]) {
  test(`what a process with a longer window has used does not come back by one with a shorter one${losesReplies ? ", whose replies are lost" : ""}`, async () => {
    const clock = new FakeClock();
    const home = new SlowHome(clock);
    home.delayMs = 20;
    const long = slidingLog({ limit: 100, windowMs: 60_000 });
    const short = slidingLog({ limit: 20, windowMs: 10_000 });
    const regions = ["old", "used", "new"];
    const [old, used, other] = regions.map((region) => {
      const policy = region === "new" ? short : long;
      return open({ clock, home: home.store, region, regions }, policy).limiter;
    }) as [Limiter, Limiter, Limiter];
    const instants: number[] = [];
    /** Each calls once in so many ms. */
    const run = async (ms: number, rates: readonly (readonly [Limiter, number])[]) => {
      for (let t = 0; t < ms; t += 50) {
        for (const [limiter, everyMs] of rates) {
          if (t % everyMs === 0 && (await limiter.tryAcquire())) instants.push(clock.now());
        }
        await clock.advance(50);
      }
    };
    // until the home is old enough to give windows
    await run(130_000, [[used, 500]]);
    await run(70_000, [[used, 10_000]]);
    const three = [used, used, used].map((limiter) => [limiter, 50] as const);
    await run(2000, [...three, [old, 500]]);
    await run(1500, [
      [other, 50],
      [old, 500],
    ]);
    void used.close();
    await run(10_000, [
      [other, 100],
      [old, 500],
    ]);
    home.losesReplies = losesReplies;
    await run(1000, [
      [other, 100],
      [old, 500],
    ]);
    if (losesReplies) void other.close();
    home.losesReplies = false;
    await run(20_000, [[old, 50]]);
    const most = Math.max(
      ...instants.map((at) => instants.filter((one) => one > at - 60_000 && one <= at).length),
    );
    assert.ok(most > 60 && most <= 100, `${most} in 60 s`);
    void old.close();
    void other.close();
    await clock.advance(5000);
  });
}

test("a clock may show less than 0", async () => {
  const inner = new FakeClock();
  const clock: Clock = {
    now: () => inner.now() - 1e9,
    wakeAt: (timeMs, wake) => inner.wakeAt(timeMs + 1e9, wake),
  };
  const { limiter } = open({ clock, home: memoryStore({ clock: inner }) });
  await limiter.peek();
  await inner.advance(10_000);
  await busy(limiter, inner, 4000);
  assert.ok(limiter.fraction > 0.8, `${limiter.fraction}`);
  await limiter.close();
});

test("a home that names 150 000 members is used, and so is the next reply", async () => {
  const clock = new FakeClock();
  const home = new SlowHome(clock);
  const more: string[] = [];
  const exchange = async (key: string, message: readonly string[]) =>
    (await home.exchange(key, message)) + (more.pop() ?? "");
  const { limiter } = open({ clock, home: { run: () => {}, exchange } as unknown as Store });
  await limiter.peek();
  await clock.advance(10_000);
  await busy(limiter, clock, 1000);
  const rows = Array.from({ length: 150_000 }, (_, i) => `m${i} us 1 0 0 0 0 0 0 0 9 0\n`);
  more.push(rows.join(""));
  await busy(limiter, clock, 5000);
  assert.is(more.length, 0);
  assert.ok(limiter.fraction > 0.8, `${limiter.fraction}`);
  await limiter.close();
});

test("a process that reads its part after close sends nothing", async () => {
  const { limiter, clock } = open();
  const home = new SlowHome(clock);
  const other = open({ home: home.store, clock }).limiter;
  await other.close();
  assert.ok(other.fraction < 0.04);
  assert.is(home.sent.length, 0);
  await limiter.close();
});

test("parts that come used leave a full log and a full window full, whatever is lost in rounding", () => {
  const windows = { limit: 60, windowMs: 600 };
  for (const whole of [slidingLog(windows), slidingWindow(windows)]) {
    for (let i = 1; i <= 400; i++) {
      const parts = [0.01, 0.01 + i * 0.000123, 0.1 + i * 0.000321];
      const state = openPolicyState(listPolicies(share(whole, 0.01)), 0, 0);
      state.take(0, 0.6);
      for (const [step, to] of parts.entries()) {
        const from = parts[step - 1] ?? to;
        move(state, [whole], { from, to, fresh: 0, base: 0 }, (step + 1) * 1000, 0);
      }
      const [used = 0] = state.deficit(100_000);
      const most = 60 * (parts.at(-1) ?? 0);
      assert.ok(Math.abs(used - most) < 1e-6, `${used} of ${most} permits are used after ${parts}`);
    }
  }
});

test("a debt is neither forgiven nor grows while parts move to and fro", () => {
  const windows = { limit: 60, windowMs: 600 };
  const wholes = {
    log: slidingLog(windows),
    "sliding window": slidingWindow(windows),
    "fixed window": fixedWindow(windows),
    bucket: tokenBucket({ capacity: 60, refill: 100, everyMs: 1000 }),
    bursty: smoothBursty({ permitsPerSecond: 100 }),
    "warming up": smoothWarmingUp({ permitsPerSecond: 100, warmupMs: 1000 }),
  };
  for (const [title, whole] of Object.entries(wholes)) {
    for (const [first, second] of [
      [0.3, 0.6],
      [0.5, 0.51],
      [0.9, 0.1],
    ] as const) {
      const state = openPolicyState(listPolicies(share(whole, first)), 0, 0);
      for (let i = 0; i < 10; i++) state.settle(0, 50 * first);
      const before = state.earliest(0, 1e-6);
      for (let i = 0; i < 20; i++) {
        move(state, [whole], { from: first, to: second, fresh: 0, base: 0 }, i, 0);
        move(state, [whole], { from: second, to: first, fresh: 0, base: 0 }, i, 0);
      }
      const after = state.earliest(20, 1e-6);
      // a log does not say how full its last window is
      const isNear = after >= before * 0.98 && after <= before + 600_000;
      assert.ok(
        isNear,
        `${title}: ${before} µs have become ${after} between ${first} and ${second}`,
      );
    }
  }
});

test("a region that is charged more than its log holds is served again, though demand swings", async () => {
  await seeded(1, async () => {
    const policy = slidingLog({ limit: 100, windowMs: 5000 });
    const world = new World(policy, { regions: ["eu", "us"] });
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    assert.ok(eu && us);
    for (const limiter of [eu, us]) await limiter.peek();
    await world.clock.advance(12_000);
    let granted = 0;
    for (let ms = 0; ms < 150_000; ms += 200) {
      for (let i = 0; i < 8; i++) {
        if ((await eu.tryAcquire()) && ms > 10_000) granted += 1;
        if (ms % 8000 < 4000) await us.tryAcquire();
      }
      // 400 permits: 40 s at half the rate
      for (let i = 0; i < 5 && ms === 10_000; i++) await eu.charge(80);
      await world.clock.advance(200);
    }
    assert.ok(granted > 500, `${granted} permits were granted after the charge`);
    await world.close();
  });
});

test("permits that are given back are no demand", async () => {
  const demandOf = async (givesBack: boolean) => {
    const { clock, home, limiter } = await slow();
    await busy(limiter, clock, 3000);
    for (let ms = 0; ms < 5000; ms += 50) {
      await limiter.tryAcquire(5);
      if (givesBack) await limiter.refund(5);
      await clock.advance(50);
    }
    const demand = Number(home.sent.at(-1)?.message[8]);
    await limiter.close();
    return demand;
  };
  const [without, demand] = [await demandOf(false), await demandOf(true)];
  assert.ok(demand < 1.2 * without, `${demand} is asked for, without refunds ${without}`);
});

test("closing makes one error for all keys: 100 000 stack traces would hold the process for half a second", async () => {
  const { clock, limiter } = open();
  const calls = ["a", "b"].map(async (key) => {
    await limiter.for(key).acquire(10);
    return errorOf(limiter.for(key).acquire(10));
  });
  await clock.advance(0);
  const closed = limiter.close();
  const [one, other] = await Promise.all(calls);
  assert.instance(one, LimiterClosedError);
  assert.is(one, other);
  await closed;
});

test.run();
