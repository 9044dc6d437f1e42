import { checkFunction, checkOptions } from "../../check.ts";
import { LimiterError } from "../../errors.ts";
import type { Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { checkPermits, correct } from "../correct.ts";
import { untilAborted } from "../on-abort.ts";

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
  /**
   * Called with the error when a correction could not be made and the estimate stands: a TypeError or
   * RangeError where `settle` was given no usable number, a StoreUnavailableError where the store is
   * away. What it throws is ignored. Default: a warning of the process
   * for the first unusable number of each limiter.
   */
  readonly onUnsettled?: ((error: unknown) => void) | undefined;
}

/**
 * Runs a function when its permits are there, and corrects them to what it used: for calls whose
 * size is an estimate until they are over, such as the tokens of a language model.
 *
 * @param limiter in this process or on Redis
 * @param estimate the permits that it probably needs, above 0; rather too many than too few, for
 *   what is short is charged to later callers
 * @param fn what to run; it is given `settle`, which it calls with what was used in all (0 or more)
 *   as soon as it knows. The first usable answer counts. `settle` never rejects and does not wait for
 *   a store: where the correction cannot be made, the estimate stands and `onUnsettled` is called
 * @param options `signal` ends the wait; `failed`: what a call counts for that throws without having
 *   called `settle` (default 0: all is given back); `onUnsettled` reports lost corrections
 * @returns what `fn` returns. Without `settle` the estimate stands
 * @throws (as a rejection) what `fn` throws, or what `acquire` does, or RangeError or TypeError on a bad
 *   argument, a policy in `failed` that the limiter does not have included: `fn` has not been called
 *   then
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
  checkOptions("options", options, ["signal", "failed", "onUnsettled"]);
  const { signal, failed = 0, onUnsettled = (error) => warn(limiter, error) } = options;
  checkPermits("failed", failed);
  checkFunction("onUnsettled", onUnsettled);
  await checkNames(limiter, estimate, failed, signal);
  await limiter.acquire(estimate, { signal });
  /** `settle` was called: the call used something, so it counts at least as estimated. */
  let called = false;
  let settled = false;
  const settle = async (actual: Permits) => {
    called = true;
    if (settled) return;
    try {
      checkPermits("actual", actual);
      settled = true;
      // not awaited: a store that hangs would hold back an answer that is there
      apply(limiter, estimate, actual).catch((error) => report(onUnsettled, error));
    } catch (error) {
      report(onUnsettled, error);
    }
  };
  try {
    return await fn(settle);
  } catch (error) {
    if (!called) await settle(failed);
    throw error;
  }
}

/** Policies never get other names, so each limiter is asked once. */
const knownNames = new WeakMap<Limiter, readonly string[]>();

async function namesOf(limiter: Limiter): Promise<readonly string[]> {
  const known = knownNames.get(limiter);
  if (known !== undefined) return known;
  const names = Object.keys((await limiter.peek()).policies);
  knownNames.set(limiter, names);
  return names;
}

/** `acquire` checks the names in the estimate; others are looked up. */
async function checkNames(
  limiter: Limiter,
  estimate: Permits,
  failed: Permits,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (typeof failed === "number") return;
  const asked = typeof estimate === "number" ? [] : Object.keys(estimate);
  const others = Object.keys(failed).filter((name) => !asked.includes(name));
  if (others.length === 0) return;
  let names: readonly string[];
  try {
    names = await untilAborted(signal, namesOf(limiter));
  } catch (error) {
    // the store is away: whether the call may go without it is for `acquire` to say
    if (error instanceof LimiterError) return;
    throw error;
  }
  refuseUnknown("failed", others, names);
}

function refuseUnknown(what: string, asked: readonly string[], names: readonly string[]): void {
  const unknown = asked.find((name) => !names.includes(name));
  if (unknown === undefined) return;
  throw new TypeError(`${what} names no policy "${unknown}"; the policies are ${names.join(", ")}`);
}

/** All names are checked before anything is charged, or nothing is. */
async function apply(limiter: Limiter, estimate: Permits, actual: Permits): Promise<void> {
  if (typeof estimate === "number" && typeof actual !== "number") {
    refuseUnknown("actual", Object.keys(actual), await namesOf(limiter));
  }
  await correct(limiter, estimate, actual);
}

function report(onUnsettled: (error: unknown) => void, error: unknown): void {
  try {
    onUnsettled(error);
  } catch {}
}

const warned = new WeakSet<Limiter>();

/** A store that is away is published by the limiter itself. */
function warn(limiter: Limiter, error: unknown): void {
  if (error instanceof LimiterError || warned.has(limiter)) return;
  warned.add(limiter);
  const { process } = globalThis as { process?: { emitWarning?(warning: string): void } };
  process?.emitWarning?.(
    `withEstimate: settle() got no usable number, the estimate stands: ${error}`,
  );
}
