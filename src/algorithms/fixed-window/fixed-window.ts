/**
 * Fixed window: at most `limit` permits in each window; each window counts from 0 again.
 *
 * Guarantee. Time is divided into windows; a window includes its start and excludes its end. At most
 * `limit` permits are used in each. A request for more permits than are left waits for the first window
 * with enough room, and is granted at its start. There are two ways to divide time:
 *
 *   epoch   windows are aligned to the calendar, floor(now / window): all limiters with the same numbers
 *           change windows at the same instants, and an hour begins on the hour (of UTC).
 *   first   a window opens with the first request after the previous window has ended.
 *
 * Worked example, 2 in 3 s: two requests at 0 s are granted; the third gets a wait of 3 s and is granted
 * at 3 s if it waits. One more is granted at 3 s, and none at 5 s: the window [3, 6) is full.
 *
 * Debt. A charge is taken in any state, so more permits than the limit may be used. The excess is
 * carried over: each window that begins pays off `limit` of what is used,
 *
 *   used after k windows = max(0, used - k x limit)
 *
 * and n permits are granted in the first window with n <= limit - used. While a debt lasts, windows
 * follow one another without a gap, with `first` too.
 *
 * Permits promised ahead. `start` is the latest window in which permits were promised, and no request is
 * granted before it. So the order is first in, first out, and earlier windows need no memory.
 *
 * Bound. An interval of t touches at most 1 + ceil(t / window) windows, each with at most `limit`
 * permits. So up to twice the limit may be granted around the edge of two windows, within an instant.
 * Sliding windows do not have this burst.
 *
 * Where it is inexact. A window is rounded to whole microseconds, at least one. Fractional limits and
 * permits are added as doubles. Permits that are given back to a window that is no longer the latest
 * are lost: no waiter moves up into that window.
 *
 * `fixed-window.lua` is the Lua twin of this file.
 */
import { aboveZero, checkNumber, checkNumbers, checkOneOf } from "../../ground/check.ts";
import { toMillis } from "../../ground/clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { FAR, LARGEST } from "../constants.ts";
import { checkWindow, wholeMicros } from "../window.ts";

/** What `fixedWindow` returns: at most `limit` permits in each window. */
export interface FixedWindowPolicy extends Policy {
  readonly limit: number;
  /** Whole microseconds. */
  readonly window: number;
  /** Whether a window opens with the first request instead of on the epoch's grid. */
  readonly first: boolean;
}

export interface FixedWindowState {
  /** The start of the latest window in which permits were used or promised. */
  start: number;
  /** Permits used in that window, plus the debt that later windows pay off. */
  used: number;
}

export const fixedWindowAlgorithm: Algorithm<FixedWindowPolicy, FixedWindowState> = {
  name: "fixed-window",
  code: "f",
  inOrder: true,
  receiptIsTime: true,
  permitsAt: [0],

  policy([limit = 1, windowMs = 1000, first = 0]) {
    return Object.freeze({
      algorithm: fixedWindowAlgorithm,
      numbers: first === 1 ? [limit, windowMs, 1] : [limit, windowMs],
      limit,
      window: wholeMicros(windowMs * 1000),
      first: first === 1,
    });
  },

  start: (_policy, now) => ({ start: now, used: 0 }),

  align(policy, state, epoch) {
    if (policy.first) return;
    state.start = Math.floor((epoch + state.start) / policy.window) * policy.window - epoch;
  },

  copy: (state) => ({ start: state.start, used: state.used }),

  shift(state, by) {
    state.start += by;
  },

  earliest(policy, state, from, permits) {
    if (permits > policy.limit) return Infinity;
    const at = from > state.start ? from : state.start;
    const passed = Math.floor((at - state.start) / policy.window);
    if (permits <= room(policy, state, passed)) return at;
    const windows = windowsUntil(policy, state, permits);
    const opens = Math.min(FAR, state.start + windows * policy.window);
    return opens > at ? opens : at;
  },

  // the receipt is the end of the window
  take(policy, state, at, permits) {
    advance(policy, state, Math.min(FAR, at));
    state.used = Math.min(LARGEST, state.used + permits);
    return state.start + policy.window;
  },

  giveBack(policy, state, _now, permits, receipt) {
    if (receipt !== undefined && receipt !== state.start + policy.window) return;
    state.used = Math.max(0, state.used - permits);
  },

  bound: ({ limit, window }, micros) => limit * (1 + Math.ceil(micros / window)),

  quota(policy, state, now): Quota {
    const passed = Math.floor((now - state.start) / policy.window);
    return {
      limit: policy.limit,
      remaining: state.start > now ? 0 : Math.max(0, room(policy, state, passed)),
      resetMs: toMillis(untilFresh(policy, state, now)),
      windowMs: toMillis(policy.window),
    };
  },

  // each window before the latest one counts as full: no request is granted before the latest
  deficit(policy, state, now) {
    const passed = Math.floor((now - state.start) / policy.window);
    return Math.min(LARGEST, Math.max(0, state.used - passed * policy.limit));
  },

  lifetime: untilFresh,

  // The number of used permits stays the same until the window around `now` has ended. A window in the
  // future never moves to an earlier time, since its permits would then expire sooner. A window that
  // opened with a request keeps its end, but ends at most one new window length after `now` and at
  // least one after that request.
  resize(policy, state, now, before) {
    advance(before, state, now);
    const { start } = state;
    if (policy.first) {
      const longest = now + policy.window;
      const end = before.first ? Math.min(start + before.window, longest) : longest;
      state.start = Math.max(start, end - policy.window);
    } else {
      state.start = start > now ? Math.min(FAR, start + policy.window - 1) : now;
    }
  },
};

/** Returns the permits that are left after `windows` windows; below 0: the remaining debt. */
function room(policy: FixedWindowPolicy, state: FixedWindowState, windows: number): number {
  return policy.limit - Math.max(0, state.used - windows * policy.limit);
}

/** Returns how many windows must pass until the permits fit. The quotient is off by one at most. */
function windowsUntil(policy: FixedWindowPolicy, state: FixedWindowState, permits: number): number {
  const windows = Math.ceil((state.used - (policy.limit - permits)) / policy.limit);
  if (permits > room(policy, state, windows)) return windows + 1;
  return permits <= room(policy, state, windows - 1) ? windows - 1 : windows;
}

/** Moves the state on to `at`: each window that has begun since then pays off its `limit`. */
function advance(policy: FixedWindowPolicy, state: FixedWindowState, at: number): void {
  if (at <= state.start) return;
  const passed = Math.floor((at - state.start) / policy.window);
  state.used = Math.max(0, state.used - passed * policy.limit);
  state.start =
    policy.first && state.used === 0 ? Math.ceil(at) : state.start + passed * policy.window;
}

function untilFresh(policy: FixedWindowPolicy, state: FixedWindowState, now: number): number {
  const quotient = Math.ceil(state.used / policy.limit);
  const windows = state.used > quotient * policy.limit ? quotient + 1 : quotient;
  return Math.max(0, Math.min(FAR, state.start + windows * policy.window) - now);
}

/**
 * Creates a policy that grants at most `limit` permits in each window of time and counts from 0 in the
 * next one.
 *
 * Up to twice the limit may be granted around the edge of two windows; where that matters use
 * `slidingWindow` or `slidingLog`.
 *
 * @param numbers.limit permits in a window; above 0
 * @param numbers.windowMs length of a window, ms; above 0, at most 1e12, rounded to whole microseconds
 * @param numbers.align `"epoch"`: windows begin at multiples of `windowMs` in Unix time; `"first"`:
 *   a window begins with the first request after the previous one has ended; default `"epoch"`
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = Limiter.create(fixedWindow({ limit: 100, windowMs: 60_000 }));
 */
export function fixedWindow(numbers: {
  readonly limit: number;
  readonly windowMs: number;
  readonly align?: "epoch" | "first";
}): FixedWindowPolicy {
  checkNumbers("fixedWindow", numbers, ["limit", "windowMs", "align"]);
  const { align = "epoch" } = numbers;
  const limit = checkNumber("limit", numbers.limit, aboveZero);
  const windowMs = checkWindow(numbers.windowMs);
  checkOneOf("align", align, ["epoch", "first"]);
  return fixedWindowAlgorithm.policy([limit, windowMs, align === "first" ? 1 : 0]);
}
