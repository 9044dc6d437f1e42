/** What a queue answers to callers that come while others wait, or after its timer was late. */
import * as assert from "uvu/assert";
import {
  RequestSequence,
  reserveAwaited,
  type SequenceLimiter,
} from "../../src/api/reserve-awaited.ts";
import {
  type Clock,
  ConcurrencyLimiter,
  fairShares,
  Limiter,
  type LimiterOptions,
  type LocalReservation,
  leakyBucket,
  type Permits,
  QueueFullError,
  RateLimiter,
  slidingLog,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { listener } from "../support/limiter/listen.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

/** Time stays where it is set, and timers fire only when a test calls them. */
class StuckClock implements Clock {
  ms = 0;
  readonly timers = new Set<() => void>();

  now(): number {
    return this.ms;
  }

  wakeAt(_timeMs: number, wake: () => void) {
    const own = () => wake();
    this.timers.add(own);
    return { cancel: () => void this.timers.delete(own) };
  }

  /** Fires all timers at that time. */
  async wake(ms: number): Promise<void> {
    this.ms = ms;
    for (const wake of this.timers) {
      this.timers.delete(wake);
      wake();
    }
    await turn();
  }
}

const slow = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });

/** Two policies, each 10 a second; the first permit of both is used. */
function pair(clock: Clock) {
  const limiter = Limiter.create({ a: slow(10), b: slow(10) }, { clock });
  limiter.tryAcquire({ a: 1, b: 1 });
  return limiter;
}

/** 10 a second, nothing stored; the first permit is used. */
function started(clock: Clock, options: LimiterOptions = {}) {
  const limiter = RateLimiter.create(10, { burstSeconds: 0, ...options, clock });
  limiter.tryAcquire();
  return limiter;
}

/** Reserves for a caller that waits. */
function awaited(limiter: object, permits: Permits, backlog?: RequestSequence): LocalReservation {
  return (limiter as SequenceLimiter)[reserveAwaited](permits, backlog) as LocalReservation;
}

const late = suite("queue, a timer that is late");

late("a backlog of requests begins behind the last of them, under every policy", () => {
  const clock = new StuckClock();
  const limiter = pair(clock);
  const backlog = new RequestSequence();
  const ask = (permits: Permits) => awaited(limiter, permits, backlog).waitMs;
  assert.is(ask({ a: 1 }), 100);
  clock.ms = 350;
  assert.equal([ask({ a: 1 }), ask({ b: 1 })], [0, 0]);
  // at 300 ms, and at 400 ms
  assert.equal([ask({ b: 1 }), ask({ b: 1 })], [0, 50]);
});

late("a backlog does not go on in a pause", () => {
  const clock = new StuckClock();
  const limiter = started(clock);
  const backlog = new RequestSequence();
  assert.is(awaited(limiter, 1, backlog).waitMs, 100);
  clock.ms = 350;
  limiter.pause(1000);
  assert.is(awaited(limiter, 1, backlog).waitMs, 1000);
});

late("a caller that is slow by itself ends the credit for a late timer", async () => {
  const clock = new StuckClock();
  const limiter = started(clock);
  const waiter = watch(clock, limiter.acquire());
  await clock.wake(105);
  assert.is(waiter.at, 105);
  clock.ms = 300;
  assert.is(limiter.tryAcquire(), true);
  clock.ms = 402;
  assert.is(limiter.tryAcquire(), true);
  assert.is(limiter.peek().waitMs, 100);
});

late("a backlog that begins now has the credit for a late timer, like other callers", async () => {
  const clock = new StuckClock();
  const limiter = pair(clock);
  const backlog = new RequestSequence();
  void limiter.acquire({ a: 1 });
  await clock.wake(105);
  awaited(limiter, { a: 1 }, backlog).cancel();
  assert.is(awaited(limiter, { b: 1 }, backlog).waitMs, 0);
  assert.is(limiter.peek({ b: 1 }).waitMs, 95);
});

late("a waiter that leaves from behind the head does not delay it", async () => {
  const clock = new StuckClock();
  const limiter = Limiter.create(slidingLog({ limit: 2, windowMs: 100 }), { clock });
  limiter.tryAcquire();
  clock.ms = 50;
  limiter.tryAcquire();
  const abort = new AbortController();
  const head = watch(clock, limiter.acquire(1));
  limiter.acquire(2, { signal: abort.signal }).catch(() => {});
  clock.ms = 240;
  abort.abort();
  await turn();
  assert.is(head.at, 240);
  // the head took the permit of 100 ms, which is back since 200 ms
  assert.is(limiter.peek(2).waitMs, 0);
});

late.run();

const crowded = suite("queue, others that wait");

crowded("fair: who may go before those that wait needs no room in the queue", async () => {
  const clock = new FakeClock();
  const policy = leakyBucket({ permitsPerSecond: 10, capacity: 4, slack: 4 });
  const limiter = Limiter.create(policy, { clock, order: fairShares(), maxWaiting: 7 });
  await clock.advance(10_000);
  assert.is(await limiter.acquire(2, { share: "a" }), 0);
  void limiter.acquire(4, { share: "a" });
  void limiter.acquire(3, { share: "a" });
  assert.is(limiter.stats.waiting, 2);
  const { allowed, waitMs } = limiter.peek(1, { share: "b" });
  assert.equal([allowed, waitMs], [true, 0]);
});

crowded("any of several policies may bound how much waits", async () => {
  const clock = new FakeClock();
  const bounded = leakyBucket({ permitsPerSecond: 10, capacity: 1 });
  const limiter = Limiter.create({ free: slow(1e6), bounded }, { clock });
  limiter.tryAcquire({ bounded: 1 });
  void limiter.acquire({ bounded: 1 });
  assert.instance(await failure(() => limiter.acquire({ bounded: 1 })), QueueFullError);
});

crowded("changes behind a reservation apply in order", () => {
  const limiter = started(new FakeClock());
  limiter.reserve();
  limiter.charge(1);
  limiter.setRate(1);
  // a permit for the charge still takes 100 ms
  assert.is(limiter.peek().waitMs, 300);
});

crowded("a reservation for a caller that waits is delayed by a charge before ready()", async () => {
  const clock = new FakeClock();
  const limiter = started(clock);
  const reservation = awaited(limiter, 1);
  limiter.charge(1);
  await clock.advance(150);
  const ready = watch(clock, reservation.ready());
  await clock.advance(50);
  assert.is(ready.at, 200);
});

crowded("after ready() was called twice, a reservation without callers sets no timer", async () => {
  const clock = new StuckClock();
  const limiter = started(clock);
  const reservation = limiter.reserve();
  const both = [reservation.ready(), reservation.ready()];
  await clock.wake(100);
  await Promise.all(both);
  limiter.reserve();
  assert.is(clock.timers.size, 0);
});

crowded("the earliest of several deadlines is met, also if its caller came last", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock });
  limiter.tryAcquire();
  const calls = [1000, 100].map((timeoutMs) => watch(clock, limiter.tryAcquire(1, timeoutMs)));
  await clock.advance(2000);
  assert.equal(
    calls.map(({ at }) => at),
    [1000, 100],
  );
});

crowded(
  "a slot that is freed just before the deadline is granted, however often callers look",
  async () => {
    const clock = new FakeClock();
    const limiter = ConcurrencyLimiter.create(1, { clock });
    const held = limiter.tryAcquire();
    const timed = watch(clock, limiter.tryAcquire(1, 100));
    await clock.advance(99.999);
    assert.is(limiter.tryAcquire(), undefined);
    held?.release();
    await turn();
    assert.ok(timed.value);
  },
);

crowded.run();

const messages = suite("queue, messages about waiters that leave");

messages("they say how long a caller has waited, and why it left", async () => {
  const received = listener();
  received.start();
  const clock = new FakeClock();
  const abort = new AbortController();
  const limiter = started(clock, { maxWaiting: 2, onFull: "drop-oldest" });
  await clock.advance(10);
  limiter.acquire(1).catch(() => {});
  limiter.acquire(1, { signal: abort.signal }).catch(() => {});
  await clock.advance(20);
  void limiter.acquire(1);
  abort.abort("enough");
  await turn();
  received.stop();
  const facts = received.takeMessages().map(([event, { waitedMs, reason }]) => {
    return [event, waitedMs, reason];
  });
  assert.equal(facts, [
    ["refused", 20, "queue-full"],
    ["cancelled", 20, "enough"],
  ]);
});

messages.run();
