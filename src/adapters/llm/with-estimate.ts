import { checkFunction, checkOptions } from "../../check.ts";
import { LimiterError } from "../../errors.ts";
import type { Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { checkPermits, correct } from "../correct.ts";

export interface EstimateOptions {
  /**
   * Ends the wait: the promise rejects with `signal.reason`. The function, once it runs, is not
   * interrupted; give it the signal too.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * What a call counts for that fails without having settled, 0 or more; policies that are not
   * named stay as they are. Default 0: all is given back. Where the server counts requests that
   * fail, `{ tokens: 0 }` gives back the tokens and not the request.
   */
  readonly failed?: Permits | undefined;
}

/**
 * Runs a function when its permits are there, and corrects them to what it used: for calls whose
 * size is an estimate until they are over, such as the tokens of a language model.
 *
 * @param limiter in this process or on Redis
 * @param estimate the permits that it probably needs, above 0; rather too many than too few, for
 *   what is short is charged to those who come next
 * @param fn what to run; it is given `settle`, which it calls with what was used in all (0 or more)
 *   as soon as it knows. The first call counts; where the store cannot be told, the estimate stands
 * @param options `signal` ends the wait; `failed`: what a call counts for that throws without having
 *   settled (default 0: all is given back)
 * @returns what `fn` returns. Without `settle` the estimate stands
 * @throws (as a rejection) what `fn` throws, or what `acquire` does: `fn` has not been called then
 * @example
 * const answer = await withEstimate(limiter, { requests: 1, tokens: 900 }, async (settle) => {
 *   const answer = await model.complete(prompt);
 *   await settle({ tokens: answer.usage.total_tokens });
 *   return answer;
 * });
 */
export async function withEstimate<T>(
  limiter: Limiter,
  estimate: Permits,
  fn: (settle: (actual: Permits) => Promise<void>) => T | PromiseLike<T>,
  options: EstimateOptions = {},
): Promise<T> {
  checkLimiter(limiter);
  checkFunction("fn", fn);
  checkOptions("options", options, ["signal", "failed"]);
  const { signal, failed = 0 } = options;
  checkPermits("failed", failed);
  await limiter.acquire(estimate, { signal });
  let settled = false;
  const settle = async (actual: Permits) => {
    checkPermits("actual", actual);
    if (settled) return;
    settled = true;
    try {
      await correct(limiter, estimate, actual);
    } catch (error) {
      // an answer is not to be lost because a store is away: the estimate stands
      if (!(error instanceof LimiterError)) throw error;
    }
  };
  try {
    return await fn(settle);
  } catch (error) {
    // what went wrong first is what the caller has to know
    await settle(failed).catch(() => {});
    throw error;
  }
}
