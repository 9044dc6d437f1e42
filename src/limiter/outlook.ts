import type { Amount } from "../ground/permits.ts";
import type { Cell } from "../stores/cell.ts";
import { held, statusesOf } from "./decision.ts";
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

/** Where a request stands that is made at `now`. */
interface PlaceStatus {
  readonly amount: Amount;
  readonly now: number;
  /** The first instant at which the permits could be used. */
  readonly instant: number;
  /** When the request would be the head of the line. */
  readonly from: number;
  /** The state after all waiters. */
  readonly cell: Cell;
  /** Whether no caller waits. */
  readonly isFirst: boolean;
}

/** Returns the prospects of a request. */
export function outlookOf({ amount, now, instant, from, cell, isFirst }: PlaceStatus): Outlook {
  const full = instant > now && cell.isBounded ? cell.overflowing(now, amount) : -1;
  const allows = cell.allows(from, now, amount);
  const quotas = statusesOf(cell.quotas(now), (i) => allows[i] === true);
  return {
    instant: full >= 0 ? Infinity : instant,
    slowest: full >= 0 ? full : cell.slowest(from, amount),
    quotas: from > now || !isFirst ? quotas.map((quota) => held(quota, from - now)) : quotas,
  };
}
