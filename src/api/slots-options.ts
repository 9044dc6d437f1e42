/** The arguments of the verbs that ask for slots. */
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
