import type { Quota } from "../algorithms/algorithm.ts";
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { Decision, PolicyStatus } from "./limiter-api.ts";

/**
 * Builds the answer for one request.
 *
 * @param amount the request's permits; a policy that is not charged does not bind
 * @param wait µs until the permits can be used
 * @param slowest the index of the policy with the longest wait. If the permits can be used at once,
 *   the binding policy is the one with the fewest permits left
 */
export function decision(
  names: readonly string[],
  quotas: readonly PolicyStatus[],
  amount: Amount,
  wait: number,
  slowest: number,
): Decision {
  const binding = wait > 0 ? slowest : scarcest(quotas, amount);
  const { limit, remaining, resetMs } = quotas[binding] as PolicyStatus;
  return {
    allowed: wait <= 0,
    waitMs: toMillis(Math.max(0, wait)),
    limit,
    remaining,
    resetMs,
    policy: names[binding] as string,
    policies: byName(names, quotas),
  };
}

/**
 * Builds the answer for a request that finds this state.
 *
 * @param from when it would be the head of the queue, µs
 * @param wait µs until the permits can be used; `Infinity` if it may not wait
 * @param full the index of a policy that rejects it; -1 if there is none
 */
export function decisionOn(
  policyState: PolicyState,
  now: number,
  from: number,
  amount: Amount,
  wait: number,
  full: number,
): Decision {
  const instants = policyState.instants(from, amount);
  const statuses = statusesOf(policyState.quotas(now), instants, now);
  return decision(
    policyState.names,
    from <= now ? statuses : statuses.map((status) => asPaused(status, from - now)),
    amount,
    wait,
    full < 0 ? instants.indexOf(Math.max(...instants)) : full,
  );
}

/** Builds the answer for a request that passes now. Most limiters have one policy. */
export function passing(
  names: readonly string[],
  quotas: readonly Quota[],
  amount: Amount,
): Decision {
  if (names.length > 1) return decision(names, statusesOf(quotas), amount, 0, 0);
  const [name] = names as readonly [string];
  const { limit, remaining, resetMs, windowMs } = quotas[0] as Quota;
  const policies = { [name]: { allowed: true, limit, remaining, resetMs, windowMs } };
  return { allowed: true, waitMs: 0, limit, remaining, resetMs, policy: name, policies };
}

/** Most limiters have one policy, and this branch takes a tenth of the time of the general one. */
function byName(
  names: readonly string[],
  quotas: readonly PolicyStatus[],
): Readonly<Record<string, PolicyStatus>> {
  const [name] = names;
  if (names.length === 1) return { [name as string]: quotas[0] as PolicyStatus };
  return Object.fromEntries(names.map((each, i) => [each, quotas[i] as PolicyStatus]));
}

/** The quotas, each with whether that policy alone lets the request pass: all do without `instants`. */
function statusesOf(
  quotas: readonly Quota[],
  instants: readonly number[] = [],
  now = 0,
): readonly PolicyStatus[] {
  return quotas.map(({ limit, remaining, resetMs, windowMs }, i) => {
    return { allowed: (instants[i] ?? now) <= now, limit, remaining, resetMs, windowMs };
  });
}

/** The quota while callers wait or the limiter is paused: nothing remains for a new caller. */
export function asPaused(quota: PolicyStatus, micros: number): PolicyStatus {
  return { ...quota, remaining: 0, resetMs: Math.max(quota.resetMs, toMillis(micros)) };
}

function scarcest(quotas: readonly PolicyStatus[], amount: Amount): number {
  if (quotas.length === 1) return 0;
  const shares = quotas.map(({ limit, remaining }, i) => {
    if (typeof amount !== "number" && amount[i] === undefined) return Infinity;
    if (limit === 0) return 0;
    return limit === Infinity ? Number(remaining > 0) : remaining / limit;
  });
  return shares.indexOf(Math.min(...shares));
}
