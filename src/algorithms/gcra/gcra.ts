/**
 * GCRA, the generic cell rate algorithm of ATM networks; the leaky bucket and the token bucket that
 * refills continuously are the same maths under other names.
 *
 * What it promises. `permits` come back evenly in `per` microseconds, one every T = per / permits,
 * and at most `capacity` are there at once. A request for n goes as soon as n are there. So a fresh
 * limiter lets a burst of `capacity` through, then one permit every T, whatever the arrivals.
 *
 * The standard (ITU-T I.371) has it in two forms and shows that they are one. *Virtual scheduling*
 * keeps the theoretical arrival time: TAT = max(TAT, t) + nT, and who comes at t conforms if
 * TAT <= t + (capacity - n)T. The *leaky bucket* keeps a level and when it was right. Seen from
 * above, with x = capacity - (TAT - t) / T permits there:
 *
 *   capacity +-----.     .---        x(t) = min(capacity, level + (t - since) x permits / per)
 *            |     |    /            n go at t if n <= x(t)
 *            |     |  .'             n could go at t = since + (n - level) x per / permits
 *            |     | /               TAT = since + (capacity - level) x per / permits
 *          0 +-----+'-------> t
 *
 * We keep the second form: `level` permits at `since`. Where a TAT adds up T, which is no double
 * for 7 a second, so that the seventh permit of a burst may come a microsecond late, a level counts
 * permits one by one, and since stays where the bucket was last full: both are whole numbers and
 * everything is exact. A level below 0 is owed. Before `since` the line goes on downwards, so that
 * who asks for an earlier time than somebody was promised finds less there, and never more.
 *
 * Worked example, redis-cell's `15 30 60 1`: capacity 16, 30 permits in 60 s, T = 2 s. On a fresh
 * key 16 go at 0 s, and the level is 0. Asked at 1 s, half a permit is there: wait 1 s. Idle until 7
 * s: 3.5 are there, 3 go at once, the fourth waits 1 s. 32 s after the last one it is full.
 *
 * With `waiting` it is the leaky bucket that is a queue. Then a request of more than the capacity
 * is lent to: it goes when the bucket is full of permits, the level falls below 0, and the next
 * ones pay. The level never falls below -waiting: who would make it so is refused instead of let
 * wait. See leaky-bucket.ts.
 *
 * Bound. In any interval of t microseconds at most capacity + t x permits / per, and where it
 * lends, `waiting` more. Charges, which ask nobody, come on top.
 *
 * Where it is inexact. Levels and instants are doubles. While permits are whole and below 2^20 are
 * owed, and time x rate below 2^53, only the instants that are told are rounded, by less than a
 * microsecond and never to one at which the permits are not there; else the last bits of the level
 * are. `gcra.lua` is this file once more.
 */
import { aboveZero, atLeastZero, checkNumber, checkNumbers } from "../../check.ts";
import { toMillis } from "../../clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";

export interface GcraPolicy extends Policy {
  /** The most permits that are there at once. */
  readonly capacity: number;
  /** So many permits come back in `per` microseconds. */
  readonly permits: number;
  readonly per: number;
  /** The largest request that can ever pass. */
  readonly largest: number;
  /** How many of the capacity a new limiter lacks. */
  readonly slack: number;
}

export interface GcraState {
  /** The instant of the level: when it was last known to be full. */
  since: number;
  /** The permits that were there then; below 0: owed. */
  level: number;
}

const HOUR = 3600 * 1_000_000;
/** Beyond it nobody's clock tells single microseconds. */
const FAR = 2 ** 52;
/** A level lower than this loses digits: it is told anew, as of a later instant. */
const DEEP = -(2 ** 20);
/**
 * Products of huge numbers stop here: `Infinity` would mean "never", and Infinity - Infinity is not
 * a number.
 */
const LARGEST = Number.MAX_VALUE;

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
    if (wanted <= levelAt(policy, state, from)) return from;
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

  owed(policy, state, now) {
    return Math.min(LARGEST, policy.capacity - levelAt(policy, state, now));
  },

  // a new one may begin with less: a full bucket is worth something for an hour more
  lifetime(policy, state, now) {
    return untilFull(policy, state, now) + (policy.slack > 0 ? HOUR : 0);
  },

  // what is there keeps its share of the capacity; what is owed stays owed as long as it was
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
      const owed = Math.max(-LARGEST, scale(state.level, before.per, before.permits));
      state.level = Math.max(-LARGEST, scale(owed, permits, per));
    }
  },
};

/** Value x by / over, also where the product is beyond the doubles. */
function scale(value: number, by: number, over: number): number {
  const product = value * by;
  return Math.abs(product) < Infinity ? product / over : (value / over) * by;
}

/** The permits that would be there without a capacity. */
function lineAt(policy: GcraPolicy, state: GcraState, at: number): number {
  return state.level + scale(at - state.since, policy.permits, policy.per);
}

function levelAt(policy: GcraPolicy, state: GcraState, at: number): number {
  return Math.min(policy.capacity, lineAt(policy, state, at));
}

/** From now on the level is that of `at`. */
function anchor(policy: GcraPolicy, state: GcraState, at: number, line: number): void {
  state.since = at;
  state.level = Math.max(-LARGEST, Math.min(policy.capacity, line));
}

function untilFull(policy: GcraPolicy, state: GcraState, now: number): number {
  return gcraAlgorithm.earliest(policy, state, now, policy.capacity) - now;
}

/**
 * The instant `at`, put right where rounding has moved it: the permits are there then, and at no
 * earlier whole microsecond. Its fraction stays: rounded up, it would slow down who takes many
 * permits in a microsecond.
 */
function settled(
  policy: GcraPolicy,
  state: GcraState,
  from: number,
  wanted: number,
  at: number,
): number {
  const whole = Math.ceil(at);
  const early = levelAt(policy, state, whole - 1) >= wanted;
  if (!early && levelAt(policy, state, at) >= wanted) return at;
  if (early || levelAt(policy, state, whole) < wanted) {
    return firstWhole(policy, state, from, wanted);
  }
  return nextDouble(policy, state, at, whole, wanted);
}

/** The first of growing steps from `at`, and at the latest `whole`, at which they are there. */
function nextDouble(
  policy: GcraPolicy,
  state: GcraState,
  at: number,
  whole: number,
  wanted: number,
): number {
  let near = at;
  let step = Math.max(1, Math.abs(at)) * Number.EPSILON;
  while (near < whole && levelAt(policy, state, near) < wanted) {
    near += step;
    step *= 2;
  }
  return Math.min(near, whole);
}

/** The first whole microsecond after `from`, when they are not there, at which they are. */
function firstWhole(policy: GcraPolicy, state: GcraState, from: number, wanted: number): number {
  let early = from;
  let late = Math.floor(from) + 1;
  for (let step = 1; levelAt(policy, state, late) < wanted; step *= 2) {
    early = late;
    late += step;
  }
  for (;;) {
    const middle = Math.floor((early + late) / 2);
    if (middle <= early || middle >= late) return late;
    if (levelAt(policy, state, middle) < wanted) early = middle;
    else late = middle;
  }
}

/**
 * A policy by the generic cell rate algorithm, as redis-cell has it: permits come back evenly, one
 * every `periodMs / limit`, and `burst` more than one may go at once.
 *
 * @param numbers.limit how many permits come back in a period; a finite number above 0
 * @param numbers.periodMs the period, ms; a finite number above 0
 * @param numbers.burst how many permits may go at once beyond the one that is due; 0 or more,
 *   default `limit - 1` (0 for a limit below 1). A new limiter lets `burst + 1` through at once;
 *   no request may be larger
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError that names the argument, its bound and what it got
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
