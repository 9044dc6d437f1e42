/**
 * Smooth bursty and smooth warming up: Guava's RateLimiter.
 *
 * Guarantee. A limiter of r permits a second grants one permit every 1/r seconds. It does not store past
 * requests, only the instant at which the *next* request may be granted: `nextFree`. A request of any
 * size is granted at nextFree, and its size moves nextFree on: a large request is granted at once, and
 * the request after it waits for it (prepayment). Idle time is not lost: it is kept as `stored` permits,
 * up to `max`.
 *
 * The two limiters differ in the cost of a stored permit. Unused time may mean that there is spare
 * capacity, so that stored permits should be granted fast; or that the server has gone cold (caches,
 * pools, JIT) and should get less than its full load at first. So a stored permit has a price in time:
 *
 *   bursty       0: stored permits are granted at once. max = r x burstSeconds.
 *   warming up   the more permits are stored, the colder the server and the higher the price of a
 *                permit, up to coldFactor intervals.
 *
 * The price of a warming-up limiter, over the number of permits stored:
 *
 *      interval
 *          ^
 *     cold +                        /    cold = coldFactor x stable
 *          |                       /.
 *          |                      / .    the area to the right of the threshold is the warm-up: the
 *          |                     /  .    time that it takes to go from max to threshold
 *          |                    /   .
 *   stable +-------------------/ w  .
 *          |                   . a  .
 *          |                   . r  .
 *          |                   . m  .
 *        0 +-------------------+----+----> stored permits
 *          0           threshold    max
 *
 * Taking k permits from a store of s costs the area under the line between s - k and s, which is the
 * integral of an interval per permit. Two conditions determine the line: warming up from max to
 * threshold takes `warmup`, and going on from threshold to 0 takes half of it. So
 *
 *   threshold x stable = warmup / 2                          ->  threshold = warmup / (2 x stable)
 *   (max - threshold) x (stable + cold) / 2 = warmup         ->  max = threshold + 2 x warmup / (stable + cold)
 *   slope = (cold - stable) / (max - threshold)
 *
 * An idle warming-up limiter cools down to max in `warmup`: it stores one permit every warmup / max. A
 * bursty limiter stores one every `stable`.
 *
 * Worked example, bursty, 2 a second. An acquire at 0 s is granted at once, nextFree = 0.5. The limiter
 * is idle until 5.5 s: the time of 10 permits has passed, and 2 are stored. Four requests arrive: two
 * are granted from the store at no cost; the third takes a fresh permit, is granted at once and moves
 * nextFree to 6.0; the fourth waits 0.5 s.
 *
 * Worked example, 5 a second with a warm-up of 1 s: stable 0.2, cold 0.6, threshold 2.5, max 5,
 * slope 0.16. Cold, six requests wait 0, .52, .36, .22, .2, .2 s: the first costs the area between
 * 4 and 5 = (0.44 + 0.6) / 2 = .52, which the second waits for.
 *
 * Bound. In any interval of t seconds, a bursty limiter grants at most max + r x t permits and one
 * more request of any size (the one that is granted before it is paid for). A warming-up limiter grants
 * at most r x t and one request, because stored permits cost `stable` or more.
 *
 * Where it is inexact. It is as exact as doubles: instants and permits keep their fractions (Guava
 * truncates each cost to whole microseconds, which is 4 % fast at 80 000 a second and no limit at all
 * above 1 000 000). Intervals are limited to the largest double.
 *
 * The maths is that of Guava's SmoothRateLimiter (Apache-2.0), by Dimitris Andreou. `smooth.lua` is
 * the Lua twin of this file.
 */
import {
  aboveZero,
  aboveZeroOrInfinity,
  atLeastOne,
  atLeastZero,
  checkBoolean,
  checkNumber,
  checkNumbers,
} from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { HOUR, LARGEST, SECOND } from "../constants.ts";

/** What `smoothBursty` and `smoothWarmingUp` return: Guava's smooth limiters. */
export interface SmoothPolicy extends Policy {
  readonly permitsPerSecond: number;
  /** Whether stored permits have a price in time; with a bursty policy they are free. */
  readonly warmingUp: boolean;
  /** Whether a new limiter begins with a full store, as after a long idle time. */
  readonly prefilled: boolean;
  /** Microseconds between permits at the full rate; 0 at an infinite rate. */
  readonly stable: number;
  /** Microseconds of idleness that store one permit. */
  readonly coolDown: number;
  /** The most permits that are stored; 0 at an infinite rate, which needs none. */
  readonly max: number;
  /** Up to this many stored permits the price of a permit is `stable`. */
  readonly threshold: number;
  /** Microseconds by which the price rises with each permit above the threshold. */
  readonly slope: number;
}

/** The numbers of both kinds, but for the rate. */
interface SmoothNumbers {
  readonly warmupMs?: number | undefined;
  readonly coldFactor?: number | undefined;
  readonly burstSeconds?: number | undefined;
  readonly prefilled?: boolean | undefined;
}

export interface SmoothState {
  /** The instant at which the next request of any size may be granted. */
  nextFree: number;
  /** Permits saved up in idle time. */
  stored: number;
}

export const smooth: Algorithm<SmoothPolicy, SmoothState> = {
  name: "smooth",
  code: "s",
  inOrder: true,
  // max and threshold are products of a time and the rate, so they scale with the rate
  permitsAt: [0],

  policy([permitsPerSecond = 1, warmupMs = 0, factor, prefilled = 0]) {
    return warmupMs === 0
      ? bursty(permitsPerSecond, factor, prefilled === 1)
      : warmingUp(permitsPerSecond, warmupMs, factor);
  },

  start: (policy, now) => ({ nextFree: now, stored: policy.prefilled ? policy.max : 0 }),

  copy: (state) => ({ nextFree: state.nextFree, stored: state.stored }),

  shift(state, by) {
    state.nextFree += by;
  },

  earliest(_policy, state, from) {
    return from > state.nextFree ? from : state.nextFree;
  },

  take(policy, state, at, permits) {
    resync(policy, state, at);
    const fromStore = permits < state.stored ? permits : state.stored;
    const cost = price(policy, state.stored, fromStore) + (permits - fromStore) * policy.stable;
    state.nextFree = Math.min(LARGEST, state.nextFree + cost);
    state.stored -= fromStore;
    return fromStore;
  },

  // nextFree may then lie in the past: the next resync turns that time into stored permits, as many as
  // there is room for
  giveBack(policy, state, _now, permits, receipt = 0) {
    // the receipt of another algorithm, under which the name was used before, may be any number
    const fromStore = Math.min(permits, receipt);
    state.stored = Math.min(policy.max, state.stored + fromStore);
    const fresh = (permits - fromStore) * policy.stable;
    state.nextFree -= price(policy, state.stored, fromStore) + fresh;
  },

  // stored like unused time; not with a warm-up, where stored permits cost at least as much as fresh ones
  keep(policy, state, permits) {
    if (!policy.warmingUp) state.stored = Math.min(policy.max, state.stored + permits);
  },

  // stored permits cost nothing here: the warm-up time has passed already
  settle(policy, state, now, permits) {
    smooth.take({ ...policy, warmingUp: false }, state, now, permits);
  },

  bound({ stable, warmingUp, max }, micros, largest) {
    if (stable === 0) return Infinity;
    return (warmingUp ? 0 : max) + micros / stable + largest;
  },

  quota(policy, state, now): Quota {
    const resetMs = toMillis(untilFull(policy, state, now));
    const limit = atOnce(policy, policy.max);
    const remaining = state.nextFree > now ? 0 : atOnce(policy, storedAt(policy, state, now));
    // at an infinite rate both are `Infinity`, and the product is NaN
    const windowMs = policy.stable === 0 ? 0 : (limit * policy.stable) / 1000;
    return { limit, remaining, resetMs, windowMs };
  },

  // The permits that the store lacks have a price in time, which is part of the debt if they have just
  // been taken. Only a debt beyond that price counts as further permits.
  deficit(policy, state, now) {
    if (policy.stable === 0) return 0;
    const lacking = policy.max - storedAt(policy, state, now);
    const debt = Math.max(0, state.nextFree - now);
    const more = Math.max(0, debt - price(policy, policy.max, lacking)) / policy.stable;
    return Math.min(LARGEST, lacking + more);
  },

  // a new state may begin empty, so a full store is kept for an hour longer
  lifetime(policy, state, now) {
    return untilFull(policy, state, now) + (policy.prefilled ? 0 : HOUR);
  },

  // The store keeps its share of max. After an infinite rate, which counts nothing, it is full (bursty)
  // or empty (warm).
  resize(policy, state, now, before) {
    resync(before, state, now);
    if (before.stable === 0) state.stored = policy.warmingUp ? 0 : policy.max;
    else if (before.max > 0) state.stored = policy.max * (state.stored / before.max);
  },
};

/** How many permits may be granted at once: one more than is stored, since the next request pays for the last one. */
function atOnce({ stable, warmingUp }: SmoothPolicy, stored: number): number {
  if (stable === 0) return Infinity;
  return warmingUp ? 1 : Math.floor(stored) + 1;
}

/** Moves the state on to `now`: idle time becomes stored permits. */
function resync(policy: SmoothPolicy, state: SmoothState, now: number): void {
  if (now > state.nextFree) {
    state.stored = grown(policy, state, now);
    state.nextFree = now;
  }
}

function storedAt(policy: SmoothPolicy, state: SmoothState, now: number): number {
  return now > state.nextFree ? grown(policy, state, now) : state.stored;
}

function grown(policy: SmoothPolicy, state: SmoothState, now: number): number {
  return Math.min(policy.max, state.stored + (now - state.nextFree) / policy.coolDown);
}

function untilFull(policy: SmoothPolicy, state: SmoothState, now: number): number {
  const debt = Math.max(0, state.nextFree - now);
  return debt + (policy.max - storedAt(policy, state, now)) * policy.coolDown;
}

/** Returns the time (µs) that `permits` out of `stored` cost: the area under the line. */
function price(policy: SmoothPolicy, stored: number, permits: number): number {
  const { stable } = policy;
  if (!policy.warmingUp || permits <= 0) return 0;
  const cold = stored - policy.threshold;
  if (cold <= 0) return permits * stable;
  const above = Math.min(permits, cold);
  const mean = stable + policy.slope * (above / 2 + (cold - above));
  return above * mean + (permits - above) * stable;
}

/**
 * Creates a policy that paces requests evenly and grants permits saved up in idle time at once: Guava's
 * SmoothBursty.
 *
 * @param numbers.permitsPerSecond the pace; above 0, `Infinity` for no limit
 * @param numbers.burstSeconds how many seconds' worth of unused permits are stored; 0 or more,
 *   default 1
 * @param numbers.prefilled whether to begin with a full store instead of an empty one; default false
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(smoothBursty({ permitsPerSecond: 5 }));
 */
export function smoothBursty(numbers: {
  readonly permitsPerSecond: number;
  readonly burstSeconds?: number;
  readonly prefilled?: boolean;
}): SmoothPolicy {
  checkNumbers("smoothBursty", numbers, ["permitsPerSecond", "burstSeconds", "prefilled"]);
  return smoothPolicy(numbers.permitsPerSecond, numbers);
}

function bursty(permitsPerSecond: number, burstSeconds = 1, prefilled = false): SmoothPolicy {
  const stable = Math.min(LARGEST, SECOND / permitsPerSecond);
  const max = stable === 0 ? 0 : Math.min(LARGEST, permitsPerSecond * burstSeconds);
  const numbers = [permitsPerSecond, 0, burstSeconds, 1];
  return Object.freeze({
    algorithm: smooth,
    numbers: prefilled ? numbers : numbers.slice(0, burstSeconds === 1 ? 1 : 3),
    permitsPerSecond,
    warmingUp: false,
    prefilled,
    stable,
    coolDown: stable,
    max,
    threshold: max,
    slope: 0,
  });
}

/**
 * Creates a policy that paces requests evenly and starts slowly after idle time: Guava's
 * SmoothWarmingUp.
 *
 * @param numbers.permitsPerSecond the pace once it is warm; above 0, `Infinity` for no limit
 * @param numbers.warmupMs how long it takes from cold to warm under full demand, and from warm to
 *   cold when idle, ms; above 0
 * @param numbers.coldFactor how many times longer the interval is when cold; 1 or more, default 3
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }));
 */
export function smoothWarmingUp(numbers: {
  readonly permitsPerSecond: number;
  readonly warmupMs: number;
  readonly coldFactor?: number;
}): SmoothPolicy {
  checkNumbers("smoothWarmingUp", numbers, ["permitsPerSecond", "warmupMs", "coldFactor"]);
  checkNumber("warmupMs", numbers.warmupMs, aboveZero);
  return smoothPolicy(numbers.permitsPerSecond, numbers);
}

function warmingUp(permitsPerSecond: number, warmupMs: number, coldFactor = 3): SmoothPolicy {
  const warmup = warmupMs * 1000;
  const stable = Math.min(LARGEST, SECOND / permitsPerSecond);
  const cold = Math.min(LARGEST, stable * coldFactor);
  const limited = stable > 0;
  const threshold = limited ? warmup / stable / 2 : 0;
  const max = limited ? Math.min(LARGEST, threshold + (2 * warmup) / (stable + cold)) : 0;
  const numbers = [permitsPerSecond, warmupMs, coldFactor];
  return Object.freeze({
    algorithm: smooth,
    numbers: numbers.slice(0, coldFactor === 3 ? 2 : 3),
    permitsPerSecond,
    warmingUp: true,
    prefilled: true,
    stable,
    coolDown: limited ? Math.min(LARGEST, warmup / max) : 0,
    max,
    threshold,
    slope: max > threshold ? Math.min(LARGEST, (cold - stable) / (max - threshold)) : 0,
  });
}

/** Checks the numbers and returns their policy: bursty if there is no warm-up. */
export function smoothPolicy(
  permitsPerSecond: number,
  { warmupMs = 0, coldFactor = 3, burstSeconds = 1, prefilled = false }: SmoothNumbers,
): SmoothPolicy {
  checkRate(permitsPerSecond);
  checkNumber("warmupMs", warmupMs, atLeastZero);
  checkNumber("coldFactor", coldFactor, atLeastOne);
  checkNumber("burstSeconds", burstSeconds, atLeastZero);
  checkBoolean("prefilled", prefilled);
  return warmupMs > 0
    ? warmingUp(permitsPerSecond, warmupMs, coldFactor)
    : bursty(permitsPerSecond, burstSeconds, prefilled);
}

/** Returns the same policy at another pace. */
export function repaced(policy: SmoothPolicy, permitsPerSecond: unknown): SmoothPolicy {
  return smooth.policy([checkRate(permitsPerSecond), ...policy.numbers.slice(1)]);
}

function checkRate(permitsPerSecond: unknown): number {
  return checkNumber("permitsPerSecond", permitsPerSecond, aboveZeroOrInfinity);
}
