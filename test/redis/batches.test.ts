import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { type IoredisLike, RedisRateLimiter } from "../../src/redis/index.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { freshUrl } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const test = suite("batches of many callers");
let redis: Redis;

test.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

test.after(() => {
  redis.disconnect();
});

/** The most scripts that were in flight at a time. */
class Counted {
  most = 0;
  #underWay = 0;

  async run<T>(script: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    this.most = Math.max(this.most, this.#underWay);
    try {
      return await script();
    } finally {
      this.#underWay -= 1;
    }
  }
}

const ioredis = (counted: Counted): IoredisLike => ({
  evalsha: (sha, keys, ...rest) => counted.run(() => redis.evalsha(sha, keys, ...rest)),
  eval: (lua, keys, ...rest) => counted.run(() => redis.eval(lua, keys, ...rest)),
});

/** This many callers, each of which asks again as soon as it is served. */
async function closedLoop(limiter: RedisRateLimiter, callers: number, rounds: number) {
  const served: number[] = [];
  const caller = async (index: number) => {
    for (let round = 0; round < rounds; round++) {
      await limiter.acquire();
      served.push(index);
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, index) => caller(index)));
  return served;
}

test("many callers of one name are served in turn, with one batch in flight", async () => {
  const counted = new Counted();
  const client = ioredis(counted);
  const limiter = RedisRateLimiter.create(client, "hot", 1e9, PATIENT);
  await limiter.acquire();
  // permits for all have been stored: no caller waits for an instant
  await until("permits are available", async () => (await limiter.decide(10_000)).allowed);
  const served = await closedLoop(limiter, 200, 10);
  assert.is(counted.most, 1);
  assert.equal(
    served,
    Array.from({ length: 2000 }, (_, i) => i % 200),
  );
  assert.is(limiter.stats.granted, 2002);
});

test("scripts keep their order although the first ones wait for the script's hash", async () => {
  const { subtle } = crypto;
  const { digest } = subtle;
  let hashes = 0;
  // each takes less time than the one before
  subtle.digest = async (...args) => {
    hashes += 1;
    await new Promise((resolve) => setTimeout(resolve, 20 / hashes));
    return digest.apply(subtle, args);
  };
  const sent: string[] = [];
  const runner = scriptRunner({
    evalsha: async (_sha: string, _keys: number, key?: string) => sent.push(String(key)),
    eval: async () => {},
  });
  const script = { name: "new", lua: "-- a script with an unknown hash" };
  try {
    await Promise.all(["a", "b", "c"].map((key) => runner.runScript(script, [key], [])));
  } finally {
    subtle.digest = digest;
  }
  assert.equal([sent, hashes], [["a", "b", "c"], 1]);
});

test("a limiter that prefetches has one batch in flight", async () => {
  const counted = new Counted();
  const client = ioredis(counted);
  const limiter = RedisRateLimiter.create(client, "prefetched", 1e6, {
    ...PATIENT,
    prefetch: { permits: 100 },
  });
  await Promise.all(Array.from({ length: 200 }, () => limiter.acquire(200)));
  assert.is(counted.most, 1);
  await limiter.close();
});

test("callers of several batches are granted in the order of their calls, at the limit's rate", async () => {
  const limiter = RedisRateLimiter.create(redis, "paced", 2000, PATIENT);
  const startMs = performance.now();
  await limiter.acquire();
  const order: number[] = [];
  await Promise.all(
    Array.from({ length: 200 }, async (_, i) => {
      await limiter.acquire();
      order.push(i);
    }),
  );
  assert.equal(
    order,
    order.toSorted((a, b) => a - b),
  );
  // 201 permits at 2000 a second, the first of them at once; timers may fire a millisecond early
  const tookMs = performance.now() - startMs;
  assert.ok(tookMs >= 98, `${tookMs}`);
});

test("reset: what returns to the old state arrives before it, not after it", async () => {
  const limiter = RedisRateLimiter.create(redis, "reset", 1, { ...PATIENT, burstSeconds: 1000 });
  const gone = new AbortController();
  const callers = Array.from({ length: 200 }, () =>
    limiter.acquire(1, { signal: gone.signal }).catch(() => {}),
  );
  await limiter.peek();
  await limiter.reset();
  gone.abort();
  await Promise.all(callers);
  // as new, except for the seconds that this takes: otherwise 200 permits would be stored
  const { remaining } = await limiter.peek();
  assert.ok(remaining < 60, `${remaining}`);
  await limiter.close();
});

test.run();
