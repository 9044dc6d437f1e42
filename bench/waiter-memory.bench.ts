/**
 * How many bytes does a waiting call take? Each candidate has its own process, in which the heap is measured before and after many
 * calls start to wait. "and then" includes the promise of a `then` or `await`, which every caller adds.
 */
import { fileURLToPath } from "node:url";
import { RateLimit } from "async-sema";
import Bottleneck from "bottleneck";
import { TokenBucket } from "limiter";
import PQueue from "p-queue";
import pThrottle from "p-throttle";
import { fairShares, RateLimiter } from "smooth-limiter";
import { StoreRateLimiter } from "smooth-limiter/store";
import { memoryStore } from "smooth-limiter/testing";
import { apart, heap, reportIfApart } from "./lib/apart.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";

const WAITERS = short ? 30_000 : 100_000;
const BARE = "promises in an array";
const BARE_THEN = "promises in an array, and then";
const OURS = "smooth-limiter";
const OURS_THEN = "smooth-limiter, and then";
const FAIR = "smooth-limiter, fair, one share";
const FAIR_EACH = "smooth-limiter, fair, a share each";

const work = () => 0;
const settlers: object[] = [];
const pending = () =>
  new Promise<number>((resolve, reject) => {
    settlers.push({ resolve, reject });
  });

/** Each returns the function that a caller calls to wait. */
const candidates: Record<string, () => () => Promise<unknown>> = {
  [BARE]: () => pending,
  [OURS]: () => {
    const limiter = spent();
    return () => limiter.acquire();
  },
  [FAIR]: () => {
    const limiter = spent(true);
    return () => limiter.acquire(1, { share: "tenant" });
  },
  [FAIR_EACH]: () => {
    const limiter = spent(true);
    let tenants = 0;
    return () => limiter.acquire(1, { share: `tenant ${tenants++}` });
  },
  "smooth-limiter on a store": () => {
    const limiter = StoreRateLimiter.create(memoryStore(), "jobs", 1e-3);
    return () => limiter.acquire();
  },
  "smooth-limiter on a store, fair, one share": () => {
    const limiter = StoreRateLimiter.create(memoryStore(), "jobs", 1e-3, { order: fairShares() });
    return () => limiter.acquire(1, { share: "tenant" });
  },
  [BARE_THEN]: () => () => pending().then(work),
  [OURS_THEN]: () => {
    const limiter = spent();
    return () => limiter.acquire().then(work);
  },
  "smooth-limiter, one signal for all": () => {
    const limiter = spent();
    const { signal } = new AbortController();
    return () => limiter.acquire(1, { signal });
  },
  "p-throttle": () => {
    const throttled = pThrottle({ limit: 1, interval: 1000 })(work);
    return () => Promise.resolve(throttled());
  },
  "limiter TokenBucket": () => {
    const bucket = new TokenBucket({ bucketSize: 1, tokensPerInterval: 1, interval: 1e6 });
    return () => bucket.removeTokens(1);
  },
  "async-sema RateLimit": () => RateLimit(1, { timeUnit: 1e6 }),
  "p-queue": () => {
    const queue = new PQueue({ intervalCap: 1, interval: 1e6 });
    return () => queue.add(work);
  },
  bottleneck: () => {
    const bottleneck = new Bottleneck({ minTime: 1e6 });
    return () => bottleneck.schedule(async () => 0);
  },
};

function spent(fair = false): RateLimiter {
  const limiter = RateLimiter.create(1e-3, { order: fair ? fairShares() : undefined });
  limiter.tryAcquire();
  return limiter;
}

interface Weight {
  readonly bytes: number;
  readonly timers: number;
}

/** Runs in the candidate's own process. */
async function weigh(name: string): Promise<Weight> {
  const wait = (candidates[name] as () => () => Promise<unknown>)();
  const waiting: (Promise<unknown> | undefined)[] = Array(WAITERS).fill(undefined);
  for (let i = 0; i < 10; i++) waiting[i] = wait();
  const before = await heap();
  for (let i = 0; i < WAITERS; i++) waiting[i] = wait();
  const bytes = ((await heap()) - before) / waiting.length;
  const timers = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  return { bytes, timers };
}

await reportIfApart(weigh);

const file = fileURLToPath(import.meta.url);
const weights = new Map(Object.keys(candidates).map((name) => [name, apart<Weight>(file, name)]));
const bytes = (name: string) => weights.get(name)?.bytes ?? Number.NaN;
const timers = weights.get(OURS)?.timers ?? Number.NaN;
table(
  [`${WAITERS.toLocaleString("en")} wait`, "bytes each", "to the baseline", "to ours", "timers"],
  [...weights].map(([name, weight]) => [
    name,
    `${weight.bytes.toFixed(0)} B`,
    times(weight.bytes / bytes(BARE)),
    times(weight.bytes / bytes(OURS)),
    String(weight.timers),
  ]),
);
const both = `${bytes(OURS).toFixed(0)} B, with the caller's ${bytes(OURS_THEN).toFixed(0)} B`;
target(
  "a waiter takes at most 400 B, the caller's promise included",
  bytes(OURS_THEN) <= 400,
  both,
);
target(
  "a waiter with a share of its own takes at most 1.5 times as much as one of a common share",
  bytes(FAIR_EACH) <= 1.5 * bytes(FAIR),
  `${bytes(FAIR_EACH).toFixed(0)} B, ${times(bytes(FAIR_EACH) / bytes(FAIR))}`,
);
target("one timer, however many wait", timers === 1, String(timers));
