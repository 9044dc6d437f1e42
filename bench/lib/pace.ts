/** Workers that ask again as soon as they are let in, and when that was. */

export type Wait = () => Promise<unknown>;

export interface Load {
  readonly wait: Wait;
  readonly workers: number;
  /** ms until what is stored is spent, or a warm-up is over; what happens before is not looked at. */
  readonly settleMs: number;
  /** ms that are looked at. */
  readonly forMs: number;
}

/** The instants at which somebody was let in, ms. */
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
  /** By how much the mean rate is off, as a share: 0.001 is 0.1 % fast. */
  readonly error: number;
  /** ms that went into it. */
  readonly calmMs: number;
}

/**
 * The mean rate, without the ends and without the machine. Each grant is set against an ideal schedule from the first one on, and in every tenth of a second
 * the one that lags least behind it counts: the others were held up by a timer, which is no rate. What that lag grows by, from the first to the
 * last of all neighbouring tenths in which the machine was calm, is what the limiter loses.
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

/** The most grants in any window of so many ms in which the machine was calm. */
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
