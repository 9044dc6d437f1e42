/**
 * Processes that share a limit are counted through Redis, and the count is kept during an outage.
 */
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { smoothBursty, tokenBucket } from "../../src/index.ts";
import {
  type RedisClient,
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
} from "../../src/redis/index.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { processScript } from "../../src/stores/redis/scripts.ts";
import { onHand } from "../support/limiter/remote.ts";
import { PATIENT } from "../support/patient.ts";
import { startProxy, type TcpProxy } from "../support/redis/proxy.ts";
import { sharedRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const test = suite('instances: "auto"');
let proxy: TcpProxy;
let redis: Redis;
let names = 0;

test.before.each(async () => {
  proxy = await startProxy((await sharedRedis()).port);
  redis = new Redis(proxy.url, { retryStrategy: () => 20, disconnectTimeout: 50 });
  redis.on("error", () => {});
});

test.after.each(async () => {
  redis.disconnect();
  await proxy.stop();
});

const AUTO = { whenUnavailable: "local", instances: "auto", timeoutMs: 1000 } as const;
const bucket = tokenBucket({ capacity: 100, refill: 1, everyMs: 3_600_000 });
const fresh = () => `counted ${names++} ${process.pid}`;

/** This many other processes have registered for the limiter with this key. */
async function others(key: string, count: number): Promise<void> {
  const runner = scriptRunner(redis as RedisClient);
  for (let i = 0; i < count; i++) {
    await runner.runScript(processScript.one, [`${key}%processes`], [`other-${i}`, "600000"]);
  }
}

interface Counted {
  readonly stats: { readonly instances?: number };
}

async function untilCounted(limiter: Counted, count: number, use: () => Promise<unknown>) {
  while (limiter.stats.instances !== count) {
    await use();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** How many of 200 calls are granted. */
async function letIn(ask: () => Promise<boolean>): Promise<number> {
  let count = 0;
  for (let i = 0; i < 200; i++) if (await ask()) count += 1;
  return count;
}

test("a limiter uses its share by the number of counted processes", async () => {
  const name = fresh();
  const limiter = RedisLimiter.create(redis, name, bucket, AUTO);
  assert.is(limiter.stats.instances, 1);
  await others(`l:${name}`, 3);
  await untilCounted(limiter, 4, () => limiter.peek());
  await proxy.cut();
  await limiter.peek().catch(() => {});
  assert.is(await letIn(() => limiter.tryAcquire()), 25);
  assert.is(limiter.stats.instances, 4);
  await limiter.close();
});

test("limiters of keys share one count, and one registration", async () => {
  const name = fresh();
  const limiter = RedisLimiter.create(redis, name, bucket, AUTO);
  await others(`l:${name}`, 1);
  const [ann, bob] = [limiter.for("ann"), limiter.for("bob")];
  await untilCounted(limiter, 2, () => ann.peek());
  await bob.peek();
  await proxy.cut();
  await ann.peek();
  assert.is(await letIn(() => ann.tryAcquire()), 50);
  assert.is(await letIn(() => bob.tryAcquire()), 50);
  assert.is(await letIn(() => limiter.for("eve").tryAcquire()), 50);
  await limiter.close();
});

test("a rate limiter, a hash tag, combined calls and prefetched permits: all register", async () => {
  const name = fresh();
  const paced = RedisRateLimiter.create(redis, name, 1000, {
    ...AUTO,
    ...{ hashTag: "tag", prefetch: "auto" },
  });
  await others(`l:{tag}${name}`, 2);
  await untilCounted(paced, 3, () => paced.acquire());
  await paced.close();
});

test("a concurrency limiter uses its share, too", async () => {
  const name = fresh();
  const limiter = RedisConcurrencyLimiter.create(redis, name, 12, AUTO);
  await others(`c:${name}`, 2);
  await untilCounted(limiter, 3, () => limiter.peek());
  await proxy.cut();
  await limiter.peek();
  const leases = await Promise.all(Array.from({ length: 20 }, () => limiter.tryAcquire()));
  assert.is(leases.filter((lease) => lease !== undefined).length, 4);
  await limiter.close();
});

test("processes are counted only in modes that use a share", async () => {
  const name = fresh();
  const limiter = RedisLimiter.create(redis, name, bucket, { ...PATIENT, instances: "auto" });
  await limiter.peek();
  assert.is(limiter.stats.instances, undefined);
  assert.is(await redis.exists(`l:${name}%processes`), 0);
});

test("a store that cannot count refuses at creation", () => {
  const options = { instances: "auto", whenUnavailable: "local" } as const;
  assert.throws(
    () => onHand(smoothBursty({ permitsPerSecond: 1 }), options),
    /instances "auto" needs a store that counts processes.*a number of 1 or more, or a function/,
  );
});

test.run();
