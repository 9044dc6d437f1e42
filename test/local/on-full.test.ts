import * as assert from "uvu/assert";
import {
  ConcurrencyLimiter,
  KeyedLimiter,
  Limiter,
  type LimiterOptions,
  leakyBucket,
  QueueFullError,
  RateLimiter,
} from "../../src/index.ts";
import { RedisRateLimiter } from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("onFull");

/** One permit every 100 ms; the first is taken. */
function busy(options: LimiterOptions) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0, name: "mail", ...options });
  limiter.tryAcquire();
  const acquire = (permits = 1) => watch(clock, limiter.acquire(permits));
  return { clock, limiter, acquire };
}

test("reject is the default: the new caller is refused, and facts.dropped is absent", async () => {
  const { limiter, acquire } = busy({ maxWaiting: 1 });
  acquire();
  const error = await failure(() => limiter.acquire());
  assert.instance(error, QueueFullError);
  assert.equal((error as QueueFullError).facts, {
    limiter: "mail",
    permits: 1,
    waiting: 1,
    maxWaiting: 1,
  });
});

test("drop-oldest: the callers that waited longest make room, and those behind them move up", async () => {
  const { clock, limiter, acquire } = busy({ maxWaiting: 3, onFull: "drop-oldest" });
  const calls = [acquire(), acquire(), acquire(), acquire(2)];
  await clock.advance(1000);
  const [first, second, third, fourth] = calls;
  for (const dropped of [first, second]) {
    assert.instance(dropped?.error, QueueFullError);
    assert.match(`${dropped?.error}`, "dropped to make room for a later request: 1 asked for");
    assert.is(dropped?.at, 0);
  }
  assert.is((first?.error as QueueFullError | undefined)?.facts.dropped, true);
  assert.equal([third?.value, fourth?.value], [100, 200]);
  assert.equal(limiter.stats, { granted: 3, refused: 2, cancelled: 0, waiting: 0 });
});

test("drop-oldest: a waiting tryAcquire that is dropped answers false, and drops no other caller", async () => {
  const { clock, limiter, acquire } = busy({ maxWaiting: 1, onFull: "drop-oldest" });
  const tried = watch(clock, limiter.tryAcquire(1, 5000));
  const later = acquire();
  assert.is(await limiter.tryAcquire(1, 5000), false);
  await clock.advance(100);
  assert.equal([tried.value, tried.at, later.value], [false, 0, 100]);
});

test("drop-oldest: reservations stay, and a request that can never fit drops no caller", async () => {
  const { clock, limiter, acquire } = busy({ maxWaiting: 3, onFull: "drop-oldest" });
  const reservation = limiter.reserve(2);
  const waits = acquire();
  assert.instance(await failure(() => limiter.acquire(4)), QueueFullError, "more than may wait");
  assert.instance(await failure(() => limiter.acquire(2)), QueueFullError, "the reservation stays");
  assert.throws(
    () => limiter.reserve(),
    (error: unknown) => error instanceof QueueFullError && error.facts.dropped === undefined,
  );
  const later = acquire();
  await clock.advance(1000);
  assert.instance(waits.error, QueueFullError);
  assert.equal([await reservation.ready(), later.value], [100, 300]);
});

test("drop-oldest: a change of rate that waits in line is not dropped", async () => {
  const { clock, limiter, acquire } = busy({ maxWaiting: 1, onFull: "drop-oldest" });
  const reservation = limiter.reserve();
  limiter.setRate(5);
  await clock.advance(50);
  assert.is(reservation.cancel(), true);
  const first = acquire();
  const second = acquire();
  await clock.advance(1000);
  assert.instance(first.error, QueueFullError);
  assert.is(second.error, undefined);
});

test("wait: acquire waits in line however many wait; calls that must answer at once are refused", async () => {
  const { clock, limiter, acquire } = busy({ maxWaiting: 1, onFull: "wait" });
  const calls = [acquire(), acquire(), acquire()];
  assert.is(await limiter.tryAcquire(1, 5000), false);
  assert.throws(() => limiter.reserve(), /maxWaiting is 1/);
  await clock.advance(1000);
  assert.equal(
    calls.map(({ value }) => value),
    [100, 200, 300],
  );
});

test("a policy's own bound holds whatever onFull says", async () => {
  for (const onFull of ["wait", "drop-oldest"] as const) {
    const policy = leakyBucket({ permitsPerSecond: 10, capacity: 1 });
    const limiter = Limiter.create(policy, { clock: new FakeClock(), onFull });
    limiter.tryAcquire();
    void limiter.acquire();
    assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  }
});

test("a keyed limiter: each key drops its own", async () => {
  const clock = new FakeClock();
  const policies = leakyBucket({ permitsPerSecond: 10, capacity: 100 });
  const keyed = KeyedLimiter.create(policies, { clock, maxWaiting: 1, onFull: "drop-oldest" });
  const waits = ["ann", "bob"].map((key) => {
    keyed.for(key).tryAcquire();
    return watch(clock, keyed.for(key).acquire());
  });
  void keyed.for("ann").acquire();
  await clock.advance(100);
  assert.instance(waits[0]?.error, QueueFullError);
  assert.is(waits[1]?.value, 100);
});

test("ConcurrencyLimiter: reject, drop-oldest, wait", async () => {
  const clock = new FakeClock();
  const options = { clock, maxWaiting: 1 } as const;
  const refusing = ConcurrencyLimiter.create(1, options);
  const dropping = ConcurrencyLimiter.create(1, { ...options, onFull: "drop-oldest" });
  const waiting = ConcurrencyLimiter.create(1, { ...options, onFull: "wait" });
  const leases = [refusing, dropping, waiting].map((limiter) => limiter.tryAcquire());

  void refusing.acquire();
  assert.instance(await failure(() => refusing.acquire()), QueueFullError);

  const [first, second, third] = [1, 2, 3].map(() => watch(clock, dropping.acquire()));
  assert.is(await dropping.tryAcquire(1, 1000), undefined, "tryAcquire drops no caller");
  leases[1]?.release();
  await clock.advance(0);
  for (const dropped of [first, second]) assert.instance(dropped?.error, QueueFullError);
  assert.ok(third?.value);

  const queued = [1, 2].map(() => watch(clock, waiting.acquire()));
  assert.is(await waiting.tryAcquire(1, 1000), undefined);
  leases[2]?.release();
  await clock.advance(0);
  queued[0]?.value?.release();
  await clock.advance(0);
  assert.ok(queued[1]?.value);
});

test("ConcurrencyLimiter: a tryAcquire that is dropped gets no lease", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock, maxWaiting: 1, onFull: "drop-oldest" });
  limiter.tryAcquire();
  const tried = watch(clock, limiter.tryAcquire(1, 1000));
  void limiter.acquire();
  await clock.advance(0);
  assert.equal([tried.at, tried.value, limiter.waiting], [0, undefined, 1]);
});

test("ConcurrencyLimiter with maxWaiting 0: there is no waiter to drop", async () => {
  const limiter = ConcurrencyLimiter.create(1, { maxWaiting: 0, onFull: "drop-oldest" });
  limiter.tryAcquire();
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
});

test("ConcurrencyLimiter.clear: callers that wait reject, leases and later callers stay", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock });
  const lease = limiter.tryAcquire();
  const waits = [limiter.acquire(), limiter.tryAcquire(1, 1000)].map((wait) => watch(clock, wait));
  limiter.clear("enough");
  assert.equal([limiter.waiting, limiter.active], [0, 1]);
  const later = watch(clock, limiter.acquire());
  lease?.release();
  await clock.advance(2000);
  assert.equal(
    waits.map(({ error }) => error),
    ["enough", "enough"],
  );
  assert.ok(later.value);
  const last = watch(clock, limiter.acquire());
  limiter.clear();
  await clock.advance(0);
  assert.is((last.error as DOMException).name, "AbortError");
  assert.equal(limiter.stats, { granted: 2, refused: 0, cancelled: 3, waiting: 0 });
});

test("error messages name bad values; a limiter on Redis refuses the option", () => {
  assert.throws(
    () => RateLimiter.create(1, { onFull: "drop" as "wait" }),
    /onFull must be one of reject, drop-oldest, wait, got "drop"/,
  );
  assert.throws(
    () => ConcurrencyLimiter.create(1, { onFull: 5 as never }),
    /onFull must be one of/,
  );
  const redis = { runScript: () => Promise.reject(new Error("away")) };
  assert.throws(
    () => RedisRateLimiter.create(redis, "mail", 1, { onFull: "wait" } as object),
    /options has no "onFull"/,
  );
});

test.run();
