/**
 * What does `pace` add to a call? First a function that never has to wait, beside p-throttle, `acquire()` alone and the bare call in a
 * promise. Then calls that wait: how many bytes each one holds, measured in a separate process.
 */
import { fileURLToPath } from "node:url";
import pThrottle from "p-throttle";
import { Limiter, RateLimiter, tokenBucket } from "smooth-limiter";
import { pace } from "smooth-limiter/pace";
import { apart, heap, reportIfApart } from "./lib/apart.ts";
import { compareCpu } from "./lib/cpu.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";

const CALLS = 50_000;
const WAITERS = short ? 30_000 : 100_000;

const work = () => 0;
const boundless = () => Limiter.create(tokenBucket({ capacity: 1e12, refill: 1, everyMs: 1 }));
const throttle = pThrottle({ limit: 1e12, interval: 1000 });

/** Each returns the function to call. */
const functions: Record<string, () => () => unknown> = {
  "a promise": () => () => Promise.resolve(work()),
  pace: () => pace(work, boundless()),
  "pace, with a signal": () => pace(work, boundless(), { signal: new AbortController().signal }),
  "acquire() alone": () => {
    const limiter = boundless();
    return () => limiter.acquire();
  },
  "p-throttle": () => throttle(work),
};

/** Each returns the function that a caller calls to wait. */
const waits: Record<string, () => () => unknown> = {
  "promises in an array": () => () => new Promise(() => {}),
  pace: () => pace(work, spent()),
  "p-throttle": () => pThrottle({ limit: 1, interval: 1000 })(work),
};

function spent(): RateLimiter {
  const limiter = RateLimiter.create(1e-3);
  limiter.tryAcquire();
  return limiter;
}

await reportIfApart(async (name) => {
  const wait = (waits[name] as () => () => unknown)();
  const waiting: unknown[] = Array(WAITERS).fill(undefined);
  for (let i = 0; i < 10; i++) waiting[i] = wait();
  const before = await heap();
  for (let i = 0; i < WAITERS; i++) waiting[i] = wait();
  return { bytes: ((await heap()) - before) / waiting.length };
});

console.log("a function that is never limited, one call at a time");
const ratio = await compareCpu(
  CALLS,
  Object.fromEntries(
    Object.entries(functions).map(([name, make]) => {
      const call = make();
      const run = async (calls: number) => {
        for (let i = 0; i < calls; i++) await call();
      };
      return [name, () => run];
    }),
  ),
);
const toThrottle = ratio("pace", "p-throttle");
target("pace, at most 1.05 × p-throttle", toThrottle <= 1.05, times(toThrottle));
const acquire = ratio("acquire() alone", "p-throttle");
target("await acquire() is ahead of p-throttle", acquire < 1, times(acquire));

const file = fileURLToPath(import.meta.url);
const bytes = Object.keys(waits).map((name) => ({
  name,
  ...apart<{ bytes: number }>(file, name),
}));
console.log(`\n${WAITERS.toLocaleString("en")} calls wait`);
table(
  ["", "bytes each"],
  bytes.map(({ name, bytes }) => [name, `${bytes.toFixed(0)} B`]),
);
const own = bytes.find(({ name }) => name === "pace")?.bytes ?? Number.NaN;
target("a waiting call takes at most 500 B", own <= 500, `${own.toFixed(0)} B`);
