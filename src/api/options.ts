import type { Policy } from "../algorithms/algorithm.ts";
import {
  anyNumber,
  atLeastZeroOrInfinity,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkSignal,
  checkText,
  failCheck,
  isRecord,
} from "../ground/check.ts";
import { type Clock, checkClock, systemClock, toMicros } from "../ground/clock.ts";
import { type Permits, TRY_OPTIONS } from "../ground/permits.ts";
import type { ShareOptions, TryOptions, WaitOptions } from "./limiter-api.ts";

export const ON_FULL = ["reject", "drop-oldest", "wait"] as const;

/**
 * What `acquire` does when callers already wait for `maxWaiting` permits.
 *
 * - `"reject"` (default): it rejects with a QueueFullError.
 * - `"drop-oldest"`: the callers that have waited longest are dropped until there is room. Their
 *   `acquire` rejects with a QueueFullError with `facts.dropped: true`; their `tryAcquire`
 *   returns false. Reservations are not dropped, because their holders rely on them. If dropping
 *   would not make enough room, the new caller is rejected and no other is dropped.
 * - `"wait"`: it waits like the others. Only `tryAcquire` with a time-out and `reserve`, which must
 *   return at once, are still refused.
 *
 * `tryAcquire` and `reserve` never drop others. A policy's own bound, such as the leaky bucket's,
 * still applies: beyond it every call is refused.
 */
export type OnFull = (typeof ON_FULL)[number];

/** The options of `fairShares`. */
export interface FairOptions {
  /**
   * The values of `priority`, the highest first: a caller goes before all callers of lower priorities,
   * whatever their shares. A caller without a `priority` has the lowest. Default: none.
   */
  readonly priorities?: readonly string[] | undefined;
  /**
   * Protects lower priorities against starvation: a priority with waiters of which none was released for
   * this long, ms, releases one before the higher ones. Above 0, default `Infinity`.
   */
  readonly agingMs?: number | undefined;
}

declare const isOrder: unique symbol;

/** An order of the callers that wait. `fairShares` returns one; any number of limiters may have it. */
export interface CallOrder {
  readonly [isOrder]?: never;
}

/** The options of limiters in this process. */
export interface LimiterOptions {
  /**
   * How many permits may be waited for before a further `acquire` is refused with a QueueFullError.
   * 0 or more, default `Infinity`.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * What a further `acquire` does. `"reject"` (default): it rejects. `"drop-oldest"`: the callers that have waited
   * longest are dropped until there is room; their `acquire` rejects with a QueueFullError in which `facts.dropped` is
   * `true`, their `tryAcquire` is refused. `"wait"`: it waits like the others; only `tryAcquire` is still refused.
   */
  readonly onFull?: OnFull | undefined;
  /** The order of the callers that wait: `fairShares()`; default: first in, first out. */
  readonly order?: CallOrder | undefined;
  /** The source of time. Default: the platform's monotonic clock and timers. */
  readonly clock?: Clock | undefined;
  /** The limiter's name in error messages and diagnostics. Default "limiter". */
  readonly name?: string | undefined;
}

export const LIMITER_OPTIONS = ["maxWaiting", "onFull", "order", "clock", "name"] as const;

export interface CheckedOptions {
  readonly maxWaiting: number;
  readonly onFull: OnFull;
  readonly clock: Clock;
  readonly name: string;
}

export function checkLimiterOptions(options: LimiterOptions): CheckedOptions {
  const {
    maxWaiting = Infinity,
    onFull = "reject",
    clock = systemClock,
    name = "limiter",
  } = options;
  checkNumber("maxWaiting", maxWaiting, atLeastZeroOrInfinity);
  checkOneOf("onFull", onFull, ON_FULL);
  return { maxWaiting, onFull, clock: checkClock(clock), name: checkText("name", name) };
}

/** The lowest of the bounds on waiting permits: `maxWaiting` and those of the policies. */
export function mostWaiting(maxWaiting: number, policies: readonly Policy[]): number {
  return Math.min(maxWaiting, ...policies.map((policy) => policy.maxWaiting ?? Infinity));
}

export const SHARE_OPTIONS = ["share", "weight", "priority"] as const;
const WAIT_OPTIONS = ["signal", ...SHARE_OPTIONS] as const;

/** Options that are known to be right: for callers that pass the same ones at every call. */
export class CheckedWaitOptions implements WaitOptions {
  readonly signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.signal = signal;
  }
}

/** Rejects unknown options; `Order.entryOf` checks the values. */
export function checkShareOptions(options: ShareOptions | undefined): void {
  if (options !== undefined) checkOptions("options", options, SHARE_OPTIONS);
}

/** Rejects the options of a fair limiter where there is none. */
export function refuseShares(options: ShareOptions | undefined): void {
  if (options === undefined) return;
  const { share, weight, priority } = options;
  if (share === undefined && weight === undefined && priority === undefined) return;
  throw new TypeError(
    "share, weight and priority need a limiter that was created with { order: fairShares() }",
  );
}

/** Does not check `share`, `weight` and `priority`: see `Order.entryOf` and `refuseShares`. */
export function checkWaitOptions(options: WaitOptions | undefined): AbortSignal | undefined {
  if (options === undefined) return undefined;
  if (options instanceof CheckedWaitOptions) return options.signal;
  checkOptions("options", options, WAIT_OPTIONS);
  return checkSignal(options.signal);
}

/** Does the same where no option but `signal` is allowed. */
export function checkSignalOptions(options: WaitOptions | undefined): AbortSignal | undefined {
  const signal = checkWaitOptions(options);
  refuseShares(options);
  return signal;
}

/** When a call ends, and for which share it counts. */
export interface CallLimits {
  /** The longest wait, microseconds. */
  readonly micros: number;
  readonly signal?: AbortSignal | undefined;
  /** The options that name the share of the call. */
  readonly share?: ShareOptions | undefined;
}

export function checkTryOptions(wait: number | TryOptions): CallLimits {
  if (typeof wait === "number") return { micros: checkTimeout(wait) };
  if (!isRecord(wait)) failCheck("wait", "ms, a number, or { timeoutMs, signal }", wait);
  checkOptions("wait", wait, [...TRY_OPTIONS, ...SHARE_OPTIONS]);
  const { timeoutMs = Infinity, signal } = wait;
  return { micros: checkTimeout(timeoutMs), signal: checkSignal(signal), share: wait };
}

/** Whether `tryAcquire` got options in the place of permits, which requests one permit. */
export function isTryOptions(permits: Permits | TryOptions | undefined): permits is TryOptions {
  return isRecord(permits) && TRY_OPTIONS.some((name) => Object.hasOwn(permits, name));
}

function checkTimeout(timeoutMs: number): number {
  return toMicros(Math.max(0, checkNumber("timeoutMs", timeoutMs, anyNumber)));
}
