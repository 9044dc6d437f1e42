import * as assert from "uvu/assert";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  PermitsExceedCapacityError,
  type Policy,
  QueueFullError,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { RedisLimiter, type RedisLimiterOptions, RedisRateLimiter } from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { type Kind, limiterSuite, type MakeLimiter } from "../local/limiter.suite.ts";
import { pacedPolicies, pacedSample } from "../support/algorithms/samples.ts";
import { connect, RemoteClock, type Watched } from "../support/limiter/remote.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { suite } from "../support/suite.ts";

let watched: Watched;

const opening = suite("limiters on Redis, before");
opening.before(async () => {
  await redisServer();
  watched = await connect();
});
opening("the server starts", () => {});
opening.run();

const longTimeout: RedisLimiterOptions = { timeoutMs: 60_000 };
const onRedis =
  (policies: Kind["policies"]): MakeLimiter =>
  (clock, { name = watched.fresh(), ...options } = {}) =>
    RedisLimiter.create(watched.runner, name, policies, { ...longTimeout, ...options, clock });

const kinds: [
  string,
  MakeLimiter,
  (permitsPerSecond: number) => Kind["policies"],
  number | undefined,
][] = [
  [
    "RedisRateLimiter, bursty",
    (clock, { name = watched.fresh(), ...options } = {}) =>
      RedisRateLimiter.create(watched.runner, name, 7, { ...longTimeout, ...options, clock }),
    pacedSample("bursty"),
    1,
  ],
  [
    "RedisRateLimiter, warming up",
    (clock, { name = watched.fresh(), ...options } = {}) =>
      RedisRateLimiter.create(watched.runner, name, 7, {
        ...longTimeout,
        ...options,
        clock,
        warmupMs: 1000,
      }),
    pacedSample("warming up"),
    1,
  ],
  ...pacedPolicies.map(([name, { at, together }]): (typeof kinds)[number] => [
    `RedisLimiter, ${name}`,
    onRedis(at(7)),
    at,
    together,
  ]),
];

for (const [place, [name, make, policies, together = 1]] of kinds.entries()) {
  limiterSuite(name, make, {
    together,
    sample: { oneIn: 3, place },
    policies: policies(7),
    faster: policies(11),
    slower: policies(2),
    makeClock: () => new RemoteClock(),
  });
}

const closing = suite("limiters on Redis, after");
closing("the client ends", () => watched.redis.disconnect());
closing.run();

// -- shared numbers --

const shared = suite("limiters on Redis, shared numbers");

shared.before(async () => {
  watched = await connect();
});

shared.after(() => {
  watched.redis.disconnect();
});

/** Limiters of one name, each with its own policies. */
function openAll<const Rates extends readonly number[]>(...rates: Rates) {
  const clock = new RemoteClock();
  const name = watched.fresh();
  const limiters = rates.map((rate) =>
    RedisRateLimiter.create(watched.runner, name, rate, { ...longTimeout, clock }),
  );
  return { clock, name, limiters: limiters as { [I in keyof Rates]: RedisRateLimiter } };
}

/** The distance of its permits, ms. */
async function interval(limiter: RedisRateLimiter): Promise<number> {
  await limiter.reserve();
  const first = await limiter.reserve();
  const second = await limiter.reserve();
  return Math.round((second.waitMs - first.waitMs) * 1000) / 1000;
}

shared("setRate applies at once to all limiters with the same numbers, and only them", async () => {
  const { limiters } = openAll(5, 5, 10);
  const [one, twin, other] = limiters;
  await one.setRate(50);
  assert.is(one.getRate(), 50);
  // as the last reply said
  assert.is(twin.getRate(), 5);
  assert.is(await interval(twin), 20);
  assert.is(twin.getRate(), 50);
  assert.is(await interval(other), 100);
  assert.is(other.getRate(), 10);
  await other.setRate(1);
  assert.is(await interval(other), 1000);
  assert.is(await interval(one), 20);
  await twin.setRate(2);
  assert.is(await interval(one), 500);
  assert.is(one.getRate(), 2);
});

shared("resetRate takes it back, only for limiters with the same numbers", async () => {
  const { limiters } = openAll(5, 5, 10);
  const [one, twin, other] = limiters;
  await one.setRate(50);
  await other.setRate(100);
  await twin.resetRate();
  assert.is(twin.getRate(), 5);
  assert.is(await interval(one), 200);
  assert.is(await interval(other), 10);
  await other.setRate(10);
  assert.is(await interval(other), 100);
  await one.resetRate();
  assert.is(one.getRate(), 5);
});

shared("setRate resolves to whether the limiter's own code declares the same numbers", async () => {
  const { limiters } = openAll(5, 5, 1);
  const [one, twin, script] = limiters;
  assert.equal(await one.setRate(10), { reaches: "unknown" });
  await one.resetRate();
  await twin.charge(1);
  assert.equal(await one.setRate(20), { reaches: "users" });
  await twin.charge(1);
  const both = [script.setRate(50), script.setRate(60)];
  const lost = { reaches: "only-this-declaration", rateInUse: 20 };
  assert.equal(await Promise.all(both), [lost, lost]);
  await twin.peek();
  assert.is(twin.getRate(), 20, "it reached no other limiter");
  await twin.charge(1);
  assert.equal(await one.setRate(30), { reaches: "users" });
});

shared("reset clears the state for all, and keeps the rate that was set", async () => {
  const { limiters } = openAll(5, 5);
  const [one, twin] = limiters;
  await one.setRate(10);
  await one.charge(100);
  await one.pause(50_000);
  assert.ok((await twin.peek()).waitMs > 9000);
  await twin.reset();
  assert.is((await one.peek()).waitMs, 0);
  assert.is(one.getRate(), 10);
  assert.is(await interval(one), 100);
});

shared("a rate that was set outlives idle time until resetRate", async () => {
  const { clock, name, limiters } = openAll(5, 5);
  const [one, twin] = limiters;
  await one.setRate(50);
  assert.is(await watched.redis.pttl(`l:${name}`), -1);
  await clock.advance(1000 * 3600 * 24 * 400);
  await one.charge(100);
  assert.is(await interval(twin), 20);
  await twin.resetRate();
  assert.ok((await watched.redis.pttl(`l:${name}`)) > 0);
});

shared("a deploy back and forth: numbers stay apart, permits and debts are shared", async () => {
  const { clock, limiters } = openAll(10, 20);
  const [old, young] = limiters;
  await old.charge(1);
  await clock.advance(100 + 500);
  // half of a second's permits are stored, for every limiter
  assert.is((await old.peek()).remaining, 6);
  assert.is((await young.peek()).remaining, 11);
  for (let i = 0; i < 100; i++) {
    assert.is((await old.peek()).remaining, 6);
    await young.refund(1e-9);
    assert.is((await young.peek()).remaining, 11);
    await old.refund(1e-9);
  }
  await old.charge(15);
  assert.is((await young.peek()).waitMs, 1000);
  assert.is(await young.tryAcquire(1, 999), false);
});

shared("granted permits are paid off at the old rate, later ones at the new rate", async () => {
  const { limiters } = openAll(1, 1);
  const [one, twin] = limiters;
  await one.charge(3);
  await twin.setRate(10);
  const waits = [await one.reserve(), await one.reserve(), await one.reserve()];
  assert.equal(
    waits.map(({ waitMs }) => waitMs),
    [3000, 3100, 3200],
  );
});

shared("numbers with letters in them are parsed as numbers", async () => {
  const { limiters } = openAll(5, Infinity, 1e-7);
  const [five, infinite, tiny] = limiters;
  await five.charge(50);
  assert.is((await infinite.peek()).waitMs, 10_000);
  await infinite.refund(1);
  assert.is((await five.peek()).waitMs, 10_000);
  await tiny.refund(1e-9);
  assert.ok((await five.peek()).waitMs >= 0);
  await five.setRate(Infinity);
  assert.is(five.getRate(), Infinity);
  await five.resetRate();
  assert.is(five.getRate(), 5);
});

shared("setRate refuses an invalid rate, and nothing changes", async () => {
  const { limiters } = openAll(5);
  const [one] = limiters;
  for (const bad of [0, -1, Number.NaN, "5", null] as number[]) {
    assert.match(`${await failure(() => one.setRate(bad))}`, "permitsPerSecond");
  }
  assert.is(await interval(one), 200);
});

shared("update on several policies, by name", async () => {
  const clock = new RemoteClock();
  const name = watched.fresh();
  const of = (a: number, b: number) => ({
    a: smoothBursty({ permitsPerSecond: a }),
    b: smoothWarmingUp({ permitsPerSecond: b, warmupMs: 1000 }),
  });
  const open = () =>
    RedisLimiter.create(watched.runner, name, of(5, 10), { ...longTimeout, clock });
  const [one, twin] = [open(), open()];
  const { a, b } = of(50, 100);
  await one.update({ b, a });
  await twin.peek();
  assert.equal(
    twin.policies.map(({ numbers: [rate] }) => rate),
    [50, 100],
  );
  await twin.resetPolicies();
  await one.peek();
  assert.equal(
    one.policies.map(({ numbers: [rate] }) => rate),
    [5, 10],
  );
});

shared("options and names are checked like RateLimiter's", () => {
  const open = (options: unknown) => () =>
    RedisRateLimiter.create(watched.runner, "a", 5, options as never);
  const withUnit = RedisRateLimiter.create as (...args: unknown[]) => unknown;
  assert.throws(() => withUnit(watched.runner, "a", 5, 1, "SECONDS"), /unit must be left out/);
  const bad: [unknown, RegExp][] = [
    [null, /options/],
    [{ maxWait: 1 }, /maxWait/],
    [{ maxWaiting: -1 }, /maxWaiting/],
    [{ timeoutMs: 0 }, /timeoutMs/],
    [{ timeoutMs: Infinity }, /timeoutMs/],
    [{ whenUnavailable: "hope" }, /whenUnavailable.*throw, wait, local, allow/],
    [{ whenUnavailable: "local" }, /"local" needs instances/],
    [{ whenUnavailable: "local", instances: 0.5 }, /instances must be .*1 or more.*, got 0.5/],
    [{ whenUnavailable: "local", instances: () => NaN }, /instances\(\) must be .*got NaN/],
    [{ instances: "many" }, /instances must be .*a function.*got "many"/],
    [{ clock: {} }, /clock/],
    [{ warmupMs: -1 }, /warmupMs/],
    [{ prefix: 5 }, /prefix/],
    [-1, /warmupMs/],
  ];
  for (const [options, words] of bad) assert.throws(open(options), words);
  const { runner } = watched;
  assert.throws(
    () =>
      RedisLimiter.create(runner, "a", pacedSample("bursty")(1), { ...PATIENT, wait: 1 } as never),
    /wait/,
  );
  assert.throws(() => RedisLimiter.create(runner, "a", {}, { ...PATIENT }), /polic/);
  assert.throws(() => RedisRateLimiter.create(runner, "a", 0, PATIENT), /permitsPerSecond/);
  assert.is(RedisRateLimiter.create(runner, "a", 5, 1000).getRate(), 5);
});

shared("the number of processes is read every second; invalid numbers change nothing", async () => {
  const clock = new FakeClock();
  let instances: unknown = 4;
  const runner = { runScript: () => Promise.reject(new Error("gone")) };
  const limiter = RedisLimiter.create(runner, "a", gcra({ limit: 8, periodMs: 1000 }), {
    ...PATIENT,
    ...{ clock, whenUnavailable: "local", instances: () => instances as number },
  });
  assert.is((await limiter.peek()).limit, 2);
  for (const [next, limit] of [
    [NaN, 2],
    [2, 4],
    ["many", 4],
  ]) {
    instances = next;
    await clock.advance(1000);
    await limiter.peek();
    assert.is((await limiter.peek()).limit, limit);
  }
  await limiter.close();
});

shared.run();

// -- buckets --

const buckets = suite("limiters on Redis, buckets");

buckets.before(async () => {
  watched = await connect();
});

buckets.after(() => {
  watched.redis.disconnect();
});

function openBucket(policy: Policy, name = watched.fresh()) {
  const clock = new RemoteClock();
  const open = () => RedisLimiter.create(watched.runner, name, policy, { ...longTimeout, clock });
  return { clock, name, open };
}

/** The waits of callers that reserve one after the other at one instant, s; `null`: refused. */
async function waitsOf(limiters: readonly RedisLimiter[], count: number) {
  const waits: (number | null)[] = [];
  for (let i = 0; i < count; i++) {
    const limiter = limiters[i % limiters.length] as RedisLimiter;
    try {
      waits.push((await limiter.reserve()).waitMs / 1000);
    } catch (error) {
      assert.instance(error, QueueFullError);
      waits.push(null);
    }
  }
  return waits;
}

buckets("nginx's patterns: 1 + nodelay at once, the rest paced, the next refused", async () => {
  const patterns = [
    [0, [0, 1, 2, 3, 4, 5, null, null], [5, null]],
    [2, [0, 0, 0, 1, 2, 3, null, null], [3, null]],
    [true, [0, 0, 0, 0, 0, 0, null, null], [0, null]],
  ] as const;
  for (const [nodelay, now, then] of patterns) {
    const { clock, open } = openBucket(leakyBucket({ permitsPerSecond: 1, capacity: 5, nodelay }));
    const shared = [open(), open()];
    assert.equal(await waitsOf(shared, 8), now);
    assert.instance(await failure(() => open().acquire()), QueueFullError);
    assert.is(await open().tryAcquire(1, 1e9), false);
    await clock.advance(1000);
    assert.equal(await waitsOf(shared, 2), then);
  }
});

buckets("many callers of one turn share one bucket", async () => {
  const { clock, open } = openBucket(leakyBucket({ permitsPerSecond: 1, capacity: 3, nodelay: 1 }));
  const limiter = open();
  const waiting = Array.from({ length: 6 }, () => watch(clock, limiter.acquire()));
  await clock.advance(5000);
  assert.equal(
    waiting.map(({ value, error }) => (error instanceof QueueFullError ? null : value)),
    [0, 0, 1000, 2000, null, null],
  );
});

buckets("a burst at a high rate is granted, and the key outlives it", async () => {
  const { name, open } = openBucket(gcra({ limit: 1e6, periodMs: 1000, burst: 9 }));
  const limiter = open();
  const answers = await Promise.all(Array.from({ length: 20 }, () => limiter.tryAcquire()));
  assert.is(answers.filter(Boolean).length, 10);
  assert.ok((await watched.redis.pttl(`l:${name}`)) > 0);
});

buckets("a key lives until its bucket is full", async () => {
  const policies: [Policy, atLeastMs: number][] = [
    [gcra({ limit: 1, periodMs: 1e9 }), 1e9],
    [tokenBucket({ capacity: 1, refill: 0.5, everyMs: 1e9 }), 2e9],
    [tokenBucket({ capacity: 1, refill: 0.5, everyMs: 1e9, stepped: true }), 2e9],
    [leakyBucket({ permitsPerSecond: 1e-6, capacity: 1 }), 1e9],
  ];
  for (const [policy, atLeastMs] of policies) {
    const { name, open } = openBucket(policy);
    await open().acquire();
    const life = await watched.redis.pttl(`l:${name}`);
    assert.ok(life >= atLeastMs, `${policy.algorithm.name}: ${life}`);
  }
});

buckets("a request that can never pass is reported as such", async () => {
  const policies = [
    gcra({ limit: 5, periodMs: 1000 }),
    tokenBucket({ capacity: 5, refill: 1, everyMs: 1000, stepped: true }),
    leakyBucket({ permitsPerSecond: 5, capacity: 4 }),
  ];
  for (const policy of policies) {
    const limiter = openBucket(policy).open();
    for (const verb of [
      () => limiter.acquire(6),
      () => limiter.decide(6),
      () => limiter.charge(6),
    ]) {
      assert.instance(await failure(verb), PermitsExceedCapacityError);
    }
  }
});

buckets.run();

// -- the server's own time --

const real = suite("limiters on Redis, by the server's own clock");

real.before(async () => {
  watched = await connect();
});

real.after(() => {
  watched.redis.disconnect();
});

async function serverMs(): Promise<number> {
  const [seconds = 0, micros = 0] = (await watched.redis.time()).map(Number);
  return seconds * 1000 + micros / 1000;
}

real("acquire waits in real time, and no caller is early by the server's clock", async () => {
  for (const options of [{}, { warmupMs: 10 }]) {
    const limiter = RedisRateLimiter.create(watched.redis, watched.fresh(), 100, {
      ...longTimeout,
      ...options,
    });
    const started = await serverMs();
    await limiter.charge(1);
    const released: number[] = [];
    for (let i = 0; i < 10; i++) {
      const asked = await serverMs();
      const { waitMs } = await limiter.peek();
      await limiter.acquire();
      const now = await serverMs();
      assert.ok(now >= asked + waitMs - 1e-3, `${now - asked} ms instead of ${waitMs}`);
      released.push(now);
    }
    // a permit was charged before: without the permits stored while the machine was busy, one comes
    // every 10 ms
    const lasted = (released.at(-1) ?? 0) - started;
    assert.ok(lasted >= 89, `${lasted} ms`);
  }
});

real("the key of a window outlives even the shortest window", async () => {
  for (const windowMs of [0.001, 0.5, 60_000]) {
    for (const policy of [
      fixedWindow({ limit: 1, windowMs, align: "first" }),
      slidingWindow({ limit: 1, windowMs, buckets: 1 }),
      slidingLog({ limit: 1, windowMs }),
    ]) {
      const name = watched.fresh();
      const limiter = RedisLimiter.create(watched.redis, name, policy, longTimeout);
      assert.is(await limiter.tryAcquire(), true);
      const { resetMs } = await limiter.peek();
      const lifeMs = await watched.redis.pttl(`l:${name}`);
      assert.ok(lifeMs > resetMs && lifeMs > 0, `${lifeMs} ms for ${resetMs} ms`);
      if (windowMs > 1000) assert.is(await limiter.tryAcquire(), false);
    }
  }
});

real("many limiters of one name share it, first come, first served", async () => {
  const name = watched.fresh();
  const open = () => RedisRateLimiter.create(watched.redis, name, 100, longTimeout);
  const limiters = Array.from({ length: 4 }, open);
  // charged before: permits are stored while the machine is busy
  const started = await serverMs();
  await open().charge(1);
  const order: number[] = [];
  await Promise.all(
    Array.from({ length: 20 }, async (_, i) => {
      await limiters[i % 4]?.acquire();
      order.push(i % 4);
    }),
  );
  const lasted = (await serverMs()) - started;
  assert.ok(lasted >= 190, `${lasted} ms`);
  assert.equal(
    order.slice().sort(),
    Array.from({ length: 20 }, (_, i) => Math.floor(i / 5)),
  );
});

real("tryAcquire with a time-out, decide, reserve and an abort work", async () => {
  const limiter = RedisRateLimiter.create(watched.redis, watched.fresh(), 20, longTimeout);
  assert.is(await limiter.tryAcquire(20), true);
  assert.is(await limiter.tryAcquire(1, 10), false);
  const { allowed, waitMs } = await limiter.decide();
  assert.ok(!allowed && waitMs > 0 && waitMs <= 1000);
  const controller = new AbortController();
  const aborted = failure(() => limiter.acquire(1, { signal: controller.signal }));
  const reservation = await limiter.reserve();
  const reason = new Error("enough");
  controller.abort(reason);
  assert.is(await aborted, reason);
  assert.is(await reservation.ready(), reservation.waitMs);
});

real.run();
