/**
 * GCRA, the generic cell rate algorithm of ATM networks. The leaky bucket, and the token bucket that
 * refills continuously, are the same maths under other names.
 *
 * Guarantee. `permits` come back evenly in `per` microseconds, one every T = per / permits, and at most
 * `capacity` are available at once. A request for n is granted as soon as n are available. So a fresh
 * limiter grants a burst of `capacity`, then one permit every T, for any pattern of arrivals.
 *
 * The standard (ITU-T I.371) defines two forms and shows that they are equivalent. *Virtual scheduling*
 * keeps the theoretical arrival time: TAT = max(TAT, t) + nT, and a request at t conforms if
 * TAT <= t + (capacity - n)T. The *leaky bucket* keeps a level and the instant at which it was valid.
 * Counted as available permits, x = capacity - (TAT - t) / T:
 *
 *   capacity +-----.     .---        x(t) = min(capacity, level + (t - since) x permits / per)
 *            |     |    /            n are granted at t if n <= x(t)
 *            |     |  .'             n are available at t = since + (n - level) x per / permits
 *            |     | /               TAT = since + (capacity - level) x per / permits
 *          0 +-----+'-------> t
 *
 * This file uses the second form: `level` permits at `since`. A TAT adds up T, which is not exact as a
 * double at 7 permits a second, for example, so the seventh permit of a burst could be a microsecond
 * late. A level counts permits one by one, and `since` stays at the instant at which the bucket was last
 * full: both are whole numbers, so the arithmetic is exact. A level below 0 is a debt. For instants
 * before `since` the line continues downwards: a request at an earlier instant than one already promised
 * finds fewer permits there, never more.
 *
 * Worked example, redis-cell's `15 30 60 1`: capacity 16, 30 permits in 60 s, T = 2 s. On a fresh
 * key 16 are granted at 0 s, and the level is 0. At 1 s half a permit is available: the wait is 1 s. If
 * no request arrives until 7 s, 3.5 are available: 3 are granted at once, the fourth waits 1 s. The
 * bucket is full 32 s after the last one.
 *
 * With `waiting` the algorithm is the leaky bucket as a queue. A request for more than the capacity is
 * then lent permits: it is granted when the bucket is full, the level falls below 0, and the requests
 * after it wait until the debt is paid. The level never falls below -waiting: a request that would lower
 * it further is rejected and does not wait. See leaky-bucket.ts.
 *
 * Bound. In any interval of t microseconds at most capacity + t x permits / per, and `waiting` more
 * where it lends. Charges come on top, since they are taken unconditionally.
 *
 * Where it is inexact. Levels and instants are doubles. While permits are whole, the debt is below 2^20
 * and time x rate is below 2^53, only the returned instants are rounded: by less than a microsecond, and
 * never to an instant at which the permits are not available. Otherwise the last bits of the level are
 * rounded too. `gcra.lua` is the Lua twin of this file.
 */
import { aboveZero, atLeastZero, checkNumber, checkNumbers } from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { DEEP, FAR, HOUR, LARGEST } from "../constants.ts";
import { firstWhole } from "../first-whole.ts";

/** What `gcra`, `leakyBucket` and a `tokenBucket` without steps return. */
export interface GcraPolicy extends Policy {
  /** The most permits that are available at once. */
  readonly capacity: number;
  /** How many permits come back in `per` microseconds. */
  readonly permits: number;
  readonly per: number;
  /** The largest request that can ever be granted. */
  readonly largest: number;
  /** How many permits of the capacity a new limiter lacks. */
  readonly slack: number;
}

export interface GcraState {
  /** The instant for which `level` is valid: when the bucket was last known to be full. */
  since: number;
  /** The permits that were available at that instant; below 0: a debt. */
  level: number;
}

export const gcraAlgorithm: Algorithm<GcraPolicy, GcraState> = {
  name: "gcra",
  code: "g",
  inOrder: true,
  permitsAt: [0, 1, 3, 4],

  policy(numbers) {
    const [size = 1, permits = 1, perMs = 1000, waiting, slack = 0] = numbers;
    const capacity = Math.min(LARGEST, size);
    const policy = {
      algorithm: gcraAlgorithm,
      numbers,
      capacity,
      permits,
      per: Math.min(LARGEST, perMs * 1000),
      largest: capacity + (waiting ?? 0),
      slack,
    };
    return Object.freeze(waiting === undefined ? policy : { ...policy, maxWaiting: waiting });
  },

  start: (policy, now) => ({ since: now, level: policy.capacity - policy.slack }),

  copy: (state) => ({ since: state.since, level: state.level }),

  shift(state, by) {
    state.since += by;
  },

  earliest(policy, state, from, permits) {
    if (permits > policy.largest) return Infinity;
    const wanted = Math.min(permits, policy.capacity);
    if (wanted <= lineAt(policy, state, from)) return from;
    const wait = scale(wanted - state.level, policy.per, policy.permits);
    const at = Math.min(LARGEST, state.since + wait);
    return Math.abs(at) < FAR ? settled(policy, state, from, wanted, at) : Math.max(from, at);
  },

  take(policy, state, at, permits) {
    const line = lineAt(policy, state, at);
    if (line > policy.capacity || state.level < DEEP) anchor(policy, state, at, line);
    state.level = Math.max(-LARGEST, state.level - permits);
    return 0;
  },

  giveBack(policy, state, now, permits) {
    state.level = Math.min(LARGEST, state.level + permits);
    const line = lineAt(policy, state, now);
    if (line > policy.capacity) anchor(policy, state, now, line);
  },

  overflows(policy, state, now, permits) {
    const { maxWaiting } = policy;
    return maxWaiting !== undefined && levelAt(policy, state, now) - permits < -maxWaiting;
  },

  bound: ({ largest, permits, per }, micros) => largest + (micros * permits) / per,

  quota(policy, state, now): Quota {
    const { capacity, per, permits } = policy;
    return {
      limit: capacity,
      remaining: Math.max(0, levelAt(policy, state, now)),
      resetMs: toMillis(untilFull(policy, state, now)),
      windowMs: Math.min(LARGEST, scale(capacity, per, permits)) / 1000,
    };
  },

  deficit(policy, state, now) {
    return Math.min(LARGEST, policy.capacity - levelAt(policy, state, now));
  },

  // a new state may begin with less, so a full bucket is kept for an hour longer
  lifetime(policy, state, now) {
    return untilFull(policy, state, now) + (policy.slack > 0 ? HOUR : 0);
  },

  // available permits keep their share of the capacity; a debt takes as long to pay as before
  resize(policy, state, now, before) {
    const { capacity, per, permits } = policy;
    const sameCapacity = capacity === before.capacity;
    const samePace = per === before.per && permits === before.permits;
    if (sameCapacity && samePace) return;
    anchor(before, state, now, lineAt(before, state, now));
    if (state.level >= 0) {
      if (sameCapacity) return;
      state.level = Math.min(capacity, scale(state.level, capacity, before.capacity));
    } else if (!samePace) {
      const deficit = Math.max(-LARGEST, scale(state.level, before.per, before.permits));
      state.level = Math.max(-LARGEST, scale(deficit, permits, per));
    }
  },
};

/** Returns value x by / over, also where the product exceeds the largest double. */
function scale(value: number, by: number, over: number): number {
  const product = value * by;
  return Math.abs(product) < Infinity ? product / over : (value / over) * by;
}

/** The permits that would be available if the capacity did not limit them. */
function lineAt(policy: GcraPolicy, state: GcraState, at: number): number {
  return state.level + scale(at - state.since, policy.permits, policy.per);
}

function levelAt(policy: GcraPolicy, state: GcraState, at: number): number {
  return Math.min(policy.capacity, lineAt(policy, state, at));
}

/** Sets `since` to `at` and the level to that of `at`. */
function anchor(policy: GcraPolicy, state: GcraState, at: number, line: number): void {
  state.since = at;
  state.level = Math.max(-LARGEST, Math.min(policy.capacity, line));
}

function untilFull(policy: GcraPolicy, state: GcraState, now: number): number {
  return gcraAlgorithm.earliest(policy, state, now, policy.capacity) - now;
}

/**
 * Returns the instant `at`, corrected for rounding: the permits are available then, and at no earlier
 * whole microsecond. The fraction is kept: rounding up would slow down a caller that takes many permits
 * in a microsecond.
 */
function settled(
  policy: GcraPolicy,
  state: GcraState,
  from: number,
  wanted: number,
  at: number,
): number {
  const whole = Math.ceil(at);
  const early = lineAt(policy, state, whole - 1) >= wanted;
  if (!early && lineAt(policy, state, at) >= wanted) return at;
  if (early || lineAt(policy, state, whole) < wanted) {
    return firstWhole(from, (micros) => lineAt(policy, state, micros) >= wanted);
  }
  return nextDouble(policy, state, at, whole, wanted);
}

/** Steps on from `at`, in growing steps up to `whole`, to an instant with enough permits. */
function nextDouble(
  policy: GcraPolicy,
  state: GcraState,
  at: number,
  whole: number,
  wanted: number,
): number {
  let near = at;
  let step = Math.max(1, Math.abs(at)) * Number.EPSILON;
  while (near < whole && lineAt(policy, state, near) < wanted) {
    near += step;
    step *= 2;
  }
  return Math.min(near, whole);
}

/**
 * Creates a policy with the generic cell rate algorithm, in redis-cell's terms: permits come back
 * evenly, one every `periodMs / limit`, and up to `burst + 1` may be granted at once.
 *
 * @param numbers.limit how many permits come back in a period; a finite number above 0
 * @param numbers.periodMs the period, ms; a finite number above 0
 * @param numbers.burst how many permits may be granted at once beyond the one that is due; 0 or more,
 *   default `limit - 1` (0 for a limit below 1). A new limiter grants `burst + 1` at once; no request
 *   may be larger
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(gcra({ limit: 30, periodMs: 60_000, burst: 15 }));
 */
export function gcra(numbers: {
  readonly limit: number;
  readonly periodMs: number;
  readonly burst?: number;
}): GcraPolicy {
  checkNumbers("gcra", numbers, ["limit", "periodMs", "burst"]);
  const limit = checkNumber("limit", numbers.limit, aboveZero);
  const periodMs = checkNumber("periodMs", numbers.periodMs, aboveZero);
  const { burst = Math.max(0, limit - 1) } = numbers;
  const capacity = checkNumber("burst", burst, atLeastZero) + 1;
  const limitAt = numbers.burst === undefined ? [0, 1] : [1];
  return Object.freeze({ ...gcraAlgorithm.policy([capacity, limit, periodMs]), limitAt });
}
