/**
 * Two worker processes do the jobs of three tenants. Each tenant may start 10 jobs a second. One tenant adds
 * 20 jobs, then the others add 6 each. In the first BullMQ queue a job waits for its permit in the worker: the
 * large tenant holds all workers, and the others wait behind it. In the second queue such a job is delayed in
 * Redis until its permit can be used: no worker waits, and each tenant gets its own pace. In the third queue all
 * tenants share one fair limit of 30 jobs a second: what one tenant leaves the others get, and no job waits for all 20 jobs of the first.
 * Set REDIS_URL to use your own Redis; otherwise the example starts one.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { DelayedError, type Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import colors from "picocolors";
import { allOf, ConcurrencyLimiter, smoothBursty } from "smooth-limiter";
import { RedisLimiter, RedisRateLimiter, type RemoteLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";

const RATE = 10;
const JOBS = { batch: 20, ann: 6, bob: 6 };
type Tenant = keyof typeof JOBS;
const tenants = Object.keys(JOBS) as Tenant[];

interface Data {
  readonly tenant: Tenant;
  /** When the reserved permit can be used, and the number of the job's start that may use it. */
  readonly turn?: { readonly at: number; readonly start: number };
}

interface Start {
  readonly queue: string;
  readonly tenant: Tenant;
  readonly worker: string;
  readonly at: number;
  /** How many times BullMQ gave the job to a worker. */
  readonly fetched: number;
}

type WaitForTurn = (limiter: RemoteLimiter, job: Job<Data>, token?: string) => Promise<unknown>;

const waitInWorker: WaitForTurn = (limiter) => limiter.acquire();

/**
 * Returns if the job may start now. Otherwise it reserves a permit and delays the job until it can be used.
 * The permit stays reserved: the tenant's other jobs get later instants, and this job does not pay again
 * when it comes back, perhaps in another process. A retry after a failure or a stall does pay: it is a
 * later start than the one that the permit is for.
 */
const waitInRedis: WaitForTurn = async (limiter, job, token) => {
  const { turn } = job.data;
  const isPaid = turn?.start === job.attemptsStarted;
  const at = isPaid ? turn.at : Date.now() + Math.ceil((await limiter.reserve()).waitMs);
  if (at <= Date.now()) return;
  await job.updateData({ ...job.data, turn: { at, start: job.attemptsStarted + 1 } });
  await job.moveToDelayed(at, token);
  throw new DelayedError();
};

const timesOf = (starts: readonly Start[], tenant: Tenant) =>
  starts.filter((start) => start.tenant === tenant).map(({ at }) => at);

const [, , inWorker, inRedis, inTurn, workerName] = process.argv;
if (inWorker && inRedis && inTurn && workerName) {
  process.on("disconnect", () => process.exit());
  await Promise.all([work(inWorker, waitInWorker), work(inRedis, waitInRedis), workInTurn(inTurn)]);
  process.send?.("ready");
} else await lead();

/** Starts a worker of one queue in this process. */
async function work(queue: string, waitForTurn: WaitForTurn): Promise<void> {
  const url = process.env.REDIS_URL ?? "";
  const policy = smoothBursty({ permitsPerSecond: RATE, burstSeconds: 0 });
  const limiter = RedisLimiter.create(new Redis(url), queue, policy);

  async function call(job: Job<Data>, token?: string): Promise<void> {
    const { tenant } = job.data;
    await waitForTurn(limiter.for(tenant), job, token);
    await start(queue, job);
  }
  const worker = new Worker<Data>(queue, call, { connection: { url }, concurrency: 2 });
  await worker.waitUntilReady();
}

/**
 * Starts a worker whose jobs share one fair limit. It fetches up to 100 jobs, so that the limiter can choose among
 * them, and 2 of them run at once: a job takes its place only when the rate lets it go.
 */
async function workInTurn(queue: string): Promise<void> {
  const url = process.env.REDIS_URL ?? "";
  const options = { fair: true, burstSeconds: 0 };
  const rate = RedisRateLimiter.create(new Redis(url), queue, tenants.length * RATE, options);
  const limiter = allOf(rate, ConcurrencyLimiter.create(2, { fair: true }));
  const call = (job: Job<Data>) => limiter.run(() => start(queue, job), { share: job.data.tenant });
  const worker = new Worker<Data>(queue, call, { connection: { url }, concurrency: 100 });
  await worker.waitUntilReady();
}

/** Does the job. */
async function start(queue: string, job: Job<Data>): Promise<void> {
  const { tenant } = job.data;
  const fetched = job.attemptsStarted;
  process.send?.({ queue, tenant, worker: workerName, at: Date.now(), fetched });
  await sleep(30);
}

/** Starts the worker processes, adds the same jobs to both queues, and prints the times. */
async function lead(): Promise<void> {
  const server = process.env.REDIS_URL ? undefined : await startRedis();
  const url = process.env.REDIS_URL ?? server?.url ?? "";
  const env = { ...process.env, REDIS_URL: url };
  const heldQueue = `tenants of ${process.pid}, waiting in the worker`;
  const delayedQueue = `tenants of ${process.pid}, delayed in Redis`;
  const fairQueue = `tenants of ${process.pid}, in turn`;
  const path = fileURLToPath(import.meta.url);
  const workers = ["w1", "w2"].map((worker) =>
    fork(path, [heldQueue, delayedQueue, fairQueue, worker], { env }),
  );
  await Promise.all(workers.map((worker) => once(worker, "message")));

  /** Adds the jobs to the queue, and returns their starts in the order of time. */
  async function drain(name: string): Promise<Start[]> {
    const queue = new Queue(name, { connection: { url } });
    const jobs = tenants.flatMap((tenant) =>
      Array.from({ length: JOBS[tenant] }, () => ({ name: "call", data: { tenant } })),
    );
    const starts: Start[] = [];
    const began = Date.now();
    const all = new Promise<void>((resolve) => {
      for (const worker of workers) {
        worker.on("message", (start: Start) => {
          if (start.queue === name) starts.push({ ...start, at: start.at - began });
          if (starts.length === jobs.length) resolve();
        });
      }
    });
    await queue.addBulk(jobs);
    await all;
    await sleep(200); // the last jobs end; a job that came twice would be seen
    await queue.obliterate({ force: true });
    await queue.close();
    return starts.sort((a, b) => a.at - b.at);
  }

  const [held, delayed, inTurn] = await Promise.all([
    drain(heldQueue),
    drain(delayedQueue),
    drain(fairQueue),
  ]);
  for (const worker of workers) worker.kill();
  await server?.stop();
  print(held, delayed, inTurn);
  check(held, delayed);
  checkInTurn(inTurn);
}

function print(...queues: readonly (readonly Start[])[]): void {
  const [, delayed = []] = queues;
  console.log(`2 processes with 2 places for each queue; ${RATE} jobs a second and tenant\n`);
  console.log(
    colors.bold("                waiting in the worker   delayed in Redis        one fair limit"),
  );
  const columns = "first     last          ".repeat(3).trimEnd();
  console.log(colors.dim(`tenant   jobs   ${columns}`));
  for (const tenant of tenants) {
    const times = queues.map((starts) => {
      const own = timesOf(starts, tenant);
      return [own.at(0), own.at(-1)]
        .map((ms = 0) => `${(ms / 1000).toFixed(1)} s`.padEnd(10))
        .join("");
    });
    const jobs = String(JOBS[tenant]).padEnd(7);
    console.log(`${tenant.padEnd(9)}${jobs}${times.join("    ")}`.trimEnd());
  }
  const back = delayed.filter(({ fetched }) => fetched > 1).length;
  console.log(`\n${back} of ${delayed.length} jobs were delayed in Redis, each of them once`);
}

function check(held: readonly Start[], delayed: readonly Start[]): void {
  for (const tenant of tenants) {
    for (const starts of [held, delayed]) {
      const times = timesOf(starts, tenant);
      assert.equal(times.length, JOBS[tenant], "each job is done once");
      // 20 ms of tolerance, because the clock may be adjusted
      const early = times.findIndex((at, i) => at < (1000 * i) / RATE - 20);
      assert.equal(early, -1, "the processes together are never ahead of a tenant's limit");
    }
    if (tenant === "batch") continue;
    const [first = 0] = timesOf(held, tenant);
    assert.ok(first > 1000, "jobs that wait in the workers hold up the other tenants");
    const [last = 0, lastOfBatch = 0] = [tenant, "batch" as const].map((one) =>
      timesOf(delayed, one).at(-1),
    );
    assert.ok(last < lastOfBatch, "delayed jobs do not");
  }
  assert.ok(
    delayed.every(({ fetched }) => fetched <= 2),
    "a job that was delayed has its permit",
  );
  assert.equal(new Set(delayed.map(({ worker }) => worker)).size, 2, "both processes work");
}

/** One limit for all tenants: it is never exceeded, and small tenants do not wait for all jobs of the large one. */
function checkInTurn(starts: readonly Start[]): void {
  const early = starts.findIndex(
    ({ at }, i) => at < (1000 * (i - 1)) / (tenants.length * RATE) - 50,
  );
  assert.equal(early, -1, "the processes together are never ahead of the limit");
  const lastOf = (tenant: Tenant) => timesOf(starts, tenant).at(-1) ?? 0;
  for (const tenant of tenants) {
    assert.equal(timesOf(starts, tenant).length, JOBS[tenant], "each job is done once");
    if (tenant === "batch") continue;
    assert.ok(lastOf(tenant) < lastOf("batch"), "the small tenants are done first");
  }
}
