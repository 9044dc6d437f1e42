/**
 * Fixed window: so many permits in each window, counted from 0 in the next one.
 *
 * What it promises. Time is cut into windows; a window holds its start, not its end. At most
 * `limit` permits are used in each. Who asks for more than is left waits for the first window in
 * which there is room, and goes at its start. There are two ways to cut:
 *
 *   epoch   windows lie on the calendar's grid, floor(now / window): all who have the same numbers
 *           change windows at the same instants, and an hour begins on the hour (of UTC).
 *   first   a window opens with the first request after the last one has ended.
 *
 * Worked example, 2 in 3 s: two at 0 s go, a third is told 3 s and goes at 3 s if it waits. Then
 * one more goes at 3 s, and at 5 s nobody: the window [3, 6) is full.
 *
 * Debt. A charge is taken whatever the state, so more may be used than the limit. What is beyond it
 * is carried over: each window that begins takes `limit` off what is used,
 *
 *   used after k windows = max(0, used - k x limit)
 *
 * and n permits go in the first window with n <= limit - used. While a debt runs, windows follow
 * one another without a gap, under `first` too.
 *
 * Permits promised ahead. `start` is the latest window in which anything was promised, and nobody
 * gets in before it: first in, first out, and the windows before it need no memory.
 *
 * Bound. An interval of t touches at most 1 + ceil(t / window) windows, each of at most `limit`:
 * so twice the limit may go around an edge, within an instant. Sliding windows do not do that.
 *
 * Where it is inexact. Windows are whole microseconds, the nearest number and at least one. Limits
 * and permits with fractions add up as doubles do. What is given back of a window that is not the
 * latest one any more is lost: nobody moves up into it.
 *
 * `fixed-window.lua` is this file once more.
 */
import { aboveZero, checkNumber, checkNumbers, checkOneOf } from "../../check.ts";
import { toMillis } from "../../clock.ts";
import type { Algorithm, Policy, Quota } from "../algorithm.ts";
import { checkWindow, FAR, wholeMicros } from "../window.ts";

export interface FixedWindowPolicy extends Policy {
  readonly limit: number;
  /** Whole microseconds. */
  readonly window: number;
  /** A window opens with the first request, not on the epoch's grid. */
  readonly first: boolean;
}

export interface FixedWindowState {
  /** Where the latest window begins in which anything was used or promised. */
  start: number;
  /** Permits used in it, and those that the windows after it have to pay for. */
  used: number;
}

const LARGEST = Number.MAX_VALUE;

export const fixedWindowAlgorithm: Algorithm<FixedWindowPolicy, FixedWindowState> = {
  name: "fixed-window",
  code: "f",
  inOrder: true,
  dated: true,
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

  // each window until the latest one is full, for nobody gets in before it
  owed(policy, state, now) {
    const passed = Math.floor((now - state.start) / policy.window);
    return Math.min(LARGEST, Math.max(0, state.used - passed * policy.limit));
  },

  lifetime(policy, state, now) {
    return untilFresh(policy, state, now);
  },

  // What is used stays used, in number, until the window around `now` has ended. One that lies ahead
  // never comes to lie earlier: what it holds would be forgotten sooner. One that opened with a
  // request ends when it would have, if not sooner than the new length after that request.
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

/** How many more can go when so many windows have passed; below 0: what has still to be paid for. */
function room(policy: FixedWindowPolicy, state: FixedWindowState, windows: number): number {
  return policy.limit - Math.max(0, state.used - windows * policy.limit);
}

/** After how many windows there is room for the permits. The quotient is off by one at most. */
function windowsUntil(policy: FixedWindowPolicy, state: FixedWindowState, permits: number): number {
  const windows = Math.ceil((state.used - (policy.limit - permits)) / policy.limit);
  if (permits > room(policy, state, windows)) return windows + 1;
  return permits <= room(policy, state, windows - 1) ? windows - 1 : windows;
}

/** Brings the state up to `at`: the windows that have begun since have paid their share. */
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
 * A policy that lets through so many permits in each window of time, and counts from 0 in the next.
 *
 * Up to twice the limit may go around the edge of two windows; where that matters use
 * `slidingWindow` or `slidingLog`.
 *
 * @param numbers.limit permits in a window; above 0
 * @param numbers.windowMs how long a window is, ms; above 0, at most 1e12, held to whole microseconds
 * @param numbers.align `"epoch"`: windows begin at multiples of `windowMs` in Unix time; `"first"`:
 *   a window begins with the first request after the last one; default `"epoch"`
 * @returns a policy for `Limiter.create`
 * @throws RangeError or TypeError that names the argument, its bound and what it got
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
