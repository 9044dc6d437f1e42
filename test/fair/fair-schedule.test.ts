import * as assert from "uvu/assert";
import {
  fairShares,
  fixedWindow,
  Limiter,
  leakyBucket,
  QueueFullError,
  RateLimiter,
  type RateLimiterOptions,
  tokenBucket,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, instants, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("fair limiter");

/** One permit each 100 ms; the first is taken, so all others wait. */
function busy(options: RateLimiterOptions = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, {
    clock,
    burstSeconds: 0,
    order: fairShares(),
    ...options,
  });
  limiter.tryAcquire();
  const order: string[] = [];
  const acquire = (share: string, permits = 1, options = {}) => {
    const done = limiter.acquire(permits, { share, ...options });
    done.then(
      () => order.push(`${share}${permits === 1 ? "" : permits}`),
      () => {},
    );
    return watch(clock, done);
  };
  const many = (share: string, count: number, permits = 1, options = {}) =>
    Array.from({ length: count }, () => acquire(share, permits, options));
  return { clock, limiter, order, acquire, many };
}

test("a share that comes late does not wait behind all of another share", async () => {
  const { clock, order, many } = busy();
  many("a", 6);
  await clock.advance(250);
  many("b", 3);
  await clock.advance(10_000);
  assert.equal(order.join(""), "aaabababa");
});

test("permits go in proportion to the weights", async () => {
  const { clock, order, many } = busy();
  many("a", 30, 1, { weight: 1 });
  many("b", 30, 1, { weight: 2 });
  await clock.advance(1500);
  assert.is(order.filter((share) => share === "b").length, 10);
  assert.is(order.length, 15);
});

test("a request counts as much as it takes", async () => {
  const { clock, order, many } = busy();
  many("a", 8, 1);
  many("b", 2, 4);
  await clock.advance(10_000);
  const before = order.indexOf("b4");
  assert.is(before >= 3 && before <= 5, true, order.join(" "));
});

test("the instants are those of one queue", async () => {
  const { clock, many } = busy();
  const all = [...many("a", 4), ...many("b", 3)];
  await clock.advance(10_000);
  assert.equal(
    instants(all).sort((x = 0, y = 0) => x - y),
    [100, 200, 300, 400, 500, 600, 700],
  );
});

test("a share that is alone gets everything", async () => {
  const { clock, order, many } = busy();
  many("a", 5);
  await clock.advance(500);
  assert.is(order.length, 5);
});

test("a share that was idle neither saves up nor pays", async () => {
  const { clock, order, many } = busy();
  many("a", 10);
  many("b", 2);
  await clock.advance(2000);
  order.length = 0;
  // `b` was idle while `a` continued
  many("a", 3);
  many("b", 3);
  await clock.advance(2000);
  // the first one goes at once
  assert.is(order.join(""), "aababb");
});

test("a tenant that took many permits at once waits for its own debt", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(100, { clock, burstSeconds: 0, order: fairShares() });
  assert.is(await limiter.acquire(1000, { share: "big" }), 0);
  const own = watch(clock, limiter.acquire(1, { share: "big" }));
  const others = Array.from({ length: 500 }, (_, i) =>
    watch(clock, limiter.acquire(1, { share: `tenant ${i % 5}` })),
  );
  await clock.advance(14_990);
  assert.is(
    others.every(({ at }) => at !== undefined),
    true,
  );
  assert.is(own.at, undefined);
  await clock.advance(10);
  assert.is(own.at, 15_000);
});

test("calls that are granted one by one while no caller waits leave no debt, one call for many does", async () => {
  for (const [calls, permits, expected] of [
    [10, 1, "ababa"],
    [1, 10, "bbbbb"],
  ] as const) {
    const clock = new FakeClock();
    const policy = fixedWindow({ limit: 10, windowMs: 1000, align: "first" });
    const limiter = Limiter.create(policy, { clock, order: fairShares() });
    for (let i = 0; i < calls; i++) await limiter.acquire(permits, { share: "a" });
    const order: string[] = [];
    for (const share of ["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"]) {
      void limiter.acquire(1, { share }).then(() => order.push(share));
    }
    await clock.advance(1000);
    assert.is(order.slice(0, 5).join(""), expected);
  }
});

test("a debt is forgotten when the limiter has been idle", async () => {
  const { clock, limiter, order, many } = busy();
  await clock.advance(1000);
  assert.is(limiter.tryAcquire(20), true);
  await clock.advance(5000);
  limiter.tryAcquire();
  many("", 2);
  many("b", 2);
  await clock.advance(1000);
  assert.equal(order, ["", "b", "", "b"]);
});

test("peek says when a new share goes if no other caller comes", async () => {
  const { clock, limiter, many, acquire } = busy();
  many("a", 100);
  many("b", 100);
  await clock.advance(50);
  for (const [share, permits] of [["new", 1] as const, ["a", 1] as const, ["new", 3] as const]) {
    const { waitMs } = limiter.peek(permits, { share });
    const promised = clock.now() + waitMs;
    const copy = acquire(share, permits, { signal: undefined });
    await clock.advance(waitMs - 1);
    assert.is(copy.at, undefined);
    await clock.advance(1);
    assert.is(copy.at, promised);
  }
});

test("a reservation keeps its instant, whoever comes later", async () => {
  const { clock, limiter, many } = busy({ order: fairShares({ priorities: ["high", "low"] }) });
  many("a", 3);
  const reservation = limiter.reserve(1, { share: "a" });
  assert.is(reservation.waitMs, 400);
  many("b", 5);
  many("c", 5, 1, { weight: 10, priority: "high" });
  const ready = watch(clock, reservation.ready());
  await clock.advance(2000);
  assert.is(ready.at, 400);
});

test("waiters that a reservation does not depend on may still be overtaken", async () => {
  const { clock, limiter, order, many } = busy();
  many("a", 4);
  const reservation = limiter.reserve(1, { share: "r" });
  assert.is(reservation.waitMs, 200);
  many("b", 2);
  await clock.advance(2000);
  assert.is(order.join(""), "aababa");
});

test("a cancelled reservation is not charged to its share", async () => {
  const { clock, limiter, order, many } = busy();
  many("b", 3);
  limiter.reserve(50, { share: "a" }).cancel();
  many("a", 3);
  await clock.advance(2000);
  assert.is(order.indexOf("a") < 4, true, order.join(""));
});

test("a cancelled reservation is not charged to the waiters behind it either", async () => {
  const { clock, limiter, order, many } = busy();
  const reservation = limiter.reserve(50, { share: "a" });
  many("a", 2);
  many("b", 4);
  reservation.cancel();
  await clock.advance(400);
  assert.is(order.join("").includes("a"), true, order.join(""));
  await clock.advance(10_000);
});

test("a cancelled waiter leaves no gap and costs its share nothing", async () => {
  const { clock, order, many, acquire } = busy();
  const controller = new AbortController();
  acquire("a", 50, { signal: controller.signal });
  many("b", 2);
  many("a", 2);
  controller.abort();
  await clock.advance(400);
  assert.equal(order.join(""), "baba");
});

test("a waiter in the middle of its share may leave", async () => {
  const { clock, order, many, acquire } = busy();
  many("a", 1);
  const controller = new AbortController();
  const gone = acquire("a", 7, { signal: controller.signal });
  many("a", 1, 2);
  controller.abort(new Error("gone"));
  await clock.advance(1000);
  assert.equal(order, ["a", "a2"]);
  assert.is((gone.error as Error).message, "gone");
});

test("a time-out that later callers have pushed back ends when its time is over", async () => {
  const { clock, limiter, many } = busy();
  many("a", 2);
  const timed = watch(clock, limiter.tryAcquire(1, { timeoutMs: 300, share: "a" }));
  const inTime = watch(clock, limiter.tryAcquire(1, { timeoutMs: 1000, share: "a" }));
  many("b", 5);
  assert.is(limiter.stats.waiting, 9);
  await clock.advance(299);
  assert.is(timed.at, undefined);
  await clock.advance(1);
  assert.is(timed.value, false);
  assert.is(timed.at, 300);
  await clock.advance(1000);
  assert.is(inTime.value, true);
});

test("a time-out that is too short is refused at once, by the place in the fair order", async () => {
  const { clock, limiter, many } = busy();
  many("a", 10);
  const [own, other] = [
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 500, share: "a" })),
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 500, share: "b" })),
  ];
  await clock.advance(0);
  assert.is(own.value, false);
  assert.is(other.at, undefined);
  await clock.advance(500);
  assert.is(other.value, true);
});

test("a caller that will be refused, because it is late, counts for no caller behind it", async () => {
  for (const [order, others, options] of [
    [fairShares(), 4, {}],
    [fairShares({ priorities: ["high", "low"], agingMs: 450 }), 30, { priority: "high" }],
  ] as const) {
    const { clock, limiter, many, acquire } = busy({ order });
    const late = watch(clock, limiter.tryAcquire(5, { timeoutMs: 250, share: "a" }));
    many("a", 1);
    many("b", others, 1, options);
    const { waitMs } = limiter.peek(6, { share: "c" });
    const call = acquire("c", 6);
    await clock.advance(5000);
    assert.equal([late.value, call.at], [false, waitMs]);
  }
});

test("a new rate refuses the waiters that cannot be in time any more", async () => {
  const { clock, limiter, many } = busy();
  many("a", 2);
  const timed = watch(clock, limiter.tryAcquire(1, { timeoutMs: 400, share: "a" }));
  const patient = watch(clock, limiter.tryAcquire(1, { timeoutMs: 5000, share: "a" }));
  const second = watch(clock, limiter.tryAcquire(1, { timeoutMs: 350, share: "b" }));
  limiter.setRate(2);
  await clock.advance(0);
  assert.is(timed.value, false);
  assert.is(second.value, false);
  await clock.advance(5000);
  assert.is(patient.value, true);
});

test("a pause moves every waiter, and the order stays", async () => {
  const { clock, limiter, order, many } = busy();
  many("a", 3);
  limiter.pause(1000);
  many("b", 3);
  await clock.advance(999);
  assert.equal(order, []);
  await clock.advance(1000);
  assert.equal(order.join(""), "ababab");
});

test("a reset lets the waiters take from the new state, in order", async () => {
  const { clock, limiter, order, many } = busy();
  many("a", 2);
  many("b", 2);
  limiter.charge(100);
  limiter.reset();
  await clock.advance(300);
  assert.equal(order.join(""), "abab");
});

test("a higher priority goes first, whatever its share", async () => {
  const { clock, order, many } = busy({
    order: fairShares({ priorities: ["interactive", "batch"] }),
  });
  many("a", 3, 1, { priority: "batch" });
  many("b", 1);
  await clock.advance(150);
  many("c", 2, 1, { priority: "interactive" });
  await clock.advance(2000);
  assert.equal(order.join(""), "accbaa");
});

test("with aging a lower priority releases one caller each time it has waited so long", async () => {
  const { clock, order, many } = busy({
    order: fairShares({ priorities: ["interactive", "batch"], agingMs: 1000 }),
  });
  many("i", 60, 1, { priority: "interactive" });
  many("b", 5, 1, { priority: "batch" });
  await clock.advance(4500);
  assert.is(order.filter((share) => share === "b").length, 4);
  assert.is(order.indexOf("b") >= 9 && order.indexOf("b") <= 11, true);
});

test("aging that is shorter than the interval makes priorities equal", async () => {
  const { clock, order, many } = busy({
    order: fairShares({ priorities: ["one", "two", "three"], agingMs: 1 }),
  });
  for (const priority of ["one", "two", "three"]) many(priority, 9, 1, { priority });
  await clock.advance(1500);
  const counts = ["one", "two", "three"].map((name) => order.filter((one) => one === name).length);
  assert.equal(counts, [5, 5, 5]);
});

test("of priorities that have waited equally long the higher one goes first", async () => {
  const { clock, order, many } = busy({
    order: fairShares({ priorities: ["one", "two", "three"], agingMs: 450 }),
  });
  for (const priority of ["three", "two", "one"]) many(priority, 6, 1, { priority });
  await clock.advance(700);
  assert.equal(order, ["one", "one", "one", "one", "one", "two", "three"]);
  await clock.advance(2000);
});

test("with aging peek says when a caller goes, and a reservation does not count for it", async () => {
  for (const priority of ["high", "low"]) {
    for (const reserves of [false, true]) {
      const { clock, limiter, many, acquire } = busy({
        order: fairShares({ priorities: ["high", "low"], agingMs: 450 }),
      });
      if (reserves) limiter.reserve(1, { priority: "high" });
      many("a", 2, 1, { priority: "low" });
      await clock.advance(10);
      many("b", 30, 1, { priority: "high" });
      const options = { priority, share: "c" };
      const { waitMs } = limiter.peek(1, options);
      const call = acquire("c", 1, options);
      await clock.advance(5000);
      assert.is(call.at, 10 + waitMs, `${priority} ${reserves}`);
    }
  }
  const { clock, limiter, order, many } = busy({
    order: fairShares({ priorities: ["high", "low"], agingMs: 5000 }),
  });
  many("low", 1, 1, { priority: "low" });
  limiter.reserve(1, { priority: "high" });
  await clock.advance(10);
  many("high", 1, 1, { priority: "high" });
  await clock.advance(1000);
  assert.equal(order, ["high", "low"]);
});

test("priorities hold after hours without a call", async () => {
  const { clock, limiter, order, many } = busy({
    order: fairShares({ priorities: ["high", "low"], agingMs: 5000 }),
  });
  many("low", 1, 1, { priority: "low" });
  await clock.advance(3_600_000);
  limiter.tryAcquire();
  await clock.advance(3_600_000);
  limiter.charge(1);
  many("low", 2, 1, { priority: "low" });
  await clock.advance(10);
  many("high", 1, 1, { priority: "high" });
  await clock.advance(1000);
  assert.equal(order, ["low", "high", "low", "low"]);
});

test("a request that would go first in the fair order does not go before a reservation", async () => {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 });
  const limiter = Limiter.create(policy, { clock, order: fairShares() });
  limiter.tryAcquire(100);
  assert.is(limiter.reserve(50, { share: "a" }).waitMs, 5000);
  await clock.advance(1000);
  assert.is(limiter.tryAcquire(5), false);
  assert.is(limiter.peek(5, { share: "b" }).waitMs, 4500);
});

test("a debt is kept while others wait, and forgotten by the next call of an idle limiter", async () => {
  const policy = tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 });
  for (const [waits, expected] of [
    [true, ["free", "large", "debtor"]],
    [false, ["debtor", "free"]],
  ] as const) {
    const clock = new FakeClock();
    const limiter = Limiter.create(policy, {
      clock,
      order: fairShares({ priorities: ["high", "low"] }),
    });
    const order: string[] = [];
    const acquire = (share: string, permits = 1) =>
      void limiter.acquire(permits, { share }).then(() => order.push(share));
    await limiter.acquire(80, { share: "debtor" });
    if (waits) acquire("large", 30);
    await limiter.acquire(10, { priority: "high", share: "fast" });
    if (!waits) limiter.charge(10);
    acquire("debtor");
    acquire("free");
    await clock.advance(10_000);
    assert.equal(order, expected);
  }
});

test("an overtaken head does not hold back a smaller request that could go now", async () => {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 });
  const limiter = Limiter.create(policy, {
    clock,
    order: fairShares({ priorities: ["high", "low"] }),
  });
  limiter.tryAcquire(100);
  const low = watch(clock, limiter.acquire(100, { priority: "low" }));
  await clock.advance(5000);
  assert.is(limiter.tryAcquire(1), false);
  const high = { priority: "high" };
  assert.is(limiter.peek(10, high).allowed, true);
  assert.is(limiter.decide(10, high).allowed, true);
  assert.is(await limiter.acquire(10, high), 0);
  assert.is(limiter.reserve(20, high).waitMs, 0);
  const later = watch(clock, limiter.acquire(20, high));
  await clock.advance(1000);
  assert.is(later.at, 6000);
  await clock.advance(10_000);
  assert.is(low.at, 16_000);
});

test("a leaky bucket counts the waiters of all shares", async () => {
  const clock = new FakeClock();
  const policy = leakyBucket({ permitsPerSecond: 10, capacity: 3 });
  const limiter = Limiter.create(policy, { clock, order: fairShares() });
  for (const share of ["a", "b", "c", "d"]) void limiter.acquire(1, { share });
  assert.is(limiter.peek(1, { share: "e" }).waitMs, Infinity);
  assert.instance(await failure(() => limiter.acquire(1, { share: "e" })), QueueFullError);
  await clock.advance(1000);
});

test("drop-oldest drops callers of the share that waits for most", async () => {
  const { clock, many, acquire } = busy({ maxWaiting: 5, onFull: "drop-oldest" });
  const a = many("a", 4);
  const b = acquire("b");
  const c = acquire("c");
  await clock.advance(0);
  assert.instance(a[0]?.error, QueueFullError);
  assert.is(b.at, undefined);
  assert.is(c.at, undefined);
  acquire("c", 5);
  await clock.advance(0);
  assert.instance(b.error, QueueFullError);
  const refused = acquire("c", 50);
  await clock.advance(10);
  assert.instance(refused.error, QueueFullError);
  await clock.advance(2000);
});

test("drop-oldest drops callers of the share that waits for most now, not of the one that did", async () => {
  const { clock, many, acquire } = busy({ maxWaiting: 6, onFull: "drop-oldest" });
  const b = many("b", 2);
  const a = many("a", 4);
  await clock.advance(0);
  acquire("c");
  await clock.advance(0);
  assert.instance(a[0]?.error, QueueFullError);
  // a and b alternate: b waits for none, then for three
  await clock.advance(500);
  const later = many("b", 3);
  const c = many("c", 3);
  await clock.advance(0);
  assert.equal([a, later, c].flat().filter(({ error }) => error !== undefined).length, 2);
  assert.instance(later[0]?.error, QueueFullError);
  assert.is(b.at(-1)?.error, undefined);
  await clock.advance(2000);
});

test("drop-oldest drops no reservation", async () => {
  const { clock, limiter } = busy({ maxWaiting: 2, onFull: "drop-oldest" });
  limiter.reserve(2, { share: "a" });
  assert.instance(await failure(() => limiter.acquire(1, { share: "b" })), QueueFullError);
  await clock.advance(1000);
});

test('callers without a share are those of the share ""', async () => {
  const { clock, limiter, order, many } = busy();
  many("", 1);
  void limiter.acquire().then(() => order.push("none"));
  many("b", 2);
  await clock.advance(1000);
  assert.equal(order, ["", "b", "none", "b"]);
});

test("callers without a share are a share of their own", async () => {
  const { clock, limiter, order, many } = busy();
  many("a", 3);
  void limiter.acquire().then(() => order.push("none"));
  await clock.advance(250);
  assert.equal(order, ["a", "none"]);
  await clock.advance(1000);
});

test("a table of many served shares is bounded, and the largest debts stay known", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1000, { clock, burstSeconds: 0, order: fairShares() });
  void limiter.acquire(5000, { share: "big" });
  const all = Array.from({ length: 3000 }, (_, i) =>
    watch(clock, limiter.acquire(1, { share: `tenant ${i}` })),
  );
  await clock.advance(7990);
  const big = watch(clock, limiter.acquire(1, { share: "big" }));
  const fresh = Array.from({ length: 20 }, () => watch(clock, limiter.acquire(1, { share: "x" })));
  await clock.advance(1000);
  assert.is(Math.max(...fresh.map(({ at = Infinity }) => at)) < (big.at ?? 0), true);
  assert.is(
    all.every(({ at }) => at !== undefined),
    true,
  );
});

test("a keyed limiter is fair within each key", async () => {
  const { KeyedLimiter, smoothBursty } = await import("../../src/index.ts");
  const clock = new FakeClock();
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const keyed = KeyedLimiter.create(policy, { clock, order: fairShares() });
  const limiter = keyed.for("one");
  limiter.tryAcquire();
  const order: string[] = [];
  for (const share of ["a", "a", "a", "b"]) {
    void limiter.acquire(1, { share }).then(() => order.push(share));
  }
  assert.is(limiter.peek(1, { share: "c" }).waitMs, 300);
  assert.is(limiter.reserve(1, { share: "c" }).waitMs, 300);
  assert.is(limiter.decide(1, { share: "c" }).allowed, false);
  await clock.advance(1000);
  assert.equal(order.join(""), "abaa");
});

test.run();
