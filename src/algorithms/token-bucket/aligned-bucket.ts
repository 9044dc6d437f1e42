/**
 * The stepped bucket as stores and divided limits have it: with a fourth number, 1, its steps are those of the calendar.
 * Apart from token-bucket.ts, so that limiters in one process do not load it.
 */
import { steppedBucket } from "./token-bucket.ts";

export const alignedBucket: typeof steppedBucket = {
  ...steppedBucket,

  policy(numbers) {
    return Object.freeze({ ...steppedBucket.policy(numbers), algorithm: alignedBucket });
  },

  // A full bucket gains nothing by an earlier step. Another one goes to the nearest: it is on the grid, but for a clock
  // that was adjusted or an `every` that has changed.
  align({ numbers, capacity, every }, state, epoch) {
    if (numbers[3] !== 1) return;
    const steps = (epoch + state.since) / every;
    const step = state.tokens >= capacity ? Math.floor(steps) : Math.floor(steps + 0.5);
    state.since = step * every - epoch;
  },
};
