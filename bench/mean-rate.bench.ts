/**
 * Is the rate kept, and how evenly? Workers ask again as soon as they are granted a permit, each contender in a process of its own. No
 * permits are stored: the peers may start a hundredth of a second's permits every 10 ms, bottleneck, at 100 a second, one every 10 ms.
 * "Off by" is the error of the mean rate in the lowest and the highest run, with all stalls of this machine, and again without the periods
 * in which the event loop stood still for more than 10 ms. "Most in any 10 ms" is that of all runs, as a multiple of the rate: 1 is even.
 *
 * Last, on a simulated clock that a busy machine does not disturb: what do late timers cost a worker that is busy between its permits?
 */
import { fileURLToPath } from "node:url";
import Bottleneck from "bottleneck";
import { TokenBucket } from "limiter";
import PQueue from "p-queue";
import pThrottle from "p-throttle";
import { RateLimiter, systemClock } from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";
import { apart, reportIfApart } from "./lib/apart.ts";
import { LateClock } from "./lib/late-clock.ts";
import { short } from "./lib/options.ts";
import { driftOf, mostIn, pace, type Wait } from "./lib/pace.ts";
import { table, target, times } from "./lib/report.ts";
import { wasCalm, watchStalls } from "./lib/stalls.ts";

const RATES = [100, 1000, 10_000, 50_000];
const WORKERS = [1, 100];

const RUNS = short ? 1 : 3;
/** After this time the first burst is over. */
const SETTLE_MS = 600;
const FOR_MS = short ? 800 : 1500;
/** The most lateness that the limiter makes up for. */
const LONGEST_LATENESS_MS = 10;
const INTERVAL_MS = 10;

const EVEN = "smooth-limiter, burstSeconds: 0";
const PACED = "smooth-limiter, PacedQueue";

interface Contender {
  /** The rates at which it is measured. Default: all. */
  readonly at?: readonly number[];
  make(rate: number): Wait;
}

const inTenMs = (rate: number) => (rate * INTERVAL_MS) / 1000;

const contenders: Record<string, Contender> = {
  [EVEN]: {
    make: (rate) => {
      const limiter = RateLimiter.create(rate, { burstSeconds: 0 });
      return () => limiter.acquire();
    },
  },
  "smooth-limiter, by default": {
    make: (rate) => {
      const limiter = RateLimiter.create(rate);
      return () => limiter.acquire();
    },
  },
  [PACED]: {
    make: (rate) => {
      const queue = new PacedQueue({ limiter: RateLimiter.create(rate, { burstSeconds: 0 }) });
      return () => queue.add(() => {});
    },
  },
  "p-throttle": {
    make: (rate) => {
      const throttled = pThrottle({ limit: inTenMs(rate), interval: INTERVAL_MS })(() => {});
      return () => Promise.resolve(throttled());
    },
  },
  "limiter TokenBucket": {
    make: (rate) => {
      const [bucketSize, tokensPerInterval] = [inTenMs(rate), inTenMs(rate)];
      const bucket = new TokenBucket({ bucketSize, tokensPerInterval, interval: INTERVAL_MS });
      return () => bucket.removeTokens(1);
    },
  },
  "p-queue": {
    make: (rate) => {
      const queue = new PQueue({ intervalCap: inTenMs(rate), interval: INTERVAL_MS });
      return () => queue.add(() => {});
    },
  },
  bottleneck: {
    at: [100], // its timers are for whole ms
    make: (rate) => {
      const bottleneck = new Bottleneck({ minTime: 1000 / rate });
      return () => bottleneck.schedule(async () => {});
    },
  },
};

interface Run {
  /** The error of the mean rate. */
  readonly error: number;
  /** The same without stalls; null: too little was undisturbed. */
  readonly calmError: number | null;
  /** The most starts in any 10 and 100 ms, as multiples of the rate. */
  readonly in10ms: number;
  readonly in100ms: number;
  /** The first of them, less one start, without stalls; null: too little was undisturbed. */
  readonly calmIn10ms: number | null;
}

const isCalm = (from: number, to: number) => wasCalm(from, to, LONGEST_LATENESS_MS);
/** After a stall all who became due are released together. */
const isSettled = (from: number, to: number) => isCalm(from - 100, to);
const always = (_from: number, _to: number) => true;

await reportIfApart(async (cell): Promise<Run> => {
  const [name = "", ...numbers] = cell.split("|");
  const [rate = 0, workers = 0] = numbers.map(Number);
  const wait = (contenders[name] as Contender).make(rate);
  const forMs = rate < 1000 ? 2 * FOR_MS : FOR_MS;
  watchStalls();
  const starts = await pace({ wait, workers, settleMs: SETTLE_MS, forMs });
  const most = (ms: number, calm = always) => mostIn(ms, starts, calm) / ((rate * ms) / 1000);
  const calm = driftOf(starts, rate, isCalm);
  return {
    error: driftOf(starts, rate, always).error,
    calmError: calm.calmMs > forMs / 2 ? calm.error : null,
    in10ms: most(10),
    in100ms: most(100),
    calmIn10ms: Math.max(0, most(10, isSettled) - 1 / inTenMs(rate)) || null,
  };
});

const percent = (share: number | undefined) =>
  share === undefined ? "?" : `${share < 0 ? "−" : "+"}${Math.abs(share * 100).toFixed(3)} %`;

/** Shows the lowest and the highest value of the runs; those that could not be judged are left out. */
function range(values: readonly (number | null)[]): string {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return [...new Set([sorted[0], sorted.at(-1)])].map(percent).join(" to ");
}

const file = fileURLToPath(import.meta.url);
const ours: { readonly cell: string; readonly run: Run }[] = [];
for (const rate of RATES) {
  for (const workers of WORKERS) {
    const names = Object.keys(contenders).filter(
      (name) => contenders[name]?.at?.includes(rate) ?? true,
    );
    const measured = new Map(names.map((name) => [name, [] as Run[]]));
    for (let round = 0; round < RUNS; round++) {
      for (const [name, runs] of measured) {
        const run = apart<Run>(file, `${name}|${rate}|${workers}`);
        runs.push(run);
        if (name === EVEN) ours.push({ cell: `${rate}/s, ${workers} workers`, run });
      }
    }
    const load = workers === 1 ? "1 worker" : `${workers} workers`;
    console.log(`\n${rate.toLocaleString("en")} a second, ${load}`);
    table(
      ["", "off by", "off by, without stalls", "most in any 10 ms", "most in any 100 ms"],
      [...measured].map(([name, runs]) => [
        name,
        range(runs.map(({ error }) => error)),
        range(runs.map(({ calmError }) => calmError)),
        times(Math.max(...runs.map(({ in10ms }) => in10ms))),
        times(Math.max(...runs.map(({ in100ms }) => in100ms))),
      ]),
    );
  }
}

/** Judges the worst run of ours without a burst. If some were disturbed too much, the verdict is open. */
function judge(what: string, most: number, of: (run: Run) => number | null, show = times): void {
  const found = ours.map(({ cell, run }) => ({ cell, value: of(run) ?? Number.NaN }));
  const clear = found.filter(({ value }) => !Number.isNaN(value));
  const worst = clear.reduce((a, b) => (b.value > a.value ? b : a), { cell: "", value: 0 });
  const reached = worst.value > most ? false : clear.length === found.length || undefined;
  const judged = `${clear.length} of ${found.length} runs judged`;
  target(what, reached, `${show(worst.value)} at worst (${worst.cell}); ${judged}`);
}

const off = ({ calmError }: Run) => calmError && Math.abs(calmError);
judge("without stalls, mean rate at most 0.2 % off", 0.002, off, percent);
const dense = ({ calmIn10ms }: Run) => calmIn10ms;
judge("without stalls, at most 2.1 × the rate and a start more in any 10 ms", 2.1, dense);

const KINDS = {
  "burstSeconds 1": (rate: number, clock = systemClock) => {
    const limiter = RateLimiter.create(rate, { prefilled: true, clock });
    limiter.charge(rate); // uses up the stored permits
    return limiter;
  },
  "burstSeconds 0": (rate: number, clock = systemClock) =>
    RateLimiter.create(rate, { burstSeconds: 0, clock }),
  "warming up": (rate: number, clock = systemClock) =>
    RateLimiter.create(rate, { warmupMs: 300, clock }),
};
type Kind = keyof typeof KINDS;

console.log("\nerror of the mean rate: one worker, on a simulated clock with late timers");
const SHARES = [0, 0.5, 0.8, 0.95];
const simulated: number[] = [];
const simulations: string[][] = [];
for (const kind of Object.keys(KINDS) as Kind[]) {
  for (const rate of [1000, 10_000]) {
    const errors: number[] = [];
    for (const share of SHARES) errors.push(await simulate(kind, rate, share));
    simulated.push(...errors);
    simulations.push([kind, rate.toLocaleString("en"), ...errors.map(percent)]);
  }
}
table(["busy between permits, intervals", "a second", ...SHARES.map(String)], simulations);
const farthest = simulated.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
const nowhere = Math.abs(farthest) <= 0.001;
target("late timers cost a busy worker at most 0.1 %", nowhere, `${percent(farthest)} at worst`);

/** Returns the error of the rate for a worker that is busy for a share of the interval after each permit. */
async function simulate(kind: Kind, rate: number, share: number): Promise<number> {
  const clock = new LateClock();
  const limiter = KINDS[kind](rate, clock);
  const settled = rate;
  const end = settled + (short ? 2 : 10) * rate;
  let granted = 0;
  let start = 0;
  const work = async () => {
    for (; granted < end; granted++) {
      await limiter.acquire();
      if (granted === settled) start = clock.now();
      clock.spend((share * 1000) / rate);
    }
  };
  const done = work();
  while (granted < end) {
    await new Promise(setImmediate);
    clock.next();
  }
  await done;
  return ((end - settled) * (1000 / rate)) / (clock.now() - start) - 1;
}
