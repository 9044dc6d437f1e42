/**
 * Sliding window counters: at most `limit` permits in a window that moves on one bucket at a time.
 *
 * Guarantee. The window is divided into buckets, which are aligned to the epoch; a bucket includes its
 * start and excludes its end. The current bucket and the `buckets` - 1 before it are counted, and
 * together they never hold more than `limit`. The memory is one number for each bucket, independent of
 * the traffic. `slidingLog` is exact and stores each request; `fixedWindow` stores one number.
 *
 * Worked example, 10 in 10 s, 10 buckets of 1 s: 6 at 0.9 s (in bucket 0) and 4 at 3.2 s (in bucket
 * 3) are granted. Bucket 0 is counted until 10 s; then 6 can be granted again, 9.1 s after the first 6.
 * From 13 s on bucket 3 is no longer counted.
 *
 *     bucket    0   1   2   3   4   5   6   7   8   9  10  11
 *             | 6 |   |   | 4 |   |   |   |   |   |   |
 *             '-- counted at 9.9 s: 10 --------------'
 *                 '-- counted at 10 s: 4 -------------'
 *
 * Formula. Sums run from the newest bucket to the oldest, so that every comparison is made with the
 * same double: n permits are granted if n <= limit - sum, else at the instant at which enough old
 * buckets have expired for that to hold.
 *
 * Debt. A charge for which there is no room is placed at the first instant at which there is room; one
 * beyond the limit waits for a whole window for each further `limit`. The state then lies in the
 * future, and no request is granted before it: first in, first out.
 *
 * Bound. With buckets of w, any interval of window - w contains at most `limit`, exactly: it touches
 * no more than `buckets` of them. A trailing window of full length touches one more: it contains at
 * most the limit and the permits of one bucket. In general an interval of t touches 1 + ceil(t / w)
 * buckets, and `buckets` in a row hold at most `limit`.
 *
 * Where it is inexact. A request that is counted late in its bucket expires up to w early, and never
 * later than `windowMs` after it was granted. Buckets are whole microseconds: `slidingWindow` rejects
 * other numbers, but a share of a policy, or a stored setting, is rounded to the nearest. If permits
 * that were promised ahead are given back, their place is lost: no waiter moves up before that bucket.
 *
 * `sliding-window.lua` is the Lua twin of this file.
 */
import { aboveZero, type Bound, checkNumber, checkNumbers } from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { FAR, LARGEST } from "../constants.ts";
import { checkWindow, wholeMicros } from "../window.ts";

/** What `slidingWindow` returns: at most `limit` permits in a window that moves by one bucket at a time. */
export interface SlidingWindowPolicy extends Policy {
  readonly limit: number;
  readonly buckets: number;
  /** The length of a bucket, whole microseconds. */
  readonly width: number;
  /** The length of all buckets together, whole microseconds. */
  readonly window: number;
}

export interface SlidingWindowState {
  /** The start of the newest bucket. */
  start: number;
  /** Permits in each bucket, the newest first. */
  counts: number[];
}

const MOST_BUCKETS = 10_000;

const someBuckets: Bound = {
  words: "a whole number, 1 to 10000",
  holds: (value) => Number.isInteger(value) && value >= 1 && value <= MOST_BUCKETS,
};

export const slidingWindowAlgorithm: Algorithm<SlidingWindowPolicy, SlidingWindowState> = {
  name: "sliding-window",
  code: "w",
  inOrder: true,
  receiptIsTime: true,
  permitsAt: [0],

  policy([limit = 1, windowMs = 1000, buckets = 10]) {
    const width = wholeMicros((windowMs * 1000) / buckets);
    return Object.freeze({
      algorithm: slidingWindowAlgorithm,
      numbers: buckets === 10 ? [limit, windowMs] : [limit, windowMs, buckets],
      limit,
      buckets,
      width,
      window: buckets * width,
    });
  },

  start: (policy, now) => ({ start: now, counts: zeros(policy.buckets) }),

  align(policy, state, epoch) {
    state.start = Math.floor((epoch + state.start) / policy.width) * policy.width - epoch;
  },

  copy: (state) => ({ start: state.start, counts: state.counts.slice() }),

  shift(state, by) {
    state.start += by;
  },

  earliest(policy, state, from, permits) {
    if (permits > policy.limit) return Infinity;
    const at = from > state.start ? from : state.start;
    // how many of the newest buckets may still be counted
    let fitting = 0;
    let sum = 0;
    for (const count of state.counts) {
      sum += count;
      if (permits > policy.limit - sum) break;
      fitting += 1;
    }
    if (fitting >= policy.buckets - passed(policy, state, at)) return at;
    return state.start + (policy.buckets - fitting) * policy.width;
  },

  // the receipt is the instant at which the bucket expires
  take(policy, state, at, permits) {
    const counted = Math.min(permits, policy.limit);
    const more = permits > policy.limit ? Math.ceil(permits / policy.limit) - 1 : 0;
    const when = this.earliest(policy, state, at, counted) + more * policy.window;
    advance(policy, state, Math.min(FAR, when));
    state.counts[0] = (state.counts[0] as number) + counted;
    return state.start + policy.window;
  },

  giveBack(policy, state, _now, permits, receipt) {
    if (receipt === undefined) {
      giveBackNewest(state, permits);
      return;
    }
    // the index is not whole if the receipt is from buckets of another width
    const index = (state.start + policy.window - receipt) / policy.width;
    const count = state.counts[index];
    if (count !== undefined) state.counts[index] = Math.max(0, count - permits);
  },

  bound({ limit, width, buckets }, micros) {
    return limit * Math.ceil((1 + Math.ceil(micros / width)) / buckets);
  },

  quota(policy, state, now): Quota {
    return {
      limit: policy.limit,
      remaining: state.start > now ? 0 : Math.max(0, policy.limit - used(policy, state, now)),
      resetMs: toMillis(untilFresh(policy, state, now)),
      windowMs: toMillis(policy.window),
    };
  },

  // Counts that expire before the newest promised bucket were dropped already. They were at most the
  // limit in each window, and no other request is granted before that bucket.
  deficit(policy, state, now) {
    const { limit, window } = policy;
    const ahead = Math.max(0, Math.ceil((state.start - now) / window));
    const counted = used(policy, state, Math.max(now, state.start));
    return Math.min(LARGEST, counted + ahead * limit);
  },

  lifetime: untilFresh,

  // A count expires no sooner than under the old numbers, and no sooner than under the new ones, with
  // one exception: no count is kept longer than if it had been made at `now`. If the buckets have
  // another width, the position of a count in its bucket is unknown, and so is the new grid: each may
  // delay the expiry by one bucket.
  resize(policy, state, now, before) {
    advance(before, state, now);
    const { start, counts } = state;
    const same = policy.width === before.width;
    const ahead = start > now ? Math.min(FAR, start + policy.width - 1) : now;
    const shorter = before.window - policy.window;
    const later = same
      ? Math.max(0, shorter)
      : Math.max(before.width - 1, shorter + policy.width - 1);
    state.start = same ? start : ahead;
    state.counts = zeros(policy.buckets);
    for (const [i, count] of counts.entries()) {
      const made = Math.min(state.start, start - i * before.width + later);
      const index = Math.floor((state.start - made) / policy.width);
      state.counts[index] = (state.counts[index] as number) + count;
    }
  },
};

function zeros(length: number): number[] {
  return new Array<number>(length).fill(0);
}

/** Returns how many buckets have begun since the newest one, which is not after `at`. */
function passed(policy: SlidingWindowPolicy, state: SlidingWindowState, at: number): number {
  return Math.floor((at - state.start) / policy.width);
}

/** Returns the permits that are counted at `at`. */
function used(policy: SlidingWindowPolicy, state: SlidingWindowState, at: number): number {
  const counted = Math.max(0, policy.buckets - passed(policy, state, at));
  let sum = 0;
  for (const count of state.counts.slice(0, counted)) sum += count;
  return sum;
}

/** Makes the bucket of `at` the newest one. */
function advance(policy: SlidingWindowPolicy, state: SlidingWindowState, at: number): void {
  if (at < state.start + policy.width) return;
  const begun = passed(policy, state, at);
  state.start += begun * policy.width;
  const { counts } = state;
  // in place: faster than slice and copyWithin
  for (let i = counts.length - 1; i >= 0; i--) {
    counts[i] = i < begun ? 0 : (counts[i - begun] as number);
  }
}

function giveBackNewest(state: SlidingWindowState, permits: number): void {
  let left = permits;
  for (const [i, count] of state.counts.entries()) {
    const given = Math.min(left, count);
    state.counts[i] = count - given;
    left -= given;
  }
}

function untilFresh(policy: SlidingWindowPolicy, state: SlidingWindowState, now: number): number {
  const newest = state.counts.findIndex((count) => count > 0);
  const staying = newest < 0 ? 0 : policy.buckets - newest;
  return Math.max(0, state.start + staying * policy.width - now);
}

/**
 * Creates a policy that grants at most `limit` permits in a window of time that slides on in steps. It
 * stores one number for each step.
 *
 * @param numbers.limit permits in a window; above 0
 * @param numbers.windowMs length of the window, ms; above 0, at most 1e12
 * @param numbers.buckets how many steps the window is divided into; a whole number, 1 to 10000, default
 *   10. Each must be a whole number of microseconds long: 1000 ms can be divided into 4 or 5, but not
 *   into 3
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(slidingWindow({ limit: 100, windowMs: 60_000, buckets: 60 }));
 */
export function slidingWindow(numbers: {
  readonly limit: number;
  readonly windowMs: number;
  readonly buckets?: number;
}): SlidingWindowPolicy {
  checkNumbers("slidingWindow", numbers, ["limit", "windowMs", "buckets"]);
  const limit = checkNumber("limit", numbers.limit, aboveZero);
  const windowMs = checkWindow(numbers.windowMs);
  const { buckets = 10 } = numbers;
  checkNumber("buckets", buckets, someBuckets);
  checkWidth(windowMs, buckets);
  return slidingWindowAlgorithm.policy([limit, windowMs, buckets]);
}

/** Throws unless the buckets add up to the window and each is a whole number of microseconds. */
function checkWidth(windowMs: number, buckets: number): void {
  const micros = wholeMicros(windowMs * 1000);
  const isWhole = Math.abs(micros - windowMs * 1000) <= micros * 1e-12;
  if (isWhole && micros % buckets === 0) return;
  const got = `windowMs ${windowMs} and buckets ${buckets}`;
  if (!isWhole) {
    throw new RangeError(`windowMs must be whole microseconds, got ${got}: take ${micros / 1000}`);
  }
  const fits = (count: number) => micros % count === 0;
  let fewer = buckets - 1;
  while (!fits(fewer)) fewer -= 1;
  let more = buckets + 1;
  while (more <= MOST_BUCKETS && !fits(more)) more += 1;
  const choices = more <= MOST_BUCKETS ? `${fewer} or ${more}` : `${fewer}`;
  throw new RangeError(
    `buckets must cut the window into whole microseconds, got ${got}: ${micros / buckets} µs each; take ${choices} buckets`,
  );
}
