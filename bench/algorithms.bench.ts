/**
 * What does a decision cost under each algorithm, let in and refused, at a limit of 10 and of 100 000? The lower bound is the cost of
 * reading the clock. Every limiter has used its whole limit when it is measured: the sliding log at 100 000 holds as many entries.
 * The limiters' clock reads the real one but advances by one microsecond a call. So exactly one permit comes back for each call, on
 * any machine.
 */
import { MemoryStore } from "express-rate-limit";
import { TokenBucket } from "limiter";
import { do_not_optimize as keep } from "mitata";
import { RateLimiterMemory } from "rate-limiter-flexible";
import {
  type Clock,
  fixedWindow,
  gcra,
  Limiter,
  type LocalLimiter,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

const BASELINE = "performance.now()";
/** Microseconds until one permit comes back: one call, or longer than this run. */
const INTERVALS = { "let in": 1, refused: 1e9 };
type Outcome = keyof typeof INTERVALS;

/** Returns policies that allow a burst of `limit`, then one permit every `interval` microseconds. */
function policies(limit: number, interval: number): Record<string, Policy> {
  const permitsPerSecond = 1e6 / interval;
  const windowMs = (limit * interval) / 1000;
  const burstSeconds = windowMs / 1000;
  const everyMs = interval / 1000;
  return {
    gcra: gcra({ limit, periodMs: windowMs }),
    tokenBucket: tokenBucket({ capacity: limit, refill: 1, everyMs }),
    "tokenBucket, stepped": tokenBucket({ capacity: limit, refill: 1, everyMs, stepped: true }),
    leakyBucket: leakyBucket({ permitsPerSecond, capacity: limit, nodelay: limit }),
    smoothBursty: smoothBursty({ permitsPerSecond, burstSeconds, prefilled: true }),
    // a cold limiter is three times slower than its stable rate
    smoothWarmingUp: smoothWarmingUp({
      permitsPerSecond: 3 * permitsPerSecond,
      warmupMs: windowMs,
    }),
    fixedWindow: fixedWindow({ limit, windowMs }),
    slidingWindow: slidingWindow({ limit, windowMs }),
    slidingLog: slidingLog({ limit, windowMs }),
  };
}

const mostFor = (name: string) => (name.startsWith("sliding") ? 4 : 2);

class SteppingClock implements Clock {
  #micros = 0;
  step = 1;

  now(): number {
    keep(performance.now());
    this.#micros += this.step;
    return this.#micros / 1000;
  }

  wakeAt(): never {
    throw new Error("this bench never waits");
  }
}

/** Returns a limiter whose limit is used up. Each permit was taken at its own instant. */
function full(policy: Policy, limit: number, outcome: Outcome): LocalLimiter {
  const clock = new SteppingClock();
  const limiter = Limiter.create(policy, { clock });
  for (let i = 0; i < limit; i++) limiter.tryAcquire();
  clock.step = 0;
  while (limiter.tryAcquire()) {}
  clock.step = 1;
  // windows that were filled before their end must expire first
  for (let i = 0; i < 3 * limit; i++) limiter.tryAcquire();
  for (let i = 0; i < limit; i++) {
    if (limiter.tryAcquire() !== (outcome === "let in"))
      throw new Error(`${policy.algorithm.name} is not always ${outcome}`);
  }
  return limiter;
}

/** The peers use the real clock. */
const peersOf: Record<Outcome, (limit: number) => Promise<Record<string, () => unknown>>> = {
  async "let in"() {
    const bucket = new TokenBucket({ bucketSize: 1e9, tokensPerInterval: 1e9, interval: 1 });
    const memory = new RateLimiterMemory({ points: 1e9, duration: 3600 });
    const store = new MemoryStore();
    store.init({ windowMs: 3_600_000 } as Parameters<MemoryStore["init"]>[0]);
    return {
      "limiter TokenBucket": () => keep(bucket.tryRemoveTokens(1)),
      "rate-limiter-flexible (await)": () => memory.consume("key"),
      "express-rate-limit MemoryStore (await)": () => store.increment("key"),
    };
  },

  async refused(limit) {
    const bucket = new TokenBucket({ bucketSize: limit, tokensPerInterval: 1, interval: 1e12 });
    bucket.tryRemoveTokens(limit);
    const memory = new RateLimiterMemory({ points: limit, duration: 0 });
    await memory.consume("key", limit);
    const refusals = () => {};
    return {
      "limiter TokenBucket": () => keep(bucket.tryRemoveTokens(1)),
      "rate-limiter-flexible (rejects)": () => memory.consume("key").catch(refusals),
    };
  },
};

for (const outcome of ["let in", "refused"] as const) {
  for (const limit of [10, 100_000]) {
    const what = `${outcome}, at a limit of ${limit.toLocaleString("en")}`;
    console.log(`\ntryAcquire(), ${what}`);
    const contenders: Record<string, () => unknown> = {
      [BASELINE]: () => keep(performance.now()),
    };
    const ours = Object.entries(policies(limit, INTERVALS[outcome]));
    for (const [name, policy] of ours) {
      const limiter = full(policy, limit, outcome);
      contenders[name] = () => keep(limiter.tryAcquire());
    }
    const ratio = await compare({ ...contenders, ...(await peersOf[outcome](limit)) });
    for (const [name] of ours) {
      const got = ratio(name, BASELINE);
      const most = mostFor(name);
      target(`${name} ${what}, at most ${most} × ${BASELINE}`, got <= most, times(got));
    }
  }
}
process.exit(); // some peers leave timers behind
