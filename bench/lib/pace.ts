/** Runs workers that ask again as soon as they are granted a permit, and records the times of the grants. */

export type Wait = () => Promise<unknown>;

export interface Load {
  readonly wait: Wait;
  readonly workers: number;
  /** The time until stored permits are used up or a warm-up is over, ms. Grants before that are ignored. */
  readonly settleMs: number;
  /** The duration of the measurement after that, ms. */
  readonly forMs: number;
}

/** Returns the instants of the grants, ms. */
export async function pace({ wait, workers, settleMs, forMs }: Load): Promise<number[]> {
  const start = performance.now() + settleMs;
  const end = start + forMs;
  const grants: number[] = [];
  const work = async () => {
    for (let now = 0; now < end; ) {
      await wait();
      now = performance.now();
      if (now >= start && now < end) grants.push(now);
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  return grants;
}

export interface Drift {
  /** The relative error of the mean rate: 0.001 is 0.1 % too fast. */
  readonly error: number;
  /** The part of the measurement that was used, ms. */
  readonly calmMs: number;
}

/**
 * Returns the error of the mean rate, without effects of the two ends of the run and of a busy machine.
 *
 * Each grant is compared with an ideal schedule that starts at the first grant. In every tenth of a second only the grant with the least
 * lag counts: the others were delayed by a timer, which does not change the rate. The growth of that lag between neighbouring tenths is
 * what the limiter loses. Tenths in which the event loop stood still are left out.
 */
export function driftOf(
  grants: readonly number[],
  perSecond: number,
  calm: (from: number, to: number) => boolean,
): Drift {
  let drift = 0;
  let calmMs = 0;
  let before: { at: number; lag: number } | undefined;
  for (const least of leastLags(grants, 1000 / perSecond)) {
    if (before !== undefined && calm(before.at - TENTH_MS, least.at + TENTH_MS)) {
      drift += least.lag - before.lag;
      calmMs += least.at - before.at;
    }
    before = least;
  }
  return { error: (calmMs - drift) / calmMs - 1, calmMs };
}

const TENTH_MS = 100;

function leastLags(grants: readonly number[], interval: number): { at: number; lag: number }[] {
  const [first = Number.NaN] = grants;
  const least = new Map<number, { at: number; lag: number }>();
  grants.forEach((at, i) => {
    const tenth = Math.floor((at - first) / TENTH_MS);
    const lag = at - first - i * interval;
    if (lag < (least.get(tenth)?.lag ?? Infinity)) least.set(tenth, { at, lag });
  });
  return [...least.values()];
}

/** Returns the most grants in any window of `windowMs` in which the event loop was not blocked. */
export function mostIn(
  windowMs: number,
  grants: readonly number[],
  calm: (from: number, to: number) => boolean,
): number {
  let most = 0;
  let from = 0;
  grants.forEach((at, i) => {
    while (at - (grants[from] ?? at) >= windowMs) from += 1;
    if (i - from + 1 > most && calm(at - windowMs, at)) most = i - from + 1;
  });
  return most;
}
