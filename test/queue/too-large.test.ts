import * as assert from "uvu/assert";
import {
  fairShares,
  fixedWindow,
  Limiter,
  PermitsExceedCapacityError,
  slidingLog,
  tokenBucket,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("waiter queue, requests for which new numbers are too small");

const bucket = (capacity: number) => tokenBucket({ capacity, refill: 10, everyMs: 1000 });

/** A limiter of 10, all used. */
function used(options: { order?: ReturnType<typeof fairShares> } = {}) {
  const clock = new FakeClock();
  const limiter = Limiter.create(bucket(10), { clock, ...options });
  limiter.tryAcquire(10);
  return { clock, limiter };
}

const sized = {
  tokenBucket: bucket,
  fixedWindow: (limit: number) => fixedWindow({ limit, windowMs: 1000 }),
  slidingLog: (limit: number) => slidingLog({ limit, windowMs: 1000 }),
};
for (const [name, policy] of Object.entries(sized)) {
  test(`${name}: end with the error that names the new numbers, and let those behind them go on`, async () => {
    const clock = new FakeClock();
    const limiter = Limiter.create(policy(10), { clock });
    limiter.tryAcquire(10);
    const ten = limiter.acquire(10);
    const timed = limiter.tryAcquire(8, 60_000);
    const ready = limiter.reserve(7).ready();
    const waiting = [watch(clock, limiter.acquire()), watch(clock, limiter.acquire(5))];
    await clock.advance(100);
    limiter.update(policy(5));
    for (const [permits, promise] of [
      [10, ten] as const,
      [8, timed] as const,
      [7, ready] as const,
    ]) {
      const error = (await failure(() => promise)) as PermitsExceedCapacityError;
      assert.instance(error, PermitsExceedCapacityError);
      assert.equal(error.facts, { policy: "default", permits, capacity: 5 });
    }
    await clock.advance(5000);
    assert.ok(instants(waiting).every((at) => at !== undefined && at > 100));
    assert.equal(limiter.stats, { granted: 4, refused: 0, cancelled: 1, waiting: 0 });
  });
}

test("are found behind others, and behind a reservation, before their turn", async () => {
  const { clock, limiter } = used();
  const waiting = [watch(clock, limiter.acquire(2)), watch(clock, limiter.acquire(10))];
  await clock.advance(100);
  limiter.update(bucket(5));
  await clock.advance(1);
  assert.instance(waiting[1]?.error, PermitsExceedCapacityError);
  limiter.reserve(3);
  const ten = watch(clock, limiter.acquire(4));
  limiter.update(bucket(3));
  await clock.advance(1);
  assert.instance(ten.error, PermitsExceedCapacityError);
  await clock.advance(1000);
  assert.ok(instants(waiting)[0]);
});

test("end with the error on a fair limiter, too, at the latest when they are the next", async () => {
  const { clock, limiter } = used({ order: fairShares() });
  const ten = watch(clock, limiter.acquire(10, { share: "a" }));
  const one = watch(clock, limiter.acquire(1, { share: "b" }));
  const eight = watch(clock, limiter.acquire(8, { share: "b" }));
  limiter.update(bucket(5));
  await clock.advance(1000);
  assert.instance(ten.error, PermitsExceedCapacityError);
  assert.is(one.at, 100);
  assert.instance(eight.error, PermitsExceedCapacityError);
  assert.is(limiter.stats.waiting, 0);
});

test("a reservation that no caller awaits is cancelled if reset lets the new numbers overtake it", async () => {
  const { clock, limiter } = used();
  const reservation = limiter.reserve(10);
  limiter.update(bucket(5));
  const five = watch(clock, limiter.acquire(5));
  limiter.reset();
  await clock.advance(1);
  assert.is(reservation.cancel(), false);
  assert.is(five.at, 0);
});

test.run();
