import type { Decision, Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import { Budget } from "./budget.ts";
import type { ServerQuota } from "./rate-limit-fields.ts";

/** Amounts by the name of a policy; under `EVERY` what is asked of every policy alike. */
type Amounts = Readonly<Record<string, number>>;
const EVERY = "";

/** The names come from the server: it does not get to choose how many there are. */
const MOST_QUOTAS = 16;

/** A request that was sent. */
export interface Sent {
  readonly atMs: number;
  /** All that had been sent with it. */
  readonly total: Amounts;
}

/** What is known of the server's own limits, from its responses. */
export class ServerView {
  readonly #budgets = new Map<string | undefined, Budget>();
  #total: Amounts = {};

  /** In how many ms the server lets this in, as far as is known; 0 for now. */
  holdMs(permits: Permits, now: number): number {
    const amounts = toAmounts(permits);
    const holds = [...this.#budgets].map(([name, budget]) =>
      budget.holdMs(amountOf(amounts, name), now),
    );
    return Math.max(0, ...holds);
  }

  send(permits: Permits, now: number): Sent {
    const amounts = toAmounts(permits);
    for (const [name, budget] of this.#budgets) budget.take(amountOf(amounts, name), now);
    const total = { ...this.#total };
    for (const [name, amount] of Object.entries(amounts)) total[name] = (total[name] ?? 0) + amount;
    this.#total = total;
    return { atMs: now, total };
  }

  /** A response to that request has told how things stood. */
  hear(sent: Sent, quotas: readonly ServerQuota[], now: number): void {
    for (const quota of quotas) {
      const { name } = quota;
      const budget = this.#budgets.get(name) ?? new Budget();
      if (!this.#budgets.has(name) && this.#budgets.size >= MOST_QUOTAS) continue;
      this.#budgets.set(name, budget);
      const since = amountOf(this.#total, name) - amountOf(sent.total, name);
      budget.hear(quota, since, sent.atMs, now);
    }
  }

  /** By how much each policy of the limiter would let through more at once than the server. */
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
 * Charges the limiter what it is ahead of the server. Nothing is given back where the server is
 * ahead: others may be about to use it, and the limiter's own pace is to be kept in any case.
 */
export async function chargeExcess(
  limiter: Limiter,
  permits: Permits,
  view: ServerView,
  now: number,
): Promise<void> {
  const excess = view.excess(await limiter.peek(permits), now);
  if (Object.keys(excess).length > 0) await limiter.charge(excess);
}

function toAmounts(permits: Permits): Amounts {
  return typeof permits === "number" ? { [EVERY]: permits } : permits;
}

function amountOf(amounts: Amounts, quota: string | undefined): number {
  const names = Object.keys(amounts).filter((name) => name !== EVERY);
  const policy = policyOf(names, quota);
  return (amounts[EVERY] ?? 0) + (policy === undefined ? 0 : (amounts[policy] ?? 0));
}

/**
 * Which of the limiter's policies a quota of the server is: the one of its name; the only one there
 * is; for a quota without a name the one called "requests".
 */
function policyOf(names: readonly string[], quota: string | undefined): string | undefined {
  const name = quota ?? "requests";
  if (names.includes(name)) return name;
  return names.length === 1 ? names[0] : undefined;
}
