import type { Decision } from "smooth-limiter";
import type { Pace, PolicyOutcome } from "./answers/checker.ts";
import { retryAfter } from "./answers/retry.ts";
import type { RefusingRule } from "./rules/rule.ts";

/** The members of a rule that every response reports. */
export type CountedRule = PolicyOutcome["rule"];

/** The result of one rule for a request. */
export interface Outcome<R extends CountedRule = RefusingRule> {
  readonly rule: R;
  /** The actor's value by which requests are counted: a user, an address, "" for all. */
  readonly actor: string;
  /** Whether this rule lets the request pass. A shadow rule that does not is only reported. */
  readonly allowed: boolean;
  /**
   * The state of the rule: after the charge if the request passes, without it if it is refused. If
   * the request has waited under this rule, `waitMs` is the wait that was computed on arrival.
   */
  readonly decision: Decision;
}

/** The gateway's result for a request. */
export interface Verdict<R extends CountedRule = RefusingRule> {
  /** Whether the request may pass: all rules let it, shadow rules aside. */
  readonly allowed: boolean;
  /**
   * When to retry, ms: all checked rules would let the request pass then, if no other request came.
   * 0 when allowed; `Infinity` if a limit is 0, or if the target is disputed.
   */
  readonly retryMs: number;
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
  /**
   * Whether the request is refused because servers disagree on the path of its target, and the
   * paths have different rules. No rule is then asked or charged. Absent: it is not.
   */
  readonly disputed?: boolean | undefined;
  /**
   * How fast the response may be sent, one for each rule with `bytesPerSecond` that applies; absent if
   * none does. The server adapters apply them.
   */
  readonly paces?: readonly Pace[] | undefined;
}

/**
 * Returns when a refused request should be retried, ms; 0 if no rule refuses it.
 *
 * @param asks what the request costs under each rule; 1 under a rule that is not among them
 */
export function retryOf(
  outcomes: readonly Outcome<CountedRule>[],
  asks: readonly { readonly active: { readonly rule: CountedRule }; readonly cost: number }[] = [],
): number {
  const costs = new Map(asks.map(({ active, cost }) => [active.rule, cost]));
  const retries = outcomes
    .filter(isRefusal)
    .map(({ decision, rule }) => retryAfter(decision, costs.get(rule) ?? 1));
  return Math.max(0, ...retries);
}

/** Whether a rule refuses the request. */
export function isRefusal({ allowed, rule }: Outcome<CountedRule>): boolean {
  return !allowed && rule.mode === "enforce";
}

/** The verdict on a request that a rule refuses before permits are taken. */
export function refused<R extends CountedRule>(outcomes: readonly Outcome<R>[]): Verdict<R> {
  return { allowed: false, retryMs: retryOf(outcomes), waitedMs: 0, outcomes };
}

/** The verdict on a request with a disputed target. */
export const DISPUTED: Verdict<never> = Object.freeze({
  allowed: false,
  retryMs: Infinity,
  waitedMs: 0,
  outcomes: Object.freeze([]),
  disputed: true,
});

/** Adds outcomes in front. */
export function withOutcomes<R extends CountedRule>(
  verdict: Verdict<R>,
  before: readonly Outcome<R>[],
): Verdict<R> {
  return before.length === 0 ? verdict : { ...verdict, outcomes: [...before, ...verdict.outcomes] };
}
