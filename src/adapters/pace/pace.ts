import { checkBoolean, checkFunction, checkOneOf, checkOptions, checkSignal } from "../../check.ts";
import type { Limiter } from "../../limiter/face.ts";
import { AT_ONCE } from "../../limiter/limiter.ts";
import { listPermits, type Permits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { CallLine } from "./call-line.ts";

export interface PaceOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** What a call costs: permits, or a function of the call's arguments. Default 1. */
  readonly permits?: Permits | ((...args: Args) => Permits) | undefined;
  /** Ends the waits of all calls; or a function of the arguments that gives each call its own. */
  readonly signal?: AbortSignal | ((...args: Args) => AbortSignal | undefined) | undefined;
  /**
   * What an aborted `signal` does to later calls. Default `"end"`.
   *
   * - `"end"`: they reject with its reason too, as `fetch` does with an aborted signal: after a
   *   shutdown has begun no call starts.
   * - `"clear"`: they are paced as before. Only calls that waited when it was aborted reject. It
   *   needs one signal for all calls.
   */
  readonly onAbort?: "end" | "clear" | undefined;
  /**
   * Called with the arguments of a call that cannot start at once, before it waits. A limiter on
   * Redis lets most calls start only when its reply is there, so there it is called for these too.
   * What it throws becomes an uncaught exception; the call goes on.
   */
  readonly onDelay?: ((...args: Args) => void) | undefined;
}

/** A paced function, with its switches. */
export interface Paced<This, Args extends readonly unknown[], Result> {
  (this: This, ...args: Args): Promise<Awaited<Result>>;
  /** How many calls wait for their turn. */
  readonly waiting: number;
  /**
   * Whether calls wait for the limiter. Default `true`. Set it to `false` and later calls start at
   * once and take no permits; calls that wait already keep waiting.
   */
  enabled: boolean;
  /**
   * Rejects all calls that wait; their permits are not taken, and later calls are paced as before.
   *
   * @param reason what they reject with. Default: a DOMException called AbortError
   */
  clear(reason?: unknown): void;
}

const OPTIONS = ["permits", "signal", "onAbort", "onDelay"] as const;
const ON_ABORT = ["end", "clear"] as const;

/**
 * Returns the function, but each call waits for its turn: calls start in the order in which they were
 * made, at the limiter's pace. A call that need not wait starts at once, before `paced()` returns.
 *
 * @param fn what to call; `this` and the arguments are handed on
 * @param limiter at whose pace; it may be shared with others
 * @param options `permits`: what a call costs, or a function of its arguments (default 1); `signal`:
 *   ends the waits, or a function of the arguments; `onAbort`: whether an aborted signal ends later
 *   calls too (`"end"`, the default) or clears what waits (`"clear"`); `onDelay`: called when a call
 *   has to wait. Calls that run already are not interrupted
 * @returns the function, with `waiting`, `enabled` and `clear()`; it returns a promise of what `fn`
 *   returns. It rejects with what `fn` throws, and, without having called `fn`, with the limiter's
 *   error, the signal's own reason or the reason of `clear`
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
  const line = new CallLine<This, Args>(fn, signal);

  function paced(this: This, ...args: Args): Promise<Awaited<Result>> {
    try {
      if (!line.enabled) return promiseOf(fn.apply(this, args));
      ending?.throwIfAborted();
      const cost = typeof permits === "function" ? permits(...args) : permits;
      const own = typeof signals === "function" ? checkSignal(signals(...args)) : undefined;
      const turn =
        own === undefined ? limiter.acquire(cost, line.options) : line.acquire(limiter, cost, own);
      // an earlier call that was let through may not have started yet
      if (turn === AT_ONCE && line.waiting === 0) return promiseOf(fn.apply(this, args));
      if (onDelay !== undefined) report(onDelay, args);
      return line.wait(turn, this, args) as Promise<Awaited<Result>>;
    } catch (error) {
      return Promise.reject(error);
    }
  }
  return Object.defineProperties(paced, {
    name: { value: fn.name, configurable: true },
    length: { value: fn.length, configurable: true },
    waiting: { get: () => line.waiting },
    enabled: {
      get: () => line.enabled,
      set: (enabled) => {
        line.enabled = checkBoolean("enabled", enabled);
      },
    },
    clear: { value: (reason?: unknown) => line.clear(reason) },
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

/** A native promise as it is: no further promise around it. */
function promiseOf<Result>(result: Result): Promise<Awaited<Result>> {
  return Promise.resolve(result) as Promise<Awaited<Result>>;
}

/** What a callback throws becomes an uncaught exception; the call that it is about goes on. */
function report<Args extends readonly unknown[]>(callback: (...args: Args) => void, args: Args) {
  try {
    callback(...args);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
