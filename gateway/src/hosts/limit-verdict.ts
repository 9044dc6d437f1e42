/** The verdict of a limit without rules. */
import { requests } from "../answers/fields.ts";
import type { CountedRule, Outcome, Verdict } from "../verdict.ts";

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

/** Returns a verdict with the numbers of its limit. */
export function limitVerdict(verdict: Verdict<CountedRule>, key: string): LimitVerdict {
  const { allowed, retryMs, waitedMs, outcomes } = verdict;
  const [outcome] = outcomes as readonly [Outcome<CountedRule>];
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
