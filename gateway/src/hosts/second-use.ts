/** Warns if two filters take from one limiter for the same request: it is then charged twice. */
import { warn } from "../actors/warn.ts";
import type { CheckResult } from "../answers/checker.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";

const warned = new WeakSet<object>();

/** Warns once for each limiter, if both verdicts have counted the request by the same key. */
export function warnOfSecondUse(
  limiter: object,
  verdicts: readonly MaybePromise<CheckResult>[],
): void {
  if (warned.has(limiter)) return;
  const look = async () => {
    const [first, second] = (await Promise.all(verdicts)).map(keyOf);
    if (first === undefined || first !== second || warned.has(limiter)) return;
    warned.add(limiter);
    warn(
      "SMOOTH_LIMITER_USED_TWICE",
      "a request was charged twice: it passed two limits that take from the same limiter by the same key. Use one limit in both places, which counts a request once, or a limiter for each. This is reported once for each limiter",
    );
  };
  look().catch(() => {});
}

function keyOf({ outcomes: [outcome] }: CheckResult): string | undefined {
  return (outcome as { readonly actor?: string } | undefined)?.actor;
}
