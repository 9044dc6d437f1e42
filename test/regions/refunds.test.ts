/** What callers give back is no demand: a region has the part that it uses, however much it reserves at first. */
import { type Policies, type RemoteLimiter, smoothBursty, tokenBucket } from "smooth-limiter";
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
const named: Use = async (limiter, tokens, used) => {
  await limiter.acquire({ requests: 1, tokens });
  await used();
  await limiter.refund({ tokens: tokens - PERMITS });
};

/** One region uses 200 a second, and the other one as much as it can have. @returns what each has used a second */
async function used(policies: Policies, use: Use, estimate: number) {
  const world = new World(policies, { regions: ["eu", "us"] });
  world.home.latencyMs = 40;
  const { clock } = world;
  const [eu, us] = world.regions.map(({ limiter }) => limiter);
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
  await world.close();
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
  ["refunds tokens, and no requests", tokens, named, 100],
  ["settles to more", smoothBursty({ permitsPerSecond: 1000 }), settled, 10],
] as const) {
  const name = "algorithm" in policies ? policies.algorithm.name : "two policies";
  test(`who asks for ${estimate}, uses ${PERMITS}, and ${how} has the part that it uses: ${name}`, async () => {
    const [own = 0, others = 0] = await used(policies, use, estimate);
    assert.ok(own > 197 && others > 0.93 * 800, `${own} and ${others} a second`);
  });
}

test("what is kept of a request is what is kept of the others, by policy", () => {
  const refunds = new Refunds([1, 500], 0);
  assert.equal(refunds.kept([1, 100]), [1, 100]);
  refunds.refunded([undefined, 250], 1000);
  assert.equal(refunds.kept([1, 100]), [1, 50]);
  refunds.asked([1, 500], 2000);
  assert.equal(refunds.kept([1, 100]), [1, 75]);
});

test("more than was asked for does not come back, and something is kept of each request", () => {
  const refunds = new Refunds([10], 0);
  refunds.refunded(1e9, 1000);
  assert.is(refunds.kept(10), 0.1);
  refunds.asked(10, 2000);
  assert.is(refunds.kept(10), 5);
});

test("what was given back is forgotten within a quarter of an hour", () => {
  const refunds = new Refunds([100], 0);
  refunds.refunded(80, 0);
  assert.is.not(refunds.kept(100), 100);
  for (let ms = 0; ms <= 900_000; ms += 1000) refunds.asked(1, ms);
  assert.ok(Number(refunds.kept(100)) > 98, `${refunds.kept(100)}`);
});

test.run();
