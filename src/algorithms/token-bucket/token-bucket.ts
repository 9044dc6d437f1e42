/**
 * The token bucket: `refill` tokens are added every `every` microseconds, at most `capacity` are kept,
 * and a request for n is granted as soon as n are available.
 *
 * There are two ways to refill. *Continuously*, as Go's x/time/rate does: that is GCRA under another
 * name, and its policy is made by gcra.ts. Or in *steps*: the whole refill at the end of each interval
 * and nothing in between, as in most scripts for Redis or an allowance that is paid out by the hour.
 * This file implements the second.
 *
 *   capacity +--.        .--        tokens(t) = min(capacity, tokens + k x refill)
 *            |  |     .--'                 k = floor((t - since) / every)
 *            |  |  .--'             n are granted at t if n <= tokens(t)
 *          0 +--+--'-------> t      n are available at since + j x every, j the least that gives n
 *
 * The steps form a grid that begins when the limiter is created, independent of the requests; `since`
 * is a point of that grid. The bucket starts full. Tokens below 0 are a debt. For instants before
 * `since` the steps continue downwards: a request at an earlier instant than one already promised finds
 * fewer tokens there, never more.
 *
 * Worked example, capacity 5, refill 2 every second: 5 are granted at 0 s. At 0.999999 s none can be
 * granted, at 1 s two are. Then a request for 4 arrives: at 2 s 2 are available, at 3 s 4, so it is
 * granted at 3 s.
 *
 * Bound. In any interval of t microseconds at most capacity + ceil(t / every) x min(refill,
 * capacity). Charges come on top.
 *
 * Where it is inexact. An interval is a whole number of microseconds, at least one and at most 2^52
 * (142 years): it is rounded. Tokens are doubles, counted from the last time that the bucket was
 * full, so that the rounding of a refill of 0.1 does not accumulate. `token-bucket.lua` is the Lua twin
 * of this file.
 */
import { aboveZero, checkBoolean, checkNumber, checkNumbers } from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { DEEP, FAR, LARGEST } from "../constants.ts";
import { firstWhole } from "../first-whole.ts";
import { type GcraPolicy, gcraAlgorithm } from "../gcra/gcra.ts";

/** What `tokenBucket` returns with `stepped: true`. */
export interface SteppedBucketPolicy extends Policy {
  /** The most tokens that are kept. */
  readonly capacity: number;
  /** How many tokens are added at each step. */
  readonly refill: number;
  /** Whole microseconds from step to step. */
  readonly every: number;
}

export interface SteppedBucketState {
  /** The instant of a past step, or of a future one if tokens were promised for it. */
  since: number;
  /** The tokens after that step; below 0: a debt. */
  tokens: number;
}

export const steppedBucket: Algorithm<SteppedBucketPolicy, SteppedBucketState> = {
  name: "token-bucket",
  code: "t",
  inOrder: true,
  permitsAt: [0, 1],

  policy(numbers) {
    const [capacity = 1, refill = 1, everyMs = 1000] = numbers;
    const every = Math.max(1, Math.min(FAR, Math.floor(everyMs * 1000 + 0.5)));
    return Object.freeze({ algorithm: steppedBucket, numbers, capacity, refill, every });
  },

  start: (policy, now) => ({ since: now, tokens: policy.capacity }),

  copy: (state) => ({ since: state.since, tokens: state.tokens }),

  shift(state, by) {
    state.since += by;
  },

  earliest(policy, state, from, permits) {
    if (permits > policy.capacity) return Infinity;
    if (permits <= tokensAt(policy, state, from)) return from;
    const steps = firstStep(policy, state, from, permits);
    return Math.max(from, Math.min(LARGEST, state.since + steps * policy.every));
  },

  take(policy, state, at, permits) {
    const full = sumAt(policy, state, at) >= policy.capacity;
    if (full || state.tokens < DEEP) anchor(policy, state, at);
    state.tokens = Math.max(-LARGEST, state.tokens - permits);
    return 0;
  },

  giveBack(policy, state, now, permits) {
    state.tokens = Math.min(LARGEST, state.tokens + permits);
    if (sumAt(policy, state, now) > policy.capacity) anchor(policy, state, now);
  },

  bound: ({ capacity, refill, every }, micros) =>
    capacity + Math.ceil(micros / every) * Math.min(refill, capacity),

  quota(policy, state, now): Quota {
    const { capacity, refill, every } = policy;
    return {
      limit: capacity,
      remaining: Math.max(0, tokensAt(policy, state, now)),
      resetMs: toMillis(untilFull(policy, state, now)),
      // a step adds at most `capacity`, also if the refill is larger
      windowMs: Math.min(LARGEST, (capacity / Math.min(refill, capacity)) * every) / 1000,
    };
  },

  deficit(policy, state, now) {
    return Math.min(LARGEST, policy.capacity - tokensAt(policy, state, now));
  },

  lifetime: untilFull,

  // available tokens keep their share of the capacity, the current step keeps its share of the interval,
  // and a debt stays the same
  resize(policy, state, now, before) {
    const { capacity, refill, every } = policy;
    const sameCapacity = capacity === before.capacity;
    if (sameCapacity && refill === before.refill && every === before.every) return;
    anchor(before, state, now);
    if (state.tokens > 0 && !sameCapacity) {
      state.tokens = Math.min(capacity, (state.tokens / before.capacity) * capacity);
    }
    if (every !== before.every) {
      const share = Math.max(0, Math.min(1, (now - state.since) / before.every));
      state.since = now - Math.min(every - 1, Math.floor(share * every));
    }
  },
};

/** Returns the whole steps from `since` to `at`; below 0 if `at` is earlier. */
function stepsAt(policy: SteppedBucketPolicy, state: SteppedBucketState, at: number): number {
  return Math.floor((at - state.since) / policy.every);
}

/** The tokens that would be available if the capacity did not limit them. */
function sumAt(policy: SteppedBucketPolicy, state: SteppedBucketState, at: number): number {
  return sumAfter(policy, state, stepsAt(policy, state, at));
}

function sumAfter(policy: SteppedBucketPolicy, state: SteppedBucketState, steps: number): number {
  return state.tokens + steps * policy.refill;
}

function tokensAt(policy: SteppedBucketPolicy, state: SteppedBucketState, at: number): number {
  return Math.min(policy.capacity, sumAt(policy, state, at));
}

/** Returns the first step after `from` with enough tokens, counted from `since`; `from` has too few. */
function firstStep(
  policy: SteppedBucketPolicy,
  state: SteppedBucketState,
  from: number,
  wanted: number,
): number {
  const near = Math.ceil((wanted - state.tokens) / policy.refill);
  const hit = sumAfter(policy, state, near) >= wanted && sumAfter(policy, state, near - 1) < wanted;
  // beyond FAR, neighbouring steps cannot be distinguished as doubles
  if (hit || near >= FAR) return near;
  // the division was rounded to a wrong step
  const begun = stepsAt(policy, state, from);
  return firstWhole(begun, (steps) => sumAfter(policy, state, steps) >= wanted);
}

/** Sets `since` to the last step at or before `at`. */
function anchor(policy: SteppedBucketPolicy, state: SteppedBucketState, at: number): void {
  const steps = stepsAt(policy, state, at);
  state.tokens = Math.max(-LARGEST, tokensAt(policy, state, at));
  state.since = Math.max(-LARGEST, Math.min(LARGEST, state.since + steps * policy.every));
}

function untilFull(policy: SteppedBucketPolicy, state: SteppedBucketState, now: number): number {
  return steppedBucket.earliest(policy, state, now, policy.capacity) - now;
}

/**
 * Creates a policy that grants tokens from a bucket: `refill` tokens are added every `everyMs`, and at
 * most `capacity` are kept. The bucket starts full.
 *
 * @param numbers.capacity the most tokens that are kept, and the largest request; a finite number
 *   above 0
 * @param numbers.refill how many tokens are added in an interval, whole or not; a finite number above 0
 * @param numbers.everyMs the interval, ms; a finite number above 0
 * @param numbers.stepped whether all tokens are added at once at the end of each interval, which is then
 *   rounded to whole microseconds; default false: evenly
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(tokenBucket({ capacity: 100, refill: 10, everyMs: 1000 }));
 */
export function tokenBucket(numbers: TokenBucketNumbers & { stepped: true }): SteppedBucketPolicy;
export function tokenBucket(numbers: TokenBucketNumbers & { stepped?: false }): GcraPolicy;
export function tokenBucket(numbers: TokenBucketNumbers): TokenBucketPolicy;
export function tokenBucket(numbers: TokenBucketNumbers): TokenBucketPolicy {
  checkNumbers("tokenBucket", numbers, ["capacity", "refill", "everyMs", "stepped"]);
  const capacity = checkNumber("capacity", numbers.capacity, aboveZero);
  const refill = checkNumber("refill", numbers.refill, aboveZero);
  const everyMs = checkNumber("everyMs", numbers.everyMs, aboveZero);
  const { stepped = false } = numbers;
  return checkBoolean("stepped", stepped)
    ? steppedBucket.policy([capacity, refill, everyMs])
    : gcraAlgorithm.policy([capacity, refill, everyMs]);
}

/** What `tokenBucket` returns. */
export type TokenBucketPolicy = GcraPolicy | SteppedBucketPolicy;

interface TokenBucketNumbers {
  readonly capacity: number;
  readonly refill: number;
  readonly everyMs: number;
  readonly stepped?: boolean;
}
