/**
 * Two worker processes do the jobs of three tenants. One tenant adds 20 jobs, then the others add 6 each. Each tenant may
 * start 10 jobs a second. Three queues show three ways:
 *
 * - held: a job waits for its permit in the worker. The large tenant holds all workers, and the others wait behind it.
 * - delayed: a job is delayed in Redis until its permit can be used. No worker waits, and each tenant has its own pace.
 * - fair: all tenants share one fair limit of 30 a second. What one tenant leaves the others get.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { DelayedError, type Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { allOf, ConcurrencyLimiter, fairShares, smoothBursty } from "smooth-limiter";
import { RedisLimiter, RedisRateLimiter, type RemoteLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";

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
  readonly pid: number;
  readonly at: number;
  /** How many times BullMQ gave the job to a worker. */
  readonly fetched: number;
}

const [, , id = `${process.pid}`] = process.argv;
const url = process.env.REDIS_URL ?? (await freshUrl());
if (process.send) await work();
else await lead();

/**
 * Returns if the job may start now. Otherwise it reserves a permit and delays the job until it can be used. The permit
 * stays reserved: the tenant's other jobs get later instants, and this job does not pay again when it comes back, perhaps
 * in another process. A retry after a failure or a stall does pay: it is a later start than the one that is paid.
 */
async function waitInRedis(limiter: RemoteLimiter, job: Job<Data>, token?: string): Promise<void> {
  const { turn } = job.data;
  const isPaid = turn?.start === job.attemptsStarted;
  const at = isPaid ? turn.at : Date.now() + Math.ceil((await limiter.reserve()).waitMs);
  if (at <= Date.now()) return;
  await job.updateData({ ...job.data, turn: { at, start: job.attemptsStarted + 1 } });
  await job.moveToDelayed(at, token);
  throw new DelayedError();
}

/** Runs one of the processes. */
async function work(): Promise<void> {
  process.on("disconnect", () => process.exit());
  const redis = new Redis(url);
  const policy = smoothBursty({ permitsPerSecond: RATE, burstSeconds: 0 });
  const [held, delayed] = ["held", "delayed"].map((name) =>
    RedisLimiter.create(redis, `${name} ${id}`, policy),
  ) as [RedisLimiter, RedisLimiter];
  const options = { order: fairShares(), burstSeconds: 0 };
  const rate = RedisRateLimiter.create(redis, `fair ${id}`, tenants.length * RATE, options);
  // a job takes one of the two slots only when the rate lets it go
  const fair = allOf(rate, ConcurrencyLimiter.create(2, { order: fairShares() }));

  const start = async ({ queueName, data, attemptsStarted }: Job<Data>) => {
    const [queue = ""] = queueName.split(" ");
    const { pid } = process;
    process.send?.({ queue, tenant: data.tenant, pid, at: Date.now(), fetched: attemptsStarted });
    await sleep(30);
  };
  const connection = { url };
  const workers = [
    new Worker<Data>(
      `held ${id}`,
      (job) =>
        held
          .for(job.data.tenant)
          .acquire()
          .then(() => start(job)),
      { connection, concurrency: 2 },
    ),
    new Worker<Data>(
      `delayed ${id}`,
      (job, token) => waitInRedis(delayed.for(job.data.tenant), job, token).then(() => start(job)),
      { connection, concurrency: 2 },
    ),
    new Worker<Data>(
      `fair ${id}`,
      (job) => fair.run(() => start(job), { share: job.data.tenant }),
      { connection, concurrency: 100 }, // many, so that the limiter can choose among them
    ),
  ];
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  process.send?.("ready");
}

/** Starts the processes, adds the same jobs to all queues, and prints the times. */
async function lead(): Promise<void> {
  const env = { ...process.env, REDIS_URL: url };
  const workers = [1, 2].map(() => fork(fileURLToPath(import.meta.url), [id], { env }));
  await Promise.all(workers.map((worker) => once(worker, "message")));
  const starts: Start[] = [];
  for (const worker of workers) worker.on("message", (start: Start) => starts.push(start));

  const names = ["held", "delayed", "fair"];
  const queues = names.map((name) => new Queue(`${name} ${id}`, { connection: { url } }));
  const jobs = tenants.flatMap((tenant) =>
    Array.from({ length: JOBS[tenant] }, () => ({ name: "call", data: { tenant } })),
  );
  const began = Date.now();
  await Promise.all(queues.map((queue) => queue.addBulk(jobs)));
  while (starts.length < names.length * jobs.length) await sleep(50);
  await sleep(200); // a job that came twice would be seen
  for (const worker of workers) worker.kill();
  for (const queue of queues) {
    await queue.obliterate({ force: true });
    await queue.close();
  }

  /** When the jobs started, in ms from the beginning. */
  const times = (name: string, ...of: readonly Tenant[]) =>
    starts
      .filter(({ queue, tenant }) => queue === name && of.includes(tenant))
      .map(({ at }) => at - began)
      .sort((a, b) => a - b);
  const edges = (name: string, tenant: Tenant) => {
    const all = times(name, tenant);
    return [all[0] ?? 0, all.at(-1) ?? 0] as const;
  };
  /** Whether the jobs never started earlier than at this rate; the clock may be adjusted a little. */
  const keeps = (instants: readonly number[], perSecond: number) =>
    instants.every((at, i) => at >= (1000 * (i - 1)) / perSecond - 50);

  console.log(
    `first and last start of the jobs:${names.map((name) => name.padStart(17)).join("")}`,
  );
  for (const tenant of tenants) {
    const cells = names.map((name) => {
      const [first, last] = edges(name, tenant);
      return `${(first / 1000).toFixed(1)} to ${(last / 1000).toFixed(1)} s`.padStart(17);
    });
    const jobs = `${JOBS[tenant]} jobs`.padStart(9);
    console.log(`  ${tenant.padEnd(6)}${jobs}`.padEnd(21) + cells.join(""));
    for (const name of names) assert.equal(times(name, tenant).length, JOBS[tenant]);
    assert.ok(keeps(times("held", tenant), RATE) && keeps(times("delayed", tenant), RATE));
    if (tenant === "batch") continue;
    assert.ok(edges("held", tenant)[0] > 1000, "jobs that wait in the workers hold up the others");
    for (const name of ["delayed", "fair"]) {
      const [, , , half = Infinity] = times(name, tenant);
      assert.ok(half < edges(name, "batch")[1], "delayed and fair jobs do not");
    }
  }
  assert.ok(keeps(times("fair", ...tenants), tenants.length * RATE));
  const delayed = starts.filter(({ queue }) => queue === "delayed");
  const back = delayed.filter(({ fetched }) => fetched > 1).length;
  console.log(`\n${back} of ${delayed.length} jobs were delayed in Redis, each of them once`);
  assert.ok(delayed.every(({ fetched }) => fetched <= 2));
  assert.equal(new Set(delayed.map(({ pid }) => pid)).size, 2, "both processes work");
}
