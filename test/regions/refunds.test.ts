/** What callers give back is no demand: a region has the part that it uses, however much it reserves at first. */
import { type Policies, type RemoteLimiter, smoothBursty, tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { Refunds } from "../../src/regions/refunds.ts";
import { World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, permits that are given back");

const PERMITS = 20;
const CALL_MS = 300;

type Use = (limiter: RemoteLimiter, estimate: number, used: () => Promise<void>) => Promise<void>;

const settled: Use = async (limiter, estimate, used) => {
  const reservation = await limiter.reserve(estimate);
  await reservation.ready();
  await used();
  await reservation.settle(PERMITS);
};
const refunded: Use = async (limiter, estimate, used) => {
  await limiter.acquire(estimate);
  await used();
  if (estimate > PERMITS) await limiter.refund(estimate - PERMITS);
  else await limiter.charge(PERMITS - estimate);
};
/** What is charged meanwhile, and given back again, is no demand either. */
const corrected: Use = async (limiter, estimate, used) => {
  const reservation = await limiter.reserve(PERMITS);
  await reservation.ready();
  await reservation.settle(estimate);
  await used();
  await reservation.settle(PERMITS);
};
const named: Use = async (limiter, tokens, used) => {
  await limiter.acquire({ requests: 1, tokens });
  await used();
  await limiter.refund({ tokens: tokens - PERMITS });
};

/** One region uses 200 a second, and the other one as much as it can have. @returns what each has used a second */
async function used(policies: Policies, use: Use, estimate: number, hasLocal = false) {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const regions = ["eu", "us"];
  const limiters = regions.map((region) => {
    const local = hasLocal ? { local: memoryStore({ clock }), reserve: 0.3 } : {};
    return RegionalLimiter.create("limit", policies, { home, region, regions, clock, ...local });
  });
  const [eu, us] = limiters;
  for (const limiter of limiters) await limiter.peek();
  await clock.advance(20_000);
  const counts = [0, 0];
  const call = async () => {
    if (eu === undefined) return;
    await use(eu, estimate, async () => {
      counts[0] = (counts[0] ?? 0) + PERMITS;
      await new Promise<void>((resolve) => clock.wakeAt(clock.now() + CALL_MS, resolve));
    });
  };
  const flood = policies === tokens ? { requests: 1, tokens: PERMITS } : PERMITS;
  for (let ms = 0; ms < 80_000; ms += 25) {
    if (ms === 30_000) counts.fill(0);
    if (ms % 100 === 0) call().catch(() => {});
    for (let n = 0; n < 3; n++)
      if (await us?.tryAcquire(flood)) counts[1] = (counts[1] ?? 0) + PERMITS;
    await clock.advance(25);
  }
  await Promise.all([...limiters.map((limiter) => limiter.close()), clock.advance(10_000)]);
  return counts.map((count) => count / 50);
}

const bucket = tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 });
const tokens = {
  requests: tokenBucket({ capacity: 500, refill: 500, everyMs: 1000 }),
  tokens: bucket,
};

for (const [how, policies, use, estimate] of [
  ["settles", bucket, settled, 100],
  ["settles", smoothBursty({ permitsPerSecond: 1000 }), settled, 100],
  ["refunds", bucket, refunded, 100],
  ["settles twice", bucket, corrected, 100],
  ["refunds tokens, and no requests", tokens, named, 100],
  ["settles to more", smoothBursty({ permitsPerSecond: 1000 }), settled, 10],
] as const) {
  const name = "algorithm" in policies ? policies.algorithm.name : "two policies";
  test(`who asks for ${estimate}, uses ${PERMITS}, and ${how} has the part that it uses: ${name}`, async () => {
    const [own = 0, others = 0] = await used(policies, use, estimate);
    assert.ok(own > 197 && others > 0.93 * 800, `${own} and ${others} a second`);
  });
}

test("what a reserve in a store pays of charges may come back too", async () => {
  const [own = 0] = await used(bucket, corrected, 100, true);
  assert.ok(own > 195, `${own} a second`);
});

test("what calls give back of which the process knows nothing makes the others no less", async () => {
  const world = new World(tokenBucket({ capacity: 20_000, refill: 1000, everyMs: 1000 }), {
    regions: ["eu", "us"],
  });
  world.home.latencyMs = 40;
  const [eu, us] = world.regions.map(({ limiter }) => limiter);
  await world.clock.advance(20_000);
  for (let ms = 0; ms < 20_000; ms += 25)
    for (let n = 0; n < 40; n++) {
      await us?.tryAcquire(10);
      if (n === 0) await world.clock.advance(25);
    }
  await eu?.refund(19_000);
  let granted = 0;
  for (let ms = 0; ms < 15_000; ms += 100) {
    for (let n = 0; n < 30; n++) granted += Number(await eu?.tryAcquire());
    for (let n = 0; n < 40; n++) await us?.tryAcquire(10);
    await world.clock.advance(100);
  }
  await world.close();
  assert.ok(granted > 0.8 * 4500, `${granted} of 4500`);
});

test("what is kept of a request is what is kept of the others, by policy", () => {
  const refunds = new Refunds([1, 500], 0, 0);
  refunds.refunded([undefined, 250], 0);
  assert.equal(refunds.kept([1, 100]), [1, 50]);
  refunds.granted([1, 500], 10);
  assert.equal(refunds.kept([1, 100]), [1, 75]);
});

test("more than was asked for does not come back, and something is kept of each request", () => {
  for (const permits of [10, Infinity]) {
    const refunds = new Refunds([permits], 0, 0);
    refunds.refunded(1e9, 0);
    refunds.refunded(permits, 0);
    assert.is(refunds.kept(10), 0.1);
  }
  const refunds = new Refunds([10], 0, 0);
  refunds.refunded(1e9, 0);
  refunds.granted(10, 10);
  assert.is(refunds.kept(10), 5);
});

/** Calls ask for 100 and give 80 back after `callMs`, each second until `untilMs`. */
function called(untilMs: number, callMs: number, refunds = new Refunds([0], 0, 0)) {
  for (let ms = 0; ms < untilMs + callMs; ms += 1000) {
    if (ms < untilMs) refunds.granted(100, ms);
    if (ms >= callMs) refunds.refunded(80, ms);
  }
  return refunds;
}
const keeps = (refunds: Refunds) => Number(refunds.kept(100));

test("what comes back after a pause, or of calls that fail for some minutes, does not make the others none", () => {
  const paused = called(1_200_000, 90_000);
  assert.ok(keeps(paused) > 15 && keeps(paused) < 21, `${keeps(paused)}`);
  const failed = called(1_200_000, 2000);
  for (let ms = 1_202_000; ms < 1_502_000; ms += 1000) {
    failed.granted(100, ms);
    failed.refunded(100, ms);
  }
  assert.ok(keeps(failed) > 14 && keeps(failed) < 21, `${keeps(failed)}`);
});

test("estimates that become exact count in full within three minutes", () => {
  const refunds = called(600_000, 2000);
  assert.ok(keeps(refunds) < 21);
  for (let ms = 602_000; ms < 782_000; ms += 1000) refunds.granted(100, ms);
  assert.ok(keeps(refunds) > 95, `${keeps(refunds)}`);
});

test("who has asked for much before the first refund is known after an hour, and what fails for a while is forgotten", () => {
  const refunds = new Refunds([3_600_000], 36_000_000, 0);
  called(3_600_000, 2000, refunds);
  assert.ok(keeps(refunds) < 50, `${keeps(refunds)}`);
  const failed = new Refunds([3_600_000], 36_000_000, 0);
  for (let ms = 0; ms < 300_000; ms += 1000) {
    failed.granted(100, ms);
    failed.refunded(100, ms);
  }
  assert.ok(keeps(failed) > 80, `${keeps(failed)}`);
});

test.run();
