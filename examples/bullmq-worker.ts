/**
 * Two BullMQ workers together drain one queue at 20 jobs a second. The limit is in the queue's Redis.
 * Once, the service behind them asks for a pause of 1.5 seconds. Jobs that would have to wait that long
 * go back to the queue, which pauses too, so that no worker is blocked by a waiting job.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { type Job, Queue, RateLimitError, Worker } from "bullmq";
import { Redis } from "ioredis";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";

const RATE = 20;
const JOBS = 60;
const REST_MS = 1500;
const ROW_MS = 250;
/** Small, because a job that waits for its permit cannot be taken by another worker. */
const CONCURRENCY = 2;

const url = process.env.REDIS_URL ?? (await freshUrl());
const name = `mails of ${process.pid}`;

const queue = new Queue(name, { connection: { url } });

const startedAt = performance.now();
const starts: { at: number; worker: string }[] = [];
let sentBack = 0;

/** The code of a worker process. It needs only the limit's name and numbers. */
function work(workerName: string) {
  const redis = new Redis(url);
  const limiter = RedisRateLimiter.create(redis, name, RATE, { burstSeconds: 0 });

  async function send(job: Job): Promise<void> {
    // Waits up to a second for a permit. BullMQ renews the job's lock meanwhile.
    if (!(await limiter.tryAcquire(1, 1000))) {
      const { waitMs } = await limiter.peek();
      await queue.rateLimit(Math.max(1, Math.ceil(waitMs)));
      sentBack++;
      throw new RateLimitError();
    }
    starts.push({ at: performance.now() - startedAt, worker: workerName });
    if (job.data.restMs) await limiter.pause(job.data.restMs); // "429, Retry-After: 1.5"
    await sleep(30);
  }

  const worker = new Worker(name, send, {
    connection: { url },
    concurrency: CONCURRENCY,
    // without this option a BullMQ worker does not check whether its queue is paused by a rate limit
    limiter: { max: 1e9, duration: 1000 },
  });
  return async function close() {
    await worker.close();
    redis.disconnect();
  };
}

const workers = [work("ann"), work("bob")];
await queue.addBulk(
  Array.from({ length: JOBS }, (_, i) => ({
    name: "mail",
    data: { restMs: i === 20 ? REST_MS : 0 },
    opts: { removeOnComplete: true },
  })),
);
while (starts.length < JOBS) await sleep(20);

console.log(`2 workers, one limit: ${RATE} a second, a mark for each job\n`);
const last = starts.at(-1)?.at ?? 0;
for (let from = 0; from <= last; from += ROW_MS) {
  const row = starts.filter(({ at }) => at >= from && at < from + ROW_MS);
  const marks = ["ann", "bob"].map((worker) =>
    "■".repeat(row.filter((start) => start.worker === worker).length).padEnd(8),
  );
  console.log(`  ${(from / 1000).toFixed(2)} s   ${marks.join("")}${row.length}`);
}
console.log(`\njobs sent back to the queue, because they would have waited too long: ${sentBack}`);

for (const close of workers) await close();
await queue.obliterate({ force: true });
await queue.close();

assert.equal(starts.length, JOBS, "each job is done once");
const first = starts[0]?.at ?? 0;
// 100 ms of tolerance: if the first start is recorded late, all others seem early
const early = starts.findIndex(({ at }, i) => at - first < (1000 * i) / RATE - 100);
assert.equal(early, -1, "together the workers are never ahead of the limit");
const gaps = starts.slice(1).map(({ at }, i) => at - (starts[i]?.at ?? 0));
// permits that were promised before the pause are still used during it
const promisedMs = (1000 * 2 * CONCURRENCY) / RATE;
assert.ok(Math.max(...gaps) >= REST_MS - promisedMs - 100, "the workers pause");
assert.ok(sentBack > 0, "jobs go back to the queue during the pause");
assert.ok(last < 30_000, "the workers go on after the pause");
