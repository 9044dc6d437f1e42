import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import { asPaused, statusesOf } from "./decision.ts";
import type { PolicyStatus } from "./limiter-api.ts";

/** The prospects of a request at the end of the line. */
export interface Outlook {
  /**
   * The first instant at which the permits could be used; `Infinity` if a policy does not let the
   * request wait.
   */
  readonly instant: number;
  /**
   * `slowest` is the policy that does not let the request wait, or else makes it wait longest; `quotas`
   * is the status of all policies after all waiters.
   */
  readonly slowest: number;
  readonly quotas: readonly PolicyStatus[];
}

/** What a request at `now` can expect. */
interface PlaceStatus {
  readonly amount: Amount;
  readonly now: number;
  /** The first instant at which the permits could be used. */
  readonly instant: number;
  /** When the request would be the head of the line. */
  readonly from: number;
  /** The state after all waiters before it. */
  readonly policyState: PolicyState;
  /** Whether no caller waits before it. */
  readonly isFirst: boolean;
  /** The policy that lets no more permits wait, if they have to; -1: none. */
  readonly full: number;
}

/** Returns the prospects of a request. */
export function outlookOf({
  amount,
  now,
  instant,
  from,
  policyState,
  isFirst,
  full,
}: PlaceStatus): Outlook {
  const allows = policyState.allows(from, now, amount);
  const quotas = statusesOf(policyState.quotas(now), (i) => allows[i] === true);
  return {
    instant: full >= 0 ? Infinity : instant,
    slowest: full >= 0 ? full : policyState.slowest(from, amount),
    quotas: from > now || !isFirst ? quotas.map((quota) => asPaused(quota, from - now)) : quotas,
  };
}
