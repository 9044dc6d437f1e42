/**
 * Sliding log: at most `limit` permits in any window of time, exactly.
 *
 * Guarantee. Each granted request adds an entry; an entry made at e expires at exactly e + window. The
 * permits of the entries that have not expired are never more than `limit`. No interval shorter than the
 * window ever contains more permits than that, wherever it begins.
 *
 * Entries and starts. The entry of a waiter is at its promised instant. If its timer is
 * late by d, the waiter starts at e + d, and its entry still expires at e + window. So lateness costs no
 * throughput, but an interval of t can contain the starts of an interval of t + d:
 *
 *   starts in t  <=  limit x (1 + floor((t + d) / window))
 *
 * Example, 10 in 100 ms, d = 6 ms: ten waiters booked for 0 start at 6 ms, and the next one starts at
 * 100 ms: 11 starts within 94 ms. With `strict` the entry of a waiter is made when the waiter starts, at
 * e + d: then d is 0 in the formula, and each late timer delays the waiters behind it. This needs a
 * queue in this process. A store books instants ahead, and cannot move the instants that it has already
 * returned to other callers when one caller starts late. So limiters on a store reject the option.
 *
 * Worked example, 5 in 60 s: requests at 0, 1, 2, 3 and 4 s are granted; one at 5 s gets a wait of 55 s,
 * because the first entry expires at 60 s. At 66 s no entries are left and 5 can be granted.
 *
 * Formula. With the instant of each entry, the log keeps the total of that entry and all before it. So
 * the permits of the entries from the i-th on are a difference, total - totals[i - 1]. One search finds
 * how many entries must expire before the permits fit, independent of the time: the request is granted
 * when the last of them expires. Expired entries are dropped when they are half of the log or more, so
 * the cost is one step for each entry.
 *
 * Memory. One entry for each instant; entries that together hold no more than one permit are merged, at
 * the later instant. So two neighbours together always hold more than one permit, and fewer than
 * 2 x limit + 2 entries count. Where that is too many, `slidingWindow` counts in buckets.
 *
 * Debt. A charge for which there is no room is entered at the first instant at which there is room; one
 * beyond the limit a whole window later for each further `limit`. So entries may lie in the future, and
 * no request is granted before the last one: first in, first out.
 *
 * Bound. In any interval of t at most limit x (1 + floor(t / window)) permits.
 *
 * Where it is inexact. Windows and entries are whole microseconds (an instant with a fraction is rounded
 * up). Of fractional permits, those merged into a later entry expire late, and the totals are as exact
 * as sums of doubles. Permits that were merged into a later entry cannot be given back by receipt. If
 * the last promised entry is given back, its place is lost: no waiter moves up before it.
 *
 * `sliding-log.lua` is the Lua twin of this file.
 */
import { aboveZero, checkBoolean, checkNumber, checkNumbers } from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { FAR, LARGEST } from "../constants.ts";
import { checkWindow, wholeMicros } from "../window.ts";

/** What `slidingLog` returns: at most `limit` permits in every interval as long as the window. */
export interface SlidingLogPolicy extends Policy {
  readonly limit: number;
  /** Whole microseconds. */
  readonly window: number;
}

export interface SlidingLogState {
  /** The instants of the entries, each later than the one before it. */
  times: number[];
  /** Permits of each entry and all before it. */
  totals: number[];
}

export const slidingLogAlgorithm: Algorithm<SlidingLogPolicy, SlidingLogState> = {
  name: "sliding-log",
  code: "l",
  inOrder: true,
  receiptIsTime: true,
  permitsAt: [0],

  policy([limit = 1, windowMs = 1000, strict = 0]) {
    return Object.freeze({
      algorithm: slidingLogAlgorithm,
      numbers: strict === 1 ? [limit, windowMs, strict] : [limit, windowMs],
      limit,
      window: wholeMicros(windowMs * 1000),
      strict: strict === 1,
    });
  },

  start: () => ({ times: [], totals: [] }),

  copy: (state) => ({ times: state.times.slice(), totals: state.totals.slice() }),

  shift(state, by) {
    state.times = state.times.map((time) => time + by);
  },

  earliest(policy, state, from, permits) {
    if (permits > policy.limit) return Infinity;
    const { times, totals } = state;
    const last = times.length === 0 ? from : (times.at(-1) as number);
    const at = from > last ? from : last;
    const total = totalOf(totals, times.length);
    if (permits <= policy.limit - total) return at;
    const time = times[lastToLeave(policy, totals, total, permits)] as number;
    return time <= at - policy.window ? at : time + policy.window;
  },

  // the receipt is the instant at which the entry expires
  take(policy, state, at, permits) {
    const counted = Math.min(permits, policy.limit);
    const more = permits > policy.limit ? Math.ceil(permits / policy.limit) - 1 : 0;
    const when = this.earliest(policy, state, at, counted) + more * policy.window;
    const time = Math.ceil(Math.min(FAR, when));
    clean(state, time - policy.window);
    append(state, time, counted);
    return time + policy.window;
  },

  giveBack(policy, state, now, permits, receipt) {
    if (receipt === undefined) {
      giveBackNewest(state, now, permits);
      return;
    }
    const index = countUntil(state.times, receipt - policy.window) - 1;
    if (state.times[index] === receipt - policy.window) giveBackEntry(state, now, index, permits);
  },

  bound: ({ limit, window }, micros) => limit * (1 + Math.floor(micros / window)),

  quota(policy, state, now): Quota {
    const ahead = countUntil(state.times, now) < state.times.length;
    return {
      limit: policy.limit,
      remaining: ahead ? 0 : Math.max(0, policy.limit - usedAt(policy, state, now)),
      resetMs: toMillis(this.lifetime(policy, state, now)),
      windowMs: toMillis(policy.window),
    };
  },

  // Entries that expire before the last promised one may have been dropped already. They held at most
  // the limit in each window, and no other request is granted before the last entry.
  deficit(policy, state, now) {
    const { limit, window } = policy;
    const last = Math.max(now, state.times.at(-1) ?? now);
    const ahead = Math.ceil((last - now) / window) * limit;
    return Math.min(LARGEST, usedAt(policy, state, last) + ahead);
  },

  lifetime(policy, state, now) {
    const last = state.times.at(-1);
    return last === undefined ? 0 : Math.max(0, last + policy.window - now);
  },

  // the entries stay and expire after the new window
  resize() {},
};

/** Returns how many entries are not later than `instant`. */
function countUntil(times: readonly number[], instant: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if ((times[middle] as number) > instant) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Whether the permits fit when the entries up to `index` have expired. */
function fits(
  { limit }: SlidingLogPolicy,
  totals: readonly number[],
  total: number,
  permits: number,
  index: number,
): boolean {
  return permits <= limit - (total - (totals[index] as number));
}

/**
 * Returns the index of the first entry that makes enough room when it expires. Requires that the permits
 * do not fit now. The search begins at the index that is right if all entries hold equally many permits,
 * which is close in most logs.
 */
function lastToLeave(
  policy: SlidingLogPolicy,
  totals: readonly number[],
  total: number,
  permits: number,
): number {
  const last = totals.length - 1;
  const share = (total - policy.limit + permits) / total;
  let low = Math.max(0, Math.min(last, Math.ceil(totals.length * share) - 1));
  let high = low;
  for (let step = 1; !fits(policy, totals, total, permits, high); step *= 2) {
    low = high + 1;
    high = Math.min(last, high + step);
  }
  for (let step = 1; low > 0 && fits(policy, totals, total, permits, low - 1); step *= 2) {
    high = low - 1;
    low = Math.max(0, high - step);
  }
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (fits(policy, totals, total, permits, middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Returns the permits that the first `count` entries hold. */
function totalOf(totals: readonly number[], count: number): number {
  return count === 0 ? 0 : (totals[count - 1] as number);
}

/** Returns the permits of all entries that have not expired at `at`. */
function usedAt(
  { window }: SlidingLogPolicy,
  { times, totals }: SlidingLogState,
  at: number,
): number {
  return totalOf(totals, times.length) - totalOf(totals, countUntil(times, at - window));
}

/** Drops the expired entries, those until `until`, if they are at least half of the log. */
function clean(state: SlidingLogState, until: number): void {
  const half = Math.ceil(state.times.length / 2);
  if (half === 0 || (state.times[half - 1] as number) > until) return;
  const gone = countUntil(state.times, until);
  const before = totalOf(state.totals, gone);
  state.times = state.times.slice(gone);
  state.totals = state.totals.slice(gone).map((total) => total - before);
}

function append(state: SlidingLogState, time: number, permits: number): void {
  const { times, totals } = state;
  const count = times.length;
  const total = totalOf(totals, count);
  const after = Math.min(LARGEST, total + permits);
  if (count > 0) {
    const own = total - totalOf(totals, count - 1);
    if (times[count - 1] === time || own + permits <= 1) {
      times[count - 1] = time;
      totals[count - 1] = after;
      return;
    }
  }
  times.push(time);
  totals.push(after);
}

function giveBackNewest(state: SlidingLogState, now: number, permits: number): void {
  let left = permits;
  for (let index = state.times.length - 1; index >= 0 && left > 0; index--) {
    const own = totalOf(state.totals, index + 1) - totalOf(state.totals, index);
    giveBackEntry(state, now, index, left);
    left -= own;
  }
}

/**
 * Gives permits of an entry back and removes the entry if it is empty. An empty last entry in the future
 * stays: entries that expire before it may have been dropped, so no request may be granted before it.
 */
function giveBackEntry(state: SlidingLogState, now: number, index: number, permits: number): void {
  const { times, totals } = state;
  const before = totalOf(totals, index);
  const own = totalOf(totals, index + 1) - before;
  const given = Math.min(own, permits);
  for (let i = index; i < totals.length; i++) {
    // differences are rounded, so keep each total at or above the one before it
    totals[i] = Math.max(before, (totals[i] as number) - given);
  }
  if (permits < own || (index === times.length - 1 && (times[index] as number) > now)) return;
  times.splice(index, 1);
  totals.splice(index, 1);
}

/**
 * Creates a policy that grants at most `limit` permits in any window of time, exactly. It stores the
 * instant of each granted request.
 *
 * @param numbers.limit permits in any window; above 0
 * @param numbers.windowMs length of a window, ms; above 0, at most 1e12, rounded to whole microseconds
 * @param numbers.strict counts a waiter from the instant at which it starts. Default false: from the
 *   instant for which it was booked, so with a timer that is d late a window can contain the starts of
 *   window + d. Limiters on a store reject it
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(slidingLog({ limit: 5, windowMs: 60_000 }));
 */
export function slidingLog(numbers: {
  readonly limit: number;
  readonly windowMs: number;
  readonly strict?: boolean | undefined;
}): SlidingLogPolicy {
  checkNumbers("slidingLog", numbers, ["limit", "windowMs", "strict"]);
  const limit = checkNumber("limit", numbers.limit, aboveZero);
  const strict = checkBoolean("strict", numbers.strict ?? false);
  return slidingLogAlgorithm.policy([limit, checkWindow(numbers.windowMs), strict ? 1 : 0]);
}
