/**
 * Fair limiters on a store in a combination. Their callers wait in this process, in an order that the store does
 * not know. So before a combination sends its call to the store, it checks whether the call goes before them: if
 * not, nothing is taken. What is taken is charged to the share of the call.
 */

import type { AtomicStep, Check, Subrequest } from "../api/participant.ts";
import type { StepOptions } from "../api/timeout.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";

/** Asks the limiters of one group in one step. Only looks at them where other callers go first. */
export function askInOrder(
  verb: keyof AtomicStep,
  steps: AtomicStep,
  subrequests: readonly Subrequest[],
  options: StepOptions,
): MaybePromise<readonly Check[]> {
  const entries = subrequests.map(({ participant, permits, longestMs, isOptional }) => {
    const request = participant.enter?.(permits);
    // a request that accepts a wait is booked in the store at once
    const isNow = longestMs === 0;
    return request && { request, isNow, isBehind: isNow && !isOptional && !request.isNext };
  });
  const isBehind = entries.some((entry) => entry?.isBehind);
  return chain(steps[isBehind ? "check" : verb](subrequests, options), (checks) =>
    checks.map((check, i) => {
      const entry = entries[i];
      if (entry === undefined) return check;
      if (check.taken !== undefined) return { ...check, taken: entry.request.charged(check.taken) };
      if (!entry.isNow) return check;
      const decision = entry.request.seen(check.decision);
      if (!entry.isBehind) return { ...check, decision };
      return { ...check, decision: { ...decision, allowed: false }, passes: false };
    }),
  );
}
