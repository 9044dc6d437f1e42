/** Attacks on the table of keys: a client that invents keys to have its own usage forgotten. */

import {
  fixedWindow,
  gcra,
  KeyedLimiter,
  leakyBucket,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { isTriedOneIn, suite } from "../../../test/support/suite.ts";

const test = suite("attacks: eviction");

/** Ten permits an hour, by every algorithm. */
const HOUR_MS = 3_600_000;
const hourly = { limit: 10, windowMs: HOUR_MS };
const perSecond = 10 / 3600;
const policies: Record<string, Policies> = {
  gcra: gcra({ limit: 10, periodMs: HOUR_MS }),
  "token bucket": tokenBucket({ capacity: 10, refill: 10, everyMs: HOUR_MS, stepped: true }),
  "fixed window": fixedWindow(hourly),
  "fixed window, first": fixedWindow({ ...hourly, align: "first" }),
  "sliding window": slidingWindow(hourly),
  "sliding log": slidingLog(hourly),
  "smooth bursty, prefilled": smoothBursty({
    permitsPerSecond: perSecond,
    burstSeconds: HOUR_MS / 1000,
    prefilled: true,
  }),
  "smooth bursty": smoothBursty({ permitsPerSecond: perSecond, burstSeconds: HOUR_MS / 1000 }),
  "smooth warming up": smoothWarmingUp({ permitsPerSecond: perSecond, warmupMs: HOUR_MS }),
  "leaky bucket": leakyBucket({ permitsPerSecond: perSecond, capacity: 20, nodelay: 10 }),
  "two policies": {
    hour: fixedWindow(hourly),
    day: slidingLog({ limit: 50, windowMs: 24 * HOUR_MS }),
  },
};

interface Table {
  readonly keyed: KeyedLimiter;
  readonly clock: FakeClock;
  use(key: string, times: number): void;
  /** Returns whether the key's usage is still known, and forgets it. */
  knows(key: string): boolean;
  flood(count: number): Promise<void>;
}

function table(policy: Policies, maxKeys: number): Table {
  const clock = new FakeClock(HOUR_MS / 3);
  const keyed = KeyedLimiter.create(policy, { clock, maxKeys, whenFull: "evict" });
  let invented = 0;
  return {
    keyed,
    clock,
    use(key, times) {
      keyed.for(key).charge(times);
    },
    // forget() returns false for an unknown key
    knows: (key) => keyed.forget(key),
    async flood(count) {
      for (let i = 0; i < count; i++) {
        keyed.for(`invented ${invented}`).tryAcquire();
        invented += 1;
        if (i % 100 === 0) await clock.advance(1);
      }
    },
  };
}

for (const [p, [name, policy]] of Object.entries(policies).entries()) {
  test(`${name}: the key that has used most survives a flood, at any position`, async () => {
    for (const [i, place] of [0, 1, 63, 64, 250, 499].entries()) {
      if (!isTriedOneIn(3, p, i)) continue;
      const { use, knows, flood, keyed } = table(policy, 500);
      for (let i = 0; i < 500; i++) use(`${i}`, i === place ? 9 : 1);
      await flood(2000);
      assert.is(keyed.size, 500);
      assert.ok(knows(`${place}`), `place ${place}`);
    }
  });

  test(`${name}: keys that have used much survive as neighbours in order of insertion`, async () => {
    const { use, knows, flood, clock } = table(policy, 600);
    for (let i = 0; i < 600; i++) {
      use(`${i}`, i < 400 ? 8 : 1);
      if (i % 100 === 0) await clock.advance(1);
    }
    await flood(3000);
    const forgotten = Array.from({ length: 400 }, (_, i) => `${i}`).filter((key) => !knows(key));
    assert.equal(forgotten, []);
  });

  test(`${name}: the least used goes first, whatever the order of insertion`, async () => {
    for (const usage of [
      [1, 2, 3, 4, 5, 6],
      [6, 5, 4, 3, 2, 1],
      [4, 6, 1, 5, 3, 2],
    ]) {
      const { use, keyed, clock } = table(policy, usage.length);
      for (const times of usage) {
        use(`used ${times}`, times);
        await clock.advance(1);
      }
      use("a", 9);
      use("b", 9);
      const left = usage.filter((times) => keyed.forget(`used ${times}`));
      assert.equal(
        left.sort((a, b) => a - b),
        [3, 4, 5, 6],
        `${usage}`,
      );
    }
  });
}

test("two policies: a key that is close to one of its limits stays", async () => {
  const { keyed, use, knows, flood } = table(
    {
      burst: gcra({ limit: 5, periodMs: HOUR_MS }),
      volume: gcra({ limit: 1e6, periodMs: HOUR_MS }),
    },
    200,
  );
  keyed.for("heavy").charge({ burst: 5 });
  for (let i = 1; i < 200; i++) use(`${i}`, 1);
  for (let i = 0; i < 1000; i++) keyed.for(`volume ${i}`).charge({ volume: 1000 });
  await flood(1000);
  assert.ok(knows("heavy"));
});

test("a block of heavy keys longer than one search loses at most a single key", async () => {
  const { use, knows, flood } = table(policies.gcra as Policies, 8000);
  for (let i = 0; i < 8000; i++) use(`${i}`, 1);
  for (let i = 0; i < 6000; i++) use(`${i}`, 7);
  await flood(20_000);
  const lost = Array.from({ length: 6000 }, (_, i) => `${i}`).filter((key) => !knows(key));
  assert.ok(lost.length <= 1, `${lost.length} were lost`);
});

test("changing the numbers during a flood does not evict the heavy key", async () => {
  const { keyed, use, knows, flood } = table(gcra({ limit: 10, periodMs: HOUR_MS }), 300);
  use("heavy", 9);
  for (let i = 1; i < 300; i++) use(`${i}`, 1);
  await flood(100);
  keyed.update(gcra({ limit: 1000, periodMs: HOUR_MS }));
  await flood(1000);
  assert.ok(knows("heavy"));
});

test("the default is to evict, so no verb fails because of a full table", async () => {
  const keyed = KeyedLimiter.create(gcra({ limit: 2, periodMs: HOUR_MS }), {
    clock: new FakeClock(),
    maxKeys: 2,
  });
  for (const key of ["a", "b", "c", "d"]) {
    assert.ok(keyed.for(`${key}1`).tryAcquire());
    assert.ok(keyed.for(`${key}2`).decide().allowed);
    keyed.for(`${key}3`).charge(1);
    keyed.for(`${key}4`).refund(1);
    assert.is(await keyed.for(`${key}5`).acquire(), 0);
    assert.is(keyed.for(`${key}6`).reserve().waitMs, 0);
  }
  assert.is(keyed.size, 2);
});

test("decide returns a refusal where the table is full, and does not throw", () => {
  const clock = new FakeClock();
  const policy = gcra({ limit: 2, periodMs: HOUR_MS });
  const refusing = KeyedLimiter.create(policy, { clock, maxKeys: 1, whenFull: "refuse" });
  refusing.for("a").tryAcquire();
  const paused = KeyedLimiter.create(policy, { clock, maxKeys: 1 });
  paused.for("a").pause(1000);
  for (const keyed of [refusing, paused]) {
    const decision = keyed.for("b").decide();
    assert.is(decision.allowed, false);
    assert.is(decision.waitMs, Infinity);
    assert.is(decision.limit, 2);
    assert.is(decision.remaining, 2, "its own permits are there: only room is missing");
    assert.is(keyed.stats.refused, 1);
    assert.is(keyed.size, 1);
  }
});

test.run();
