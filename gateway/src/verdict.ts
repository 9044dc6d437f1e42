import type { Decision } from "smooth-limiter";
import type { CheckResult, PolicyOutcome } from "./answers/checker.ts";
import { retryAfter } from "./answers/retry.ts";
import type { RefusingRule } from "./rules/rule.ts";

/** The members of a rule that every response reports. */
export type CountedRule = PolicyOutcome["rule"];

/** The result of one rule for a request. */
export interface Outcome<R extends CountedRule = RefusingRule> extends PolicyOutcome {
  /** The rule. */
  readonly rule: R;
  /** The actor's value by which requests are counted: a user, an address, "" for all. */
  readonly actor: string;
}

/** The gateway's result for a request. */
export interface Verdict<R extends CountedRule = RefusingRule> extends CheckResult {
  /** How long the request has waited, ms. */
  readonly waitedMs: number;
  /**
   * One for each rule that applies and can refuse: those for connections, then those for requests per
   * time, those of the outermost URL first; empty if no such rule applies. If a rule for connections
   * refuses, the rules after it are neither checked nor listed. If a rule in this process refuses while
   * Redis cannot be reached, the rules on Redis are not listed. If a rule refuses whatever was used
   * (`rpu: 0`, a block, a cost that never passes), only such rules are listed.
   */
  readonly outcomes: readonly Outcome<R>[];
}

/** What is known of a charge when its verdict is made. */
interface Charged<R extends CountedRule> {
  readonly limit: { readonly rule: R };
  readonly actor: string;
  /** In permits. */
  readonly cost: number;
}

/**
 * The verdict on a request.
 *
 * @param charges what the request costs under each rule; 1 under a rule that is not among them
 */
export function verdictOf<R extends CountedRule>(
  outcomes: readonly Outcome<R>[],
  waitedMs = 0,
  charges: readonly Charged<R>[] = [],
): Verdict<R> {
  let allowed = true;
  let retryMs = 0;
  for (const outcome of outcomes) {
    if (!isRefusal(outcome)) continue;
    allowed = false;
    const { cost = 1 } = charges.find(({ limit }) => limit.rule === outcome.rule) ?? {};
    retryMs = Math.max(retryMs, retryAfter(outcome.decision, cost));
  }
  return { allowed, retryMs, waitedMs, outcomes };
}

/** Does the work of `verdictOf` for a single limit that enforces: most requests match only one. */
export function verdictOfOne<R extends CountedRule>(
  { limit: { rule }, actor, cost }: Charged<R>,
  decision: Decision,
): Verdict<R> {
  const { allowed } = decision;
  const retryMs = allowed ? 0 : retryAfter(decision, cost);
  return { allowed, retryMs, waitedMs: 0, outcomes: [{ rule, actor, allowed, decision }] };
}

/** The verdict on a request to which no rule applies. */
export const NO_RULE: Verdict<never> = Object.freeze({
  allowed: true,
  retryMs: 0,
  waitedMs: 0,
  outcomes: Object.freeze([]),
});

/** The verdict on a request with a disputed target. */
export const DISPUTED: Verdict<never> = Object.freeze({
  ...NO_RULE,
  allowed: false,
  retryMs: Infinity,
  disputed: true,
});

/** Whether a rule refuses the request. */
export function isRefusal({ allowed, rule }: Outcome<CountedRule>): boolean {
  return !allowed && rule.mode === "enforce";
}

/** The retry time where it cannot be known: no room for a new key, no free slot. */
export const RETRY_MS = 1000;

/** Gives a refusal a time to retry. */
export function withWait(decision: Decision): Decision {
  return { ...decision, waitMs: decision.waitMs || RETRY_MS };
}

/** A decision that no limiter has made. */
export function stated(
  policy: string,
  allowed: boolean,
  numbers: { readonly limit: number; readonly remaining: number; readonly waitMs: number },
): Decision {
  const { limit, remaining, waitMs } = numbers;
  // V8 creates an object literal slowly if it goes on after a spread
  const status = { allowed, limit, remaining, resetMs: waitMs, windowMs: 0 };
  return {
    allowed,
    waitMs,
    limit,
    remaining,
    resetMs: waitMs,
    policy,
    policies: { [policy]: status },
  };
}
