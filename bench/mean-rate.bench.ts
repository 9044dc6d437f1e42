/**
 * Is the pace kept? Timers are late, and a limiter that does not make up for that is too slow. It is measured in real time, and on a
 * simulated clock, which a busy machine does not disturb. In each cell, workers ask again as soon as they are granted a permit. The mean
 * rate is that of the steady state: stored permits are used up, and the warm-up is over.
 */
import { RateLimit } from "async-sema";
import Bottleneck from "bottleneck";
import { TokenBucket } from "limiter";
import PQueue from "p-queue";
import pThrottle from "p-throttle";
import { RateLimiter, systemClock } from "smooth-limiter";
import { LateClock } from "./lib/late-clock.ts";
import { short } from "./lib/options.ts";
import { type Drift, driftOf, mostIn, pace, type Wait } from "./lib/pace.ts";
import { table, target } from "./lib/report.ts";
import { wasCalm, watchStalls } from "./lib/stalls.ts";

/** The most lateness that the limiter makes up for. Periods in which the event loop stood still for longer are left out. */
const LONGEST_LATENESS_MS = 10;
/** A grant that is 4 ms late comes close to the next grant, which makes up to 1.04 times the rate in some 100 ms. */
const CALM_MS = 4;

/** After this time stored permits are used up, and a warm-up is over. */
const SETTLE_MS = 600;
const FOR_MS = short ? 1200 : 3000;

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

interface Cell {
  readonly name: string;
  readonly rate: number;
  readonly workers: number;
  make(): Wait;
}

interface Finding {
  readonly cell: Cell;
  readonly drift: Drift;
  /** The most grants in any 100 ms, as a multiple of the rate. */
  readonly in100ms: number;
  readonly in1s: number;
}

function cells(rate: number): Cell[] {
  return (Object.keys(KINDS) as Kind[]).flatMap((kind) =>
    [1, 100].map((workers) => ({
      name: kind,
      rate,
      workers,
      make: () => {
        const limiter = KINDS[kind](rate);
        return () => limiter.acquire();
      },
    })),
  );
}

async function measure(cell: Cell): Promise<Finding> {
  const { rate, workers } = cell;
  const grants = await pace({
    wait: cell.make(),
    workers,
    settleMs: SETTLE_MS,
    forMs: rate < 1000 ? 3 * FOR_MS : FOR_MS,
  });
  const within = (ms: number) => (from: number, to: number) => wasCalm(from, to, ms);
  return {
    cell,
    drift: driftOf(grants, rate, within(LONGEST_LATENESS_MS)),
    in100ms: mostIn(100, grants, within(CALM_MS)) / (rate / 10),
    in1s: mostIn(1000, grants, within(LONGEST_LATENESS_MS)) / rate,
  };
}

/** Whether enough of the measurement was undisturbed for a verdict. */
const clear = ({ drift }: Finding) => drift.calmMs > FOR_MS / 2;

/** Measures one cell at a time, so that no cell delays another. CI measures all at once. */
async function inTurn(cells: Cell[], atATime = short ? cells.length : 1): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (let i = 0; i < cells.length; i += atATime) {
    findings.push(...(await Promise.all(cells.slice(i, i + atATime).map(measure))));
  }
  return findings;
}

watchStalls();
const slow = Promise.all(cells(50).map(measure)); // at this rate they delay no other cell
const medium = await inTurn(cells(1000));
const fast = await inTurn(cells(10_000));
const ours = [...(await slow), ...medium, ...fast];

const percent = (share: number) =>
  Number.isNaN(share) ? "?" : `${share < 0 ? "−" : "+"}${Math.abs(share * 100).toFixed(3)} %`;
const most = (share: number) => (share > 0 ? `${share.toFixed(3)} ×` : "?");
const row = ({ cell, drift, in100ms, in1s }: Finding) => [
  cell.name,
  cell.rate.toLocaleString("en"),
  String(cell.workers),
  percent(drift.error),
  `${(drift.calmMs / 1000).toFixed(1)} s`,
  cell.rate < 1000 ? "" : most(in100ms),
  most(in1s),
];
const head = [
  "",
  "a second",
  "workers",
  "mean rate off by",
  "measured for",
  "most in any 100 ms",
  "most in any 1 s",
];
table(head, ours.map(row));

judge("mean rate at most 0.1 % off in every cell", ours);
const densest = Math.max(...medium.map(({ in100ms }) => in100ms));
target(
  "at most 1.05 × the rate in any 100 ms at 1 000/s",
  densest > 0 ? densest <= 1.05 : undefined,
  `${most(densest)}, where the loop did not stand still for more than ${CALM_MS} ms`,
);
const over = ours.filter(({ cell: { name, rate }, in1s }) => in1s > allowed(name, rate));
const seen = ours.filter(({ in1s }) => in1s > 0).length;
target(
  "never more than allowed in any 1 s",
  over.length > 0 ? false : seen === ours.length || undefined,
  `${over.length} cells above, ${seen} of ${ours.length} seen`,
);

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

function judge(what: string, findings: Finding[]): void {
  const judged = findings.filter(clear);
  const off = ({ drift }: Finding) => Math.abs(drift.error);
  const worst = judged.reduce<Finding | undefined>(
    (a, b) => (a === undefined || off(b) > off(a) ? b : a),
    undefined,
  );
  const busy = `the machine was too busy to judge ${findings.length - judged.length} of ${findings.length} cells`;
  if (worst === undefined) {
    target(what, undefined, busy);
    return;
  }
  const reached = off(worst) > 0.001 ? false : judged.length === findings.length || undefined;
  const { name, rate, workers } = worst.cell;
  const got = `${percent(worst.drift.error)} at worst (${name}, ${rate}/s, ${workers} workers)`;
  target(what, reached, judged.length === findings.length ? got : `${got}; ${busy}`);
}

/**
 * Returns the most grants allowed in any second, as a multiple of the rate. With a burst, stored permits come on top; without one, late
 * grants do. One more is allowed because both ends of the second may coincide with a grant.
 */
function allowed(name: string, rate: number): number {
  return (name === "burstSeconds 1" ? 2 : 1 + LONGEST_LATENESS_MS / 1000) + 1 / rate;
}

console.log("\nthe peers at 1 000 a second, set to allow no burst");
const peers: Record<string, () => Wait> = {
  "p-throttle": () => {
    const throttled = pThrottle({ limit: 1, interval: 1 })(() => 0);
    return () => Promise.resolve(throttled());
  },
  "limiter TokenBucket": () => {
    const bucket = new TokenBucket({ bucketSize: 1, tokensPerInterval: 1, interval: 1 });
    return () => bucket.removeTokens(1);
  },
  bottleneck: () => {
    const bottleneck = new Bottleneck({ minTime: 1 });
    return () => bottleneck.schedule(async () => 0);
  },
  "async-sema RateLimit": () => RateLimit(1000, { uniformDistribution: true }),
  "p-queue": () => {
    const queue = new PQueue({ intervalCap: 1, interval: 1 });
    return () => queue.add(() => 0);
  },
};
const beside = Object.entries(peers).flatMap(([name, make]) =>
  [1, 100].map((workers) => ({ name, rate: 1000, workers, make })),
);
table(head, (await inTurn(beside, short ? beside.length : 2)).map(row));
process.exit(); // some peers leave timers behind
