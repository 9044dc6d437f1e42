import type { Amount } from "../../ground/permits.ts";
import { openShare } from "../../stores/outage-policy-state.ts";
import type { PolicyList } from "../../stores/policies.ts";
import type { PolicyStatus } from "../limiter-api.ts";

/**
 * Returns how much longer a call waits because of calls that go before it but are not sent yet, microseconds.
 * Exact where the quotas determine the state, as for a pace or a bucket. If the quotas do not show when a
 * window started, it is assumed to start now.
 *
 * @param statuses the quotas of the store, in the order of the policies
 * @param ahead the permits of those calls, in order
 * @param seen the amount for which the store has reported a wait: the result is added to that wait
 */
export function delayBehind(
  policies: PolicyList,
  statuses: readonly PolicyStatus[],
  ahead: Iterable<Amount>,
  amount: Amount,
  seen = amount,
): number {
  const deficit = statuses.map(deficitOf);
  const since = typeof amount === "number" ? 0 : [];
  const state = openShare(policies, 1, { deficit, ago: 0, since }, 0, 0);
  const first = state.earliest(0, seen);
  let at = 0;
  for (const each of ahead) {
    at = state.earliest(at, each);
    state.take(at, each);
  }
  return state.earliest(at, amount) - first;
}

/** How many permits a policy lacks to be full, debts included. */
function deficitOf({ limit, remaining, resetMs, windowMs }: PolicyStatus): number {
  if (limit === Infinity) return 0;
  const missing = limit - remaining;
  return remaining > 0 ? missing : Math.max(missing, (resetMs * limit) / windowMs);
}
