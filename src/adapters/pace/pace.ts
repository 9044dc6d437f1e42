import type { Limiter } from "../../api/limiter-api.ts";
import { SHARE_OPTIONS } from "../../api/options.ts";
import {
  checkBoolean,
  checkFunction,
  checkOneOf,
  checkOptions,
  checkSignal,
} from "../../ground/check.ts";
import { listPermits, type Permits } from "../../ground/permits.ts";
import { AT_ONCE } from "../../local/queueing-limiter.ts";
import { checkLimiter } from "../check-limiter.ts";
import { type SharedBy, shareOf } from "../shares.ts";
import { CallQueue } from "./call-queue.ts";

/** The options of `pace`. */
export interface PaceOptions<Args extends readonly unknown[] = readonly unknown[]>
  extends SharedBy<Args> {
  /** The cost of a call: permits, or a function of the call's arguments that returns them. Default 1. */
  readonly permits?: Permits | ((...args: Args) => Permits) | undefined;
  /** Ends the waits of all calls; or a function of the arguments that returns a signal for each call. */
  readonly signal?: AbortSignal | ((...args: Args) => AbortSignal | undefined) | undefined;
  /**
   * How an aborted `signal` affects later calls. Default `"end"`.
   *
   * - `"end"`: they reject with its reason, too, as `fetch` does with an aborted signal. So no call starts
   *   after a shutdown has begun.
   * - `"clear"`: they are paced as before. Only calls that waited at the time of the abort reject. This
   *   needs one signal for all calls.
   */
  readonly onAbort?: "end" | "clear" | undefined;
  /**
   * Called with the arguments of a call that cannot start at once, before it waits. With a limiter on
   * Redis most calls have to wait for its reply, so it is called for these, too. An error that it throws
   * becomes an uncaught exception; the call goes on.
   */
  readonly onDelay?: ((...args: Args) => void) | undefined;
}

/** A paced function, with properties that control it. */
export interface Paced<This, Args extends readonly unknown[], Result> {
  (this: This, ...args: Args): Promise<Awaited<Result>>;
  /** How many calls wait for permits. */
  readonly waiting: number;
  /**
   * Whether calls wait for the limiter. Default `true`. While it is `false`, new calls start at once and
   * take no permits; calls that wait already keep waiting.
   */
  enabled: boolean;
  /**
   * Rejects all waiting calls. Their permits are not taken, and later calls are paced as before.
   *
   * @param reason the reason of the rejections. Default: a DOMException named AbortError
   */
  clear(reason?: unknown): void;
}

const OPTIONS = ["permits", "signal", "onAbort", "onDelay", ...SHARE_OPTIONS] as const;
const ON_ABORT = ["end", "clear"] as const;

/**
 * Returns a paced version of a function: its calls start in the order in which they are made, at the
 * limiter's pace. A call that need not wait starts at once, before `paced()` returns.
 *
 * @param fn the function; it receives `this` and the arguments of each call
 * @param limiter the limiter that sets the pace; other code may share it
 * @param options `permits`: the cost of a call, or a function of its arguments (default 1); `signal`:
 *   ends the waits, or a function of the arguments; `onAbort`: whether an aborted signal also ends later
 *   calls (`"end"`, the default) or rejects only the waiting ones (`"clear"`); `onDelay`: called when a
 *   call has to wait; `share`, `weight` and `priority`: the share it counts for, on a fair limiter. Running
 *   calls are not interrupted
 * @returns the paced function, with `waiting`, `enabled` and `clear()`. A call returns a promise of what
 *   `fn` returns. It rejects with what `fn` throws; or, without calling `fn`, with the limiter's error, the
 *   signal's own reason or the reason of `clear`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = RateLimiter.create(10);
 * const get = pace(fetch, limiter);
 * await Promise.all(urls.map((url) => get(url)));
 */
export function pace<This, Args extends unknown[], Result>(
  fn: (this: This, ...args: Args) => Result,
  limiter: Limiter,
  options: PaceOptions<Args> = {},
): Paced<This, Args, Result> {
  checkFunction("fn", fn);
  checkLimiter(limiter);
  checkPaceOptions(options);
  const { permits = 1, signal: signals, onDelay } = options;
  const signal = typeof signals === "function" ? undefined : signals;
  const ending = options.onAbort === "clear" ? undefined : signal;
  const queue = new CallQueue<This, Args>(fn, signal);

  function paced(this: This, ...args: Args): Promise<Awaited<Result>> {
    try {
      if (!queue.enabled) return promiseOf(fn.apply(this, args));
      ending?.throwIfAborted();
      const cost = typeof permits === "function" ? permits(...args) : permits;
      const own = typeof signals === "function" ? checkSignal(signals(...args)) : undefined;
      const share = shareOf(options, ...args);
      const grant =
        own === undefined && share === undefined
          ? limiter.acquire(cost, queue.options)
          : queue.acquire(limiter, cost, own, share);
      // an earlier call may have its permits and not be started yet
      if (grant === AT_ONCE && queue.waiting === 0) return promiseOf(fn.apply(this, args));
      if (onDelay !== undefined) report(onDelay, args);
      return queue.wait(grant, this, args) as Promise<Awaited<Result>>;
    } catch (error) {
      return Promise.reject(error);
    }
  }
  return Object.defineProperties(paced, {
    name: { value: fn.name, configurable: true },
    length: { value: fn.length, configurable: true },
    waiting: { get: () => queue.waiting },
    enabled: {
      get: () => queue.enabled,
      set: (enabled) => {
        queue.enabled = checkBoolean("enabled", enabled);
      },
    },
    clear: { value: (reason?: unknown) => queue.clear(reason) },
  }) as Paced<This, Args, Result>;
}

function checkPaceOptions<Args extends readonly unknown[]>(options: PaceOptions<Args>): void {
  checkOptions("options", options, OPTIONS);
  const { permits, signal, onAbort, onDelay } = options;
  if (permits !== undefined && typeof permits !== "function") {
    listPermits(permits, Object.keys(Object(permits)));
  }
  if (typeof signal !== "function") checkSignal(signal);
  if (onAbort !== undefined) checkOneOf("onAbort", onAbort, ON_ABORT);
  if (onAbort === "clear" && !(signal instanceof AbortSignal)) {
    throw new TypeError(
      'onAbort "clear" needs a signal for all calls: pass an AbortSignal as signal, or leave onAbort out',
    );
  }
  if (onDelay !== undefined) checkFunction("onDelay", onDelay);
}

/** Returns a promise of the result; a native promise is returned as it is. */
function promiseOf<Result>(result: Result): Promise<Awaited<Result>> {
  return Promise.resolve(result) as Promise<Awaited<Result>>;
}

/** Calls a callback. An error that it throws becomes an uncaught exception; the paced call goes on. */
function report<Args extends readonly unknown[]>(callback: (...args: Args) => void, args: Args) {
  try {
    callback(...args);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
