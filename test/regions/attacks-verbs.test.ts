/** Faults that an attack on the verbs, the store in the region and the adapters found. */
import { execFileSync } from "node:child_process";
import {
  allOf,
  fairShares,
  leakyBucket,
  type Policies,
  smoothBursty,
  tokenBucket,
} from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";
import {
  RegionalLimiter,
  type RegionalOptions,
  StoreUnavailableError,
} from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { move, partsOf } from "../../src/regions/move.ts";
import { Part } from "../../src/regions/part.ts";
import { listPolicies } from "../../src/stores/policies.ts";
import { openPolicyState } from "../../src/stores/state/several.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, attacks on verbs");

const bucket: Policies = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });

function open(options: Partial<RegionalOptions> = {}, policy = bucket, name = "limit") {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const all = { home, clock, region: "eu", regions: ["eu", "us", "asia"], ...options };
  return { clock, home, limiter: RegionalLimiter.create(name, policy, all) };
}

/** A region with a store of its own, on a home that is 10 s old. */
async function withLocal(options: Partial<RegionalOptions> = {}, policy = bucket) {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const { limiter } = open({ ...options, home, local, clock }, policy);
  await limiter.peek();
  await clock.advance(10_000);
  return { clock, home, local, limiter };
}

/** Without a store. */
async function alone(options: Partial<RegionalOptions> = {}, policy = bucket) {
  const opened = open(options, policy);
  await opened.limiter.peek();
  await opened.clock.advance(10_000);
  return opened;
}

type Limiter = ReturnType<typeof open>["limiter"];

/** @returns how many requests were granted */
async function busy(
  limiter: Limiter,
  clock: FakeClock,
  ms: number,
  requests = 20,
): Promise<number> {
  let granted = 0;
  for (let t = 0; t < ms; t += 50) {
    for (let i = 0; i < requests; i++) if (await limiter.tryAcquire()) granted += 1;
    await clock.advance(50);
  }
  return granted;
}

const errorOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error) => error,
  );

/** Counts those of the promises that have resolved. */
function counted(promises: readonly Promise<unknown>[]) {
  const count = { done: 0, failed: 0 };
  for (const promise of promises) {
    promise.then(
      () => {
        count.done += 1;
      },
      () => {
        count.failed += 1;
      },
    );
  }
  return count;
}

const times = <T>(n: number, make: () => T): T[] => Array.from({ length: n }, make);

// -- callers that wait: with a store in the region ---------------------------------------------

test("with a local store, callers that came at once are served as the part grows", async () => {
  const { clock, limiter } = await withLocal();
  const calls = counted(times(300, () => limiter.acquire()));
  await clock.advance(5000);
  // the reserve lets 10 a second through, the part 270: 59 of 300 were served
  assert.is(calls.done, 300);
  await limiter.close();
});

test("with a local store, callers wait where the wait is shorter, also if many come at once", async () => {
  const { clock, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  assert.ok(limiter.fraction > 0.89);
  const calls = counted(times(500, () => limiter.acquire()));
  await clock.advance(3000);
  // 270 a second; those whose wait was compared with the same old answer of the reserve wait for 27 s
  assert.is(calls.done, 500);
  await limiter.close();
});

test("with a local store and no reserve, a caller does not wait for a reserve of 0", async () => {
  const { clock, limiter } = await withLocal(
    { reserve: 0 },
    smoothBursty({ permitsPerSecond: 100 }),
  );
  const calls = counted(times(3, () => limiter.acquire()));
  await clock.advance(3_600_000);
  assert.is(calls.done, 3);
  await limiter.close();
});

test("while the home is away, callers that waited for the part get the reserve", async () => {
  const { clock, home, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  home.fail();
  while (await limiter.tryAcquire());
  const calls: Promise<unknown>[] = [];
  for (let i = 0; i < 1500; i++) {
    calls.push(limiter.acquire());
    await clock.advance(0);
  }
  const count = counted(calls);
  await clock.advance(60_000);
  const before = count.done;
  await clock.advance(60_000);
  // new callers are served at once meanwhile, and the reserve has 10 a second
  assert.is((await limiter.decide()).allowed, true);
  assert.ok(count.done === 1500 || count.done > before, `${before} and ${count.done} of 1500`);
  await limiter.close();
});

// -- reservations ------------------------------------------------------------------------------

for (const [title, ask] of [
  ["acquire", (limiter: Limiter) => times(1500, () => limiter.acquire())],
  ["reserve", (limiter: Limiter) => times(1500, async () => (await limiter.reserve()).ready())],
  [
    "PacedQueue",
    (limiter: Limiter) => {
      const queue = new PacedQueue({ limiter });
      return times(1500, () => queue.add(async () => {}));
    },
  ],
] as const) {
  test(`${title}: callers that wait are demand, so two busy regions get half of the limit each`, async () => {
    const clock = new FakeClock();
    const home = memoryStore({ clock });
    const regions = ["eu", "us"];
    const [eu, us] = regions.map((region) => open({ clock, home, region, regions }).limiter);
    assert.ok(eu && us);
    for (const limiter of [eu, us]) await limiter.peek();
    await clock.advance(10_000);
    await busy(us, clock, 8000, 30);
    const calls = counted(ask(eu));
    await busy(us, clock, 15_000, 30);
    // as acquire does: 150 a second; reservations get the reserve of 15
    assert.is(calls.done, 1500);
    await eu.close();
    await us.close();
  });
}

test("a reservation that is awaited keeps the process alive", () => {
  const script = `
    import { tokenBucket } from "smooth-limiter";
    import { RegionalLimiter } from "smooth-limiter/regions";
    import { memoryStore } from "smooth-limiter/testing";
    const policy = tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 });
    const options = { home: memoryStore(), region: "eu", regions: ["eu", "us"], everyMs: 20 };
    const limiter = RegionalLimiter.create("limit", policy, options);
    limiter.reserve(50).then((one) => one.ready()).then(() => {
      console.log("granted");
      process.exit();
    });`;
  const args = ["--import", "tsx", "--input-type=module", "--eval", script];
  const output = execFileSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
  assert.is(output.trim(), "granted");
});

test("the wait of a reservation of which it is not known when it ends is Infinity", async () => {
  const { limiter } = await alone();
  assert.is((await limiter.decide(20)).waitMs, Infinity);
  assert.is((await limiter.reserve(20)).waitMs, Infinity);
  await limiter.close();
});

test("without its local store, a reservation that may wait is served by the part", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  local.fail();
  while (!((await errorOf(limiter.tryAcquire())) instanceof StoreUnavailableError));
  const [acquires, reserves] = [counted([limiter.acquire()]), counted([limiter.reserve()])];
  await clock.advance(100);
  assert.is(acquires.done, 1);
  // a StoreUnavailableError, also in a PacedQueue and a throttled stream
  assert.is(reserves.done, 1);
  await limiter.close();
});

// -- combinations ------------------------------------------------------------------------------

for (const verb of ["tryAcquire", "decide"] as const) {
  test(`allOf of two regional limiters: what ${verb} refuses is demand`, async () => {
    const clock = new FakeClock();
    const home = memoryStore({ clock });
    const [one, other] = ["everyone", "users"].map(
      (name) => open({ clock, home }, bucket, name).limiter,
    );
    assert.ok(one && other);
    const both = allOf(one, other);
    for (const limiter of [one, other]) await limiter.peek();
    await clock.advance(10_000);
    for (let t = 0; t < 5000; t += 50) {
      for (let i = 0; i < 20; i++) await both[verb]();
      await clock.advance(50);
    }
    // both look at the reserve of 10 a second for ever, though no other region uses the limit
    assert.ok(one.fraction > 0.9, `${one.fraction} of everyone`);
    assert.ok(other.fraction > 0.9, `${other.fraction} of users`);
    await one.close();
    await other.close();
  });
}

test("allOf knows that a regional limiter is fair", async () => {
  const { limiter } = await alone({ order: fairShares() });
  assert.is(await limiter.tryAcquire(1, { timeoutMs: 0, share: "ann" }), true);
  // a TypeError: share needs a limiter that was created with { order: fairShares() }
  const error = await errorOf(Promise.resolve(allOf(limiter).acquire(1, { share: "ann" })));
  assert.is(error, undefined);
  await limiter.close();
});

test("allOf names the limiter that may not be waited for, and waits for a larger part as reserve does", async () => {
  const { clock, limiter } = await alone();
  const reserved = counted([limiter.reserve(20)]);
  const error = errorOf(Promise.resolve(allOf(limiter).reserve(20)));
  await clock.advance(1);
  assert.is(reserved.done, 1);
  // limiter "limiter": the queue is full: 1 asked for, 0 waiting, maxWaiting is 0
  const both = await Promise.race([error, Promise.resolve(undefined)]);
  assert.is(both?.message, undefined);
  await limiter.close();
});

// -- leaky buckets -----------------------------------------------------------------------------

test("what may wait in a leaky bucket is no burst: a part that grows is not in debt", () => {
  const policy = leakyBucket({ permitsPerSecond: 100, capacity: 1000, nodelay: 99 });
  const { names } = listPolicies(policy);
  const state = openPolicyState({ names, list: partsOf([policy], 0.1) }, 0, 0);
  move(state, [policy], { from: 0.1, to: 0.9, fresh: 0, base: 0 }, 0, 0);
  // its own 10 permits are left; it waits for 9 s
  assert.is(state.earliest(0, 10), 0);
});

test("… and one that shrinks has no fresh pieces when its burst is used", () => {
  const policy = leakyBucket({ permitsPerSecond: 100, capacity: 1000, nodelay: 99 });
  const { names } = listPolicies(policy);
  const state = openPolicyState({ names, list: partsOf([policy], 0.9) }, 0, 0);
  state.take(0, 90);
  const { fresh } = move(state, [policy], { from: 0.9, to: 0.1, fresh: 0, base: 0 }, 0, 0);
  assert.ok(fresh < 1e-6, `${fresh} of the limit is said to be fresh`);
});

test("a region with a leaky bucket always has its reserve, also when the home is new", async () => {
  const policy = leakyBucket({ permitsPerSecond: 100, capacity: 6000 });
  const { clock, limiter } = open({ regions: ["eu", "us"] }, policy);
  await busy(limiter, clock, 15_000);
  // 0 until a minute is over; a gcra of 100 a second grants 2000
  assert.ok((await busy(limiter, clock, 20_000)) > 100);
  await limiter.close();
});

/** Two regions are busy in turns. Returns when they were granted permits. */
async function alternate(policy: Policies, everyMs: number, turns: number): Promise<number[]> {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const regions = ["eu", "us"];
  const limiters = regions.map(
    (region) => open({ clock, home, region, regions, everyMs }, policy).limiter,
  );
  for (const limiter of limiters) await limiter.peek();
  await clock.advance(50_000);
  const grants: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const limiter = limiters[turn % 2];
    for (let t = 0; t < 5 * everyMs; t += 20) {
      for (let i = 0; i < 60; i++) if (await limiter?.tryAcquire()) grants.push(clock.now());
      await clock.advance(20);
    }
  }
  for (const limiter of limiters) await limiter.close();
  return grants;
}

test("two regions with a leaky bucket are served while demand moves to and fro", async () => {
  const policy = leakyBucket({ permitsPerSecond: 100, capacity: 20_000, nodelay: 1000 });
  const grants = await alternate(policy, 1000, 6);
  // of 3000 and a burst of 1000: 109
  assert.ok(grants.length > 1500, `${grants.length} were granted in 30 s`);
});

test("… and together they keep the bound of a leaky bucket", async () => {
  const policy = leakyBucket({ permitsPerSecond: 100, capacity: 3000, nodelay: 1000 });
  const grants = await alternate(policy, 200, 6);
  let worst = 0;
  for (const [from, start] of grants.entries()) {
    for (let to = from; to < grants.length; to++) {
      // requests of 1: nothing is granted early but one request in each further region
      const bound = 1001 + ((grants[to] ?? 0) - start) / 10 + 1;
      worst = Math.max(worst, to - from + 1 - bound);
    }
  }
  // 952 more: 2374 in 4.2 s
  assert.ok(worst < 0.01, `${worst} permits more than the bound`);
});

/** For how long the home shall keep the record of a limit that is busy, and count what was used of it, ms. */
async function keptMs(policy: Policies): Promise<number> {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const kept: number[] = [];
  const home = {
    run: () => {},
    exchange: (key: string, message: readonly string[]) => {
      if (key.endsWith("[")) kept.push(Number(message[12]));
      return store.exchange(key, message);
    },
  } as unknown as Store;
  const { limiter } = await alone({ clock, home }, policy);
  await busy(limiter, clock, 2000);
  await limiter.close();
  return Math.max(...kept);
}

test("the record of a key of a leaky bucket without a bound ends some time", async () => {
  // 1e15 ms, 31 000 years
  const ms = await keptMs(leakyBucket({ permitsPerSecond: 100, capacity: Infinity, slack: 10 }));
  assert.ok(ms <= 24 * 3_600_000, `${ms}`);
});

test("what a new home gives counts as used for as long as an empty bucket takes to be full", async () => {
  // an hour longer
  const ms = await keptMs(smoothBursty({ permitsPerSecond: 100 }));
  assert.ok(ms <= 3000, `${ms}`);
});

// -- charge ------------------------------------------------------------------------------------

test("with a local store, what a cold key is charged is paid in time, not kept as a debt for ever", async () => {
  const { clock, limiter } = await withLocal();
  // 10 a second of 300
  for (let t = 0; t < 600_000; t += 500) {
    await limiter.tryAcquire();
    await limiter.charge(5);
    await clock.advance(500);
  }
  await clock.advance(600_000);
  await busy(limiter, clock, 4000);
  // the debt of 6000 permits is still there: 22 s in which the part grants nothing
  assert.ok((await busy(limiter, clock, 4000)) > 900, `the part is ${limiter.fraction}`);
  await limiter.close();
});

test("with a local store, keys that were charged are forgotten", async () => {
  const { clock, limiter } = await withLocal();
  let kept = 0;
  const isForgettable = Part.prototype.isForgettable;
  try {
    for (let i = 0; i < 200; i++) {
      const key = limiter.for(`key ${i}`);
      await key.tryAcquire();
      await key.charge(1);
      await clock.advance(100);
    }
    await clock.advance(24 * 3_600_000);
    Part.prototype.isForgettable = function (now) {
      const is = isForgettable.call(this, now);
      if (!is && this.key?.startsWith("key ")) kept += 1;
      return is;
    };
    for (let i = 0; i < 400; i++) await limiter.for(`other ${i}`).tryAcquire();
  } finally {
    Part.prototype.isForgettable = isForgettable;
  }
  assert.is(kept, 0, "keys of yesterday were kept");
  await limiter.close();
});

// -- options and numbers -----------------------------------------------------------------------

test("with a local store each process lends: the bound counts processes", async () => {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const regions = ["eu", "us"];
  const policy = smoothBursty({ permitsPerSecond: 1000 });
  const limiters = regions.flatMap((region) => {
    const local = memoryStore({ clock });
    return times(5, () => open({ home, local, region, regions, clock }, policy).limiter);
  });
  for (const limiter of limiters) await limiter.peek();
  await clock.advance(10_000);
  for (let t = 0; t < 8000; t += 50) {
    for (const limiter of limiters) for (let i = 0; i < 7; i++) await limiter.tryAcquire();
    await clock.advance(50);
  }
  await clock.advance(1300);
  let granted = 0;
  for (const limiter of limiters) while (await limiter.tryAcquire(50)) granted += 50;
  // ten processes
  assert.ok(granted <= 1000 + 50 + 9 * 50, `${granted} at one instant`);
  for (const limiter of limiters) await limiter.close();
});

test("with a local store, a call that is granted is not counted as refused", async () => {
  const { clock, limiter } = await withLocal();
  const calls = times(20, () => limiter.acquire());
  await clock.advance(20_000);
  await Promise.all(calls);
  const { granted, refused } = limiter.stats;
  assert.equal({ granted, refused }, { granted: 20, refused: 0 });
  await limiter.close();
});

test("with a local store, onFull counts for the callers that wait for the reserve", async () => {
  const { clock, limiter } = await withLocal({ maxWaiting: 2, onFull: "wait" });
  const calls = counted(times(30, () => limiter.acquire()));
  await clock.advance(20_000);
  // 18 of them end in a QueueFullError
  assert.equal(calls, { done: 30, failed: 0 });
  await limiter.close();
});

test("with a local store that is slow, what comes from both lines is given back, and counts once", async () => {
  const { clock, local, limiter } = await withLocal({ reserve: 0.5 });
  await busy(limiter, clock, 4000);
  while (await limiter.tryAcquire());
  local.delayMs = 300;
  const { granted } = limiter.stats;
  const calls = counted(times(10, () => limiter.acquire()));
  await clock.advance(250);
  // the part has 135 a second, and the reserve grants 50 ms later
  assert.is(calls.done, 10);
  await clock.advance(5000);
  const { cancelled, refused, waiting } = limiter.stats;
  assert.equal(
    { granted: limiter.stats.granted - granted, cancelled, waiting },
    { granted: 10, cancelled: 0, waiting: 0 },
  );
  assert.ok(refused > 0);
  await limiter.close();
});

test("with a local store that is slow, a signal ends a call at once", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 500);
  local.delayMs = 300;
  const cancel = new AbortController();
  const call = counted([limiter.acquire(1, { signal: cancel.signal })]);
  await clock.advance(20);
  cancel.abort();
  await clock.advance(1);
  assert.is(call.failed, 1);
  await limiter.close();
});

test("… and a time-out counts for the whole call", async () => {
  // its reserve has a permit each 400 ms
  const slow = tokenBucket({ capacity: 300, refill: 75, everyMs: 1000 });
  const { clock, local, limiter } = await withLocal({}, slow);
  while (await limiter.tryAcquire());
  local.delayMs = 300;
  const startMs = clock.now();
  let result = "";
  void limiter.tryAcquire(1, 50).then((isGranted) => {
    result = `${isGranted} after ${clock.now() - startMs} ms`;
  });
  await clock.advance(2000);
  // "true after 600 ms"; a limiter on a store says false after 300
  assert.match(result, /^false/);
  await limiter.close();
});

test("a call with a time-out waits for a part that comes in time", async () => {
  for (const [options, permits] of [
    [{ reserve: 0 }, 1],
    [{}, 20],
  ] as const) {
    const { clock, limiter } = await alone(options);
    let result: unknown = "waits";
    void limiter.tryAcquire(permits, 20_000).then((isGranted) => {
      result = isGranted;
    });
    await clock.advance(5000);
    // acquire is granted after 1.2 s
    assert.is(result, true);
    await limiter.close();
  }
});

test("calls with wrong options, or a signal that has ended them before, make no key hot", async () => {
  const ended = AbortSignal.abort(new Error("ended"));
  for (const options of [{ deadline: 5 }, { share: "a" }, { signal: ended }]) {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    let messages = 0;
    const home = {
      run: () => {},
      exchange: (key: string, message: readonly string[]) => {
        messages += 1;
        return store.exchange(key, message);
      },
    } as unknown as Store;
    const { limiter } = await alone({ clock, home });
    await clock.advance(10_000);
    const before = messages;
    assert.instance(await errorOf(limiter.acquire(9, options as object)), Error);
    await clock.advance(3000);
    assert.is(messages, before, JSON.stringify(options));
    await limiter.close();
  }
});

test("create refuses an order that is none", () => {
  assert.throws(() => open({ order: 5 as never }), /order must be what fairShares\(\) returns/);
});

test.run();
