/** The verdict of a limit without rules. */
import type { Decision } from "smooth-limiter";
import { requests } from "../answers/fields.ts";
import { retryAfter } from "../answers/retry.ts";
import type { CountedRule, Outcome, Verdict } from "../verdict.ts";
import { checkDecision } from "./limit-options.ts";

type CountedOutcome = Outcome<CountedRule>;

/** The result of a limit for a request: what handlers find on the request as `rateLimit`. */
export interface LimitVerdict extends Verdict<CountedRule> {
  /** What the request was counted by; "" for a limiter without keys. */
  readonly key: string;
  /** How many requests pass at once when nothing was used; permits if `cost` is a function. */
  readonly limit: number;
  /** How many of them are left. */
  readonly remaining: number;
  /** When the whole limit is available again if no request comes, ms. */
  readonly resetMs: number;
}

/** A request that a limit has checked. */
export interface RateLimited {
  /** The verdict of the last limit that counted this request; absent if none did. */
  rateLimit?: LimitVerdict | undefined;
}

/** Returns the verdict on a request that had to wait, or that may get its permits back. */
export function limitVerdict(verdict: Verdict<CountedRule>, key: string): LimitVerdict {
  const { allowed, retryMs, waitedMs, outcomes } = verdict;
  checkDecision(outcomes[0]?.decision);
  return withNumbers(allowed, retryMs, waitedMs, outcomes as readonly [CountedOutcome], key);
}

/**
 * Returns the verdict on a request that was decided at once.
 *
 * @param cost in permits of the limiter
 */
export function verdictAtOnce(
  decision: Decision,
  cost: number,
  key: string,
  rule: CountedRule,
): LimitVerdict {
  checkDecision(decision);
  const { allowed } = decision;
  const retryMs = allowed ? 0 : retryAfter(decision, cost);
  return withNumbers(allowed, retryMs, 0, [{ rule, actor: key, allowed, decision }], key);
}

function withNumbers(
  allowed: boolean,
  retryMs: number,
  waitedMs: number,
  outcomes: readonly [CountedOutcome],
  key: string,
): LimitVerdict {
  const [outcome] = outcomes;
  const { limit, remaining, resetMs } = outcome.decision;
  return {
    allowed,
    retryMs,
    waitedMs,
    outcomes,
    key,
    limit: requests(limit, outcome),
    remaining: requests(remaining, outcome),
    resetMs,
  };
}

/** Returns the verdict on a request that can never pass. */
export function neverVerdict(key: string, limit: number, rule: CountedRule): LimitVerdict {
  const status = { limit, remaining: 0, resetMs: Infinity, windowMs: 0 };
  const policy = "default";
  const decision: Decision = {
    allowed: false,
    waitMs: Infinity,
    ...status,
    policy,
    policies: { [policy]: { allowed: false, ...status } },
  };
  return verdictAtOnce(decision, 1, key, rule);
}
