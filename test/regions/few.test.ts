/** Limits with room for few requests in an interval, and other rare cases. */
import {
  fixedWindow,
  gcra,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { Part } from "../../src/regions/part.ts";
import { exchange } from "../../src/stores/ledger.ts";
import { DriftingClock, type Region, World } from "../support/regions/world.ts";
import { isTried, suite } from "../support/suite.ts";

const test = suite("regions, limits of few requests, and other rare cases", { timeoutMs: 60_000 });

const REGIONS = ["eu", "us", "asia"];
const DAY_MS = 86_400_000;
const large = tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 });

function open(policy: Policies, options: Partial<RegionalOptions> & { readonly clock: FakeClock }) {
  const { clock, home = memoryStore({ clock }), regions = REGIONS } = options;
  const names = Array.isArray(regions) ? regions : Object.keys(regions);
  return names.map((region) =>
    RegionalLimiter.create("limit", policy, { ...options, home, regions, region }),
  );
}

for (const [i, [limit, windowMs]] of (
  [
    [10, 60_000],
    [100, 3_600_000],
    [1000, DAY_MS],
  ] as const
).entries()) {
  for (const [j, policy] of [
    slidingWindow({ limit, windowMs }),
    tokenBucket({ capacity: limit, refill: limit, everyMs: windowMs }),
  ].entries()) {
    if (!isTried(i, j)) continue;
    test(`nine tenths of ${limit} in ${windowMs} ms, in the only busy region, are granted: ${policy.algorithm.name}`, async () => {
      const clock = new FakeClock();
      const [eu] = open(policy, { clock });
      assert.ok(eu);
      await eu.peek();
      await clock.advance(2 * windowMs);
      let granted = 0;
      const requests = Math.min(limit * 3, 60);
      for (let i = 0; i < requests; i++) {
        if (await eu.tryAcquire()) granted += 1;
        await clock.advance(windowMs / limit / 0.9);
      }
      assert.ok(granted > 0.7 * requests, `${granted} of ${requests}`);
    });
  }
}

for (const [title, policy] of [
  ["a bucket", tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 })],
  ["a bucket without a burst", tokenBucket({ capacity: 10, refill: 10, everyMs: 1000 })],
  ["gcra", gcra({ limit: 10, periodMs: 1000, burst: 100 })],
] as const) {
  test(`${title} of 10 a second: who asks once in two seconds gets it, while the others ask for too much`, async () => {
    const clock = new FakeClock();
    const regions = Array.from({ length: 5 }, (_, i) => `r${i}`);
    const [seldom, ...often] = open(policy, { clock, regions });
    assert.ok(seldom);
    for (const limiter of [seldom, ...often]) await limiter.peek();
    await clock.advance(30_000);
    let granted = 0;
    for (let t = 0; t < 200_000; t += 200) {
      for (const limiter of often) await limiter.tryAcquire();
      const isAsked = t % 2000 === 0;
      if (isAsked && (await seldom.tryAcquire()) && t >= 100_000) granted += 1;
      await clock.advance(200);
    }
    assert.ok(granted >= 40, `${granted} of 50`);
  });
}

for (const [title, policy, periodMs] of [
  ["a window of a day", fixedWindow({ limit: 1000, windowMs: DAY_MS }), DAY_MS],
  ["a log of a minute", slidingLog({ limit: 1000, windowMs: 60_000 }), 65_000],
] as const) {
  test(`a key that is busy for some seconds every ${periodMs} ms has more than its reserve of ${title}`, async () => {
    const clock = new FakeClock();
    const [eu] = open(policy, { clock });
    assert.ok(eu);
    await eu.peek();
    // the home is older than a window
    await clock.advance(2 * periodMs);
    const granted: number[] = [];
    for (let visit = 0; visit < 3; visit++) {
      let count = 0;
      for (let t = 0; t < 10_000; t += 20) {
        if (await eu.for("ann").tryAcquire()) count += 1;
        await clock.advance(20);
      }
      granted.push(count);
      await clock.advance(periodMs - 10_000);
    }
    // no other region asks for anything: 500 requests of 1000
    assert.ok(Math.min(...granted.slice(1)) > 300, `${granted}`);
  });
}

for (const [title, policy] of [
  ["gcra with a burst of 20", gcra({ limit: 1000, periodMs: 1000, burst: 20 })],
  ["a bucket of 20", tokenBucket({ capacity: 20, refill: 1000, everyMs: 1000 })],
] as const) {
  test(`a region that asks for less than its reserve is served while the others ask for too much: ${title}`, async () => {
    const clock = new FakeClock();
    const [eu, ...others] = open(policy, { clock });
    assert.ok(eu);
    for (const limiter of [eu, ...others]) await limiter.peek();
    await clock.advance(10_000);
    let granted = 0;
    for (let t = 0; t < 30_000; t += 10) {
      for (let i = 0; i < 10; i++) for (const limiter of others) await limiter.tryAcquire();
      // 10 a second; its reserve is 33 a second
      if (t % 100 === 0 && t >= 10_000 && (await eu.tryAcquire())) granted += 1;
      await clock.advance(10);
    }
    assert.ok(granted > 100, `${granted} of 200 with ${eu.fraction.toFixed(3)} of the limit`);
  });
}

for (const [i, [limit, windowMs, everyMs, title]] of (
  [
    [60, 60_000, 6000, "10 of 60 a minute"],
    [10, 1000, 1100, "0.9 of 10 a second"],
  ] as const
).entries()) {
  for (const [j, policy] of [
    slidingWindow({ limit, windowMs }),
    tokenBucket({ capacity: limit, refill: limit, everyMs: windowMs }),
  ].entries()) {
    if (!isTried(i, j)) continue;
    test(`a region that asks for less than its third gets it while the others ask for too much: ${title}, ${policy.algorithm.name}`, async () => {
      const clock = new FakeClock();
      const [eu, ...others] = open(policy, { clock });
      assert.ok(eu);
      for (const limiter of [eu, ...others]) await limiter.peek();
      await clock.advance(70_000);
      let [asked, granted] = [0, 0];
      const tickMs = everyMs / 22;
      const tenMinutes = 600_000;
      const ms = Math.min(tenMinutes, 100 * everyMs);
      for (let tick = 0; tick * tickMs < ms; tick++) {
        for (const limiter of others) await limiter.tryAcquire();
        if (tick % 22 === 0 && tick * tickMs > ms / 2) {
          asked += 1;
          if (await eu.tryAcquire()) granted += 1;
        } else if (tick % 22 === 0) await eu.tryAcquire();
        await clock.advance(tickMs);
      }
      assert.ok(granted > 0.7 * asked, `${granted} of ${asked}`);
    });
  }
}

test("a region that was granted nothing has its reserve, also after it held a part for some seconds", async () => {
  const clock = new FakeClock();
  const [eu, us] = open(slidingLog({ limit: 600, windowMs: 60_000 }), { clock });
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(70_000);
  // America uses its part and gives it back
  for (let t = 0; t < 5000; t += 50) {
    for (let k = 0; k < 40; k++) await us.tryAcquire();
    await clock.advance(50);
  }
  await clock.advance(8000);
  assert.is(await eu.tryAcquire(25), false);
  await clock.advance(8000);
  let granted = 0;
  for (let i = 0; i < 20; i++) if (await eu.tryAcquire()) granted += 1;
  assert.is(granted, 20);
});

test("a home that goes back in time hands nothing on twice, also if a clock runs faster by a tenth", async () => {
  const { random } = Math;
  Math.random = () => 0.999;
  let most = 0;
  try {
    for (let offsetMs = 0; offsetMs < 1000; offsetMs += 100) {
      const clock = new FakeClock();
      let records = new Map<string, string>();
      let back: ReadonlyMap<string, string> | undefined;
      const [eu, us] = ["eu", "us"].map((region, i) => {
        const send = async (key: string, message: readonly string[]) => {
          const now = 1e9 + Math.floor(clock.now());
          const { reply, record } = exchange(records.get(key), message, now);
          if (record !== undefined) records.set(key, record);
          if (back !== undefined && region === "eu" && key.includes("[")) {
            records = new Map(back);
            back = undefined;
          }
          return reply;
        };
        const home = { run: () => {}, exchange: send } as unknown as Store;
        const own = new DriftingClock(clock, i === 0 ? 1 : 1.1);
        const options = { clock: own, home, region, regions: ["eu", "us"] };
        return RegionalLimiter.create("limit", large, options);
      });
      assert.ok(eu && us);
      for (const limiter of [eu, us]) await limiter.peek();
      await clock.advance(10_000);
      const before = new Map(records);
      for (let t = 0; t < 5000; t += 10) {
        for (let k = 0; k < 12; k++) await eu.tryAcquire();
        await clock.advance(10);
      }
      await clock.advance(offsetMs);
      back = before;
      for (let t = 0; t < 3000; t += 10) {
        for (let k = 0; k < 12; k++) for (const limiter of [eu, us]) await limiter.tryAcquire();
        await clock.advance(10);
        most = Math.max(most, eu.fraction + us.fraction);
      }
    }
  } finally {
    Math.random = random;
  }
  assert.ok(most < 1.0001, `together they have had ${most} of the limit`);
});

for (const [count, limit] of [
  [5, 10],
  [10, 20],
] as const) {
  test(`of a window of ${limit}, ${count} busy regions leave at most one request less than they are unused`, async () => {
    const clock = new FakeClock();
    const regions = Array.from({ length: count }, (_, i) => `region ${i}`);
    const limiters = open(fixedWindow({ limit, windowMs: 1000 }), { clock, regions });
    for (const limiter of limiters) await limiter.peek();
    await clock.advance(10_000);
    let granted = 0;
    for (let t = 0; t < 20_000; t += 250) {
      if (t === 10_000) granted = 0;
      for (const limiter of [...limiters, ...limiters])
        if (await limiter.tryAcquire()) granted += 1;
      await clock.advance(250);
    }
    const each = granted / 10;
    // all have the same part, which is 2 requests
    assert.ok(each >= limit - (count - 1), `${each} of ${limit} in each window`);
  });
}

test("a reserve of limit x reserve / regions = 1 serves one request", async () => {
  const clock = new FakeClock();
  const [eu] = open(fixedWindow({ limit: 10, windowMs: 1000 }), { clock, reserve: 0.3 });
  assert.ok(await eu?.tryAcquire());
});

test("a single region has the whole limit", async () => {
  const clock = new FakeClock();
  const policy = fixedWindow({ limit: 1, windowMs: 1000 });
  const [eu] = open(policy, { clock, regions: ["eu"], reserve: 0.8 });
  // it is a PermitsExceedCapacityError
  const answer = await eu?.tryAcquire().catch((error: Error) => error.message);
  assert.type(answer, "boolean");
});

test("an acquire that fits into capacity / regions does not wait for ever", async () => {
  const clock = new FakeClock();
  const [eu, ...others] = open(tokenBucket({ capacity: 10, refill: 1000, everyMs: 1000 }), {
    clock,
  });
  assert.ok(eu);
  for (const limiter of [eu, ...others]) await limiter.peek();
  await clock.advance(10_000);
  let isServed = false;
  for (let t = 0; t < 60_000 && !isServed; t += 10) {
    for (let i = 0; i < 10; i++) for (const limiter of others) await limiter.tryAcquire();
    if (t === 3000) {
      void eu.acquire(3).then(() => {
        isServed = true;
      });
    }
    await clock.advance(10);
  }
  assert.ok(isServed, `after a minute it waits, with ${eu.fraction.toFixed(3)} of the limit`);
});

test("a request needs the largest part that any policy needs for it, and no more: 3600 an hour and 100 a second", async () => {
  const clock = new FakeClock();
  const hour = tokenBucket({ capacity: 360, refill: 3600, everyMs: 3_600_000 });
  const second = tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 });
  const [eu, us] = open({ hour, second }, { clock, regions: ["eu", "us"] });
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(3_700_000);
  // their reserves are used up
  for (let i = 0; i < 2; i++) for (const limiter of [eu, us]) await limiter.charge(9);
  let sum = 0;
  for (let seconds = 0; seconds < 600; seconds++) {
    for (let i = 0; i < 2; i++) await eu.tryAcquire();
    // America asks for a sixth of the limit
    if (seconds % 6 === 0) await us.tryAcquire();
    await clock.advance(1000);
    if (seconds >= 300) sum += eu.fraction;
  }
  assert.ok(sum / 300 > 0.75, `Europe has ${sum / 300}`);
});

test("callers that wait for large requests beside many small ones do not make a record that no region can read", async () => {
  const clock = new FakeClock();
  const month = 30 * DAY_MS;
  const policy = tokenBucket({ capacity: 1e12, refill: 1e12, everyMs: month });
  const [eu, us] = open(policy, { clock, regions: ["eu", "us"], reserve: 0 });
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(10_000);
  const ended: Promise<unknown>[] = [];
  for (let i = 0; i < 20; i++) ended.push(us.acquire(8e11).catch(() => {}));
  const ofMs = 1e12 / month;
  for (let seconds = 0; seconds < 200; seconds++) {
    for (let i = 0; i < 3; i++) await us.tryAcquire(110 * ofMs);
    await eu.tryAcquire(100 * ofMs);
    await clock.advance(1000);
    assert.is(eu.state, "ready", `after ${seconds} s`);
  }
  await Promise.all([eu.close(), us.close(), clock.advance(30_000)]);
  await Promise.all(ended);
});

test("keys of smoothBursty are forgotten some time", async () => {
  const { set } = Map.prototype;
  let parts: Map<unknown, unknown> | undefined;
  Map.prototype.set = function (key, value) {
    if (key === "key 0") parts = this;
    return set.call(this, key, value);
  };
  try {
    const clock = new FakeClock();
    const [eu] = open(smoothBursty({ permitsPerSecond: 100 }), { clock });
    assert.ok(eu);
    for (let i = 0; i < 2000; i++) {
      assert.ok(await eu.for(`key ${i}`).tryAcquire());
      await clock.advance(60_000);
    }
  } finally {
    Map.prototype.set = set;
  }
  assert.ok(parts !== undefined && parts.size < 500, `${parts?.size} of 2000 keys are kept, 33 h`);
});

for (const [name, policy] of Object.entries({
  smoothBursty: smoothBursty({ permitsPerSecond: 100 }),
  smoothWarmingUp: smoothWarmingUp({ permitsPerSecond: 100, warmupMs: 1000 }),
  tokenBucket: tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 }),
  slidingLog: slidingLog({ limit: 100, windowMs: 1000 }),
})) {
  test(`a key without a reserve pays what it owes before it is forgotten: ${name}`, async () => {
    const world = new World(policy, { regions: ["eu", "us"], reserve: 0, leaseMs: 5000 });
    const [eu] = world.regions as [Region];
    const { clock } = world;
    const isForgettable = Part.prototype.isForgettable;
    let kept = 0;
    try {
      await eu.limiter.peek();
      await clock.advance(10_000);
      const [cold, busy] = ["key cold", "key busy"].map((key) => eu.limiter.for(key));
      for (let t = 0; t < 5000; t += 100) {
        for (let i = 0; i < 10; i++) await busy?.tryAcquire();
        await clock.advance(100);
      }
      // little at a time: the demand of few is remembered for long
      for (let i = 0; i < 160; i++) await Promise.all([cold?.charge(5), busy?.charge(5)]);
      eu.isCut = true;
      await clock.advance(45_000);
      world.heal(eu);
      const parts = [0, 0];
      for (let t = 0; t < 60_000; t += 500) {
        for (const [i, key] of [cold, busy].entries()) {
          parts[i] = (parts[i] ?? 0) + (key?.fraction ?? 0) / 2;
        }
        await clock.advance(500);
      }
      // 800 permits of 100 a second; one part has paid most of that before its lease ended
      assert.ok(
        parts.every((paid) => paid > 2),
        `${parts} s of the limit`,
      );
      Part.prototype.isForgettable = function (now) {
        const is = isForgettable.call(this, now);
        if (!is && this.key?.startsWith("key ")) kept += 1;
        return is;
      };
      for (let i = 0; i < 100; i++) void eu.limiter.for(`other ${i}`).peek();
      await clock.advance(1000);
    } finally {
      Part.prototype.isForgettable = isForgettable;
    }
    assert.is(kept, 0);
    await world.close();
  });
}

test("a key without a reserve that is given something back asks for no part", async () => {
  const world = new World(large, { regions: ["eu", "us"], reserve: 0 });
  const [eu] = world.regions as [Region];
  await eu.limiter.for("ann").peek();
  await world.clock.advance(5000);
  const before = world.home.messages;
  await eu.limiter.for("ann").refund(10);
  await world.clock.advance(5000);
  assert.is(world.home.messages, before);
  await eu.limiter.for("ann").charge(10);
  await world.clock.advance(5000);
  assert.ok(world.home.messages > before);
  await world.close();
});

test.run();
