import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fairShares,
  KeyedLimiter,
  RateLimiter,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const places = suite("fair concurrency limiter");

/** Each lease is held for 100 ms. */
function held(limiter: ConcurrencyLimiter, clock: FakeClock) {
  const order: string[] = [];
  const run = (share: string, options = {}) =>
    limiter.run(
      async () => {
        order.push(share);
        await new Promise<void>((resolve) => {
          clock.wakeAt(clock.now() + 100, resolve);
        });
      },
      { share, ...options },
    );
  return { order, run };
}

places("places go to the shares in turn", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock, order: fairShares() });
  const { order, run } = held(limiter, clock);
  for (let i = 0; i < 4; i++) void run("a");
  for (let i = 0; i < 2; i++) void run("b");
  assert.is(limiter.waiting, 5);
  await clock.advance(1000);
  assert.is(order.join(""), "aababa");
  assert.is(limiter.waiting, 0);
});

places("priorities, weights and aging hold for places", async () => {
  const clock = new FakeClock();
  const fair = fairShares({ priorities: ["high", "low"], agingMs: 250 });
  const limiter = ConcurrencyLimiter.create(1, { clock, order: fair });
  const { order, run } = held(limiter, clock);
  for (let i = 0; i < 3; i++) void run("l");
  for (let i = 0; i < 6; i++) void run("h", { priority: "high" });
  await clock.advance(1000);
  assert.is(order.join(""), "lhhhlhhhl");
});

places("waiters may leave, be cleared, and time out", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock, order: fairShares() });
  const lease = await limiter.acquire();
  const controller = new AbortController();
  const gone = watch(clock, limiter.acquire(1, { share: "a", signal: controller.signal }));
  const late = watch(clock, limiter.tryAcquire({ share: "b", timeoutMs: 50 }));
  const cleared = [
    watch(clock, limiter.acquire(1, { share: "a" })),
    watch(clock, limiter.acquire(1, { share: "c" })),
  ];
  controller.abort(new Error("gone"));
  await clock.advance(50);
  assert.is((gone.error as Error).message, "gone");
  assert.is(late.at, 50);
  assert.is(limiter.waiting, 2);
  limiter.clear(new Error("cleared"));
  await clock.advance(0);
  assert.equal(
    cleared.map(({ error }) => (error as Error).message),
    ["cleared", "cleared"],
  );
  lease.release();
  assert.is(limiter.active, 0);
});

places("drop-oldest drops the caller that would go next", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, {
    ...{ clock, order: fairShares(), maxWaiting: 1, onFull: "drop-oldest" },
  });
  const lease = await limiter.acquire();
  const dropped = watch(clock, limiter.acquire(1, { share: "a" }));
  const waits = watch(clock, limiter.acquire(1, { share: "b" }));
  await clock.advance(0);
  assert.is((dropped.error as { facts?: { dropped?: boolean } }).facts?.dropped, true);
  lease.release();
  await clock.advance(0);
  assert.is(waits.at, 0);
});

places("a limiter that is not fair refuses a share", async () => {
  const limiter = ConcurrencyLimiter.create(1);
  assert.match(
    String(await failure(() => limiter.acquire(1, { share: "a" }))),
    /order: fairShares\(\)/,
  );
  assert.match(
    String(await failure(() => limiter.tryAcquire({ share: "a" }))),
    /order: fairShares\(\)/,
  );
});

places.run();

const both = suite("allOf, fair");

/** Ten a second; the first is taken. */
function busy() {
  const clock = new FakeClock();
  const rate = RateLimiter.create(10, { clock, burstSeconds: 0, order: fairShares() });
  const other = RateLimiter.create(1000, { clock });
  rate.tryAcquire();
  const order: string[] = [];
  const note = (name: string) => () => {
    order.push(name);
  };
  return { clock, rate, other, order, note };
}

both("run: starts are fair in rate and in concurrency, and the place is released", async () => {
  const { clock, rate, order } = busy();
  const concurrency = ConcurrencyLimiter.create(2, { clock, order: fairShares() });
  const limiter = allOf(rate, concurrency);
  const run = (share: string) =>
    limiter.run(
      async () => {
        order.push(share);
      },
      { share },
    );
  for (let i = 0; i < 8; i++) void run("a");
  for (let i = 0; i < 4; i++) void run("b");
  await clock.advance(1200);
  assert.is(order.length, 12);
  assert.is(concurrency.active, 0);
  const firstB = order.indexOf("b");
  assert.is(firstB <= 3, true, order.join(""));
  assert.match(order.join(""), /abab/);
});

both(
  "acquire: callers of several shares wait in the fair order of the binding limiter",
  async () => {
    const { clock, rate, other, order, note } = busy();
    const limiter = allOf(rate, other);
    for (let i = 0; i < 4; i++) void limiter.acquire(1, { share: "a" }).then(note("a"));
    for (let i = 0; i < 2; i++) void limiter.acquire(1, { share: "b" }).then(note("b"));
    await clock.advance(1000);
    assert.is(order.join(""), "ababaa");
  },
);

both("every verb takes the share", async () => {
  const { clock, rate, other } = busy();
  const limiter = allOf(rate, other);
  for (let i = 0; i < 5; i++) void rate.acquire(1, { share: "a" });
  const share = { share: "b" };
  assert.is(limiter.peek(1, share).waitMs, 200);
  assert.is(limiter.decide(1, share).waitMs, 200);
  const timed = watch(clock, limiter.tryAcquire(1, { ...share, timeoutMs: 250 }));
  const reservation = limiter.reserve(1, share);
  assert.is(reservation.waitMs, 400);
  await clock.advance(200);
  assert.is(timed.value, true);
  await clock.advance(1000);
});

both("a combination without a fair limiter refuses a share, with places too", async () => {
  const { other } = busy();
  const share = { share: "a" };
  for (const given of [share, { weight: 2 }, { priority: "high" }]) {
    const refused = await failure(() => allOf(other).acquire(1, given));
    assert.match(String(refused), /order: fairShares\(\)/);
  }
  const leasing = allOf(other, ConcurrencyLimiter.create(1));
  assert.match(String(await failure(() => leasing.acquire(1, share))), /order: fairShares\(\)/);
  const now = { ...share, timeoutMs: 0 };
  assert.match(String(await failure(() => leasing.tryAcquire(now))), /order: fairShares\(\)/);
});

both("a caller of a combination is not dropped to make room", async () => {
  const clock = new FakeClock();
  const rate = RateLimiter.create(10, {
    ...{ clock, burstSeconds: 0, order: fairShares(), maxWaiting: 2, onFull: "drop-oldest" },
  });
  rate.tryAcquire();
  const combined = watch(clock, allOf(rate).acquire(1, { share: "a" }));
  const single = watch(clock, rate.acquire(1, { share: "a" }));
  await clock.advance(0);
  const next = watch(clock, rate.acquire(1, { share: "b" }));
  await clock.advance(0);
  assert.is(single.error instanceof Error, true);
  await clock.advance(1000);
  assert.is(combined.error ?? next.error, undefined);
});

both("a share of a keyed limiter that is not fair is refused", async () => {
  const policy = smoothBursty({ permitsPerSecond: 10 });
  const limiter = allOf(KeyedLimiter.create(policy).for("one"));
  assert.match(
    String(await failure(() => limiter.acquire(1, { share: "a" }))),
    /order: fairShares\(\)/,
  );
});

both("tryAcquire with a time: the share goes to the limiters that are fair", async () => {
  const { clock, rate, other } = busy();
  const share = { share: "a", timeoutMs: 300 };
  const fairRate = allOf(rate, ConcurrencyLimiter.create(1, { clock }));
  const [one, two] = [
    watch(clock, fairRate.tryAcquire(share)),
    watch(clock, fairRate.tryAcquire({ timeoutMs: 0 })),
  ];
  await clock.advance(100);
  assert.is(one.at, 100);
  assert.is(two.value, undefined);
  const places = ConcurrencyLimiter.create(1, { clock, order: fairShares() });
  const fairPlaces = allOf(other, places);
  const held = await fairPlaces.acquire(1, { share: "a" });
  const waiting = watch(clock, fairPlaces.tryAcquire(share));
  await clock.advance(10);
  held.release();
  await clock.advance(0);
  assert.is(waiting.at, 110);
  waiting.value?.release();
  const plain = ConcurrencyLimiter.create(1, { clock });
  (await allOf(other, places, plain).acquire(1, { share: "a" })).release();
  assert.equal([places.active, plain.active], [0, 0]);
});

both("a caller with a time-out keeps the instant by which it was let wait", async () => {
  const { clock, rate, order, note } = busy();
  const limiter = allOf(rate, ConcurrencyLimiter.create(9, { clock }));
  for (let i = 0; i < 3; i++) void rate.acquire(1, { share: "a" }).then(note("a"));
  const timed = watch(clock, limiter.tryAcquire({ share: "a", timeoutMs: 450 }));
  await clock.advance(0);
  for (let i = 0; i < 4; i++) void rate.acquire(1, { share: "b" }).then(note("b"));
  await clock.advance(1000);
  assert.equal([timed.at, order.length], [400, 7]);
});

both("a fair limiter with keys takes a share in a combination", async () => {
  const { clock, other } = busy();
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const keyed = KeyedLimiter.create(policy, { clock, order: fairShares() }).for("one");
  const limiter = allOf(keyed, other);
  await limiter.acquire(1, { share: "a" });
  const order: string[] = [];
  for (const share of ["a", "a", "a", "b"]) {
    void limiter.acquire(1, { share }).then(() => order.push(share));
  }
  await clock.advance(1000);
  assert.is(order.join(""), "abaa");
});

both.run();
