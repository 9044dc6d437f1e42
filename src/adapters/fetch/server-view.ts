import type { Decision, Limiter } from "../../api/limiter-api.ts";
import { chain, type MaybePromise } from "../../ground/maybe-promise.ts";
import type { Permits } from "../../ground/permits.ts";
import { Budget } from "./budget.ts";
import type { ServerQuota } from "./rate-limit-fields.ts";

/** Permits by policy name; `EVERY` is the name of those that apply to every policy. */
type Amounts = Readonly<Record<string, number>>;
const EVERY = "";

/** A bound on the number of quotas, because the server chooses their names. */
const MOST_QUOTAS = 16;

/** A request that was sent. */
export interface SentRequest {
  readonly atMs: number;
  /** The permits of all requests sent so far, this one included. */
  readonly total: Permits;
}

/** What responses have reported about the server's own limits. */
export class ServerView {
  readonly #budgets = new Map<string | undefined, Budget>();
  #total: Permits = 0;

  /** How many ms until the server accepts the request, as far as is known; 0 if it does now. */
  holdMs(permits: Permits, now: number): number {
    let longest = 0;
    for (const [name, budget] of this.#budgets) {
      longest = Math.max(longest, budget.holdMs(amountOf(permits, name), now));
    }
    return longest;
  }

  send(permits: Permits, now: number): SentRequest {
    for (const [name, budget] of this.#budgets) budget.take(amountOf(permits, name), now);
    this.#total = sum(this.#total, permits);
    return { atMs: now, total: this.#total };
  }

  /** Adopts the quotas that the response to `sent` reports. */
  update(sent: SentRequest, quotas: readonly ServerQuota[], now: number): void {
    for (const quota of quotas) {
      const { name } = quota;
      const budget = this.#budgets.get(name) ?? new Budget();
      if (!this.#budgets.has(name) && this.#budgets.size >= MOST_QUOTAS) continue;
      this.#budgets.set(name, budget);
      const since = amountOf(this.#total, name) - amountOf(sent.total, name);
      budget.update(quota, since, sent.atMs, now);
    }
  }

  /**
   * For each policy of the limiter: how many permits more than the server it would grant at once.
   */
  excess({ policies }: Decision, now: number): Record<string, number> {
    const excess: Record<string, number> = {};
    for (const [name, budget] of this.#budgets) {
      const policy = policyOf(Object.keys(policies), name);
      if (policy === undefined) continue;
      const ahead = (policies[policy]?.remaining ?? 0) - Math.max(0, budget.left(now));
      if (ahead > (excess[policy] ?? 0) && ahead < Infinity) excess[policy] = ahead;
    }
    return excess;
  }
}

/**
 * Charges the limiter the permits by which it is ahead of the server. Where the server is ahead
 * nothing is given back: other clients may use that quota, and the limiter must keep its own pace
 * anyway.
 */
export function chargeExcess(
  limiter: Limiter,
  permits: Permits,
  view: ServerView,
  now: number,
): MaybePromise<void> {
  return chain(limiter.peek(permits), (decision) => {
    const excess = view.excess(decision, now);
    return Object.keys(excess).length > 0 ? limiter.charge(excess) : undefined;
  });
}

function sum(a: Permits, b: Permits): Permits {
  if (typeof a === "number" && typeof b === "number") return a + b;
  const total = { ...toAmounts(a) };
  for (const [name, amount] of Object.entries(toAmounts(b))) {
    total[name] = (total[name] ?? 0) + amount;
  }
  return total;
}

function toAmounts(permits: Permits): Amounts {
  return typeof permits === "number" ? { [EVERY]: permits } : permits;
}

function amountOf(permits: Permits, quota: string | undefined): number {
  if (typeof permits === "number") return permits;
  const names = Object.keys(permits).filter((name) => name !== EVERY);
  const policy = policyOf(names, quota);
  return (permits[EVERY] ?? 0) + (policy === undefined ? 0 : (permits[policy] ?? 0));
}

/**
 * Returns the limiter's policy for a quota of the server: the one with its name; the only one; or,
 * for a quota without a name, the one called "requests".
 */
function policyOf(names: readonly string[], quota: string | undefined): string | undefined {
  const name = quota ?? "requests";
  if (names.includes(name)) return name;
  return names.length === 1 ? names[0] : undefined;
}
