import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { freshUrl } from "../scripts/redis/server.ts";
import { redisServer } from "../scripts/redis-server.ts";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from "../src/index.ts";
import { RedisLimiter, type RedisPoliciesOptions, StoreUnavailableError } from "../src/redis.ts";
import { failure } from "./limiter/watch.ts";
import { suite } from "./suite.ts";

let redis: Redis;

async function connect(): Promise<void> {
  await redisServer();
  redis = new Redis(await freshUrl());
}

const window = (limit: number) => fixedWindow({ limit, windowMs: 3_600_000 });

const keyed = suite("limiters on Redis, for keys");
keyed.before(connect);
keyed.after(() => {
  redis.disconnect();
});

keyed("each key has its own permits, the same everywhere", async () => {
  const [here, there] = ["users", "users"].map((name) =>
    RedisLimiter.create(redis, name, window(2)),
  ) as [RedisLimiter, RedisLimiter];
  const names = ["a", "b", "", "__proto__", "x[y", "%", "[", "日本", "a".repeat(10_000)];
  for (const name of names) {
    const limiter = here.for(name);
    assert.equal(
      [await limiter.tryAcquire(), await limiter.tryAcquire(), await limiter.tryAcquire()],
      [true, true, false],
      name,
    );
    assert.not(await there.for(name).tryAcquire());
  }
  assert.ok(await here.tryAcquire(), "the limiter itself is none of them");
  assert.is(await redis.dbsize(), names.length + 1);
});

keyed("no key reaches another limiter's state", async () => {
  const short = RedisLimiter.create(redis, "a", window(1));
  const long = RedisLimiter.create(redis, "a[b", window(1));
  const other = RedisLimiter.create(redis, "a%5Bb", window(1));
  for (const limiter of [short.for("b"), long, other, short.for("b[c"), long.for("c")]) {
    assert.ok(await limiter.tryAcquire());
  }
});

keyed("the same limiter for all who ask while somebody holds it", async () => {
  const limiter = RedisLimiter.create(redis, "held", window(5));
  const held = limiter.for("a");
  assert.is(limiter.for("a"), held);
  assert.is.not(limiter.for("b"), held);
  assert.throws(() => limiter.for("\ud800"), /key must be well-formed Unicode/);
  assert.throws(() => limiter.for(5 as never), /key must be a string, got 5/);
});

keyed("names the key in its errors", async () => {
  const limiter = RedisLimiter.create(redis, "errors", smoothBursty({ permitsPerSecond: 0.001 }), {
    maxWaiting: 0,
  });
  const one = limiter.for("somebody");
  await one.acquire();
  assert.match(`${await failure(() => one.acquire())}`, 'limiter "errors[somebody"');
});

keyed("what is not held any more is forgotten", async () => {
  const { setFlagsFromString } = await import("node:v8");
  const { runInNewContext } = await import("node:vm");
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  const limiter = RedisLimiter.create(redis, "many", window(5));
  const before = new WeakRef(limiter.for("a"));
  for (let round = 0; round < 50 && before.deref() !== undefined; round++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 1);
    });
    gc();
  }
  assert.is(before.deref(), undefined);
  assert.ok(await limiter.for("a").tryAcquire());
});

keyed.run();

const limits = suite("limiters on Redis, limits that operators keep in a key");
limits.before(connect);
limits.after(() => {
  redis.disconnect();
});

let names = 0;
function open(policies: Parameters<typeof RedisLimiter.create>[2], options: RedisPoliciesOptions) {
  names += 1;
  return RedisLimiter.create(redis, `limits ${names}`, policies, options);
}

limits("the next decision follows the key; without it the policy's own holds", async () => {
  const limiter = open(window(2), { limitKey: "limit" });
  assert.is((await limiter.peek()).limit, 2);
  await redis.set("limit", "5");
  const first = await limiter.decide(3);
  assert.equal([first.allowed, first.limit, first.remaining], [true, 5, 2]);
  await redis.set("limit", "4");
  assert.is((await limiter.peek()).remaining, 1);
  await redis.set("limit", "3");
  assert.not(await limiter.tryAcquire());
  await redis.del("limit");
  const last = await limiter.peek();
  assert.equal([last.limit, last.remaining, last.allowed], [2, 0, false]);
});

for (const nonsense of ["", "many", "0", "-5", "inf", "nan", "1e400", "0x"]) {
  limits(`what is no number above 0 counts as none: ${JSON.stringify(nonsense)}`, async () => {
    const limiter = open(window(7), { limitKey: "nonsense" });
    await redis.set("nonsense", nonsense);
    assert.is((await limiter.peek()).limit, 7);
  });
}

limits("a key that holds no text is an error, as the state's own would be", async () => {
  await redis.lpush("list", "5");
  const error = await failure(() => open(window(1), { limitKey: "list" }).tryAcquire());
  assert.ok(error instanceof StoreUnavailableError);
  assert.match(error.message, "WRONGTYPE");
});

for (const [name, policy, before, after] of [
  ["gcra, the burst follows", gcra({ limit: 10, periodMs: 1e6 }), 10, 20],
  ["gcra, a burst of its own", gcra({ limit: 10, periodMs: 1e6, burst: 2 }), 3, 3],
  ["tokenBucket", tokenBucket({ capacity: 10, refill: 1, everyMs: 1e6 }), 10, 20],
  ["leakyBucket", leakyBucket({ permitsPerSecond: 10, capacity: 5, nodelay: 5 }), 6, 6],
  ["slidingLog", slidingLog({ limit: 10, windowMs: 1e6 }), 10, 20],
  ["slidingWindow", slidingWindow({ limit: 10, windowMs: 1e6 }), 10, 20],
  ["smoothBursty", smoothBursty({ permitsPerSecond: 10 }), 11, 21],
] as readonly (readonly [string, Policy, number, number])[]) {
  limits(`every algorithm: ${name}`, async () => {
    await redis.set("each", "20");
    assert.is((await open(policy, {}).peek()).limit, before);
    const limiter = open(policy, { limitKey: "each" });
    const { limit, policies } = await limiter.peek();
    assert.is(limit, after);
    // so many in that time
    const { windowMs } = policies.default as { windowMs: number };
    if (name.startsWith("gcra")) assert.is(windowMs, (after * 1e6) / 20);
    if (name.startsWith("leaky")) assert.is(windowMs, (after * 1000) / 20);
  });
}

limits("a key for each policy; what has none keeps its own", async () => {
  const limiter = open(
    { second: window(10), minute: window(100), day: window(1000) },
    { limitKey: { day: "per day", minute: "per minute" } },
  );
  await redis.mset("per day", "5", "per minute", "50");
  const { policies, policy, limit } = await limiter.peek();
  assert.equal(
    Object.values(policies).map((one) => one.limit),
    [10, 50, 5],
  );
  assert.equal(
    Object.values(limiter.policies).map(({ numbers }) => numbers[0]),
    [10, 50, 5],
  );
  assert.equal([policy, limit], ["second", 10]);
});

limits("for a key as well, and what is set at run time goes before", async () => {
  await redis.set("for keys", "3");
  const limiter = open(window(1), { limitKey: "for keys" });
  const one = limiter.for("a");
  assert.is((await one.peek()).limit, 3);
  await limiter.update(window(9));
  assert.is((await limiter.peek()).limit, 9);
  await limiter.resetPolicies();
  assert.is((await limiter.peek()).limit, 3);
});

limits("refuses what names no policy or is no key", () => {
  for (const [limitKey, message] of [
    [5, /limitKey must be a string, got 5/],
    [null, /limitKey must be/],
    [{ other: "key" }, /limitKey has no "other"/],
    [{ default: 5 }, /limitKey.default must be a string/],
  ] as const) {
    assert.throws(() => open(window(1), { limitKey: limitKey as never }), message);
  }
});

limits.run();
