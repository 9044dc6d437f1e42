import { getEventListeners } from "node:events";
import * as assert from "uvu/assert";
import { Limiter, RateLimiter, ReservationCancelledError, smoothBursty } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

/** 10 a second, nothing stored, and the first permit is used. */
function started() {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { burstSeconds: 0, clock });
  limiter.charge(1);
  return { clock, limiter };
}

/** Two policies, 10 and 1000 a second, nothing stored. */
function pair() {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ requests: policy(10), tokens: policy(1000) }, { clock });
  return { clock, limiter };
}

const waiting = suite("reservation, ready");

waiting("a reservation shows its permits and its wait", async () => {
  const { clock, limiter } = started();
  const permits = { default: 3 };
  const reservation = limiter.reserve(permits);
  assert.is(reservation.permits, permits);
  assert.is(reservation.waitMs, 100);
  await clock.advance(40);
  assert.is(reservation.waitMs, 100);
  const ready = watch(clock, reservation.ready());
  await clock.advance(60);
  assert.equal([ready.at, ready.value], [100, 100]);
});

waiting("ready() resolves to the wait since reserve(), for every caller, also late", async () => {
  const { clock, limiter } = started();
  const reservation = limiter.reserve();
  const early = [watch(clock, reservation.ready()), watch(clock, reservation.ready())];
  await clock.advance(5000);
  assert.equal([...instants(early), await reservation.ready()], [100, 100, 100]);
  const unseen = limiter.reserve(0.5);
  assert.equal([unseen.waitMs, await unseen.ready()], [0, 0]);
});

waiting("the instant is earlier when a waiter ahead leaves, and later under a pause", async () => {
  const { clock, limiter } = started();
  const ahead = limiter.reserve(5);
  const reservation = limiter.reserve();
  assert.is(reservation.waitMs, 600);
  ahead.cancel();
  const ready = watch(clock, reservation.ready());
  limiter.pause(300);
  await clock.advance(1000);
  assert.equal([reservation.waitMs, ready.at, ready.value], [600, 300, 300]);
});

waiting("two ready() calls with different signals: each signal ends both waits", async () => {
  for (const which of [0, 1]) {
    const { clock, limiter } = started();
    const controllers = [new AbortController(), new AbortController()];
    const reservation = limiter.reserve();
    const plain = watch(clock, reservation.ready());
    const calls = controllers.map(({ signal }) => watch(clock, reservation.ready({ signal })));
    const behind = watch(clock, limiter.acquire());
    await clock.advance(20);
    const reason = new Error("enough");
    controllers[which]?.abort(reason);
    await clock.advance(80);
    for (const { at, error } of [plain, ...calls]) assert.equal([at, error === reason], [20, true]);
    assert.is(behind.at, 100);
    assert.is(reservation.cancel(), false);
  }
});

waiting("two calls of ready() with one signal leave no listener on it afterwards", async () => {
  const { clock, limiter } = started();
  const { signal } = new AbortController();
  const reservation = limiter.reserve();
  const calls = [1, 2].map(() => watch(clock, reservation.ready({ signal })));
  await clock.advance(100);
  assert.equal(instants(calls), [100, 100]);
  assert.equal(getEventListeners(signal, "abort"), []);
});

waiting("two calls of ready() with different signals: a later abort has no effect", async () => {
  const { clock, limiter } = started();
  const controllers = [new AbortController(), new AbortController()];
  for (const how of ["released", "cancelled"]) {
    const reservation = limiter.reserve();
    const calls = controllers.map(({ signal }) => watch(clock, reservation.ready({ signal })));
    for (const { signal } of controllers) assert.is(getEventListeners(signal, "abort").length, 1);
    if (how === "cancelled") reservation.cancel();
    await clock.advance(100);
    assert.ok(calls.every(({ at }) => at !== undefined));
    for (const { signal } of controllers) assert.is(getEventListeners(signal, "abort").length, 0);
  }
  const behind = watch(clock, limiter.acquire(2));
  for (const controller of controllers) controller.abort();
  await clock.advance(1000);
  assert.is(behind.at, 200);
});

waiting("a signal that is aborted already cancels the reservation, unless it is due", async () => {
  const { clock, limiter } = started();
  const reason = new Error("before");
  const signal = AbortSignal.abort(reason);
  const [due, cancelled] = [limiter.reserve(), limiter.reserve()];
  await clock.advance(100);
  assert.is(await failure(() => due.ready({ signal })), reason);
  assert.is(await due.ready(), 100);
  assert.is(await failure(() => cancelled.ready({ signal })), reason);
  const error = await failure(() => cancelled.ready());
  assert.instance(error, ReservationCancelledError);
  const { code, facts, message } = error as ReservationCancelledError;
  assert.equal([code, facts], ["RESERVATION_CANCELLED", { waitMs: 200 }]);
  assert.match(message, "200");
  assert.is(limiter.peek().waitMs, 100);
});

waiting("a signal aborted after the due instant changes nothing", async () => {
  const { clock, limiter } = started();
  const controller = new AbortController();
  const reservation = limiter.reserve();
  const ready = watch(clock, reservation.ready({ signal: controller.signal }));
  await clock.advance(100);
  controller.abort();
  await clock.advance(0);
  assert.equal([ready.value, await reservation.ready()], [100, 100]);
  assert.is(limiter.peek().waitMs, 100);
});

waiting.run();

const cancelling = suite("reservation, cancel");

cancelling("cancel returns true before the due instant, otherwise false", async () => {
  const { clock, limiter } = started();
  const [early, punctual, late] = [limiter.reserve(), limiter.reserve(), limiter.reserve()];
  assert.equal([early.cancel(), early.cancel()], [true, false]);
  await clock.advance(100);
  assert.is(punctual.cancel(), false);
  await clock.advance(5000);
  assert.is(late.cancel(), false);
  clock.wakeAt(5300, () => {});
  assert.is(limiter.reserve().cancel(), false);
});

cancelling("cancel rejects every pending ready() at once", async () => {
  const { clock, limiter } = started();
  const reservation = limiter.reserve();
  const ready = [watch(clock, reservation.ready()), watch(clock, reservation.ready())];
  await clock.advance(30);
  reservation.cancel();
  await clock.advance(0);
  for (const { at, error } of ready) {
    assert.equal([at, error instanceof ReservationCancelledError], [30, true]);
  }
});

cancelling.run();

const settling = suite("reservation, settle");

settling("permits usable at once: ready() obeys its signal, cancel returns false", async () => {
  const limiter = RateLimiter.create(1);
  const reservation = limiter.reserve();
  assert.equal([await reservation.ready(), await reservation.ready({})], [0, 0]);
  assert.is(await failure(() => reservation.ready({ signal: AbortSignal.abort("no") })), "no");
  assert.instance(await failure(() => reservation.ready({ signals: 5 } as object)), TypeError);
  assert.is(reservation.cancel(), false);
});

/**
 * The wait of the next caller, where a reservation of 10 is settled in this way at that time, ms.
 */
async function nextAfter(at: number, ...actuals: number[]): Promise<number> {
  const { clock, limiter } = started();
  const reservation = limiter.reserve(10);
  await clock.advance(at);
  for (const actual of actuals) reservation.settle(actual);
  return clock.now() + limiter.peek().waitMs;
}

settling("settle with more permits charges later callers", async () => {
  for (const at of [0, 50, 100, 150]) assert.is(await nextAfter(at, 15), 1600, `at ${at}`);
});

settling("settle with fewer permits gives the rest back", async () => {
  for (const at of [0, 50, 100, 150]) assert.is(await nextAfter(at, 4), 500, `at ${at}`);
});

settling("settle with 0 gives all permits back", async () => {
  for (const at of [0, 50, 100]) assert.is(await nextAfter(at, 0), 100, `at ${at}`);
});

settling("settle with the same number changes nothing", async () => {
  for (const at of [0, 50, 100, 150]) assert.is(await nextAfter(at, 10), 1100, `at ${at}`);
});

settling("settle again and again: the last call counts", async () => {
  for (const at of [0, 50, 100, 150]) {
    assert.is(await nextAfter(at, 15, 15), 1600);
    assert.is(await nextAfter(at, 15, 4), 500);
  }
  // permits given back at 150 are time that is not stored: only before the due instant is it as if
  // they had never been taken
  for (const at of [0, 50, 100]) {
    assert.is(await nextAfter(at, 0, 3, 12), 1300);
  }
});

settling("settle before the due instant to an estimate, afterwards to the actual use", async () => {
  const { clock, limiter } = started();
  const reservation = limiter.reserve(10);
  reservation.settle(20);
  await clock.advance(100);
  assert.is(limiter.peek().waitMs, 2000);
  reservation.settle(5);
  assert.is(limiter.peek().waitMs, 500);
});

settling("settle works on a reservation that was usable at once", () => {
  const { limiter } = started();
  const clock = new FakeClock();
  const fresh = RateLimiter.create(10, { burstSeconds: 0, clock });
  const reservation = fresh.reserve(10);
  reservation.settle(15);
  assert.is(fresh.peek().waitMs, 1500);
  reservation.settle(1);
  assert.equal(fresh.peek(), limiter.peek());
});

settling("settle re-times the waiters behind the reservation, not the reservation", async () => {
  const { clock, limiter } = started();
  const reservation = limiter.reserve(2);
  const ready = watch(clock, reservation.ready());
  const behind = [watch(clock, limiter.acquire()), watch(clock, limiter.tryAcquire(1, 450))];
  reservation.settle(5);
  await clock.advance(0);
  assert.equal([behind[1]?.at, behind[1]?.value], [0, false]);
  await clock.advance(50);
  reservation.settle(1);
  await clock.advance(5000);
  assert.equal([ready.at, behind[0]?.at], [100, 200]);
});

settling("settle after cancel charges what was used nevertheless", () => {
  const { limiter } = started();
  const reservation = limiter.reserve(10);
  reservation.cancel();
  assert.is(limiter.peek().waitMs, 100);
  reservation.settle(3);
  assert.is(limiter.peek().waitMs, 400);
  reservation.settle(0);
  assert.is(limiter.peek().waitMs, 100);
});

settling("settle by name: the policies that are not named stay as they are", async () => {
  const { clock, limiter } = pair();
  const reservation = limiter.reserve({ requests: 1, tokens: 500 });
  const waits = () => [
    limiter.peek({ requests: 1 }).waitMs,
    limiter.peek({ tokens: 1 }).waitMs,
    limiter.peek().waitMs,
  ];
  assert.equal(waits(), [100, 500, 500]);
  reservation.settle({ tokens: 800 });
  assert.equal(waits(), [100, 800, 800]);
  reservation.settle({ tokens: 20, requests: 3 });
  assert.equal(waits(), [300, 20, 300]);
  reservation.settle(2);
  assert.equal(waits(), [200, 2, 200]);
  await clock.advance(100);
  reservation.settle({ requests: 0 });
  assert.is(limiter.peek({ requests: 1 }).waitMs, 0);
});

settling("settle by name charges a policy not requested before, and moves no instant", async () => {
  const { clock, limiter } = pair();
  limiter.charge({ requests: 1, tokens: 5000 });
  const reservation = limiter.reserve({ requests: 1 });
  const ready = watch(clock, reservation.ready());
  assert.is(reservation.waitMs, 100);
  reservation.settle({ tokens: 100 });
  await clock.advance(100);
  assert.is(ready.at, 100);
  assert.equal(
    [limiter.peek({ requests: 1 }).waitMs, limiter.peek({ tokens: 1 }).waitMs],
    [100, 5000],
  );
});

settling("settle by name: dropping a policy releases the reservation from now on", async () => {
  const { clock, limiter } = pair();
  limiter.charge({ tokens: 5000 });
  const reservation = limiter.reserve({ requests: 1, tokens: 10 });
  const ready = watch(clock, reservation.ready());
  const behind = [1, 2, 3].map(() => watch(clock, limiter.acquire({ requests: 1 })));
  await clock.advance(1000);
  reservation.settle({ tokens: 0 });
  await clock.advance(1000);
  assert.equal([reservation.waitMs, ready.at], [5000, 1000]);
  assert.equal(instants(behind), [1100, 1200, 1300]);
});

settling.run();
