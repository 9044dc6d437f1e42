/**
 * `Bun.RedisClient` as the client of limiters. Run it with Bun, with a real Redis at REDIS_URL whose data
 * may be deleted: `REDIS_URL=redis://127.0.0.1:6379 bun test/support/runtimes/bun-redis.ts`
 */
import assert from "node:assert/strict";
import { allOf, fixedWindow, smoothBursty } from "smooth-limiter";
import {
  type BunRedisLike,
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
  StoreUnavailableError,
} from "smooth-limiter/redis";

interface BunClient extends BunRedisLike {
  close(): void;
}

declare const Bun: { readonly RedisClient: new (url: string, options?: object) => BunClient };

const url = process.env.REDIS_URL;
if (url === undefined) throw new Error("set REDIS_URL to a Redis whose data may be deleted");
const LONG_TIMEOUT = { timeoutMs: 10_000 };

const redis = new Bun.RedisClient(url);
await redis.send("FLUSHALL", []);
await redis.send("SCRIPT", ["FLUSH"]);

const limiter = RedisRateLimiter.create(redis, "a", 0.001, LONG_TIMEOUT);
assert.equal(await limiter.tryAcquire(), true);
assert.equal(await limiter.tryAcquire(), false);
await redis.send("SCRIPT", ["FLUSH"]);
const { waitMs } = await limiter.decide();
assert.ok(waitMs > 900_000 && waitMs <= 1_000_000, `${waitMs} ms`);

const fast = RedisRateLimiter.create(redis, "fast", 1e6, LONG_TIMEOUT);
await Promise.all(Array.from({ length: 100 }, () => fast.acquire()));
const names = Array.from({ length: 20 }, (_, i) => `名 ${i}`);
const each = RedisLimiter.create(
  redis,
  "each",
  smoothBursty({ permitsPerSecond: 1 }),
  LONG_TIMEOUT,
);
const granted = await Promise.all(names.map((name) => each.for(name).tryAcquire()));
assert.deepEqual(new Set(granted), new Set([true]));

const window = (name: string) =>
  RedisLimiter.create(redis, name, fixedWindow({ limit: 2, windowMs: 60_000 }), LONG_TIMEOUT);
const both = allOf(window("wide"), window("narrow"));
assert.deepEqual(await Promise.all([1, 2, 3].map(() => both.tryAcquire())), [true, true, false]);

await redis.send("LPUSH", ["l:list", "x"]);
await assert.rejects(
  RedisRateLimiter.create(redis, "list", 5, LONG_TIMEOUT).acquire(),
  (error: Error) => error instanceof StoreUnavailableError && /WRONGTYPE/.test(`${error.cause}`),
);

// without a message a free place would be noticed after a third of leaseMs
const places = () =>
  RedisConcurrencyLimiter.create(redis, "places", 1, { leaseMs: 60_000, ...LONG_TIMEOUT });
const [one, other] = [places(), places()];
const lease = await one.acquire();
const waiting = other.acquire();
const channels = async () => ((await redis.send("PUBSUB", ["CHANNELS"])) as unknown[]).length;
const deadline = Date.now() + 10_000;
while ((await channels()) === 0) {
  assert.ok(Date.now() < deadline, "the limiter does not subscribe");
  await new Promise((resolve) => setTimeout(resolve, 20));
}
await lease.release();
await (await waiting).release();
await Promise.all([one.close(), other.close()]);

// a client that cannot connect
const nowhere = new Bun.RedisClient("redis://127.0.0.1:1", { maxRetries: 1 });
const lost = RedisRateLimiter.create(nowhere, "a", 5, { timeoutMs: 300 });
await assert.rejects(lost.acquire(), StoreUnavailableError);
const local = RedisRateLimiter.create(nowhere, "b", 5, { whenUnavailable: "local", instances: 1 });
assert.equal(await local.tryAcquire(), true);
nowhere.close();

redis.close();
await assert.rejects(
  RedisRateLimiter.create(redis, "a", 5, { timeoutMs: 300 }).acquire(),
  StoreUnavailableError,
);
console.log("Bun.RedisClient works");
