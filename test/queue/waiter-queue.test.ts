import * as assert from "uvu/assert";
import {
  Limiter,
  QueueFullError,
  RateLimiter,
  type RateLimiterOptions,
  ReservationCancelledError,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

/**
 * A limiter whose first permit is used: it stores nothing, and the next ones are due every 1000 /
 * permitsPerSecond ms.
 */
function started(permitsPerSecond = 10, options: RateLimiterOptions = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(permitsPerSecond, { burstSeconds: 0, ...options, clock });
  limiter.charge(1);
  const acquire = (permits = 1, signal?: AbortSignal) =>
    watch(clock, limiter.acquire(permits, { signal }));
  return { clock, limiter, acquire };
}

const order = suite("waiter queue, order");

order("waiters are first in, first out, for every verb and every number of permits", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [
    acquire(1),
    watch(clock, limiter.tryAcquire(3, 10_000)),
    watch(clock, limiter.reserve(2).ready()),
    acquire(0.5),
    acquire(1),
  ];
  await clock.advance(2000);
  assert.equal(instants(waiting), [100, 200, 500, 700, 750]);
  assert.equal(
    waiting.map(({ value }) => value),
    [100, true, 500, 700, 750],
  );
});

order("promises that are released at one instant resolve in the order of the calls", async () => {
  const { clock, limiter } = started(10, { burstSeconds: 1, prefilled: true });
  limiter.pause(1000);
  const released: number[] = [];
  const { signal } = new AbortController();
  const waiting = [
    limiter.tryAcquire(1, 5000),
    limiter.acquire(),
    limiter.reserve().ready(),
    limiter.acquire(1, { signal }),
    limiter.tryAcquire(1, { signal }),
    limiter.acquire(),
  ];
  waiting.forEach((promise, place) => void promise.then(() => released.push(place)));
  await clock.advance(1000);
  assert.equal(released, [0, 1, 2, 3, 4, 5]);
});

order("a later caller never overtakes, even if the policy would allow it now", async () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ slow: policy(1), fast: policy(100) }, { clock });
  limiter.tryAcquire({ slow: 1 });
  const slow = watch(clock, limiter.acquire({ slow: 1 }));
  const fast = watch(clock, limiter.acquire({ fast: 1 }));
  assert.is(limiter.tryAcquire({ fast: 1 }), false);
  assert.is(await limiter.tryAcquire({ fast: 1 }, 1000), false);
  const { waitMs, remaining } = limiter.decide({ fast: 1 });
  assert.equal([waitMs, remaining], [1010, 0]);
  await clock.advance(1000);
  assert.equal(instants([slow, fast]), [1000, 1000]);
});

order("a tryAcquire at the very instant of the head comes after it", async () => {
  const { clock, limiter, acquire } = started();
  const first = acquire();
  let refused: boolean | undefined;
  clock.wakeAt(100, () => {
    refused = !limiter.tryAcquire();
  });
  await clock.advance(100);
  assert.equal([first.at, refused], [100, true]);
});

order(
  "an estimate counts all who wait, also after those that it counted before have gone",
  async () => {
    const { clock, limiter, acquire } = started();
    acquire();
    assert.is(limiter.peek().waitMs, 200);
    await clock.advance(100);
    acquire();
    assert.is(limiter.peek().waitMs, 200);
  },
);

order("an estimate counts a caller that came after the last one was refused", async () => {
  const { clock, limiter, acquire } = started();
  acquire();
  const timed = watch(clock, limiter.tryAcquire(1, 250));
  limiter.charge(1);
  const last = acquire();
  assert.is(limiter.peek().waitMs, 400);
  await clock.advance(1000);
  assert.equal([timed.value, last.at], [false, 300]);
});

order("a caller behind a charge that waits for a reservation does not overtake it", () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ slow: policy(1), fast: policy(100) }, { clock });
  limiter.tryAcquire({ slow: 1 });
  assert.is(limiter.reserve({ slow: 1 }).waitMs, 1000);
  limiter.charge({ fast: 1 });
  for (let looks = 0; looks < 3; looks++) assert.is(limiter.peek({ fast: 1 }).waitMs, 1000);
  assert.is(limiter.reserve({ fast: 1 }).waitMs, 1000);
});

order("a charge behind a reservation is counted once, however often callers look", () => {
  const { limiter } = started();
  limiter.reserve();
  limiter.charge(1);
  for (let looks = 0; looks < 3; looks++) assert.is(limiter.peek().waitMs, 300);
});

order.run();

const cancelling = suite("waiter queue, cancelling");

cancelling("a cancel by signal moves up the waiters behind, at any place", async () => {
  for (const gone of [0, 1, 2, 3]) {
    const { clock, acquire } = started();
    const controller = new AbortController();
    const waiting = [0, 1, 2, 3].map((place) =>
      acquire(place + 1, place === gone ? controller.signal : undefined),
    );
    await clock.advance(50);
    const reason = new Error("not needed");
    controller.abort(reason);
    await clock.advance(5000);
    const left = waiting.splice(gone, 1);
    assert.equal([left[0]?.at, left[0]?.error === reason], [50, true]);
    const sizes = [1, 2, 3, 4].filter((size) => size !== gone + 1);
    const [a = 0, b = 0] = sizes;
    assert.equal(instants(waiting), [100, 100 + a * 100, 100 + (a + b) * 100]);
  }
});

cancelling("reservation.cancel moves up later waiters, and newcomers join at the end", async () => {
  for (const awaited of [true, false]) {
    const { clock, limiter, acquire } = started();
    const first = acquire();
    const reservation = limiter.reserve(5);
    const ready = awaited ? watch(clock, reservation.ready()) : undefined;
    const third = acquire();
    await clock.advance(99);
    assert.is(reservation.cancel(), true);
    const { waitMs } = limiter.reserve();
    const last = acquire();
    await clock.advance(5000);
    assert.equal(instants([first, third, last]), [100, 200, 400]);
    assert.is(waitMs, 201);
    if (ready) assert.instance(ready.error, ReservationCancelledError);
  }
});

cancelling("many waiters are cancelled in one turn, each by its own signal", async () => {
  const { clock, acquire } = started();
  const controllers = Array.from({ length: 40 }, () => new AbortController());
  const waiting = controllers.map(({ signal }) => acquire(1, signal));
  await clock.advance(150);
  controllers.forEach((controller, place) => {
    if (place % 4 !== 3) controller.abort(place);
  });
  await clock.advance(0);
  waiting.forEach(({ at, error }, place) => {
    if (place === 0) assert.is(at, 100);
    else if (place % 4 === 3) assert.is(at, undefined);
    else assert.equal([at, error], [150, place]);
  });
  await clock.advance(10_000);
  const rest = waiting.filter((_, place) => place % 4 === 3);
  assert.equal(
    instants(rest),
    rest.map((_, i) => 200 + i * 100),
  );
});

cancelling("the last waiter behind the head leaves in the same turn as the head", async () => {
  const { clock, limiter, acquire } = started();
  const controller = new AbortController();
  const waiting = [acquire(1, controller.signal), acquire(1, controller.signal)];
  controller.abort("both");
  assert.is(limiter.peek().waitMs, 100);
  const third = acquire();
  await clock.advance(1000);
  assert.equal(instants([...waiting, third]), [0, 0, 100]);
});

cancelling("the waiters at the end leave: newcomers stand behind the remaining ones", async () => {
  for (let count = 1; count <= 6; count++) {
    const { clock, limiter, acquire } = started();
    const waiting = [acquire()];
    const reservations = Array.from({ length: count }, () => limiter.reserve());
    for (const reservation of reservations) reservation.cancel();
    assert.is(limiter.peek().waitMs, 200);
    waiting.push(acquire());
    assert.is(limiter.peek().waitMs, 300);
    await clock.advance(1000);
    assert.equal(instants(waiting), [100, 200]);
  }
});

cancelling("a head that delayed others leaves: they are served from now on", async () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ slow: policy(1), fast: policy(100) }, { clock });
  limiter.tryAcquire({ slow: 1 });
  const head = limiter.reserve({ slow: 1 });
  const waiting = [1, 2, 3, 4].map(() => watch(clock, limiter.acquire({ fast: 1 })));
  await clock.advance(500);
  head.cancel();
  await clock.advance(500);
  assert.equal(instants(waiting), [500, 510, 520, 530]);
});

cancelling.run();

const retiming = suite("waiter queue, re-timing");

retiming("setRate re-times all waiters; the deficit stays at the old rate", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [
    acquire(),
    watch(clock, limiter.reserve().ready()),
    watch(clock, limiter.tryAcquire(1, 10_000)),
    acquire(),
  ];
  await clock.advance(50);
  limiter.setRate(20);
  await clock.advance(70);
  assert.equal(instants(waiting), [100, undefined, undefined, undefined]);
  limiter.setRate(2);
  await clock.advance(5000);
  assert.equal(instants(waiting), [100, 150, 650, 1150]);
});

retiming("an infinite rate releases all after the debt; a finite one starts full", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [acquire(), acquire(), acquire()];
  limiter.setRate(Infinity);
  await clock.advance(1000);
  assert.equal(instants(waiting), [100, 100, 100]);
  assert.equal([limiter.tryAcquire(1000), limiter.tryAcquire(1000)], [true, true]);
  limiter.setRate(10);
  assert.equal([limiter.tryAcquire(), limiter.tryAcquire()], [true, false]);
});

retiming("pause delays all waiters, and the rate continues from its end", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [acquire(), watch(clock, limiter.reserve().ready()), acquire()];
  await clock.advance(50);
  limiter.pause(1000);
  limiter.pause(500);
  waiting.push(acquire());
  await clock.advance(5000);
  assert.equal(instants(waiting), [1050, 1150, 1250, 1350]);
});

retiming("a timed tryAcquire answers false once its time-out can no longer be met", async () => {
  const actions: [name: string, action: (limiter: RateLimiter) => void, rest: number[]][] = [
    ["setRate", (limiter) => limiter.setRate(5), [100, 300, 500]],
    ["pause", (limiter) => limiter.pause(200), [250, 350, 450]],
    ["charge", (limiter) => limiter.charge(1), [200, 300, 400]],
  ];
  for (const [name, action, rest] of actions) {
    const { clock, limiter, acquire } = started();
    const [first, second] = [acquire(), acquire()];
    const timed = watch(clock, limiter.tryAcquire(1, 300));
    const behind = acquire();
    const longest = watch(clock, limiter.tryAcquire(1, 5000));
    await clock.advance(50);
    assert.is(timed.at, undefined);
    action(limiter);
    await clock.advance(0);
    assert.equal([timed.at, timed.value], [50, false], name);
    await clock.advance(5000);
    const [a = 0, b = 0, c = 0] = rest;
    assert.equal(instants([first, second, behind, longest]), [a, b, c, c + b - a], name);
  }
});

retiming("a waiter that times out makes room: the next one's time-out is met", async () => {
  const { clock, limiter, acquire } = started();
  acquire();
  const big = watch(clock, limiter.tryAcquire(9, 250));
  const small = watch(clock, limiter.tryAcquire(1, 1100));
  await clock.advance(50);
  limiter.charge(2);
  await clock.advance(5000);
  assert.equal([big.at, big.value, small.at, small.value], [50, false, 400, true]);
});

retiming("waiters behind one that timed out are served from now on", async () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });
  const limiter = Limiter.create({ slow: policy(1), fast: policy(10) }, { clock });
  limiter.tryAcquire(1);
  const timed = watch(clock, limiter.tryAcquire({ slow: 1 }, 1500));
  const waiting = [
    watch(clock, limiter.acquire({ fast: 1 })),
    watch(clock, limiter.acquire({ fast: 1 })),
  ];
  await clock.advance(500);
  limiter.charge({ slow: 10 });
  const { allowed, waitMs } = limiter.decide({ fast: 1 });
  assert.equal([allowed, waitMs], [false, 200]);
  assert.is(limiter.reserve({ fast: 1 }).waitMs, 200);
  await clock.advance(500);
  assert.equal([timed.at, timed.value], [500, false]);
  assert.equal(instants(waiting), [500, 600]);
});

retiming("a refund releases waiters from now on, not from the past", async () => {
  const { clock, limiter } = started(1);
  limiter.charge(10);
  const waiting = [1, 2, 3, 4].map(() => watch(clock, limiter.acquire()));
  await clock.advance(5000);
  limiter.refund(10);
  await clock.advance(5000);
  assert.equal(instants(waiting), [5000, 6000, 7000, 8000]);
});

retiming("a charge has the rate of its time, even behind an idle reservation", async () => {
  for (const [verb, waitMs] of [
    ["charge", 1100],
    ["refund", 0],
  ] as const) {
    const { clock, limiter } = started();
    const reserved = limiter.reserve();
    limiter.setRate(1);
    limiter[verb](1);
    reserved.cancel();
    assert.is(limiter.peek().waitMs, waitMs, verb);
    await clock.advance(waitMs);
    assert.is(limiter.tryAcquire(), true);
  }
});

retiming.run();

const unawaited = suite("waiter queue, reservations that are not awaited");

unawaited("setRate keeps their instants; requests behind them pay the new rate", async () => {
  const { clock, limiter, acquire } = started();
  const [first, second] = [limiter.reserve(), limiter.reserve()];
  const waiting = [acquire(), acquire()];
  await clock.advance(50);
  limiter.setRate(1);
  await clock.advance(10_000);
  assert.equal([await first.ready(), await second.ready()], [100, 200]);
  assert.equal(instants(waiting), [300, 1300]);
});

unawaited("a reservation follows the limiter once it is awaited", async () => {
  const { clock, limiter } = started();
  const [first, second] = [limiter.reserve(), limiter.reserve()];
  limiter.setRate(1);
  const ready = [second, first].map((reservation) => watch(clock, reservation.ready()));
  await clock.advance(10_000);
  assert.equal(instants(ready), [1100, 100]);
});

unawaited("a reservation is re-timed in the same turn in which it is awaited", async () => {
  const { limiter, acquire } = started();
  const [, second] = [limiter.reserve(), limiter.reserve()];
  limiter.setRate(1);
  acquire();
  assert.is(limiter.peek().waitMs, 1300);
  second?.ready().catch(assert.unreachable);
  assert.is(limiter.peek().waitMs, 2200);
  await turn();
  assert.is(limiter.peek().waitMs, 2200);
});

unawaited("awaiting a reservation behind another one re-times only what is behind it", async () => {
  const { clock, limiter, acquire } = started();
  const [first, second, third] = [limiter.reserve(), limiter.reserve(), limiter.reserve()];
  limiter.setRate(1);
  const waiting = [watch(clock, third.ready()), acquire()];
  await clock.advance(10_000);
  assert.equal([await first.ready(), await second.ready()], [100, 200]);
  assert.equal(instants(waiting), [300, 1300]);
});

unawaited("cancel after setRate: as if the reservation had never been made", async () => {
  const { clock, limiter, acquire } = started();
  const gone = limiter.reserve(3);
  const waiting = [acquire(), acquire()];
  await clock.advance(20);
  limiter.setRate(5);
  await clock.advance(20);
  assert.is(gone.cancel(), true);
  waiting.push(acquire());
  await clock.advance(10_000);
  assert.equal(instants(waiting), [100, 300, 500]);
});

unawaited("several reservations and changes: each keeps its instant until one leaves", async () => {
  for (const [gone, expected] of [
    [[], [100, 200, 600, 800, 2800]],
    [["b"], [100, undefined, 200, 400, 2400]],
    [["a"], [undefined, 100, 500, 700, 2700]],
    [["c"], [100, 200, undefined, 600, 2600]],
    [
      ["a", "b"],
      [undefined, undefined, 100, 300, 2300],
    ],
    [
      ["b", "c"],
      [100, undefined, undefined, 200, 2200],
    ],
    [
      ["a", "b", "c"],
      [undefined, undefined, undefined, 100, 2100],
    ],
  ] as [string[], (number | undefined)[]][]) {
    const { clock, limiter, acquire } = started();
    const a = limiter.reserve();
    limiter.setRate(5);
    const b = limiter.reserve(2);
    const c = limiter.reserve();
    limiter.setRate(0.5);
    const waiting = [acquire(), acquire()];
    assert.equal([a.waitMs, b.waitMs, c.waitMs], [100, 200, 600]);
    await clock.advance(50);
    const all = Object.entries({ a, b, c });
    for (const [name, reservation] of all) if (gone.includes(name)) reservation.cancel();
    await clock.advance(10_000);
    const kept = all.map(([, reservation]) => reservation.ready().catch(() => undefined));
    const found = [...(await Promise.all(kept)), ...instants(waiting)];
    assert.equal(found, expected, `without ${gone.join(" and ")}`);
  }
});

unawaited("setRate after one left applies where it would apply without it", async () => {
  const { clock, limiter, acquire } = started();
  const waiting = [acquire()];
  const gone = limiter.reserve();
  waiting.push(acquire());
  limiter.setRate(1);
  gone.cancel();
  limiter.setRate(2);
  waiting.push(acquire());
  await clock.advance(10_000);
  assert.equal(instants(waiting), [100, 600, 1100]);
});

unawaited("when one leaves, a time-out that a change behind it breaks ends at once", async () => {
  for (const how of ["cancel", "ready"] as const) {
    const { clock, limiter, acquire } = started();
    const first = acquire();
    const reservation = limiter.reserve();
    const timed = watch(clock, limiter.tryAcquire(1, 300));
    limiter.setRate(1);
    await clock.advance(10);
    assert.is(timed.at, undefined);
    if (how === "cancel") reservation.cancel();
    else watch(clock, reservation.ready());
    await clock.advance(0);
    assert.equal([timed.at, timed.value], [10, false], how);
    await clock.advance(10_000);
    assert.is(first.at, 100);
  }
});

unawaited("when one leaves, a refund behind it releases waiters from now on", async () => {
  for (const how of ["cancel", "ready"] as const) {
    const clock = new FakeClock();
    const policy = (permitsPerSecond: number) =>
      smoothBursty({ permitsPerSecond, burstSeconds: 0 });
    const limiter = Limiter.create({ slow: policy(1), fast: policy(100) }, { clock });
    limiter.charge({ slow: 10 });
    const head = watch(clock, limiter.acquire({ slow: 1 }));
    const reservation = limiter.reserve({ slow: 1 });
    const waiting = [1, 2, 3].map(() => watch(clock, limiter.acquire({ fast: 1 })));
    await clock.advance(100);
    limiter.refund({ slow: 12 });
    await clock.advance(400);
    if (how === "cancel") reservation.cancel();
    else watch(clock, reservation.ready());
    await clock.advance(20_000);
    const from = how === "cancel" ? 500 : 1500;
    assert.equal(instants([head, ...waiting]), [500, from, from + 10, from + 20], how);
  }
});

unawaited("a reservation without a timer gives no credit for lateness", async () => {
  const { clock, limiter } = started(1000);
  const reservation = limiter.reserve();
  await clock.advance(5);
  assert.equal([limiter.tryAcquire(), limiter.tryAcquire()], [true, false]);
  assert.is(await reservation.ready(), 1);
});

unawaited.run();

const room = suite("waiter queue, maxWaiting");

room("maxWaiting counts permits, and waiters that leave make room at once", async () => {
  const { clock, limiter, acquire } = started(10, { maxWaiting: 5, name: "jobs" });
  const controller = new AbortController();
  const [two, three] = [acquire(2), acquire(3, controller.signal)];
  const error = await failure(() => limiter.acquire(0.5));
  assert.instance(error, QueueFullError);
  assert.equal((error as QueueFullError).facts, {
    limiter: "jobs",
    permits: 0.5,
    waiting: 5,
    maxWaiting: 5,
  });
  assert.throws(
    () => limiter.reserve(0.5),
    (thrown: unknown) => thrown instanceof QueueFullError,
  );
  assert.is(await limiter.tryAcquire(0.5, 10_000), false);
  controller.abort();
  const late = acquire(3);
  assert.equal([limiter.tryAcquire(), limiter.decide().allowed], [false, false]);
  await clock.advance(100);
  assert.is(two.at, 100);
  const reservation = limiter.reserve(2);
  assert.is(await limiter.tryAcquire(0.001, 10_000), false);
  reservation.settle(1);
  const last = acquire(1);
  await clock.advance(10_000);
  assert.equal(instants([three, late, last]), [0, 300, 700]);
});

room("maxWaiting 0 refuses callers that would have to wait, and serves the others", async () => {
  const { clock, limiter } = started(10, { maxWaiting: 0 });
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  await clock.advance(100);
  assert.is(await limiter.acquire(1000), 0);
});

room("maxWaiting counts the largest number of a request for several policies", async () => {
  const clock = new FakeClock();
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const limiter = Limiter.create({ a: policy, b: policy }, { clock, maxWaiting: 10 });
  limiter.charge(1);
  watch(clock, limiter.acquire({ a: 1, b: 7 }));
  const { facts } = (await failure(() => limiter.acquire({ a: 4, b: 2 }))) as QueueFullError;
  assert.equal(facts, { limiter: "limiter", permits: 4, waiting: 7, maxWaiting: 10 });
  watch(clock, limiter.acquire({ a: 3 }));
  assert.instance(await failure(() => limiter.acquire({ b: 1 })), QueueFullError);
});

room("a reset forgets what was charged behind a reservation", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), { clock });
  limiter.charge(5);
  const reservation = limiter.reserve();
  limiter.charge(100);
  const waiting = [watch(clock, limiter.acquire())];
  limiter.reset();
  await clock.advance(1000);
  assert.is(await reservation.ready(), 0);
  assert.equal(instants(waiting), [1000]);
});

room.run();
