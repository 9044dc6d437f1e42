import { toMillis } from "../clock.ts";
import type { Amount } from "../permits.ts";
import type { Cell } from "../stores/memory.ts";
import type { Decision, PolicyStatus } from "./face.ts";
import type { Outlook } from "./waiter-queue.ts";

/** The permits can be used now; `cell` is as it is after them (`decide`) or before (`peek`). */
export function allowed(cell: Cell, now: number): Decision {
  const quotas = cell.quotas(now);
  return decision(cell.names, quotas, scarcest(quotas), 0);
}

/** The permits can be used at the outlook's instant. */
export function refused(
  { cell, from, instant, held }: Outlook,
  amount: Amount,
  now: number,
): Decision {
  const quotas = cell.quotas(now).map((quota) =>
    // whoever waits goes first, so that nothing remains for a newcomer whatever the policies have left
    held
      ? { ...quota, remaining: 0, resetMs: Math.max(quota.resetMs, toMillis(from - now)) }
      : quota,
  );
  return decision(cell.names, quotas, cell.slowest(from, amount), toMillis(instant - now));
}

function decision(
  names: readonly string[],
  quotas: readonly PolicyStatus[],
  binding: number,
  waitMs: number,
): Decision {
  const { limit, remaining, resetMs } = quotas[binding] as PolicyStatus;
  const policies = Object.fromEntries(names.map((name, i) => [name, quotas[i] as PolicyStatus]));
  const policy = names[binding] as string;
  return { allowed: waitMs === 0, waitMs, limit, remaining, resetMs, policy, policies };
}

function scarcest(quotas: readonly PolicyStatus[]): number {
  const shares = quotas.map(({ limit, remaining }) => (limit === Infinity ? 1 : remaining / limit));
  return shares.indexOf(Math.min(...shares));
}
