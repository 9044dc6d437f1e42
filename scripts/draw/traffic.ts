// Plays the same arrivals against each limiter and records which ones it lets through. Every limiter is
// set to "10 a second" in its own terms. Time is simulated.

import {
  ConcurrencyLimiter,
  fairShares,
  fixedWindow,
  gcra,
  Limiter,
  LimiterError,
  leakyBucket,
  type Policy,
  RateLimiter,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";

/** A request that came at `askedMs` and started at `startedMs`; `undefined` there means refused. */
export interface Caller {
  readonly askedMs: number;
  readonly startedMs: number | undefined;
}

/** Makes a limiter on the clock, and returns the function that each request calls. It resolves to whether the request is let in. */
export type Door = (clock: FakeClock) => () => Promise<boolean>;

const policies: Readonly<Record<string, Policy>> = {
  smoothBursty: smoothBursty({ permitsPerSecond: 10 }),
  smoothWarmingUp: smoothWarmingUp({ permitsPerSecond: 10, warmupMs: 1000 }),
  'fixedWindow, align "epoch"': fixedWindow({ limit: 10, windowMs: 1000 }),
  'fixedWindow, align "first"': fixedWindow({ limit: 10, windowMs: 1000, align: "first" }),
  slidingLog: slidingLog({ limit: 10, windowMs: 1000 }),
  slidingWindow: slidingWindow({ limit: 10, windowMs: 1000 }),
  tokenBucket: tokenBucket({ capacity: 10, refill: 10, everyMs: 1000 }),
  "tokenBucket, stepped": tokenBucket({ capacity: 10, refill: 5, everyMs: 500, stepped: true }),
  gcra: gcra({ limit: 10, periodMs: 1000 }),
  "gcra, burst 2": gcra({ limit: 10, periodMs: 1000, burst: 2 }),
  "leakyBucket, nodelay true": leakyBucket({ permitsPerSecond: 10, capacity: 9, nodelay: true }),
  leakyBucket: leakyBucket({ permitsPerSecond: 10, capacity: 9 }),
  "leakyBucket, slack 4": leakyBucket({ permitsPerSecond: 10, capacity: 9, slack: 4 }),
};

const RUNNING = "ConcurrencyLimiter 2, 200 ms";

/** Limiters whose callers do not wait: a call takes a permit that is available now, or is refused. */
export const refusing: Readonly<Record<string, Door>> = {
  ...doors((limiter) => async () => limiter.tryAcquire()),
  [RUNNING]: (clock) => {
    const limiter = ConcurrencyLimiter.create(2, { clock });
    return async () => {
      const lease = limiter.tryAcquire();
      if (lease !== undefined) work(clock, () => lease.release());
      return lease !== undefined;
    };
  },
};

/** Limiters whose callers wait for their permits; only a full leaky bucket refuses. */
export const waiting: Readonly<Record<string, Door>> = {
  ...doors((limiter) => () => limiter.acquire().then(() => true, refused)),
  [RUNNING]: (clock) => {
    const limiter = ConcurrencyLimiter.create(2, { clock });
    return async () => {
      const lease = await limiter.acquire();
      work(clock, () => lease.release());
      return true;
    };
  },
};

function doors(ask: (limiter: Limiter) => () => Promise<boolean>): Readonly<Record<string, Door>> {
  const entries = Object.entries(policies).map(([name, policy]): [string, Door] => [
    name,
    (clock) => ask(Limiter.create(policy, { clock })),
  ]);
  return Object.fromEntries(entries);
}

function refused(error: unknown): boolean {
  if (error instanceof LimiterError) return false;
  throw error;
}

/** Takes 200 ms, so two at a time make 10 a second. */
function work(clock: FakeClock, done: () => void): void {
  clock.wakeAt(clock.now() + 200, done);
}

/** Plays requests that arrive at these instants (ms), and waits until each has its answer. */
export async function watch(door: Door, arrivals: readonly number[]): Promise<Caller[]> {
  const clock = new FakeClock();
  const ask = door(clock);
  const callers: Promise<Caller>[] = [];
  for (const askedMs of arrivals) {
    await clock.advance(askedMs - clock.now());
    callers.push(ask().then((letIn) => ({ askedMs, startedMs: letIn ? clock.now() : undefined })));
  }
  await clock.advance(60_000);
  return Promise.all(callers);
}

/** The arrivals of three tenants, ms. */
export const tenants = {
  "A, 40 at once": Array.from({ length: 40 }, (_, i) => 500 + i),
  "B, 2 a second": Array.from({ length: 12 }, (_, i) => 700 + 500 * i),
  "C, 12 at 2.5 s": Array.from({ length: 12 }, (_, i) => 2500 + i),
} as const;

/** Three tenants on one limiter of 10 a second: first in, first out, and fair. */
export async function shared(): Promise<Record<string, Caller[]>> {
  const rows: Record<string, Caller[]> = {};
  for (const fair of [false, true]) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(10, {
      clock,
      order: fair ? fairShares() : undefined,
      burstSeconds: 0,
    });
    const all = Object.entries(tenants).flatMap(([share, instants]) =>
      instants.map((askedMs) => ({ share, askedMs })),
    );
    for (const { share, askedMs } of all.sort((a, b) => a.askedMs - b.askedMs)) {
      await clock.advance(askedMs - clock.now());
      const row = `${fair ? "fair" : "FIFO"}: ${share}`;
      const callers = rows[row] ?? [];
      rows[row] = callers;
      void limiter.acquire(1, fair ? { share } : undefined).then(() => {
        callers.push({ askedMs, startedMs: clock.now() });
      });
    }
    await clock.advance(60_000);
  }
  return rows;
}

/** Returns the largest number of starts within any second, its beginning included and its end excluded. */
export function mostInASecond(starts: readonly number[]): number {
  const micros = starts.map((ms) => Math.round(ms * 1000));
  const counts = micros.map(
    (from) => micros.filter((at) => at >= from && at < from + 1_000_000).length,
  );
  return Math.max(0, ...counts);
}
