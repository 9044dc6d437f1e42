import { getEventListeners } from "node:events";
import * as assert from "uvu/assert";
import { type Clock, Limiter, RateLimiter, smoothBursty } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

/**
 * Time stays where it is set, also further back, and no waiter is woken except by `wake`: early,
 * late, or never.
 */
class ManualClock implements Clock {
  ms = 0;
  /** How often a timer was set. */
  armed = 0;
  readonly timers = new Map<() => void, number>();

  now(): number {
    return this.ms;
  }

  wakeAt(timeMs: number, wake: () => void) {
    this.armed += 1;
    const own = () => wake();
    this.timers.set(own, timeMs);
    return { cancel: () => void this.timers.delete(own) };
  }

  /** Fires every timer, due or not, at that time. */
  async wake(ms = this.ms): Promise<void> {
    this.ms = ms;
    for (const wake of [...this.timers.keys()]) {
      this.timers.delete(wake);
      wake();
    }
    await turn();
  }

  /** The instants for which timers are set. */
  get set(): number[] {
    return [...this.timers.values()];
  }
}

/** A limiter that stores nothing, 10 a second by default, whose first permit is used. */
function started(permitsPerSecond = 10, startMs = 0) {
  const clock = new ManualClock();
  clock.ms = startMs;
  const limiter = RateLimiter.create(permitsPerSecond, { burstSeconds: 0, clock });
  limiter.charge(1);
  const acquire = (signal?: AbortSignal) => watch(clock, limiter.acquire(1, { signal }));
  /** The number of releases at this instant. */
  const burst = () => {
    let granted = 0;
    while (limiter.tryAcquire()) granted += 1;
    return granted;
  };
  return { clock, limiter, acquire, burst };
}

const timer = suite("waiter queue, the timer");

timer("one timer, for the head, serves any number of waiters", async () => {
  const { clock, acquire } = started();
  const waiting = Array.from({ length: 1000 }, () => acquire());
  assert.equal([clock.set, clock.armed], [[100], 1]);
  await clock.wake(100);
  assert.equal([clock.set, clock.armed], [[200], 2]);
  assert.is(waiting[0]?.at, 100);
});

timer("the timer is set anew once when many are cancelled in one turn", async () => {
  const { clock, acquire } = started();
  const controllers = Array.from({ length: 100 }, () => new AbortController());
  for (const { signal } of controllers) acquire(signal);
  const last = acquire();
  for (const controller of controllers) controller.abort();
  await turn();
  assert.equal([clock.set, clock.armed], [[100], 1]);
  await clock.wake(100);
  assert.equal([last.at, clock.set, clock.armed], [100, [], 1]);
});

timer("reservations that are not awaited need no timer", async () => {
  const { clock, limiter, acquire } = started();
  const [first, second] = [limiter.reserve(), limiter.reserve()];
  assert.equal(clock.set, []);
  const ready = watch(clock, second.ready());
  assert.equal(clock.set, [100]);
  second.cancel();
  await turn();
  assert.equal([clock.set, ready.at], [[], 0]);
  const controller = new AbortController();
  acquire(controller.signal);
  assert.equal(clock.set, [100]);
  controller.abort();
  await turn();
  assert.equal(clock.set, []);
  assert.is(first.waitMs, 100);
});

timer("the timer is removed with the last waiter, and set again for the next", async () => {
  const { clock, acquire } = started();
  acquire();
  await clock.wake(100);
  assert.equal(clock.set, []);
  acquire();
  assert.equal(clock.set, [200]);
});

timer("a timer that fires early is set again", async () => {
  const { clock, acquire } = started();
  const [first, second] = [acquire(), acquire()];
  for (const early of [0, 50, 99.9989]) {
    await clock.wake(early);
    assert.equal([clock.set, first.at], [[100], undefined]);
  }
  await clock.wake(100);
  assert.equal([first.at, second.at, clock.set], [100, undefined, [200]]);
});

timer("the timer follows setRate, pause, charge and refund", () => {
  const { clock, limiter, acquire } = started();
  acquire();
  limiter.charge(1);
  assert.equal(clock.set, [200]);
  limiter.refund(1);
  assert.equal(clock.set, [100]);
  limiter.pause(150);
  assert.equal(clock.set, [150]);
  limiter.setRate(1);
  assert.equal(clock.set, [150]);
});

timer("the timer is on the clock's scale, wherever that begins", () => {
  const start = 1_700_000_000_000.123;
  const { clock, limiter, acquire } = started(10, start);
  acquire();
  const [at = 0] = clock.set;
  assert.ok(Math.abs(at - (start + 100)) < 0.002);
  clock.ms = at;
  assert.is(limiter.peek().waitMs, 100);
});

timer("the timer is on the clock's scale, also below 0", async () => {
  const { clock, limiter, acquire } = started(10, -1000);
  const waited = acquire();
  assert.equal(clock.set, [-900]);
  await clock.wake(-900.001);
  assert.is(limiter.peek().waitMs, 100.001);
  await clock.wake(-900);
  assert.equal([waited.at, waited.value], [-900, 100]);
});

timer.run();

const late = suite("waiter queue, late timers");

late("a late timer releases all due waiters in order, each charged at its instant", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [1, 2, 3, 4, 5].map(acquire.bind(undefined, undefined));
  const reservation = limiter.reserve();
  assert.is(reservation.waitMs, 600);
  await clock.wake(450);
  assert.equal(instants(waiting), [450, 450, 450, 450, undefined]);
  assert.equal(clock.set, [500]);
  await clock.wake(700);
  assert.is(waiting[4]?.value, 700);
  assert.is(await reservation.ready(), 600);
});

late("a late timer costs a caller that asks again at once nothing", async () => {
  const { clock, limiter, acquire } = started(1000);
  for (let ms = 1; ms <= 50; ms++) {
    const waited = acquire();
    assert.equal(clock.set, [ms]);
    await clock.wake(ms + 0.9);
    assert.is(waited.at, ms + 0.9);
  }
  assert.ok(Math.abs(limiter.peek().waitMs - 0.1) < 1e-9);
});

late("a late timer gives a credit of at most 10 ms", async () => {
  const { clock, acquire, burst } = started(1000);
  acquire();
  await clock.wake(5000);
  // from 4990 to 5000, both included
  assert.is(burst(), 11);
  clock.ms = 5001;
  assert.is(burst(), 1);
  clock.ms = 5100;
  assert.is(burst(), 1);
});

late("a late timer's credit is at most its lateness, and expires after as long", async () => {
  const { clock, acquire, burst } = started(1000);
  acquire();
  await clock.wake(4);
  // the waiter was released at 1; 2, 3, 4 are left
  assert.is(burst(), 3);
  clock.ms = 6.999;
  assert.is(burst(), 2);
  clock.ms = 10;
  assert.is(burst(), 1);
});

late("a credit that is not used expires: credits never add up", async () => {
  const { clock, acquire, burst } = started(1000);
  for (const start of [100, 200, 300, 400]) {
    clock.ms = start;
    acquire();
    acquire();
    await clock.wake(start + 4);
  }
  // the last timer was late by 3: as if it were 403.9, and three more after that
  clock.ms = 406.9;
  assert.is(burst(), 4);
});

late("a credit does not last for hours", async () => {
  for (const hours of [[1, 2, 3, 30], [2]]) {
    const { clock, acquire, burst } = started(1000);
    acquire();
    await clock.wake(9);
    for (const hour of hours) {
      clock.ms = hour * 3_600_000;
      assert.is(burst(), 1);
    }
  }
});

late("a late timer releases no waiter before its instant", async () => {
  const { clock, limiter, acquire } = started();
  const [first, second] = [acquire(), acquire()];
  await clock.wake(108);
  assert.equal([first.at, second.at, clock.set], [108, undefined, [200]]);
  assert.is(limiter.decide().waitMs, 192);
  await clock.wake(199.999);
  assert.is(second.at, undefined);
});

late("a timed tryAcquire that was due in time answers true despite a late timer", async () => {
  const { clock, limiter } = started();
  const timed = watch(clock, limiter.tryAcquire(1, 100));
  await clock.wake(5000);
  assert.equal([timed.at, timed.value], [5000, true]);
});

late("a caller that comes before the late timer is credited too", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [acquire(), acquire(), acquire()];
  clock.ms = 250;
  assert.is(limiter.peek().waitMs, 150);
  await turn();
  assert.equal(instants(waiting), [250, 250, undefined]);
  await clock.wake();
  assert.equal(clock.set, [300]);
});

late("a head that leaves before a late timer fires costs later waiters nothing", async () => {
  const { clock, acquire } = started();
  const controller = new AbortController();
  const head = acquire(controller.signal);
  const waiting = [acquire(), acquire(), acquire()];
  clock.ms = 250;
  controller.abort();
  await turn();
  assert.is(head.at, 250);
  // their instants are 100, 200 and 300 now, or 200, 300 and 400 if the head's permit is lost; not
  // 250, 350 and 450
  assert.is(waiting[0]?.at, 250);
  await clock.wake(300);
  assert.ok(waiting[1]?.at !== undefined);
  await clock.wake(400);
  assert.ok(waiting[2]?.at !== undefined);
});

late.run();

const back = suite("waiter queue, a clock that steps back");

back("a clock that steps back creates no permits and does not lock up", async () => {
  const { clock, limiter, burst } = started(10, 1e6);
  clock.ms = 1e6 + 50;
  assert.is(limiter.peek().waitMs, 50);
  for (const ms of [1e6, 0, -1e9]) {
    clock.ms = ms;
    assert.is(limiter.peek().waitMs, 50);
    assert.is(burst(), 0);
  }
  clock.ms += 50;
  assert.is(burst(), 1);
});

back("a step back sets the timer anew: waiters are released after the time left", async () => {
  const { clock, limiter, acquire } = started(10, 1000);
  const waiting = [acquire(), acquire()];
  assert.equal(clock.set, [1100]);
  clock.ms = 1030;
  assert.is(limiter.tryAcquire(), false);
  clock.ms = 500;
  assert.is(limiter.tryAcquire(), false);
  await turn();
  assert.equal(clock.set, [570]);
  await clock.wake(570);
  await clock.wake(669.999);
  assert.equal(instants(waiting), [570, undefined]);
  await clock.wake(670);
  assert.equal(instants(waiting), [570, 670]);
});

back("a step back that is first seen on waking sets the timer anew too", async () => {
  const { clock, acquire } = started(10, 1000);
  const waited = acquire();
  await clock.wake(400);
  assert.equal([clock.set, waited.at], [[500], undefined]);
  await clock.wake(500);
  assert.equal([waited.at, waited.value], [500, 100]);
});

back("a clock that returns no time is an error that changes nothing", async () => {
  const { clock, limiter } = started();
  for (const strange of [Number.NaN, Infinity, -Infinity]) {
    clock.ms = strange;
    assert.instance(await failure(() => limiter.acquire()), TypeError);
    assert.throws(() => limiter.tryAcquire(), /clock\.now\(\)/);
    clock.ms = 40;
    assert.is(limiter.peek().waitMs, 60);
  }
});

back.run();

const listeners = suite("waiter queue, listeners on signals");

listeners("waiters of one signal share a listener, removed with the last of them", async () => {
  const { clock, limiter, acquire } = started();
  const { signal } = new AbortController();
  const count = () => getEventListeners(signal, "abort").length;
  const reservation = limiter.reserve();
  watch(clock, reservation.ready({ signal }));
  acquire(signal);
  watch(clock, limiter.tryAcquire(1, { signal }));
  assert.is(count(), 1);
  await clock.wake(100);
  await clock.wake(200);
  assert.is(count(), 1);
  await clock.wake(300);
  assert.is(count(), 0);
  acquire(signal);
  assert.is(count(), 1);
});

listeners("a caller that is served at once, refused or aborted adds no listener", async () => {
  const { clock, limiter } = started();
  const controller = new AbortController();
  const { signal } = controller;
  const count = () => getEventListeners(signal, "abort").length;
  assert.is(await limiter.tryAcquire(1, { signal, timeoutMs: 99 }), false);
  clock.ms = 100;
  assert.is(await limiter.acquire(1, { signal }), 0);
  assert.is(count(), 0);
  controller.abort();
  await failure(() => limiter.acquire(1, { signal }));
  assert.is(count(), 0);
});

listeners("the listener is removed on a missed time-out, on cancel, and on abort", async () => {
  const { clock, limiter, acquire } = started();
  const [timed, cancelled, aborted] = [1, 2, 3].map(() => new AbortController());
  const counts = () =>
    [timed, cancelled, aborted].map((controller) =>
      controller ? getEventListeners(controller.signal, "abort").length : Number.NaN,
    );
  const refused = watch(clock, limiter.tryAcquire(1, { timeoutMs: 100, signal: timed?.signal }));
  const reservation = limiter.reserve();
  watch(clock, reservation.ready({ signal: cancelled?.signal }));
  acquire(aborted?.signal);
  assert.equal(counts(), [1, 1, 1]);
  limiter.pause(500);
  await turn();
  assert.equal([refused.value, ...counts()], [false, 0, 1, 1]);
  reservation.cancel();
  assert.equal(counts(), [0, 0, 1]);
  aborted?.abort();
  assert.equal(counts(), [0, 0, 0]);
});

listeners("each of many limiters obeys a signal that they share", async () => {
  const [one, two] = [started(), started()];
  const controller = new AbortController();
  const waiting = [one.acquire(controller.signal), two.acquire(controller.signal)];
  assert.is(getEventListeners(controller.signal, "abort").length, 2);
  controller.abort("both");
  await turn();
  assert.equal(
    waiting.map(({ error }) => error),
    ["both", "both"],
  );
});

listeners.run();

const long = suite("waiter queue, long waits");

long("waiters of years are released at their instants", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1 / 86_400, { clock, burstSeconds: 0 });
  limiter.charge(1000);
  const waited = watch(clock, limiter.acquire());
  await clock.advance(1000 * 86_400_000 - 0.001);
  assert.is(waited.at, undefined);
  await clock.advance(0.001);
  assert.is(waited.value, 86_400_000_000);
});

long("after hours, debts, pauses and waiters are as exact as in the first minute", async () => {
  const clock = new FakeClock(12_345.678);
  const limiter = RateLimiter.create(3, { clock, burstSeconds: 0 });
  for (let hour = 0; hour < 30; hour += 5) {
    // without waiters nothing is owed
    await clock.advance(5 * 3_600_000 - 10_000);
    assert.equal([limiter.tryAcquire(), limiter.tryAcquire()], [true, false]);
    assert.is(limiter.peek().waitMs, 333.334);
    await clock.advance(10_000);
    // a debt of two hours, with a waiter all the time
    limiter.charge(2 * 3600 * 3);
    const debtor = watch(clock, limiter.acquire());
    const start = clock.now();
    await clock.advance(2 * 3_600_000 - 0.001);
    assert.is(debtor.at, undefined);
    await clock.advance(1000.001);
    assert.is(debtor.at, start + 2 * 3_600_000);
    // a debt and a pause of two hours, without a waiter
    for (const action of ["pause", "charge"] as const) {
      if (action === "pause") limiter.pause(2 * 3_600_000);
      else limiter.charge(2 * 3600 * 3);
      await clock.advance(3_599_999);
      assert.is(limiter.peek().waitMs, 3_600_001, action);
      await clock.advance(3_600_000.999);
      assert.is(limiter.decide().waitMs, 0.001, action);
      await clock.advance(0.001);
      assert.is(limiter.peek().waitMs, 0, action);
    }
  }
});

long("the rate stays exact after a year", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(3_000_000, { clock, burstSeconds: 0 });
  await clock.advance(365 * 86_400_000);
  for (let i = 0; i < 30_000; i++) limiter.charge(1);
  assert.is(limiter.peek().waitMs, 10);
});

long("long waits for several policies end when all policies agree", async () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ a: policy(3), b: policy(7) }, { clock });
  limiter.charge({ a: 3 * 86_400 });
  const waiting = [1, 2, 3].map(() => watch(clock, limiter.acquire()));
  await clock.advance(2 * 86_400_000);
  assert.equal(instants(waiting), [86_400_000, 86_400_333.334, 86_400_666.667]);
});

long.run();
