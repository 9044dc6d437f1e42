/** The arguments of the verbs that ask for slots. */
import { checkFunction } from "../ground/check.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { TryOptions, WaitOptions } from "./limiter-api.ts";

/** The options of `run`. */
export interface RunOptions extends WaitOptions {
  /** How many slots the function holds while it runs: a whole number, 1 or more, at most the limit. Default 1. */
  readonly slots?: number | undefined;
}

/** Reads the arguments of `tryAcquire`: slots and the longest wait, or options for one slot. */
export function tryArguments(first: unknown, wait: number | TryOptions | undefined) {
  const isOptions = typeof first === "object" && first !== null && wait === undefined;
  return isOptions ? { slots: 1, wait: first as TryOptions } : { slots: first, wait };
}

/** The options of `run` where the limit may be adaptive. */
export interface AdaptiveRunOptions extends RunOptions {
  /**
   * Whether an error of the function says that it met a limit, as a time-out or a 429 does: then an adaptive
   * limit becomes lower. After any other error it learns nothing. Default: whether its name is "TimeoutError".
   */
  readonly isOverload?: ((error: unknown) => boolean) | undefined;
}

/** How a call ends: all give the slots back. See `Lease`. */
export type Ending = "release" | "overloaded" | "ignore";

/** Runs a function while it holds a lease, which ends as the function has ended. */
export async function runWith<L extends Record<Ending, () => MaybePromise<void>>, T>(
  acquire: (slots: number | undefined, options: WaitOptions | undefined) => Promise<L>,
  fn: (lease: L) => T | PromiseLike<T>,
  options: AdaptiveRunOptions | undefined,
): Promise<T> {
  checkFunction("fn", fn);
  const { slots, isOverload = isTimeout, ...wait } = options ?? {};
  checkFunction("isOverload", isOverload);
  const lease = await acquire(slots, options && wait);
  let ending: Ending = "release";
  try {
    return await fn(lease);
  } catch (error) {
    ending = "ignore";
    if (isOverload(error)) ending = "overloaded";
    throw error;
  } finally {
    const ended = lease[ending]();
    if (ended instanceof Promise) await ended;
  }
}

/** `AbortSignal.timeout` aborts with such an error. */
function isTimeout(error: unknown): boolean {
  return (Object(error) as { readonly name?: unknown }).name === "TimeoutError";
}
