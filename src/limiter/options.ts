import type { Policy } from "../algorithms/algorithm.ts";
import {
  anyNumber,
  atLeastZeroOrInfinity,
  checkNumber,
  checkOptions,
  checkSignal,
  checkText,
  show,
} from "../check.ts";
import { type Clock, checkClock, systemClock, toMicros } from "../clock.ts";
import { type Permits, TRY_OPTIONS } from "../permits.ts";
import type { TryOptions, WaitOptions } from "./face.ts";

export interface LimiterOptions {
  /**
   * How many permits may be waited for before a further `acquire` is refused with a QueueFullError.
   * 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /** Where the time comes from. Default: the platform's monotonic clock and timers. */
  readonly clock?: Clock | undefined;
  /** What error messages and diagnostics call the limiter. Default "limiter". */
  readonly name?: string | undefined;
}

export const LIMITER_OPTIONS = ["maxWaiting", "clock", "name"] as const;

export function checkLimiterOptions(options: LimiterOptions): {
  readonly maxWaiting: number;
  readonly clock: Clock;
  readonly name: string;
} {
  const { maxWaiting = Infinity, clock = systemClock, name = "limiter" } = options;
  checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity);
  return { maxWaiting, clock: checkClock(clock), name: checkText("name", name) };
}

/** The narrowest of the bounds on those who wait. */
export function mostWaiting(maxWaiting: number, policies: readonly Policy[]): number {
  return Math.min(maxWaiting, ...policies.map((policy) => policy.maxWaiting ?? Infinity));
}

export function checkWaitOptions(options: WaitOptions | undefined): AbortSignal | undefined {
  if (options === undefined) return undefined;
  checkOptions("options", options, ["signal"]);
  return checkSignal(options.signal);
}

export function checkTryOptions(wait: number | TryOptions): {
  micros: number;
  signal: AbortSignal | undefined;
} {
  if (typeof wait === "number") return { micros: checkTimeout(wait), signal: undefined };
  if (typeof wait !== "object" || wait === null || Array.isArray(wait)) {
    throw new TypeError(`wait must be ms, a number, or { timeoutMs, signal }, got ${show(wait)}`);
  }
  checkOptions("wait", wait, TRY_OPTIONS);
  const { timeoutMs = Infinity, signal } = wait;
  return { micros: checkTimeout(timeoutMs), signal: checkSignal(signal) };
}

/** Whether `tryAcquire` got options in place of permits: one permit is meant. */
export function isTryOptions(permits: Permits | TryOptions | undefined): permits is TryOptions {
  if (typeof permits !== "object" || permits === null) return false;
  return TRY_OPTIONS.some((name) => Object.hasOwn(permits, name));
}

function checkTimeout(timeoutMs: number): number {
  return toMicros(Math.max(0, checkNumber("timeoutMs", timeoutMs, anyNumber)));
}
