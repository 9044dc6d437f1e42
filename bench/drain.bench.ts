/**
 * What does it cost to queue many waiters and to let them go? 100 000 and then ten times as many callers ask at once at 1 000 000 a
 * second. First on a simulated clock, so that only the work counts. It jumps to the next alarm or by a millisecond, whichever is later,
 * as a real timer does. The baseline is the same promises, resolved in a loop. Then on the real clock, beside a peer: how long was the
 * event loop busy?
 */
import { TokenBucket } from "limiter";
import PQueue from "p-queue";
import pThrottle from "p-throttle";
import { type Clock, RateLimiter } from "smooth-limiter";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";
import { median } from "./lib/stats.ts";

const RATE = 1_000_000;
const FEW = 100_000;
const MANY = 1_000_000;
const ROUNDS = short ? 3 : 9;

/** Returns the ms that n promises take that are created, kept, and resolved in a loop. */
async function bare(n: number): Promise<number> {
  const resolvers: ((value: number) => void)[] = [];
  const make = () =>
    new Promise<number>((resolve) => {
      resolvers.push(resolve);
    });
  return timed(n, make, () => {
    for (const resolve of resolvers) resolve(0);
  });
}

/** Returns the ms that n waiters take on a clock that jumps. */
async function ours(n: number): Promise<number> {
  const clock = new JumpingClock();
  const limiter = RateLimiter.create(RATE, { clock });
  limiter.tryAcquire();
  return timed(
    n,
    () => limiter.acquire(),
    async () => {
      while (clock.jump()) await undefined;
    },
  );
}

/** Returns the ms until n waiters are served, which is when the last one is. */
async function timed(
  n: number,
  wait: () => Promise<unknown>,
  drain: () => void | Promise<void>,
): Promise<number> {
  const waiting: Promise<unknown>[] = [];
  globalThis.gc?.();
  const start = performance.now();
  for (let i = 0; i < n; i++) waiting.push(wait());
  await drain();
  await waiting[n - 1];
  return performance.now() - start;
}

class JumpingClock implements Clock {
  #now = 0;
  #at = 0;
  #wake: (() => void) | undefined;

  now(): number {
    return this.#now;
  }

  wakeAt(timeMs: number, wake: () => void) {
    this.#at = timeMs;
    this.#wake = wake;
    return {
      cancel: () => {
        this.#wake = undefined;
      },
    };
  }

  jump(): boolean {
    const wake = this.#wake;
    this.#wake = undefined;
    this.#now = Math.max(this.#at, this.#now + 1);
    wake?.();
    return wake !== undefined;
  }
}

const SIDES = { bare, ours };
type Side = keyof typeof SIDES;

/** The ms of each round. The two sides take turns. */
class Series {
  readonly #n: number;
  readonly ms: Record<Side, number[]> = { bare: [], ours: [] };

  constructor(n: number) {
    this.#n = n;
  }

  async round(): Promise<void> {
    for (const side of ["bare", "ours"] as const) this.ms[side].push(await SIDES[side](this.#n));
  }

  get ratio(): number {
    return median(this.ms.ours.map((ms, round) => ms / (this.ms.bare[round] ?? Number.NaN)));
  }

  get row(): string[] {
    const ms = (side: Side) => `${median(this.ms[side]).toFixed(1)} ms`;
    return [this.#n.toLocaleString("en"), ms("bare"), ms("ours"), times(this.ratio)];
  }
}

const few = new Series(FEW);
const many = new Series(MANY);
for (let i = 0; i < 5; i++) await new Series(FEW).round();
for (let round = 0; round < ROUNDS; round++) {
  await many.round();
  for (let i = 0; i < 4; i++) await few.round();
}
console.log("the work alone");
table(["waiters", "promises in a loop", "smooth-limiter", "to the baseline"], [few.row, many.row]);
target("100 000 waiters, at most 4 × the promises", few.ratio <= 4, times(few.ratio));
target("1 000 000 waiters, at most 4 × the promises", many.ratio <= 4, times(many.ratio));
const growth = (side: Side) => median(many.ms[side]) / median(few.ms[side]);
const grown = `${times(growth("ours"))}, the promises ${times(growth("bare"))}`;
target("ten times as many take at most 12 times as long", growth("ours") <= 12, grown);

console.log("\nat 1 000 000 a second by the real clock");
const throttled = pThrottle({ limit: 10_000, interval: 10 })(() => 0);
const bucket = new TokenBucket({ bucketSize: 10_000, tokensPerInterval: 10_000, interval: 10 });
const queue = new PQueue({ intervalCap: 10_000, interval: 10 });
const limiter = RateLimiter.create(RATE);
const peers: Record<string, () => Promise<unknown>> = {
  "smooth-limiter": () => limiter.acquire(),
  "p-throttle": () => Promise.resolve(throttled()),
  "limiter TokenBucket": () => bucket.removeTokens(1),
  "p-queue": () => queue.add(() => 0),
};
const rows: string[][] = [];
for (const [name, wait] of Object.entries(peers)) {
  const busy = performance.eventLoopUtilization();
  const took = await timed(FEW, wait, () => {});
  const { active } = performance.eventLoopUtilization(busy);
  rows.push([name, `${took.toFixed(0)} ms`, `${active.toFixed(0)} ms`]);
}
table(["100 000 waiters, due within 100 ms", "took", "loop busy"], rows);
process.exit();
