/**
 * Two BullMQ workers drain one queue at 20 jobs a second, together, by a limit that lies in the same
 * Redis. On the way the service behind them asks for 1.5 seconds of rest: the jobs that would have
 * to wait that long go back to the queue, which rests, instead of being held by a worker.
 * Set REDIS_URL to use a Redis of yours; otherwise one is started for this.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { type Job, Queue, QueueEvents, RateLimitError, Worker } from "bullmq";
import { Redis } from "ioredis";
import colors from "picocolors";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";

const RATE = 20;
const JOBS = 60;
const REST_MS = 1500;
const ROW_MS = 250;
/** Few: each that waits for its turn is a job that no other worker can take. */
const CONCURRENCY = 2;

const server = process.env.REDIS_URL ? undefined : await startRedis();
const url = process.env.REDIS_URL ?? server?.url ?? "";
const name = `mails of ${process.pid}`;

const queue = new Queue(name, { connection: { url } });
const events = new QueueEvents(name, { connection: { url } });
await events.waitUntilReady();

const startedAt = performance.now();
const starts: { at: number; worker: string }[] = [];
let sentBack = 0;

/** What a process would do: it knows the limit's name and numbers, and nothing of the others. */
function work(workerName: string) {
  const redis = new Redis(url);
  const limiter = RedisRateLimiter.create(redis, name, RATE, { burstSeconds: 0 });

  async function send(job: Job): Promise<void> {
    // A turn that comes soon is waited for here; BullMQ renews the job's lock meanwhile.
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
    // without a limiter a worker does not look whether its queue rests
    limiter: { max: 1e9, duration: 1000 },
  });
  const close = async () => {
    await worker.close();
    redis.disconnect();
  };
  return { close };
}

const workers = [work("ann"), work("bob")];
let completed = 0;
const all = new Promise<void>((resolve, reject) => {
  events.on("failed", ({ failedReason }) => reject(new Error(failedReason)));
  events.on("completed", () => {
    completed++;
    if (completed === JOBS) resolve();
  });
});
await queue.addBulk(
  Array.from({ length: JOBS }, (_, i) => ({
    name: "mail",
    data: { restMs: i === 20 ? REST_MS : 0 },
    opts: { removeOnComplete: true },
  })),
);
await all;

console.log(`2 workers, one limit: ${RATE} a second, a mark for each job\n`);
const last = starts.at(-1)?.at ?? 0;
for (let from = 0; from <= last; from += ROW_MS) {
  const row = starts.filter(({ at }) => at >= from && at < from + ROW_MS);
  const marks = ["ann", "bob"].map((worker) =>
    "■".repeat(row.filter((start) => start.worker === worker).length).padEnd(8),
  );
  console.log(
    `  ${colors.dim(`${(from / 1000).toFixed(2)} s`)}   ${colors.green(marks.join(""))}${row.length}`,
  );
}
console.log(`\njobs sent back to the queue, because their turn was too far away: ${sentBack}`);

for (const { close } of workers) await close();
await events.close();
await queue.obliterate({ force: true });
await queue.close();
await server?.stop();

assert.equal(starts.length, JOBS, "each job is done once");
const first = starts[0]?.at ?? 0;
// the first may have been noted late, and with it all others would seem early
const early = starts.findIndex(({ at }, i) => at - first < (1000 * i) / RATE - 100);
assert.equal(early, -1, "together they are never ahead of the limit");
const gaps = starts.slice(1).map(({ at }, i) => at - (starts[i]?.at ?? 0));
// turns that had been promised to the other worker are kept
const promisedMs = (1000 * 2 * CONCURRENCY) / RATE;
assert.ok(Math.max(...gaps) >= REST_MS - promisedMs - 100, "the rest is kept");
assert.ok(sentBack > 0, "nobody held a job for so long");
assert.ok(last < 30_000, "and then they went on");
