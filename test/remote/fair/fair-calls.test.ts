import { getEventListeners } from "node:events";
import * as assert from "uvu/assert";
import { reserveAwaited } from "../../../src/api/reserve-awaited.ts";
import { diagnostics, type WaitMessage } from "../../../src/ground/diagnostics.ts";
import {
  fairShares,
  fixedWindow,
  leakyBucket,
  PermitsExceedCapacityError,
  QueueFullError,
  ReservationCancelledError,
  smoothBursty,
  tokenBucket,
} from "../../../src/index.ts";
import type { RemoteLimiter } from "../../../src/remote/remote-limiter.ts";
import {
  LimiterClosedError,
  StoreLimiter,
  type StoreLimiterOptions,
  StoreUnavailableError,
} from "../../../src/store.ts";
import type { Policies } from "../../../src/stores/policies.ts";
import { FakeClock, memoryStore } from "../../../src/testing/index.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const tenASecond = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });

/** A fair limiter on a store in this process; its first permit is taken, so all others wait. */
async function busy(options: StoreLimiterOptions = {}, policies: Policies = tenASecond) {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const create = (more: StoreLimiterOptions = {}) =>
    StoreLimiter.create(store, "shared", policies, {
      clock,
      order: fairShares(),
      ...options,
      ...more,
    });
  const limiter = create();
  await limiter.acquire();
  const order: string[] = [];
  const acquire = (share: string, permits = 1, more = {}, on = limiter) => {
    const done = on.acquire(permits, { share, ...more });
    done.then(
      () => order.push(`${share}${permits === 1 ? "" : permits}`),
      () => {},
    );
    return watch(clock, done);
  };
  const many = (share: string, count: number, more = {}, on = limiter) =>
    Array.from({ length: count }, () => acquire(share, 1, more, on));
  return { clock, store, create, limiter, order, acquire, many };
}

const order = suite("fair limiters on a store, order");

order(
  "a share that comes late waits for the window only, not for all of another share",
  async () => {
    const { clock, order, many } = await busy();
    many("a", 8);
    await clock.advance(250);
    many("b", 3);
    await clock.advance(10_000);
    assert.equal(order.join(""), "aaaaabababa");
  },
);

order("permits go in proportion to the weights", async () => {
  const { clock, order, many } = await busy();
  many("a", 40, { weight: 1 });
  many("b", 40, { weight: 3 });
  await clock.advance(4000);
  const got = order.filter((share) => share === "b").length;
  assert.ok(Math.abs(got - 30) <= 2, `${got} of ${order.length}`);
  assert.is(order.length, 40);
});

order("a higher priority goes first, and aging lets a lower one through", async () => {
  const fair = fairShares({ priorities: ["high", "low"], agingMs: 1000 });
  const { clock, order, many } = await busy({ order: fair });
  many("l", 5, { priority: "low" });
  many("h", 40, { priority: "high" });
  await clock.advance(3000);
  const low = order.filter((share) => share === "l").length;
  assert.is(low, 4, "two were with the store before, then one each second");
});

order("a share that took much at once waits for its own debt", async () => {
  const { clock, order, acquire, many } = await busy();
  await clock.advance(1000);
  acquire("a", 20);
  await clock.advance(0);
  many("a", 2);
  many("b", 6);
  await clock.advance(10_000);
  assert.equal(order.join(" "), "a20 a a b b b b b b", "two are with the store before b comes");
  order.splice(0);
  acquire("a", 20);
  await clock.advance(0);
  many("b", 6);
  many("a", 4);
  await clock.advance(10_000);
  assert.equal(order.join(" "), "a20 b b b b b b a a a a");
});

order("a debt is forgotten when the limiter has been idle", async () => {
  const { clock, order, acquire, many } = await busy();
  await clock.advance(1000);
  acquire("a", 20);
  await clock.advance(5000);
  acquire("c");
  await clock.advance(0);
  many("x", 2);
  many("a", 2);
  many("b", 2);
  await clock.advance(10_000);
  assert.equal(order.join(" "), "a20 c x x a b a b");
});

order("a cancelled caller leaves no gap, in the line or with the store", async () => {
  const { clock, limiter, order, many } = await busy();
  const controller = new AbortController();
  const { signal } = controller;
  const gone = many("a", 6, { signal });
  many("b", 3);
  await clock.advance(0);
  assert.is(limiter.stats.waiting, 9);
  assert.is(getEventListeners(signal, "abort").length, 1, "one for all callers");
  controller.abort(new Error("enough"));
  await clock.advance(300);
  assert.ok(gone.every(({ error }) => String(error) === "Error: enough"));
  assert.equal(order.join(""), "bbb");
  const { waiting, cancelled, granted } = limiter.stats;
  assert.equal([waiting, cancelled, granted], [0, 6, 4]);
  assert.is(getEventListeners(signal, "abort").length, 0);
  assert.match(String(await failure(() => limiter.acquire(1, { signal }))), "enough");
  assert.match(String(await failure(() => limiter.tryAcquire({ signal }))), "enough");
});

order("the wait covers the time in this process", async () => {
  const { clock, many } = await busy();
  const calls = many("a", 5);
  await clock.advance(1000);
  assert.equal(
    calls.map(({ value }) => value),
    [100, 200, 300, 400, 500],
  );
});

order("diagnostics count a wait from the call", async () => {
  const waits: number[] = [];
  const seen = (message: unknown) => void waits.push((message as WaitMessage).waitMs);
  diagnostics.wait.subscribe(seen);
  const { clock, many } = await busy();
  many("a", 4);
  await clock.advance(1000);
  diagnostics.wait.unsubscribe(seen);
  assert.equal(waits, [100, 200, 300, 400]);
});

order("large and small requests: each counts as much as it takes", async () => {
  const { clock, order, acquire, many } = await busy();
  many("a", 10);
  for (let i = 0; i < 2; i++) acquire("b", 4);
  await clock.advance(10_000);
  const [first, second] = [order.indexOf("b4"), order.lastIndexOf("b4")];
  assert.ok(first >= 3 && first <= 7, order.join(" "));
  assert.ok(second > first + 2, order.join(" "));
});

order.run();

const verbs = suite("fair limiters on a store, verbs");

verbs("tryAcquire and decide take nothing while another caller would go first", async () => {
  const { clock, limiter, many } = await busy();
  many("a", 4);
  const decided = await limiter.decide(1, { share: "b" });
  assert.equal([decided.allowed, decided.waitMs, decided.remaining], [false, 400, 0]);
  assert.is(decided.policies.default?.allowed, false);
  assert.is((await limiter.decide(1, { share: "a" })).waitMs, 500);
  assert.is(await limiter.tryAcquire(), false);
  assert.is(await limiter.tryAcquire(1, { share: "b", timeoutMs: 0 }), false);
  await clock.advance(1000);
  assert.is(await limiter.tryAcquire({ share: "b", timeoutMs: 0 }), true);
  assert.is((await limiter.decide(1, { share: "b" })).allowed, false);
  assert.is(limiter.stats.refused, 5);
  await clock.advance(100);
  assert.is((await limiter.decide(1, { share: "b" })).allowed, true);
});

verbs("decide takes what became available while it looked", async () => {
  const { clock, store, limiter, many } = await busy();
  const controller = new AbortController();
  many("a", 4, { signal: controller.signal });
  await clock.advance(0);
  store.delayMs = 10;
  const decided = watch(clock, limiter.decide(1, { share: "b" }));
  controller.abort();
  await clock.advance(120);
  assert.is(decided.value?.allowed, false);
  const later = watch(clock, limiter.decide(1, { share: "b" }));
  await clock.advance(50);
  assert.is(later.value?.allowed, true);
});

verbs(
  "peek says when a share goes if no other caller comes, for every kind of policy",
  async () => {
    const rows: [Policies, number, number][] = [
      [tenASecond, 400, 500],
      [tokenBucket({ capacity: 1, refill: 1, everyMs: 100 }), 400, 500],
      [fixedWindow({ limit: 1, windowMs: 100 }), 400, 500],
      [{ one: tenASecond, other: smoothBursty({ permitsPerSecond: 100 }) }, 400, 500],
    ];
    for (const [policies, forNew, forOld] of rows) {
      const { clock, limiter, many } = await busy({}, policies);
      many("a", 4);
      assert.is((await limiter.peek(1, { share: "b" })).waitMs, forNew);
      assert.is((await limiter.peek(1, { share: "a" })).waitMs, forOld);
      await clock.advance(5000);
      assert.is((await limiter.peek(1, { share: "b" })).allowed, true);
    }
  },
);

verbs("tryAcquire whose time is not enough is refused by the store when it is sent", async () => {
  const { clock, limiter, many } = await busy();
  many("a", 4);
  const shorter = watch(clock, limiter.tryAcquire(1, { share: "b", timeoutMs: 399 }));
  const enough = watch(clock, limiter.tryAcquire(1, { share: "b", timeoutMs: 400 }));
  const forEver = watch(clock, limiter.tryAcquire({ share: "c", timeoutMs: Infinity }));
  await clock.advance(1000);
  assert.equal([shorter.at, shorter.value], [200, false]);
  assert.equal([enough.at, enough.value], [400, true]);
  assert.is(forEver.value, true);
});

verbs("a time-out that later callers have pushed back ends when its time is over", async () => {
  const fair = fairShares({ priorities: ["high", "low"] });
  const { clock, limiter, many } = await busy({ order: fair });
  many("a", 3);
  const late = watch(clock, limiter.tryAcquire(1, { share: "b", timeoutMs: 500 }));
  await clock.advance(10);
  many("c", 20, { priority: "high" });
  await clock.advance(1000);
  assert.equal([late.at, late.value], [500, false]);
  assert.equal(limiter.stats.refused, 1);
});

verbs("a time-out that the store refuses is refused, and not charged to the share", async () => {
  const { clock, order, limiter, many } = await busy();
  many("a", 1);
  const late = watch(clock, limiter.tryAcquire(1, { share: "b", timeoutMs: 150 }));
  await clock.advance(0);
  assert.equal([late.at, late.value], [0, false]);
  many("x", 2);
  many("c", 2);
  many("b", 2);
  await clock.advance(1000);
  assert.equal(order.join(""), "axxcbcb");
});

verbs("an abort ends a tryAcquire in the line", async () => {
  const { clock, limiter, many } = await busy();
  many("a", 4);
  const controller = new AbortController();
  const waiting = watch(
    clock,
    limiter.tryAcquire(1, { timeoutMs: 1000, signal: controller.signal }),
  );
  await clock.advance(50);
  controller.abort(new Error("enough"));
  await clock.advance(0);
  assert.equal([waiting.at, String(waiting.error)], [50, "Error: enough"]);
});

verbs(
  "a caller that leaves the window gives its instant to the next one of its share",
  async () => {
    const rows = [
      { next: {}, expected: "a b c" },
      { next: { permits: 2 }, expected: "b a2 c" },
      { next: { weight: 2 }, expected: "b a c" },
      { next: { timeoutMs: 90 }, expected: "b c" },
    ];
    for (const { next, expected } of rows) {
      const { permits = 1, timeoutMs, ...more } = next;
      const { clock, limiter, order, acquire } = await busy();
      const controller = new AbortController();
      const gone = acquire("a", 1, { signal: controller.signal });
      acquire("b");
      await clock.advance(0);
      acquire("c");
      if (timeoutMs === undefined) acquire("a", permits, more);
      else void limiter.tryAcquire(1, { share: "a", timeoutMs });
      controller.abort(new Error("gone"));
      assert.is(limiter.stats.waiting, 3);
      await clock.advance(100);
      assert.is(order.length, 1, "the first instant is used");
      await clock.advance(1000);
      assert.equal([String(gone.error), order.join(" ")], ["Error: gone", expected]);
      assert.is(limiter.stats.waiting, 0);
      await limiter.close();
    }
  },
);

verbs("when a caller leaves, none overtakes another one of its share in the window", async () => {
  const { clock, acquire, many } = await busy();
  const controller = new AbortController();
  acquire("a", 1, { signal: controller.signal });
  const behind = many("a", 2);
  await clock.advance(0);
  controller.abort();
  await clock.advance(1000);
  assert.equal(
    behind.map(({ at }) => at),
    [100, 200],
  );
});

verbs("callers of a share that leave all at once leave nothing behind", async () => {
  const { clock, limiter, order, many } = await busy();
  const controller = new AbortController();
  const gone = many("a", 1000, { signal: controller.signal });
  many("b", 2);
  await clock.advance(0);
  controller.abort(new Error("gone"));
  await clock.advance(0);
  assert.ok(gone.every(({ error }) => String(error) === "Error: gone"));
  assert.is(limiter.stats.waiting, 2);
  await clock.advance(300);
  assert.is(order.join(""), "bb");
  assert.is((await limiter.peek()).waitMs, 0);
});

verbs("a reservation is booked at once, and its share is charged for it", async () => {
  const { clock, order, limiter, many } = await busy();
  many("x", 2);
  const reservation = await limiter.reserve(3, { share: "a" });
  assert.equal([reservation.permits, reservation.waitMs], [3, 300]);
  const ready = watch(clock, reservation.ready());
  many("a", 2);
  many("b", 3);
  await clock.advance(10_000);
  assert.is(ready.at, 300);
  assert.equal(order.join(""), "xxbbaba");
  await reservation.settle(1);
  await reservation.undo();
  assert.is(await reservation.cancel(), false);
});

verbs("a reservation that is undone after its instant is not charged to its share", async () => {
  const { clock, order, limiter, many } = await busy();
  many("x", 6);
  const reservation = await limiter.reserve(3, { share: "a" });
  await clock.advance(300);
  assert.is(await reservation.cancel(), false);
  await reservation.undo();
  await reservation.undo();
  many("a", 2);
  many("b", 2);
  await clock.advance(10_000);
  assert.equal(order.join(""), "xxxxxxabab");
});

verbs("a cancelled reservation is not charged to its share", async () => {
  const { clock, order, limiter, many } = await busy();
  many("x", 2);
  const reservation = await limiter.reserve(3, { share: "a" });
  assert.is(await reservation.cancel(), true);
  assert.instance(await failure(() => reservation.ready()), ReservationCancelledError);
  many("a", 2);
  many("b", 2);
  await clock.advance(10_000);
  assert.equal(order.join(""), "xxabab");
});

verbs("a reservation that is left by its signal is not charged to its share", async () => {
  const { clock, order, limiter, many } = await busy();
  many("x", 2);
  const reservation = await limiter.reserve(3, { share: "a" });
  assert.instance(await failure(() => reservation.ready({ signal: 5 as never })), TypeError);
  const left = failure(() => reservation.ready({ signal: AbortSignal.abort("enough") }));
  assert.is(await left, "enough");
  many("a", 2);
  many("b", 2);
  await clock.advance(10_000);
  assert.equal(order.join(""), "xxabab");
});

verbs("charge, refund, pause, reset and update move the callers that wait", async () => {
  const { clock, limiter, many } = await busy();
  const calls = many("a", 12);
  const at = () => calls.map(({ at }) => at).filter((ms) => ms !== undefined);
  await clock.advance(0);
  await limiter.pause(1000);
  await clock.advance(1100);
  assert.equal(at(), [1000, 1100]);
  await limiter.charge(5);
  await clock.advance(900);
  assert.equal(at().slice(2), [1200, 1300, 1900, 2000], "two were with the store before");
  await limiter.refund(3);
  await clock.advance(100);
  assert.equal(at().slice(6), [2100, 2100]);
  await limiter.reset();
  await limiter.update(smoothBursty({ permitsPerSecond: 1000, burstSeconds: 0 }));
  await clock.advance(300);
  assert.is(at().length, 12, "those with the store kept their instants");
  await limiter.resetPolicies();
  assert.equal((limiter.policies[0] as typeof tenASecond).permitsPerSecond, 10);
});

verbs("a request that can never pass is an error at once, and is charged to no share", async () => {
  const { clock, order, limiter, many } = await busy({}, fixedWindow({ limit: 1, windowMs: 100 }));
  many("x", 3);
  await clock.advance(0);
  const error = await failure(() => limiter.acquire(2, { share: "a" }));
  assert.instance(error, PermitsExceedCapacityError);
  const tried = await failure(() => limiter.tryAcquire(2, { share: "a", timeoutMs: 10 }));
  assert.instance(tried, PermitsExceedCapacityError);
  many("a", 1);
  many("b", 1);
  await clock.advance(10_000);
  assert.equal(order.join(""), "xxxab");
});

verbs("bad options are refused, and shares need `fair`", async () => {
  const { limiter, create } = await busy();
  assert.match(String(await failure(() => limiter.acquire(1, { weight: 0 }))), "weight");
  assert.match(String(await failure(() => limiter.reserve(1, { shares: "a" } as never))), "shares");
  assert.match(String(await failure(() => limiter.peek(1, { priority: "a" }))), "priorities");
  assert.match(String(await failure(() => limiter.decide(-1))), "permits");
  const plain = create({ order: undefined });
  assert.match(
    String(await failure(() => plain.acquire(1, { share: "a" }))),
    "order: fairShares()",
  );
  assert.match(
    String(await failure(() => create({ order: 1 as never }))),
    "order must be what fairShares() returns",
  );
});

verbs.run();

const full = suite("fair limiters on a store, maxWaiting");

full("counts the callers in the line and with the store", async () => {
  const { clock, limiter, many } = await busy({ maxWaiting: 4 });
  const calls = many("a", 4);
  await clock.advance(0);
  for (const verb of ["acquire", "reserve"] as const) {
    assert.instance(await failure(() => limiter[verb](1, { share: "b" })), QueueFullError);
  }
  assert.is(await limiter.tryAcquire(1, { share: "b", timeoutMs: 5000 }), false);
  assert.is((await limiter.peek(1, { share: "b" })).waitMs, Infinity);
  await clock.advance(1000);
  assert.ok(calls.every(({ at }) => at !== undefined));
  assert.is(limiter.stats.refused, 3);
});

full("counts the permits for which they ask", async () => {
  const { clock, acquire } = await busy({ maxWaiting: 6 });
  for (const permits of [1, 1, 3]) acquire("a", permits);
  const refused = acquire("b", 2);
  const fits = acquire("b", 1);
  await clock.advance(1000);
  assert.instance(refused.error, QueueFullError);
  assert.is(fits.error, undefined);
});

full("where no caller waits the store decides", async () => {
  const policy = tokenBucket({ capacity: 5, refill: 1, everyMs: 1000 });
  const { clock, limiter, many } = await busy({ maxWaiting: 0 }, policy);
  const calls = many("a", 5);
  await clock.advance(0);
  assert.equal(
    calls.map(({ at, error }) => (error as Error | undefined)?.name ?? at),
    [0, 0, 0, 0, "QueueFullError"],
  );
  assert.is(limiter.stats.waiting, 0);
});

full("a leaky bucket bounds the callers of all shares", async () => {
  const policy = leakyBucket({ permitsPerSecond: 10, capacity: 3 });
  const { clock, many } = await busy({}, policy);
  const calls = [...many("a", 3), ...many("b", 2)];
  await clock.advance(5000);
  const names = calls.map(({ at, error }) => at === undefined || (error as Error)?.name);
  assert.equal(names, [undefined, undefined, undefined, "QueueFullError", "QueueFullError"]);
});

full.run();

const outages = suite("fair limiters on a store, outages and close");

outages("whenUnavailable throw: all waiting callers fail with the first", async () => {
  const { clock, store, limiter, many } = await busy();
  const calls = many("a", 6);
  await clock.advance(0);
  store.fail();
  await clock.advance(100);
  assert.is(calls.filter(({ error }) => error instanceof StoreUnavailableError).length, 4);
  assert.equal([limiter.state, limiter.stats.failed, limiter.stats.waiting], ["unavailable", 4, 1]);
  store.recover();
  await clock.advance(1000);
  assert.is(calls.filter(({ value }) => value !== undefined).length, 2);
});

outages("whenUnavailable wait: the callers keep their order, and time-outs hold", async () => {
  const { clock, store, limiter, order, many } = await busy({ whenUnavailable: "wait" });
  many("a", 4);
  many("c", 2);
  await clock.advance(0);
  store.fail();
  const late = watch(clock, limiter.tryAcquire(1, { share: "c", timeoutMs: 700 }));
  await clock.advance(800);
  assert.equal([late.at, late.value], [700, false]);
  many("b", 2);
  store.recover();
  for (let i = 0; i < 50 && order.length < 8; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    await clock.advance(100);
  }
  assert.equal(order.join(""), "aaacacbb");
  await limiter.close();
});

for (const whenUnavailable of ["local", "allow"] as const) {
  outages(`whenUnavailable ${whenUnavailable}: callers are granted here`, async () => {
    const { clock, store, limiter, order, many } = await busy({ whenUnavailable, instances: 2 });
    store.fail();
    many("a", 4);
    many("b", 2);
    await clock.advance(10_000);
    assert.equal(order.join("").length, 6);
    assert.ok(order.indexOf("b") < 4, order.join(""));
    await limiter.close();
  });
}

outages("close rejects the callers in the line, with the store, and all later ones", async () => {
  const { clock, limiter, many } = await busy();
  const calls = many("a", 5);
  const timed = watch(clock, limiter.tryAcquire(1, { timeoutMs: 60_000 }));
  await clock.advance(0);
  await limiter.close();
  await turn();
  assert.ok([...calls, timed].every(({ error }) => error instanceof LimiterClosedError));
  for (const verb of ["acquire", "tryAcquire", "reserve", "decide", "peek"] as const) {
    assert.instance(await failure(() => limiter[verb]()), LimiterClosedError);
  }
  const full = await busy({ maxWaiting: 2 });
  full.many("a", 2);
  await full.limiter[Symbol.asyncDispose]();
  assert.instance(await failure(() => full.limiter.reserve()), LimiterClosedError);
  assert.equal([limiter.state, limiter.stats.waiting], ["closed", 0]);
  assert.is(limiter.stats.cancelled, calls.length + 1, "as in a limiter that is not fair");
});

outages.run();

const waiting = suite("fair limiters on a store, reservations that wait");

async function withReservations() {
  const made = await busy();
  const fair = made.limiter as unknown as RemoteLimiter;
  const reserve = (share: string, permits = 1) =>
    fair[reserveAwaited](permits, undefined, { share });
  return { ...made, reserve };
}

waiting("they wait in fair order", async () => {
  const { clock, order, many, reserve } = await withReservations();
  many("a", 5);
  const reservation = await reserve("b");
  assert.equal([reservation.permits, reservation.waitMs], [1, 400]);
  const ready = watch(clock, reservation.ready());
  await clock.advance(2000);
  assert.equal([ready.at, ready.value], [400, 400]);
  assert.is(order.length, 5);
  assert.is(await reservation.cancel(), false);
  const atOnce = await reserve("b");
  assert.equal([atOnce.waitMs, await atOnce.ready()], [0, 0]);
});

waiting("a cancel, an abort and an undo leave no gap", async () => {
  const { clock, order, many, reserve } = await withReservations();
  many("a", 2);
  const [one, two, three] = await Promise.all([reserve("b"), reserve("b"), reserve("b")]);
  many("a", 2);
  assert.is(await one.cancel(), true);
  assert.is(await one.cancel(), false);
  await one.undo();
  const controller = new AbortController();
  const second = watch(clock, two.ready({ signal: controller.signal }));
  controller.abort(new Error("enough"));
  await three.undo();
  const aborted = await failure(() => three.ready({ signal: AbortSignal.abort("late") }));
  assert.instance(aborted, ReservationCancelledError);
  await clock.advance(400);
  assert.match(String(second.error), "enough");
  assert.equal(order.join(""), "aaaa");
});

waiting("settle corrects what was used, by policy", async () => {
  const { clock, limiter, reserve } = await withReservations();
  await clock.advance(1000);
  const reservation = await reserve("a", 5);
  await reservation.ready();
  await reservation.settle(7);
  assert.is((await limiter.peek()).waitMs, 700);
  await reservation.settle(2);
  assert.is((await limiter.peek()).waitMs, 200);
  await reservation.undo();
  assert.is((await limiter.peek()).waitMs, 0);
  const policies = { a: tenASecond, b: tenASecond };
  const named = (await busy({}, policies)).limiter as unknown as RemoteLimiter;
  const both = await named[reserveAwaited]({ a: 1 });
  await both.settle({ a: 3, b: 0 });
  await both.settle({ a: 0 });
});

waiting("a settle that failed while the store was unavailable can be repeated", async () => {
  const { store, clock, limiter, reserve } = await withReservations();
  await clock.advance(1000);
  const reservation = await reserve("a", 5);
  await reservation.ready();
  store.fail();
  assert.instance(await failure(() => reservation.settle(7)), StoreUnavailableError);
  store.recover();
  await clock.advance(1000);
  await reservation.settle(7);
  assert.is((await limiter.peek()).waitMs, 200);
});

waiting("an error of the limiter rejects", async () => {
  const { clock, limiter, reserve } = await withReservations();
  await limiter.close();
  assert.instance(await failure(() => reserve("a")), LimiterClosedError);
  await clock.advance(0);
});

waiting("one that has failed has nothing to cancel", async () => {
  const { clock, limiter, many, reserve } = await withReservations();
  many("a", 3);
  const reservation = await reserve("b");
  await limiter.close();
  assert.instance(await failure(() => reservation.ready()), LimiterClosedError);
  assert.is(await reservation.cancel(), false);
  await reservation.undo();
  await clock.advance(0);
  assert.is(limiter.stats.waiting, 0);
});

waiting.run();
