/**
 * Four processes take leases of one limiter as fast as they can, some of their callers abort, and
 * the limit goes up and down. Each lease holder counts itself in a counter in Redis, so the
 * counter's highest reply is the highest number of concurrent holders. The counter is on the same
 * server as the leases, so it is exact under any load.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { RedisConcurrencyLimiter, type RedisLease } from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { type RedisServer, startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const PROCESSES = 4;
const CALLERS = 25;
const SECONDS = 8;
const LIMIT = 7;
/**
 * With 100 waiting callers a lease takes about 150 ms: some callers wait longer, some leave
 * before.
 */
const LONGEST_WAIT_MS = 500;
/** A lease must not be lost because this machine is busy: the test does not examine that. */
const OPTIONS = { leaseMs: 30_000, timeoutMs: 20_000 };

/** The number of calls by outcome. */
type Ends = Record<string, number>;

async function work(url: string): Promise<void> {
  const redis = new Redis(url);
  const limiter = RedisConcurrencyLimiter.create(redis, "soak", LIMIT, OPTIONS);
  const ends: Ends = {};
  let most = 0;

  const hold = async (how: string, lease: RedisLease | undefined) => {
    ends[lease ? how : "refused"] = (ends[lease ? how : "refused"] ?? 0) + 1;
    if (lease === undefined) return sleep(5);
    most = Math.max(most, await redis.incr("running"));
    if (Math.random() < 0.3) await sleep(Math.random() * 5);
    assert.not(lease.signal.aborted);
    await redis.decr("running");
    await lease.release();
  };

  const ask = async (kind: number) => {
    if (kind < 0.5) await hold("acquired", await limiter.acquire());
    else if (kind < 0.6) await hold("tried", await limiter.tryAcquire());
    else if (kind < 0.8)
      await hold("in time", await limiter.tryAcquire(1, Math.random() * LONGEST_WAIT_MS));
    else {
      const controller = new AbortController();
      const abort = () => controller.abort("enough");
      const timer = setTimeout(abort, Math.random() * LONGEST_WAIT_MS);
      const outcome = await limiter
        .acquire(1, { signal: controller.signal })
        .catch((reason: unknown) => reason);
      clearTimeout(timer);
      if (outcome === "enough") ends.aborted = (ends.aborted ?? 0) + 1;
      else if (outcome instanceof Error) throw outcome;
      else await hold("before the abort", outcome as RedisLease);
    }
  };

  const stopAt = performance.now() + SECONDS * 1000;
  await Promise.all(
    Array.from({ length: CALLERS }, async () => {
      while (performance.now() < stopAt) await ask(Math.random());
    }),
  );
  await limiter.peek();
  await limiter.close();
  redis.disconnect();
  process.send?.({ ends, most });
  process.disconnect();
}

const test = suite("one limit on concurrent leases, for four processes");

let server: RedisServer;
let redis: Redis;

test.before(async () => {
  await redisServer();
  server = await startRedis();
  redis = new Redis(server.url);
});

test.after(async () => {
  redis.disconnect();
  await server.stop();
});

test("the limit is never exceeded, every process gets leases, and no lease leaks", async () => {
  const limiter = RedisConcurrencyLimiter.create(redis, "soak", LIMIT, OPTIONS);
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const workers = Array.from({ length: PROCESSES }, () =>
    fork(fileURLToPath(import.meta.url), ["worker", server.url], {
      env,
      execArgv: ["--import", "tsx"],
    }),
  );
  let over = false;
  const changes = (async () => {
    // the highest limit is the declared one: it bounds the counter
    while (!over) {
      await sleep(100);
      await limiter.setLimit(1 + Math.floor(Math.random() * LIMIT));
    }
    await limiter.resetLimit();
  })();
  const reports = await Promise.all(workers.map(report));
  over = true;
  await changes;
  console.log(reports.map(({ ends }) => JSON.stringify(ends)).join("\n"));
  const most = Math.max(...reports.map((each) => each.most));
  // the limit changes all the time, and a busy machine may never use all of the highest one
  assert.ok(most <= LIMIT && most > LIMIT / 2, `${most} at once, at most ${LIMIT}`);
  for (const { ends } of reports) assert.ok((ends.acquired ?? 0) > 0, "each process gets leases");
  for (const how of ["in time", "before the abort", "aborted"]) {
    assert.ok(
      reports.some(({ ends }) => (ends[how] ?? 0) > 0),
      how,
    );
  }
  await until("no lease is held", async () => {
    const { active, waiting } = await limiter.peek();
    return active === 0 && waiting === 0;
  });
  assert.is(await redis.get("running"), "0");
  assert.is(await redis.exists("c:soak"), 0);
});

async function report(worker: ChildProcess): Promise<{ ends: Ends; most: number }> {
  const [message] = await once(worker, "message");
  return message;
}

if (process.argv[2] === "worker") await work(String(process.argv[3]));
else test.run();
