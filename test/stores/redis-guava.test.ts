import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { RateLimiter } from "../../src/index.ts";
import { RedisRateLimiter } from "../../src/redis/index.ts";
import { type Create, type History, readHistories, replay } from "../support/guava.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { runs, suite } from "../support/suite.ts";

const folder = new URL("../fixtures/guava/", import.meta.url);
const named = readHistories(new URL("named.txt", folder));
/** Overflow of 64-bit integers is not compared: see the test of the algorithm. */
const random = readHistories(new URL("dev.txt.gz", folder)).filter(
  ({ kind }) => kind !== "extreme",
);

const SAMPLE = runs(60, 24);
const sample = random
  .filter((_, i) => i % Math.floor(random.length / SAMPLE) === 0)
  .slice(0, SAMPLE);

let redis: Redis;
let created = 0;

const here: Create = (permitsPerSecond, options) => RateLimiter.create(permitsPerSecond, options);

const onRedis: Create = async (permitsPerSecond, options) => {
  const all = { ...options, timeoutMs: 60_000 };
  const limiter = RedisRateLimiter.create(redis, `guava ${created++}`, permitsPerSecond, all);
  // its state begins now, as the original's does, and not with the first request
  await limiter.resetRate();
  return limiter;
};

const test = suite("recorded runs of Guava, on Redis");

test.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

test.after(() => {
  redis.disconnect();
});

/**
 * Each agrees with the original as far as a local limiter does, which has its own test, and to the
 * same microsecond.
 */
async function replayAll(histories: readonly History[]): Promise<{ ends: number; steps: number }> {
  let ends = 0;
  let steps = 0;
  for (const history of histories) {
    const expected = await replay(history, here);
    assert.equal(await replay(history, onRedis), expected, history.name);
    steps += expected.agreed;
    if (expected.left === "end") ends += 1;
  }
  return { ends, steps };
}

test("all fixed scenarios", async () => {
  const { ends } = await replayAll(named);
  assert.is(named.length, 48);
  assert.ok(ends >= 46, `${ends} to the end`);
});

test("a sample of the random ones", async () => {
  assert.is(sample.length, SAMPLE);
  assert.ok(new Set(sample.map(({ kind }) => kind)).size >= 5);
  const { ends, steps } = await replayAll(sample);
  assert.ok(ends >= SAMPLE / 3 && steps >= 30 * SAMPLE, `${ends} to the end, ${steps} steps`);
});

test.run();
