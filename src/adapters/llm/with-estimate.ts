import type { Limiter, ShareOptions } from "../../api/limiter-api.ts";
import { SHARE_OPTIONS } from "../../api/options.ts";
import { checkFunction, checkOptions } from "../../ground/check.ts";
import { LimiterError } from "../../ground/errors.ts";
import { emitWarning } from "../../ground/node-process.ts";
import type { Permits } from "../../ground/permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { checkPermits, correct, warnUnsettled } from "../correct.ts";
import { untilAborted } from "../on-abort.ts";
import { shareOf } from "../shares.ts";

/** The options of `withEstimate`. */
export interface EstimateOptions extends ShareOptions {
  /**
   * Ends the wait: the promise rejects with `signal.reason`. It does not interrupt the function
   * once that runs; pass the signal to the function too.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * The permits that a call counts for if it fails before `settle` is called, 0 or more; policies
   * that are not named stay as they are. Default 0: everything is given back. Where the server
   * counts failed requests, `{ tokens: 0 }` gives back the tokens and not the request.
   */
  readonly failed?: Permits | undefined;
  /**
   * Called with the error if a correction failed and the estimate stands: a TypeError or RangeError
   * if `settle` got no usable number, a StoreUnavailableError if the store is unavailable. What it
   * throws is ignored. Default: a process warning for the first unusable number of each limiter.
   */
  readonly onUnsettled?: ((error: unknown) => void) | undefined;
}

/**
 * Runs a function when its permits are granted, then corrects them to what it used. For calls that
 * have only an estimated size until they are over, such as those to a language model.
 *
 * @param limiter in this process or on Redis
 * @param estimate the permits that the call probably needs, above 0; rather too many than too few,
 *   because later callers pay for the difference. A policy that it does not name is not charged: a process
 *   warning says so once
 * @param fn the function; it receives `settle`, and calls it with what was used in all (0 or more)
 *   as soon as it knows. The first usable value counts. `settle` never rejects and does not wait
 *   for a store: if the correction fails, the estimate stands and `onUnsettled` is called
 * @param options `signal` ends the wait; `failed`: what a call counts for that throws without
 *   having called `settle` (default 0: everything is given back); `onUnsettled` reports lost
 *   corrections; `share`, `weight` and `priority`: the share it counts for, on a fair limiter
 * @returns what `fn` returns. Without `settle` the estimate stands
 * @throws (rejects) what `fn` throws, or what `acquire` throws, or RangeError or TypeError
 *   on a bad argument, for example a policy in `failed` that the limiter does not have: `fn` has
 *   not been called then
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
  checkOptions("options", options, ["signal", "failed", "onUnsettled", ...SHARE_OPTIONS]);
  const { signal, failed = 0, onUnsettled = warnOf(limiter) } = options;
  checkPermits("failed", failed);
  checkFunction("onUnsettled", onUnsettled);
  await checkNames(limiter, estimate, failed, signal);
  await limiter.acquire(estimate, { signal, ...shareOf(options) });
  void warnOmitted(limiter, estimate);
  /** Whether `settle` was called: then the call used something, so the estimate is the minimum. */
  let called = false;
  let settled = false;
  const settle = async (actual: Permits) => {
    called = true;
    if (settled) return;
    try {
      checkPermits("actual", actual);
      settled = true;
      // not awaited: a store that does not answer must not delay the result
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

/** A limiter's policies never change their names, so they are read once. */
const knownNames = new WeakMap<Limiter, readonly string[]>();

async function namesOf(limiter: Limiter): Promise<readonly string[]> {
  const known = knownNames.get(limiter);
  if (known !== undefined) return known;
  const names = Object.keys((await limiter.peek()).policies);
  knownNames.set(limiter, names);
  return names;
}

/** Checks the names in `failed`; `acquire` checks those in the estimate. */
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
    // the store is unavailable: `acquire` decides whether the call may run without it
    if (error instanceof LimiterError) return;
    throw error;
  }
  refuseUnknown("failed", others, names);
}

/** The sets of names that were compared with a limiter's policies. */
const compared = /* @__PURE__ */ new Set<string>();

/**
 * Warns of an estimate that leaves out a policy, which is then not charged. Once for each set of names: to
 * know the policies takes a round trip to a store, and a limiter for each key is another object at each call.
 */
async function warnOmitted(limiter: Limiter, estimate: Permits): Promise<void> {
  if (typeof estimate === "number") return;
  const named = Object.keys(estimate).sort();
  const shape = JSON.stringify(named);
  if (compared.has(shape)) return;
  compared.add(shape);
  try {
    const omitted = (await namesOf(limiter)).filter((name) => !named.includes(name));
    if (omitted.length === 0) return;
    emitWarning(
      `withEstimate: the estimate names only ${named.join(", ")}, so calls take no ${omitted.join(", ")}: name every policy that they use`,
    );
  } catch {
    // the next call may reach the store
    compared.delete(shape);
  }
}

function refuseUnknown(what: string, asked: readonly string[], names: readonly string[]): void {
  const unknown = asked.find((name) => !names.includes(name));
  if (unknown === undefined) return;
  throw new TypeError(`${what} names no policy "${unknown}"; the policies are ${names.join(", ")}`);
}

/** Checks all names before it charges anything. */
async function apply(limiter: Limiter, estimate: Permits, actual: Permits): Promise<void> {
  if (typeof estimate === "number" && typeof actual !== "number") {
    refuseUnknown("actual", Object.keys(actual), await namesOf(limiter));
  }
  await correct(limiter, estimate, actual);
}

function warnOf(limiter: Limiter): (error: unknown) => void {
  return (error) => warnUnsettled("withEstimate: settle() got no usable number", limiter, error);
}

function report(onUnsettled: (error: unknown) => void, error: unknown): void {
  try {
    onUnsettled(error);
  } catch {}
}
