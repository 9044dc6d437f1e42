import { LimiterError } from "../ground/errors.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";

/** The caller's time was over before the store was available again, or before its place was ready. */
export class WaitTimeoutError extends LimiterError {
  static readonly code = "WAIT_TIMEOUT";

  constructor() {
    super(WaitTimeoutError.code, "the time was over before the store was available", {});
  }
}

/** Converts WaitTimeoutError to undefined. */
export function inTime<T>(answer: MaybePromise<T>): MaybePromise<T | undefined> {
  if (!(answer instanceof Promise)) return answer;
  return answer.catch((error: unknown) => {
    if (error instanceof WaitTimeoutError) return undefined;
    throw error;
  });
}
