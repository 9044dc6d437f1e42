/**
 * What does a key of a `KeyedLimiter` cost among a million: how many bytes, its string included, and how long does a call with a random
 * key take? The lower bound is a Map and the clock. Bytes are measured in a separate process for each candidate. Times are measured
 * side by side, on the same keys in the same order. Then the bytes of a key under each algorithm, without its string.
 */
import { fileURLToPath } from "node:url";
import { MemoryStore } from "express-rate-limit";
import { do_not_optimize as keep } from "mitata";
import { RateLimiterMemory } from "rate-limiter-flexible";
import {
  type Clock,
  fixedWindow,
  gcra,
  KeyedLimiter,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { apart, heap, reportIfApart } from "./lib/apart.ts";
import { compare } from "./lib/compare.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";

const KEYS = short ? 250_000 : 1_000_000;
const BARE = "Map<string, number>";
const BARE_CLOCK = `${BARE} and performance.now()`;
const HOUR_MS = 3_600_000;

/** Large enough for all hits of a run. No key gets back to its full limit before the end. */
const SIZE = 1e6;
const policies: Record<string, Policy> = {
  gcra: gcra({ limit: SIZE, periodMs: SIZE * HOUR_MS }),
  tokenBucket: tokenBucket({ capacity: SIZE, refill: 1, everyMs: HOUR_MS }),
  "smoothBursty, prefilled": smoothBursty({
    permitsPerSecond: 1000 / HOUR_MS,
    burstSeconds: (SIZE * HOUR_MS) / 1000,
    prefilled: true,
  }),
};

/** The policies with a target. The others are only shown. */
const JUDGED = ["gcra", "tokenBucket"];

/**
 * A clock that can be moved ahead by an hour. V8 stores instants up to 2^31 microseconds (36 minutes) in fewer bytes than later ones,
 * and most processes run for longer than that.
 */
class LaterClock implements Clock {
  aheadMs = 0;

  now(): number {
    return performance.now() + this.aheadMs;
  }

  wakeAt(): never {
    throw new Error("this bench never waits");
  }
}

function hitsUnder(policy: Policy): (key: string) => unknown {
  const clock = new LaterClock();
  const limiters = KeyedLimiter.create(policy, { clock });
  clock.aheadMs = HOUR_MS;
  return (key) => limiters.for(key).tryAcquire();
}

/** Each returns the function that hits a key. */
const candidates: Record<string, () => (key: string) => unknown> = {
  [BARE]: () => {
    const map = new Map<string, number>();
    return (key) => map.set(key, (map.get(key) ?? 0) + 1);
  },
  ...Object.fromEntries(
    Object.entries(policies).map(([name, policy]) => [name, () => hitsUnder(policy)]),
  ),
  "express-rate-limit MemoryStore": () => {
    const store = new MemoryStore();
    store.init({ windowMs: HOUR_MS } as Parameters<MemoryStore["init"]>[0]);
    return (key) => store.increment(key);
  },
  "rate-limiter-flexible": () => {
    const memory = new RateLimiterMemory({ points: SIZE, duration: HOUR_MS / 1000 });
    return (key) => memory.consume(key);
  },
};

function* names(count: number): Generator<string> {
  for (let i = 0; i < count; i++) yield `key ${i}`;
}

async function hitEach(keys: Iterable<string>, hit: (key: string) => unknown): Promise<void> {
  for (const key of keys) {
    const answer = hit(key);
    if (answer instanceof Promise) await answer;
  }
}

/** Runs in the candidate's own process. The first keys exist before the measurement, so that one-time costs do not count. */
async function weigh(name: string): Promise<{ bytes: number }> {
  const hit = (candidates[name] as () => (key: string) => unknown)();
  await hitEach(names(10), hit);
  const before = await heap();
  await hitEach(names(KEYS), hit);
  const bytes = ((await heap()) - before) / KEYS;
  await hitEach(names(1), hit); // keeps the candidate alive during the measurement
  return { bytes };
}

interface Algorithm {
  readonly policy: Policy;
  /** How often each key is hit. */
  readonly hits?: number;
}

/** The algorithms as users set them. Each key is in use until the end. */
const algorithms: Record<string, Algorithm> = {
  smoothBursty: { policy: smoothBursty({ permitsPerSecond: 1e-3 }) },
  smoothWarmingUp: { policy: smoothWarmingUp({ permitsPerSecond: 1e-3, warmupMs: HOUR_MS }) },
  fixedWindow: { policy: fixedWindow({ limit: 100, windowMs: 24 * HOUR_MS }) },
  tokenBucket: { policy: tokenBucket({ capacity: 100, refill: 1, everyMs: HOUR_MS }) },
  gcra: { policy: gcra({ limit: 100, periodMs: 100 * HOUR_MS }) },
  leakyBucket: { policy: leakyBucket({ permitsPerSecond: 1e-3, capacity: 100 }) },
  "slidingWindow, 10 buckets": { policy: slidingWindow({ limit: 100, windowMs: HOUR_MS }) },
  "slidingWindow, 60 buckets": {
    policy: slidingWindow({ limit: 100, windowMs: HOUR_MS, buckets: 60 }),
  },
  ...Object.fromEntries(
    [10, 100, 1000].map((limit) => [
      `slidingLog with ${limit} requests`,
      { policy: slidingLog({ limit, windowMs: HOUR_MS }), hits: limit },
    ]),
  ),
};
/** The hits of all keys together, at most. */
const HITS = 500_000;

/** Runs in a process of its own. */
async function weighKey({ policy, hits = 1 }: Algorithm): Promise<{ bytes: number }> {
  const hit = hitsUnder(policy);
  const own = [...names(Math.min(50_000, HITS / hits))];
  const before = await heap();
  for (let i = 0; i < hits; i++) await hitEach(own, hit);
  const bytes = ((await heap()) - before) / own.length;
  await hitEach(names(1), hit); // keeps the keys alive during the measurement
  return { bytes };
}

await reportIfApart((name) => {
  const algorithm = algorithms[name.replace(/^under /, "")];
  return name.startsWith("under ") && algorithm !== undefined ? weighKey(algorithm) : weigh(name);
});

console.log(`${KEYS.toLocaleString("en")} keys`);
const file = fileURLToPath(import.meta.url);
const weights = new Map(
  Object.keys(candidates).map((name) => [name, apart<{ bytes: number }>(file, name).bytes]),
);
const bytes = (name: string) => weights.get(name) ?? Number.NaN;
table(
  ["", "bytes a key", "to the baseline"],
  [...weights].map(([name, own]) => [name, `${own.toFixed(0)} B`, times(own / bytes(BARE))]),
);
for (const name of JUDGED) {
  target(`a key of ${name} takes at most 140 B`, bytes(name) <= 140, `${bytes(name).toFixed(0)} B`);
}

console.log("\na key under each algorithm");
table(
  ["", "bytes"],
  Object.keys(algorithms).map((name) => [
    name,
    Math.round(apart<{ bytes: number }>(file, `under ${name}`).bytes).toLocaleString("en"),
  ]),
);
console.log();

/** The keys in random order: the same strings in the same order for each candidate. */
const keys = [...names(KEYS)];
const order = shuffled(keys);

function shuffled(list: readonly string[]): string[] {
  const mixed = [...list];
  let random = 1;
  for (let i = mixed.length - 1; i > 0; i--) {
    random = (random * 48_271) % 2_147_483_647;
    const j = random % (i + 1);
    [mixed[i], mixed[j]] = [mixed[j] ?? "", mixed[i] ?? ""];
  }
  return mixed;
}

/** Returns a function that hits the next key at each call. */
function inOrder(hit: (key: string) => unknown): () => unknown {
  let next = 0;
  return () => {
    next = next + 1 < order.length ? next + 1 : 0;
    return keep(hit(order[next] ?? ""));
  };
}

const map = new Map(keys.map((key, i) => [key, i]));
const hits: Record<string, (key: string) => unknown> = {
  [BARE_CLOCK]: (key) => {
    keep(performance.now());
    return map.get(key);
  },
};
for (const [name, make] of Object.entries(candidates)) {
  if (name === BARE) continue;
  const hit = make();
  await hitEach(keys, hit);
  hits[name] = hit;
}
console.log("\na hit of a random key");
const ratio = await compare(
  Object.fromEntries(Object.entries(hits).map(([name, hit]) => [name, inOrder(hit)])),
);
for (const name of JUDGED) {
  const got = ratio(name, BARE_CLOCK);
  target(`${name}, at most 1.5 × ${BARE_CLOCK}`, got <= 1.5, times(got));
}
process.exit(); // some peers leave timers behind
