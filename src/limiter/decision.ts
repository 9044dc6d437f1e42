import type { Quota } from "../algorithms/algorithm.ts";
import { toMillis } from "../clock.ts";
import type { Amount } from "../permits.ts";
import type { Decision } from "./face.ts";

/**
 * @param amount what was asked for: a policy that was not asked does not bind
 * @param wait microseconds until the permits can be used
 * @param slowest the index of the policy that makes them wait longest; who need not wait is bound
 *   by the one that has least left
 */
export function decision(
  names: readonly string[],
  quotas: readonly Quota[],
  amount: Amount,
  wait: number,
  slowest: number,
): Decision {
  const binding = wait > 0 ? slowest : scarcest(quotas, amount);
  const { limit, remaining, resetMs } = quotas[binding] as Quota;
  return {
    allowed: wait <= 0,
    waitMs: toMillis(Math.max(0, wait)),
    limit,
    remaining,
    resetMs,
    policy: String(names[binding]),
    policies: byName(names, quotas),
  };
}

/** Most limiters have one policy, and for one this costs a tenth of what it does for several. */
function byName(
  names: readonly string[],
  quotas: readonly Quota[],
): Readonly<Record<string, Quota>> {
  const [name] = names;
  if (names.length === 1) return { [name as string]: quotas[0] as Quota };
  return Object.fromEntries(names.map((each, i) => [each, quotas[i] as Quota]));
}

/**
 * A quota where somebody waits already or the limiter is paused: nothing remains for a newcomer.
 */
export function held(quota: Quota, micros: number): Quota {
  return { ...quota, remaining: 0, resetMs: Math.max(quota.resetMs, toMillis(micros)) };
}

function scarcest(quotas: readonly Quota[], amount: Amount): number {
  if (quotas.length === 1) return 0;
  const shares = quotas.map(({ limit, remaining }, i) => {
    if (typeof amount !== "number" && amount[i] === undefined) return Infinity;
    if (limit === 0) return 0;
    return limit === Infinity ? Number(remaining > 0) : remaining / limit;
  });
  return shares.indexOf(Math.min(...shares));
}
