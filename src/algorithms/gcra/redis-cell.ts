import { show } from "../../ground/check.ts";

/**
 * The reply of redis-cell's `CL.THROTTLE`: 1 if the request was limited, 0 if not; the limit
 * (burst + 1); how many permits remain; seconds until a retry makes sense, -1 if the request was
 * granted; seconds until the full limit is available again.
 */
export type RedisCellReply = readonly [
  limited: 0 | 1,
  limit: number,
  remaining: number,
  retryAfter: number,
  resetAfter: number,
];

interface QuotaFields {
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
}

/** The part of a `Decision` that `toRedisCellReply` reads. */
interface Decided extends QuotaFields {
  readonly allowed: boolean;
  readonly waitMs: number;
  readonly policies: Readonly<Record<string, QuotaFields>>;
}

/**
 * Returns a decision as the five integers of redis-cell's `CL.THROTTLE`. Times are whole seconds,
 * rounded up, so that a retry after that time is granted; permits are rounded down. Where the permits
 * may not wait (`waitMs` is `Infinity`), `retryAfter` is the time until all permits have come back.
 *
 * @param decision the result of `decide` or `peek`
 * @param policyName the policy to report the limit, remaining and reset of; default: the binding one
 * @returns `[limited, limit, remaining, retryAfter, resetAfter]`
 * @throws RangeError if the decision has no policy of that name
 * @example
 * const limiter = Limiter.create(gcra({ limit: 30, periodMs: 60_000, burst: 15 }));
 * toRedisCellReply(limiter.decide()); // [0, 16, 15, -1, 2]
 */
export function toRedisCellReply(decision: Decided, policyName?: string): RedisCellReply {
  const { limit, remaining, resetMs } = standing(decision, policyName);
  const retryMs = decision.waitMs < Infinity ? decision.waitMs : resetMs;
  return [
    decision.allowed ? 0 : 1,
    Math.floor(limit),
    Math.floor(remaining),
    decision.allowed ? -1 : Math.ceil(retryMs / 1000),
    Math.ceil(resetMs / 1000),
  ];
}

function standing(decision: Decided, policyName: string | undefined): QuotaFields {
  if (policyName === undefined) return decision;
  const { policies } = decision;
  const found = Object.hasOwn(policies, policyName) ? policies[policyName] : undefined;
  if (found !== undefined) return found;
  const names = Object.keys(policies).join(", ");
  throw new RangeError(`policyName must be one of ${names}, got ${show(policyName)}`);
}
