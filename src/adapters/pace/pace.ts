import { checkOptions, checkSignal, show } from "../../check.ts";
import type { Limiter } from "../../limiter/face.ts";
import { listPermits, type Permits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";

export interface PaceOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** What a call costs, or how to tell from its arguments. Default 1. */
  readonly permits?: Permits | ((...args: Args) => Permits) | undefined;
  /** Ends the waits of all calls, or how to tell a call's own signal from its arguments. */
  readonly signal?: AbortSignal | ((...args: Args) => AbortSignal | undefined) | undefined;
}

/**
 * The function, but each call waits for its turn: calls start in the order in which they were made,
 * at the limiter's pace.
 *
 * @param fn what to call; `this` and the arguments are handed on
 * @param limiter at whose pace; it may be shared with others
 * @param options `permits`: what a call costs, or a function of its arguments (default 1); `signal`:
 *   ends the waits, or a function of the arguments. What runs already is not interrupted
 * @returns the function; it answers a promise of what `fn` returns. It rejects with what `fn` throws,
 *   and, without having called `fn`, with the limiter's error or the signal's own reason
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
): (this: This, ...args: Args) => Promise<Awaited<Result>> {
  if (typeof fn !== "function") throw new TypeError(`fn must be a function, got ${show(fn)}`);
  checkLimiter(limiter);
  checkOptions("options", options, ["permits", "signal"]);
  const { permits = 1, signal } = options;
  if (typeof permits !== "function") listPermits(permits, Object.keys(Object(permits)));
  if (typeof signal !== "function") checkSignal(signal);

  async function paced(this: This, ...args: Args): Promise<Awaited<Result>> {
    await limiter.acquire(typeof permits === "function" ? permits(...args) : permits, {
      signal: typeof signal === "function" ? signal(...args) : signal,
    });
    return await fn.apply(this, args);
  }
  return Object.defineProperties(paced, {
    name: { value: fn.name, configurable: true },
    length: { value: fn.length, configurable: true },
  });
}
