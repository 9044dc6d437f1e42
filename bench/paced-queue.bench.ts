/**
 * What does it cost to start jobs at a pace, and how even is the pace?
 *
 * 1. Processor time of a job, one at a time and with 100 000 in the queue, and the bytes of a waiting job.
 * 2. 10 000 jobs whose permits are available, beside a bare PQueue: only the work counts.
 * 3. Jobs at 200 a second on the real clock, all contenders at once: the most starts in any 100 ms and in any second, and the 99th
 *    percentile of a start's deviation from an even schedule, ms.
 */

import { fileURLToPath } from "node:url";
import PQueue from "p-queue";
import PQueue10 from "p-queue-10";
import pThrottle from "p-throttle";
import { Limiter, RateLimiter, tokenBucket } from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";
import { pace } from "smooth-limiter/pace";
import { apart, heap, reportIfApart } from "./lib/apart.ts";
import { compareCpu } from "./lib/cpu.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";
import { median, quantile } from "./lib/stats.ts";

const MANY = 10_000;
const ROUNDS = short ? 7 : 25;
const RATE = 200;
const JOBS = short ? 500 : 2000;

type Start = (job: () => unknown) => Promise<unknown>;

const boundless = () => Limiter.create(tokenBucket({ capacity: 1e9, refill: 1, everyMs: 1 }));

const workers: Record<string, () => Start> = {
  PQueue: () => {
    const queue = new PQueue({ concurrency: 20 });
    return (job) => queue.add(job);
  },
  PacedQueue: () => {
    const queue = new PacedQueue({ limiter: boundless(), concurrency: 20 });
    return (job) => queue.add(job);
  },
  "PQueue, acquire() in the job": () => {
    const limiter = boundless();
    const queue = new PQueue({ concurrency: 20 });
    return (job) => queue.add(() => limiter.acquire().then(job));
  },
  "PQueue, intervalCap": () => {
    const queue = new PQueue({ concurrency: 20, intervalCap: 1e9, interval: 1000 });
    return (job) => queue.add(job);
  },
  pace: () => {
    const limiter = boundless();
    return (job) => pace(job, limiter)();
  },
};

const queues: Record<string, () => PQueue | PQueue10 | PacedQueue> = {
  "PQueue 9": () => new PQueue({ concurrency: 20 }),
  "PQueue 9, intervalCap": () => new PQueue({ concurrency: 20, intervalCap: 1e9, interval: 1000 }),
  "PQueue 10": () => new PQueue10({ concurrency: 20 }),
  PacedQueue: () => new PacedQueue({ limiter: boundless(), concurrency: 20 }),
};
const QUEUED = short ? 20_000 : 100_000;

const kept: unknown[] = [];
await reportIfApart(async (name) => {
  const queue = (queues[name] as () => PQueue)();
  kept.push(queue);
  queue.pause();
  const results: unknown[] = Array(QUEUED).fill(undefined);
  for (let i = 0; i < 10; i++) results[i] = queue.add(() => 0);
  const before = await heap();
  for (let i = 0; i < QUEUED; i++) results[i] = queue.add(() => 0);
  return { bytes: ((await heap()) - before) / results.length };
});

console.log("one job at a time");
const oneByOne = await compareCpu(
  MANY,
  Object.fromEntries(
    Object.entries(queues).map(([name, make]) => {
      const queue = make();
      const run = async (jobs: number) => {
        for (let i = 0; i < jobs; i++) await queue.add(() => 0);
      };
      return [name, () => run];
    }),
  ),
);
const toBare = oneByOne("PacedQueue", "PQueue 9");
target("one at a time, at most 1.2 × PQueue 9", toBare <= 1.2, times(toBare));

console.log(`\n${QUEUED.toLocaleString("en")} jobs queued, then drained`);
const drained = await compareCpu(
  QUEUED,
  Object.fromEntries(
    Object.entries(queues).map(([name, make]) => [
      name,
      () => {
        const queue = make();
        return async (jobs: number) => {
          queue.pause();
          for (let i = 0; i < jobs; i++) void queue.add(() => 0);
          queue.start();
          await queue.onIdle();
        };
      },
    ]),
  ),
  short ? 5 : 11,
);
const drain = drained("PacedQueue", "PQueue 9");
target("queued, then drained, at most 1.3 × PQueue 9", drain <= 1.3, times(drain));

const file = fileURLToPath(import.meta.url);
const weights = Object.keys(queues).map((name) => ({
  name,
  ...apart<{ bytes: number }>(file, name),
}));
console.log("\na job that waits");
table(
  ["", "bytes each"],
  weights.map(({ name, bytes }) => [name, `${bytes.toFixed(0)} B`]),
);
const waiting = weights.find(({ name }) => name === "PacedQueue")?.bytes ?? Number.NaN;
target("a waiting job takes at most 900 B", waiting <= 900, `${waiting.toFixed(0)} B`);
console.log();

const micros = new Map(Object.keys(workers).map((name) => [name, [] as number[]]));
for (let round = -3; round < ROUNDS; round++) {
  for (const [name, make] of Object.entries(workers)) {
    const start = make();
    globalThis.gc?.();
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: MANY }, () => start(() => 0)));
    if (round >= 0) micros.get(name)?.push((1000 * (performance.now() - startedAt)) / MANY);
  }
}
const baseline = micros.get("PQueue") ?? [];
const ratio = (name: string) =>
  median((micros.get(name) ?? []).map((us, round) => us / (baseline[round] ?? Number.NaN)));
console.log(`${MANY.toLocaleString("en")} jobs whose permits are available`);
table(
  ["", "a job", "to PQueue"],
  [...micros].map(([name, us]) => [name, `${median(us).toFixed(2)} µs`, times(ratio(name))]),
);
target("PacedQueue, at most 3 × PQueue", ratio("PacedQueue") <= 3, times(ratio("PacedQueue")));

const paced = pace((job: () => unknown) => job(), RateLimiter.create(RATE, { burstSeconds: 0 }));
const queue = new PacedQueue({
  limiter: RateLimiter.create(RATE, { burstSeconds: 0 }),
  concurrency: 20,
});
// the peers in small windows, for an even pace
const inTenMs = RATE / 100;
const windows = { concurrency: 20, intervalCap: inTenMs, interval: 10 };
const fixed = new PQueue(windows);
const strict = new PQueue({ ...windows, strict: true });
const throttled = pThrottle({ limit: inTenMs, interval: 10 })((job: () => unknown) => job());
const contenders: Record<string, Start> = {
  PacedQueue: (job) => queue.add(job),
  pace: (job) => Promise.resolve(paced(job)),
  "PQueue, 2 in 10 ms": (job) => fixed.add(job),
  "PQueue, 2 in 10 ms, strict": (job) => strict.add(job),
  "p-throttle, 2 in 10 ms": (job) => Promise.resolve(throttled(job)),
};
console.log(`\n${JOBS.toLocaleString("en")} jobs at ${RATE} a second`);
const rows = await Promise.all(
  Object.entries(contenders).map(async ([name, start]) => {
    const starts: number[] = [];
    await Promise.all(
      Array.from({ length: JOBS }, () => start(() => starts.push(performance.now()))),
    );
    return { name, starts };
  }),
);
table(
  ["", "worst 100 ms", "worst second", "off, p99"],
  rows.map(({ name, starts }) => [
    name,
    `${mostWithin(100, starts)}`,
    `${mostWithin(1000, starts)}`,
    `${quantile(deviations(starts), 0.99).toFixed(1)} ms`,
  ]),
);
const worst = mostWithin(1000, rows[0]?.starts ?? []);
target("PacedQueue, at most 210 in any second", worst <= 1.05 * RATE, `${worst}`);

/** Returns the most starts within any `ms` milliseconds. */
function mostWithin(ms: number, starts: readonly number[]): number {
  let first = 0;
  let most = 0;
  for (const [i, at] of starts.entries()) {
    while (at - (starts[first] ?? 0) >= ms) first++;
    most = Math.max(most, i - first + 1);
  }
  return most;
}

/** Returns the deviation of each start from an even schedule that begins with the first start, ms. */
function deviations(starts: readonly number[]): number[] {
  const [first = 0] = starts;
  return starts.map((at, i) => Math.abs(at - first - (1000 * i) / RATE));
}
