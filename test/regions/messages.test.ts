/** The messages between a member and the home: how many there are, which comes first, and which replies count. */
import { type Policies, slidingLog, slidingWindow, tokenBucket } from "smooth-limiter";
import { RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { divide } from "../../src/regions/division.ts";
import { exchange } from "../../src/stores/ledger.ts";
import { seeded } from "../support/random.ts";
import { suite } from "../support/suite.ts";

const messages = suite("regions, messages", { timeoutMs: 30_000 });
/** Intervals are of random length: the same in each run. */
const test = (title: string, run: () => Promise<void>) => messages(title, () => seeded(3, run));

const START_MS = 1_750_000_000_000;
const REGIONS = ["eu", "us", "asia"];
const bucket = tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 });
const never = () => new Promise<never>(() => {});

interface Sent {
  readonly key: string;
  readonly region: string;
  readonly atMs: number;
  readonly message: readonly string[];
}

/** What a message says of what was released: the number of the message that said so first, parts, and ms. */
const releasedIn = ({ message }: Sent) =>
  message.slice(16).flatMap((_, i, all) => (i % 3 === 0 ? [all.slice(i, i + 3)] : []));

/** A home that several regions reach, whose replies the test delays, loses or changes. */
class Home {
  readonly clock = new FakeClock();
  readonly sent: Sent[] = [];
  readonly #records = new Map<string, string>();
  /** How long a reply takes; or what comes instead of one. */
  delayMs = (_sent: Sent): number => 20;
  before = (_sent: Sent): Promise<unknown> | undefined => undefined;
  change = (reply: string): string => reply;

  readonly store = {
    run: () => {},
    exchange: async (key: string, message: readonly string[]) => {
      const sent = { key, region: message[1] ?? "", atMs: this.clock.now(), message };
      this.sent.push(sent);
      await this.before(sent);
      const now = START_MS + Math.floor(this.clock.now());
      const { reply, record } = exchange(this.#records.get(key), message, now);
      if (record !== undefined) this.#records.set(key, record);
      const delayMs = this.delayMs(sent);
      if (delayMs > 0) {
        await new Promise<void>((resolve) => {
          this.clock.wakeAt(this.clock.now() + delayMs, resolve);
        });
      }
      return isRoot(sent) ? reply : this.change(reply);
    },
  } as unknown as Store;

  open(region = "eu", options: Partial<RegionalOptions> = {}, policy: Policies = bucket) {
    const all = { regions: REGIONS, ...options, home: this.store, clock: this.clock, region };
    return RegionalLimiter.create("limit", policy, all);
  }

  /** How many calls a process has made: messages that are sent together are one. */
  calls(region = "eu"): number {
    return this.callTimes(region).length;
  }

  callTimes(region: string): readonly number[] {
    const all = this.sent.filter((each) => each.region === region);
    return [...new Set(all.map(({ atMs }) => atMs))];
  }
}

/** Whether the message concerns the record of the limit as a whole. */
const isRoot = ({ key }: Pick<Sent, "key">) => key.endsWith("%regions");

type Asked = Pick<RegionalLimiter, "tryAcquire" | "fraction">;

/** Each limiter is asked for 60 permits in 50 ms. @param until ends it early. @returns for how long, ms */
async function ask(clock: FakeClock, limiters: readonly Asked[], ms: number, until = () => false) {
  let t = 0;
  for (; t < ms && !until(); t += 50) {
    for (const limiter of limiters) for (let i = 0; i < 12; i++) await limiter.tryAcquire(5);
    await clock.advance(50);
  }
  return t;
}

/** @returns after how many ms of demand the limiter has most of the limit */
function msUntilServed({ clock }: Home, limiter: Asked): Promise<number> {
  return ask(clock, [limiter], 30_000, () => limiter.fraction > 0.9);
}

async function end({ clock }: Home, ...limiters: RegionalLimiter[]): Promise<void> {
  const closed = Promise.all(limiters.map((limiter) => limiter.close()));
  await clock.advance(5000);
  await closed;
}

/** It has nothing, and wants nothing. */
const isGoodbye = ({ key, message }: Sent) =>
  !isRoot({ key }) && message[6] === "0" && message[7] === "0";

const log = slidingLog({ limit: 600, windowMs: 60_000 });

/** One region has most of a log, and has used a third of it. */
async function used() {
  const home = new Home();
  const eu = home.open("eu", { regions: ["eu"] }, log);
  await eu.peek();
  await home.clock.advance(130_000);
  await msUntilServed(home, eu);
  for (let i = 0; i < 200; i++) assert.is(await eu.tryAcquire(), true);
  const lost = () => Promise.reject(new Error("lost"));
  /** Until it gives its part back. */
  const untilIdle = async () => {
    for (let t = 0; t < 20_000 && !home.sent.some(isGoodbye); t += 50) await home.clock.advance(50);
  };
  return { home, eu, lost, untilIdle };
}

test("after an outage longer than a lease nobody has waited: the home may have gone back to a promise", async () => {
  const home = new Home();
  const eu = home.open();
  const waited = () => home.sent.filter((sent) => !isRoot(sent)).map(({ message }) => message[9]);
  await eu.peek();
  await home.clock.advance(10_000);
  // it has just learned what is promised to it
  await ask(home.clock, [eu], 5000, () => waited().includes("333"));
  home.before = () => Promise.reject(new Error("away"));
  const before = waited().length;
  await ask(home.clock, [eu], 4000);
  assert.ok(
    waited()
      .slice(before)
      .map(Number)
      .every((ms) => ms > 0),
  );
  await ask(home.clock, [eu], 4000);
  assert.is(waited().at(-1), "0");
  await end(home, eu);
});

test("what was released is said with the number of one message until a reply comes, and then no more", async () => {
  const home = new Home();
  const [eu, us] = ["eu", "us"].map((region) => home.open(region, { regions: ["eu", "us"] }));
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await home.clock.advance(10_000);
  await msUntilServed(home, eu);
  const releases = () =>
    home.sent.filter((sent) => sent.region === "eu" && releasedIn(sent).length > 0);
  // Europe gives a part away, and hears no reply to the message that says so
  home.change = (reply) => {
    if (releases().length > 0) throw new Error("lost");
    return reply;
  };
  await ask(home.clock, [us], 4000);
  const lost = releases().map(releasedIn);
  assert.ok(lost.length > 2);
  const [first = []] = lost;
  for (const said of lost) {
    for (const [number, parts] of first)
      assert.ok(
        said.some((one) => one[0] === number && one[1] === parts),
        `${said} after ${first}`,
      );
  }
  home.change = (reply) => reply;
  await ask(home.clock, [us], 2000);
  const before = home.sent.length;
  for (const limiter of [eu, us]) await ask(home.clock, [limiter], 3000);
  const later = home.sent.slice(before).filter((sent) => releasedIn(sent).length > 0);
  assert.ok(later.length > 0);
  for (const sent of later)
    for (const [number] of releasedIn(sent)) assert.is(number, sent.message[2]);
  await end(home, eu, us);
});

test("who gives its part back says for how long each piece rests, with a margin for clocks that run fast", async () => {
  const { home, eu, untilIdle } = await used();
  const usedMs = home.clock.now();
  await untilIdle();
  const released = releasedIn(home.sent.find(isGoodbye) as Sent);
  const rests = released.map(([, , restMs]) => Number(restMs));
  // the last one was used just before
  const backMs = 60_000 - (home.clock.now() - usedMs);
  assert.ok(Math.max(...rests) >= backMs * 1.01, `${rests} of ${backMs}`);
  assert.ok(rests.includes(0));
  await end(home, eu);
});

test("who has given its part back in a message that was lost has it again, though it is busy before it can repeat that", async () => {
  const { home, eu, lost, untilIdle } = await used();
  home.before = (sent) => (isGoodbye(sent) ? lost() : undefined);
  await untilIdle();
  await ask(home.clock, [eu], 2000);
  home.before = () => undefined;
  await ask(home.clock, [eu], 4000);
  // a third of it rests
  assert.ok(eu.fraction > 0.5, `${eu.fraction}`);
  await end(home, eu);
});

test("who did not hear for a lease that it has given its part back shows the home nothing that was forgotten", async () => {
  const { home, eu, untilIdle } = await used();
  home.change = (reply) => {
    if (isSilent) throw new Error("lost");
    return reply;
  };
  let isSilent = true;
  await untilIdle();
  // it is busy again before its row would be over
  await ask(home.clock, [eu], 8000);
  isSilent = false;
  await ask(home.clock, [eu], 4000);
  assert.ok(eu.fraction > 0.5, `${eu.fraction}`);
  await end(home, eu);
});

test("a home that takes three seconds for each reply is not sent more and more messages", async () => {
  const home = new Home();
  const eu = home.open();
  await eu.peek();
  await home.clock.advance(10_000);
  await msUntilServed(home, eu);
  // no two replies take equally long
  home.delayMs = () => 3000 + ((home.sent.length * 7) % 40);
  for (let i = 0; i < 6; i++) {
    const before = home.sent.length;
    await ask(home.clock, [eu], 5000);
    const messages = home.sent.length - before;
    assert.ok(messages <= 10, `${messages} messages in 5 s`);
  }
  // what it says is used while the lease lasts
  assert.is(eu.state, "ready");
  assert.ok(eu.stats.outages <= 2, `${eu.stats.outages} outages`);
  await end(home, eu);
});

test("after slow replies and a short silence a region has its part again within a lease and two intervals", async () => {
  const home = new Home();
  const policy = tokenBucket({ capacity: 60, refill: 60, everyMs: 1000 });
  const eu = home.open("eu", { regions: ["eu", "us"] }, policy);
  const asked = async (ms: number, until = () => false) => {
    let t = 0;
    for (; t < ms && !until(); t += 100) {
      for (let i = 0; i < 10; i++) await eu.tryAcquire();
      await home.clock.advance(100);
    }
    return t;
  };
  await asked(20_000);
  home.delayMs = () => 3000;
  await asked(4500);
  home.before = never;
  await asked(600);
  home.before = () => undefined;
  home.delayMs = () => 10;
  const ms = await asked(30_000, () => eu.fraction > 0.5);
  assert.ok(ms < 7500, `${ms} ms`);
  await end(home, eu);
});

test("a message that fails after a later one was answered is no outage", async () => {
  const home = new Home();
  const eu = home.open();
  await eu.peek();
  await home.clock.advance(10_000);
  await msUntilServed(home, eu);
  await home.clock.advance(2500);
  let isFirst = true;
  home.before = (sent) => {
    if (!isRoot(sent) || !isFirst) return undefined;
    isFirst = false;
    return new Promise((_, reject) => {
      home.clock.wakeAt(home.clock.now() + 3500, () => reject(new Error("reconnected")));
    });
  };
  await home.clock.advance(60_000);
  assert.not(isFirst);
  assert.is(eu.state, "ready");
  await end(home, eu);
});

test("a home with more hot keys than it answers in two intervals: all have parts, and it is not asked more often", async () => {
  const home = new Home();
  const eu = home.open();
  const keys = Array.from({ length: 230 }, (_, i) => eu.for(`${i}`));
  let freeMs = 0;
  home.delayMs = () => {
    freeMs = Math.max(freeMs, home.clock.now()) + 10;
    return freeMs - home.clock.now();
  };
  const have = (limiters: readonly Asked[]) =>
    limiters.filter(({ fraction }) => fraction > 0.5).length;
  const asked = async (limiters: readonly Asked[], ms: number) => {
    for (let t = 0; t < ms; t += 500) {
      for (const limiter of limiters) for (let i = 0; i < 40; i++) await limiter.tryAcquire(10);
      await home.clock.advance(500);
    }
  };
  await asked(keys, 20_000);
  assert.ok(have(keys) > 200, `${have(keys)} keys have a part`);
  assert.is(eu.state, "ready");
  const before = home.sent.length;
  await asked(keys, 10_000);
  assert.ok(have(keys) > 200, `${have(keys)} keys have a part`);
  // three in an interval where it has no others
  assert.ok(home.sent.length - before < 1100, `${home.sent.length - before} messages`);
  await end(home, eu);
});

test("a key whose record hangs while others are answered is asked more and more seldom, and goes on half a minute after it is back", async () => {
  const home = new Home();
  const eu = home.open();
  await eu.peek();
  await home.clock.advance(10_000);
  await msUntilServed(home, eu);
  home.before = (sent) => (isRoot(sent) ? undefined : never());
  const before = home.sent.length;
  await ask(home.clock, [eu], 20_000);
  const asked = home.sent.slice(before).filter((sent) => !isRoot(sent));
  assert.ok(asked.length <= 6, `asked ${asked.length} times in 20 s`);
  await ask(home.clock, [eu], 300_000);
  assert.ok(home.sent.length - before < 250, `${home.sent.length - before} messages in 320 s`);
  assert.is(eu.stats.outages, 1);
  home.before = () => undefined;
  const ms = await msUntilServed(home, eu);
  assert.ok(ms < 35_000, `it goes on after ${ms} ms`);
  assert.is(eu.state, "ready");
  await end(home, eu);
});

test("after a silence of the home all keys have their parts soon, also those that became hot meanwhile", async () => {
  for (const silenceMs of [9000, 20_000, 34_000, 60_000]) {
    const home = new Home();
    const eu = home.open();
    await eu.peek();
    await home.clock.advance(10_000);
    const keys = Array.from({ length: 8 }, (_, i) => eu.for(`${i}`));
    await ask(home.clock, keys.slice(0, 2), 5000);
    home.before = never;
    // no two keys send at the same instants
    for (let hot = 3; hot < 8; hot++) await ask(home.clock, keys.slice(0, hot), 750);
    await ask(home.clock, keys, silenceMs - 3750);
    home.before = () => undefined;
    // a reply, or two intervals without one; then the promise, which is kept for an interval
    const ms = await ask(home.clock, keys, 40_000, () => keys.every((key) => key.fraction > 0.9));
    assert.ok(ms < 4500, `${ms} ms after ${silenceMs} ms`);
    await end(home, eu);
  }
});

test("a process makes at most three calls an interval, also while demand grows everywhere", async () => {
  const home = new Home();
  const limiters = REGIONS.map((region) =>
    home.open(region, {}, tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 })),
  );
  for (const limiter of limiters) await limiter.peek();
  await home.clock.advance(10_000);
  home.sent.length = 0;
  for (let t = 0; t < 60_000; t += 50) {
    for (const [i, limiter] of limiters.entries()) {
      const requests = Math.floor(Math.exp((t / 3000 + i * 0.7) % 3));
      for (let k = 0; k < requests; k++) await limiter.tryAcquire();
    }
    await home.clock.advance(50);
  }
  for (const region of REGIONS) {
    const times = home.callTimes(region);
    assert.ok(times.length <= 180, `${times.length} calls in 60 s`);
    // two at once, and three more that are a third of an interval apart
    const shortest = Math.min(...times.slice(4).map((time, i) => time - (times[i] ?? 0)));
    assert.ok(shortest > 999, `five calls in ${shortest} ms`);
  }
  await end(home, ...limiters);
});

test("ten busy processes make at most 30 calls a second, however their demand moves", async () => {
  const home = new Home();
  const regions = Array.from({ length: 10 }, (_, i) => `r${i}`);
  const limiters = regions.map((region) => home.open(region, { regions }));
  const owed = regions.map(() => 0);
  const move = async (ms: number) => {
    let demands: number[] = [];
    for (let t = 0; t < ms; t += 10) {
      if (t % 700 === 0) demands = regions.map(() => Math.random() * 300);
      for (const [i, limiter] of limiters.entries()) {
        let calls = (owed[i] ?? 0) + (demands[i] ?? 0) / 100;
        for (; calls >= 1; calls--) await limiter.tryAcquire();
        owed[i] = calls;
      }
      await home.clock.advance(10);
    }
  };
  await move(14_000);
  home.sent.length = 0;
  await move(21_000);
  const calls = regions.reduce((sum, region) => sum + home.calls(region), 0) / 21;
  assert.ok(calls <= 30, `${calls} calls a second`);
  await end(home, ...limiters);
});

test("sixty keys whose demand varies share at most three calls in an interval", async () => {
  const home = new Home();
  const eu = home.open("eu", {}, slidingWindow({ limit: 60, windowMs: 60_000 }));
  await eu.peek();
  await home.clock.advance(70_000);
  for (let t = 0; t < 20_000; t += 20) {
    if (t === 10_000) home.sent.length = 0;
    for (let i = 0; i < 6; i++) {
      await eu.for(`${Math.floor(Math.random() * 60)}`).tryAcquire(4);
    }
    await home.clock.advance(20);
  }
  assert.ok(home.calls() <= 30, `${home.calls()} calls in 10 s`);
  await end(home, eu);
});

test("keys that became hot one after the other share about one call in an interval", async () => {
  const home = new Home();
  home.delayMs = () => 1;
  const eu = home.open("eu", { regions: ["eu", "us"] });
  const keys = Array.from({ length: 50 }, (_, i) => eu.for(`${i}`));
  for (let t = 0; t < 30_000; t += 10) {
    if (t === 20_000) home.sent.length = 0;
    for (const [i, key] of keys.entries()) if (t >= i * 73) await key.tryAcquire();
    await home.clock.advance(10);
  }
  assert.ok(home.calls() <= 20, `${home.calls()} calls in 10 s`);
  await end(home, eu);
});

test("a key that becomes hot has its part after about 1.2 s, also if other keys make a call just then", async () => {
  for (let offMs = 0; offMs < 1000; offMs += 50) {
    const home = new Home();
    const eu = home.open();
    await eu.peek();
    await home.clock.advance(10_000);
    await ask(home.clock, [eu], 5000 + offMs);
    const ann = eu.for("ann");
    const ms = await ask(home.clock, [eu, ann], 10_000, () => ann.fraction > 0.9);
    assert.ok(ms <= 1700, `${ms} ms`);
    await end(home, eu);
  }
});

test("callers that wait for a key are demand in its first message, whatever calls other keys make just then", async () => {
  for (let offMs = 0; offMs < 1000; offMs += 20) {
    const home = new Home();
    const [eu, us] = [home.open("eu"), home.open("us")];
    for (const limiter of [eu, us]) await limiter.peek();
    await home.clock.advance(10_000);
    const busy = [eu, us.for("ann")];
    await ask(home.clock, busy, 5000 + offMs);
    let waiting = 30;
    for (let i = waiting; i > 0; i--) {
      void eu
        .for("ann")
        .acquire(10)
        .then(() => {
          waiting -= 1;
        });
    }
    const ms = await ask(home.clock, busy, 10_000, () => waiting === 0);
    assert.ok(ms <= 2000, `${ms} ms`);
    await end(home, eu, us);
  }
});

test("a part that others lack is given without a pause", async () => {
  for (let offMs = 0; offMs < 1000; offMs += 50) {
    const home = new Home();
    const [eu, us] = [home.open("eu"), home.open("us")];
    for (const limiter of [eu, us]) await limiter.peek();
    await home.clock.advance(10_000);
    await ask(home.clock, [eu], 5000 + offMs);
    const ms = await ask(home.clock, [eu, us], 10_000, () => us.fraction > 0.4);
    assert.ok(ms <= 1300, `${ms} ms`);
    await end(home, eu, us);
  }
});

test("a reply that comes just in time is used, whatever calls other keys make meanwhile", async () => {
  const home = new Home();
  const eu = home.open();
  await eu.peek();
  await home.clock.advance(10_000);
  const keys = Array.from({ length: 20 }, (_, i) => eu.for(`${i}`));
  await ask(home.clock, keys, 5000);
  home.delayMs = () => 1900;
  for (let i = 0; i < 20; i++) {
    // each becomes hot at another time
    await ask(home.clock, [...keys, eu.for(`later ${i}`)], 350);
  }
  await ask(home.clock, keys, 10_000);
  assert.is(eu.stats.outages, 0);
  for (const key of keys) assert.ok(key.fraction > 0.9, `${key.fraction}`);
  await end(home, eu);
});

for (const delayMs of [0, 300, 1500]) {
  test(`a region whose replies take ${delayMs} ms has its part soon, since an old home is known before its first key`, async () => {
    const home = new Home();
    const us = home.open("us");
    await us.peek();
    await home.clock.advance(3_600_000);
    home.delayMs = () => delayMs;
    const eu = home.open();
    const ms = await msUntilServed(home, eu);
    // 0.15 intervals, a reply for the home, a reply for the key, and an interval from when the promise was asked for
    assert.ok(ms <= 1500 + 3 * delayMs, `${ms} ms`);
    await end(home, eu, us);
  });
}

test("a region that started while an old home was away has its part about 1.2 s after it is busy", async () => {
  for (const wasBusy of [false, true]) {
    const home = new Home();
    const us = home.open("us");
    await us.peek();
    await home.clock.advance(3_600_000);
    home.before = () => Promise.reject(new Error("away"));
    const eu = home.open();
    await eu.peek();
    await ask(home.clock, wasBusy ? [eu] : [], 10_000);
    home.before = () => undefined;
    if (!wasBusy) await home.clock.advance(60_000);
    const ms = await msUntilServed(home, eu);
    assert.ok(ms <= (wasBusy ? 2500 : 1700), `${ms} ms`);
    await end(home, eu, us);
  }
});

test("a key has its part, although the node that has the limit's own record hangs from the start", async () => {
  const home = new Home();
  home.before = (sent) => (isRoot(sent) ? never() : undefined);
  const eu = home.open();
  const ms = await msUntilServed(home, eu);
  // for its record the home is new
  assert.ok(ms < 11_000, `${ms} ms`);
  home.sent.length = 0;
  await ask(home.clock, [eu], 10_000);
  const sent = home.sent.filter((each) => !isRoot(each)).length;
  assert.ok(sent >= 9, `${sent} messages in 10 s`);
  await end(home, eu);
});

test("one key whose record is broken is one outage, until it is deleted or its callers are gone", async () => {
  for (const isDeleted of [true, false]) {
    const home = new Home();
    const isBroken = ({ key }: Sent) => key.endsWith("[broken");
    home.before = (sent) => (isBroken(sent) ? Promise.reject(new Error("WRONGTYPE")) : undefined);
    const eu = home.open();
    const [ann, broken] = [eu.for("ann"), eu.for("broken")];
    await ask(home.clock, [ann, broken], 20_000);
    assert.is(eu.stats.outages, 1);
    assert.is(eu.state, "unavailable");
    if (isDeleted) home.before = () => undefined;
    await ask(home.clock, isDeleted ? [ann, broken] : [ann], 10_000);
    assert.is(eu.stats.outages, 1);
    assert.is(eu.state, "ready");
    await end(home, eu);
  }
});

for (const [title, fails] of [
  ["refuses", () => Promise.reject(new Error("away"))],
  ["hangs", never],
] as const) {
  test(`an outage in which a home ${title} ends, although the keys that had it are no longer hot then`, async () => {
    const home = new Home();
    const eu = home.open();
    await eu.peek();
    await home.clock.advance(1000);
    home.before = fails;
    await ask(home.clock, [eu], 3000);
    assert.is(eu.state, "unavailable");
    await home.clock.advance(20_000);
    home.before = () => undefined;
    await home.clock.advance(60_000);
    // the reserve serves it
    assert.is(await eu.tryAcquire(), true);
    await home.clock.advance(100);
    assert.is(eu.state, "ready");
    home.sent.length = 0;
    await home.clock.advance(60_000);
    assert.is(await eu.tryAcquire(), true);
    assert.equal(home.sent, []);
    await end(home, eu);
  });
}

test("an outage at the start ends without a hot key; until then calls ask the home about twice a minute", async () => {
  const home = new Home();
  home.before = () => Promise.reject(new Error("away"));
  const eu = home.open();
  const seldom = async () => {
    for (let seconds = 0; seconds < 120; seconds++) {
      assert.is(await eu.tryAcquire(), true);
      await home.clock.advance(1000);
    }
  };
  await seldom();
  assert.is(eu.state, "unavailable");
  assert.is(home.sent.length, 4);
  home.before = () => undefined;
  await seldom();
  assert.is(eu.state, "ready");
  assert.is(home.sent.length, 5);
  await end(home, eu);
});

test("an outage of a key whose record is broken ends with the callers of this key, also if there are no others", async () => {
  const home = new Home();
  home.before = (sent) => (isRoot(sent) ? undefined : Promise.reject(new Error("WRONGTYPE")));
  const eu = home.open();
  await ask(home.clock, [eu.for("broken")], 5000);
  assert.is(eu.state, "unavailable");
  await home.clock.advance(20_000);
  assert.is(eu.state, "ready");
  assert.is(eu.stats.outages, 1);
  await end(home, eu);
});

test("an error that comes too late, for a key that has gone, is no outage", async () => {
  const home = new Home();
  const eu = home.open();
  await eu.peek();
  await home.clock.advance(10_000);
  let reject = (_error: Error) => {};
  home.before = ({ key }) =>
    key.endsWith("[gone")
      ? new Promise((_resolve, fail) => {
          reject = fail;
        })
      : undefined;
  const [ann, gone] = [eu.for("ann"), eu.for("gone")];
  await ask(home.clock, [ann, gone], 1000);
  await ask(home.clock, [ann], 60_000);
  assert.is(eu.state, "ready");
  reject(new Error("timeout"));
  await ask(home.clock, [ann], 1000);
  assert.is(eu.state, "ready");
  assert.is(eu.stats.outages, 1);
  await end(home, eu);
});

for (const head of [
  "0.5 0.5",
  "0.5 0",
  " 0",
  "5",
  "-1 0",
  "0x10 0",
  "1e3 0",
  "900000001 0",
  "5 6",
  "5 ",
]) {
  test(`a reply that begins with ${JSON.stringify(head)} is none`, async () => {
    const home = new Home();
    home.change = (reply) => reply.replace(/^.*/, head);
    const eu = home.open();
    await ask(home.clock, [eu], 15_000);
    assert.is(eu.state, "unavailable");
    assert.is(eu.fraction.toFixed(3), "0.033");
    await end(home, eu);
  });
}

for (const [title, weights] of [
  ["the greatest numbers", [1.7e308, 1.7e308, 1.7e308]],
  ["nearly 0", [1e-301, 1e-301, 1e-301]],
  ["the least numbers", [5e-324, 5e-324, 5e-324]],
] as const) {
  test(`weights that are ${title} divide the pool equally`, async () => {
    const byName = new Map(REGIONS.map((region, i) => [region, weights[i] ?? 0]));
    const row = {
      number: 1,
      held: 0,
      gift: 0,
      giftFresh: 0,
      promised: 0,
      promisedFresh: 0,
      keepMs: 0,
      brought: 0,
      broughtFresh: 0,
      heard: 0,
    };
    const rows = ["us", "asia", "asia"].map((region, i) => ({
      ...{ ...row, id: `${i}`, region, want: 0, demand: 2e9, lapse: 1e9 },
    }));
    const me = { id: "me", region: "eu", demand: 2e9 };
    assert.is(divide(rows, me, 900_000_000, byName).target, 300_000_000);
  });
}

test("regions whose weights are next to nothing have what the others leave", async () => {
  const weights = new Map([
    ["eu", 1e-300],
    ["us", 1e-310],
    ["asia", 1e300],
  ]);
  const row = {
    number: 1,
    held: 0,
    gift: 0,
    giftFresh: 0,
    promised: 0,
    promisedFresh: 0,
    keepMs: 0,
    brought: 0,
    broughtFresh: 0,
    heard: 0,
  };
  const rows = [
    { ...row, id: "us", region: "us", want: 0, demand: 2e9, lapse: 1e9 },
    { ...row, id: "asia", region: "asia", want: 0, demand: 1e8, lapse: 1e9 },
  ];
  const me = { id: "eu", region: "eu", demand: 2e9 };
  assert.is(divide(rows, me, 900_000_000, weights).target, 400_000_000);
});

messages.run();
