import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fairShares,
  gcra,
  Limiter,
  RateLimiter,
  smoothBursty,
} from "../../src/index.ts";
import { StoreLimiter, StoreRateLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { failure, instants, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("fair limiters on a store, with rates, keys and combinations");

const tenASecond = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });

function world() {
  const clock = new FakeClock();
  return { clock, store: memoryStore({ clock }) };
}

test("a fair rate limiter has the verbs of the rate", async () => {
  const { clock, store } = world();
  const options = { clock, order: fairShares(), burstSeconds: 0 };
  const limiter = StoreRateLimiter.create(store, "rate", 10, options);
  await limiter.acquire();
  const calls = Array.from({ length: 6 }, () => watch(clock, limiter.acquire(1, { share: "a" })));
  await clock.advance(100);
  assert.equal(await limiter.setRate(100), { reaches: "users" });
  assert.is(limiter.getRate(), 100);
  await clock.advance(400);
  assert.equal(instants(calls), [100, 200, 300, 400, 410, 420], "the window keeps the old pace");
  await limiter.resetRate();
  assert.is(limiter.getRate(), 10);
});

test("each key has shares of its own, and all keys count together", async () => {
  const { clock, store } = world();
  const limiter = StoreLimiter.create(store, "keyed", tenASecond, { clock, order: fairShares() });
  const [ann, bob] = [limiter.for("ann"), limiter.for("bob")];
  assert.is(limiter.for("ann"), ann);
  const order: string[] = [];
  for (const [name, each] of Object.entries({ ann, bob })) {
    await each.acquire();
    for (const share of ["a", "a", "a", "a", "b"]) {
      each.acquire(1, { share }).then(
        () => order.push(`${name} ${share}`),
        () => {},
      );
    }
  }
  await clock.advance(0);
  assert.equal([limiter.stats.waiting, bob.stats.waiting], [10, 10]);
  await clock.advance(1000);
  for (const name of ["ann", "bob"]) {
    const own = order.filter((one) => one.startsWith(name)).map((one) => one.at(-1));
    assert.is(own.join(""), "aaaba");
  }
  const waiting = Array.from({ length: 4 }, () => watch(clock, bob.acquire()));
  await clock.advance(0);
  await limiter.close();
  assert.ok(waiting.slice(1).every(({ error }) => error !== undefined));
  assert.match(String(await failure(() => ann.acquire())), "closed");
});

test("a fair limiter is an instance of its class", () => {
  const { clock, store } = world();
  const rate = StoreRateLimiter.create(store, "one", 10, { clock, order: fairShares() });
  const keyed = StoreLimiter.create(store, "two", tenASecond, { clock, order: fairShares() });
  const plain = StoreLimiter.create(store, "three", tenASecond, { clock });
  assert.equal(
    [rate, keyed, plain, keyed.for("a"), undefined, 7].map((value) => [
      value instanceof StoreRateLimiter,
      value instanceof StoreLimiter,
    ]),
    [
      [true, false],
      [false, true],
      [false, true],
      [false, false],
      [false, false],
      [false, false],
    ],
  );
});

test("a combination takes the share, and waits in fair order", async () => {
  const { clock, store } = world();
  const fair = StoreLimiter.create(store, "fair", tenASecond, { clock, order: fairShares() });
  const other = RateLimiter.create(1000, { clock });
  const limiter = allOf(fair, other);
  const order: string[] = [];
  await limiter.acquire(1, { share: "a" });
  for (const share of ["a", "a", "a", "a", "b", ""]) {
    const options = share === "" ? undefined : { share };
    void limiter.acquire(1, options).then(() => order.push(share));
  }
  await clock.advance(2000);
  assert.equal(order.length, 6);
  assert.ok(order.indexOf("b") < 5, order.join());
  const share = { share: "b" };
  assert.is((await limiter.peek(1, share)).allowed, true);
  assert.is((await limiter.decide(1, share)).allowed, true);
  const reservation = await limiter.reserve(1, share);
  assert.is(reservation.waitMs, 100);
  await reservation.undo();
  const timed = watch(clock, limiter.tryAcquire(1, { ...share, timeoutMs: 500 }));
  await clock.advance(500);
  assert.is(timed.value, true);
  const places = ConcurrencyLimiter.create(1, { clock, order: fairShares() });
  const run = watch(
    clock,
    allOf(fair, places).run(async () => "done", share),
  );
  await clock.advance(500);
  assert.equal([run.value, places.active], ["done", 0]);
});

test("decide in fair order takes the permits that it says are allowed", () => {
  const policy = gcra({ limit: 10, periodMs: 1000, burst: 9 });
  const limiter = Limiter.create(policy, { clock: new FakeClock(), order: fairShares() });
  limiter.tryAcquire(2, { timeoutMs: 100, share: "a" });
  limiter.decide(4, { share: "b" });
  limiter.tryAcquire(1);
  // this one needs 1 more, and cannot be in time any more once the next one has gone before it
  limiter.tryAcquire(4, { timeoutMs: 100, share: "a" });
  limiter.tryAcquire(1, { timeoutMs: 100, share: "b" });
  const { granted } = limiter.stats;
  const { allowed } = limiter.decide(1, { share: "a" });
  // a look refuses that caller: none is in front any more
  assert.is(limiter.stats.granted - granted, allowed ? 1 : 0);
});

test.run();
