import type { Decision } from "smooth-limiter";

/**
 * Returns when a refused request should be retried, ms: after its wait. If it may not wait, the
 * time after which there is room if no other request comes: a full bucket has room once the
 * request's cost has drained. `Infinity`: never, because the limit is 0 or is never refilled.
 *
 * @param cost in permits
 */
export function retryAfter({ waitMs, policy, policies }: Decision, cost: number): number {
  if (waitMs < Infinity) return waitMs;
  const { limit = 0, windowMs = 0 } = policies[policy] ?? {};
  return limit > 0 && windowMs > 0 ? windowMs * (cost / limit) : Infinity;
}
