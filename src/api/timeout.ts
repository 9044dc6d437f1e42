import { LimiterError } from "../ground/errors.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";

/** The caller's time was over before the store was available again. */
export class GaveUpError extends LimiterError {
  static readonly code = "GAVE_UP";

  constructor() {
    super(GaveUpError.code, "the time was over before the store was available", {});
  }
}

/** Converts GaveUpError to undefined. */
export function inTime<T>(answer: MaybePromise<T>): MaybePromise<T | undefined> {
  if (!(answer instanceof Promise)) return answer;
  return answer.catch((error: unknown) => {
    if (error instanceof GaveUpError) return undefined;
    throw error;
  });
}
