import type { Decision } from "../../../limiter/face.ts";

/**
 * When a refused request does well to come back, ms: after its wait; or where it may not wait, when
 * there is sure to be room, if no other came. A full bucket has room for a request once what that
 * costs has drained. `Infinity`: never, the limit is 0.
 *
 * @param cost in permits
 */
export function retryAfter({ waitMs, policy, policies }: Decision, cost: number): number {
  if (waitMs < Infinity) return waitMs;
  const { limit = 0, windowMs = 0 } = policies[policy] ?? {};
  return limit > 0 ? windowMs * (cost / limit) : Infinity;
}
