/**
 * How used permits come back, for limits that are divided among processes. Apart from the algorithms, so that limiters
 * that are not divided do not load it. An algorithm that is not named here gives them back at a rate.
 */
import type { Policy } from "./algorithm.ts";
import { fixedWindowAlgorithm } from "./fixed-window/fixed-window.ts";
import { steppedBucket } from "./token-bucket/token-bucket.ts";

/** Each used permit comes back a fixed time after it was used. */
const dated: ReadonlySet<string> = new Set(["sliding-log", "sliding-window"]);

/** They come back at certain instants: how to make these the same in all states, those of the calendar. */
const gridded = new Map<string, (numbers: readonly number[]) => Policy>([
  // without the third number, `align`
  [fixedWindowAlgorithm.name, (numbers) => fixedWindowAlgorithm.policy(numbers.slice(0, 2))],
  [steppedBucket.name, (numbers) => steppedOnGrid.policy(numbers)],
]);

const steppedOnGrid: typeof steppedBucket = {
  ...steppedBucket,

  policy(numbers) {
    return Object.freeze({ ...steppedBucket.policy(numbers), algorithm: steppedOnGrid });
  },

  // A full bucket gains nothing by an earlier step. Another one goes to the nearest: it is on the grid, but for a clock
  // that was adjusted or an `every` that has changed.
  align(policy, state, epoch) {
    const steps = (epoch + state.since) / policy.every;
    const step = state.tokens >= policy.capacity ? Math.floor(steps) : Math.round(steps);
    state.since = step * policy.every - epoch;
  },
};

export function isDated({ algorithm }: Policy): boolean {
  return dated.has(algorithm.name);
}

/** Whether permits come back at certain instants, rather than at a rate. */
export function hasInstants(policy: Policy): boolean {
  return isDated(policy) || gridded.has(policy.algorithm.name);
}

/** Returns the policy with its steps or windows at instants of the calendar, if it has any. */
export function onGrid(policy: Policy): Policy {
  return gridded.get(policy.algorithm.name)?.(policy.numbers) ?? policy;
}
