import type { ShareOptions } from "../api/limiter-api.ts";
import type { CallOrder, FairOptions } from "../api/options.ts";
import {
  aboveZero,
  aboveZeroOrInfinity,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkText,
  failCheck,
} from "../ground/check.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { Order } from "../queue/order.ts";
import type { Refuse } from "../queue/schedule.ts";
import type { Supply } from "../queue/supply.ts";
import type { Waiter } from "../queue/waiter.ts";
import { FairEntry, type HasFairEntry } from "./fair-entry.ts";
import { FairSchedule } from "./fair-schedule.ts";
import { Ranks } from "./ranks.ts";

/**
 * Returns the order of a limiter that is shared fairly, for the option `order`: callers of one `share` are first in,
 * first out; across shares permits go in proportion to their weights, by start-time fair queueing. With priorities,
 * callers of a higher one go before all callers of lower ones.
 *
 * @param options `priorities`: the names of the priorities, the highest first (default: none); `agingMs`: with
 *   priorities, how long one may go without a permit before it gets one, ms, above 0 (default `Infinity`)
 * @returns the order; several limiters may have the same one
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = RateLimiter.create(100, { order: fairShares() });
 * await limiter.acquire(1, { share: tenant });
 */
export function fairShares(options: FairOptions = {}): CallOrder {
  const order: Order = new FairOrder(options);
  return order;
}

class FairOrder implements Order {
  readonly #priorities: readonly string[];
  readonly #agingMicros: number;

  constructor(options: FairOptions) {
    checkOptions("fairShares", options, ["priorities", "agingMs"]);
    const { priorities = [], agingMs = Infinity } = options;
    if (!Array.isArray(priorities) || new Set(priorities).size < priorities.length) {
      failCheck("priorities", "an array of different strings", priorities);
    }
    for (const [i, priority] of priorities.entries()) checkText(`priorities[${i}]`, priority);
    if (options.agingMs !== undefined && priorities.length < 2) {
      throw new TypeError("agingMs has no effect without two priorities: leave it out");
    }
    this.#priorities = priorities;
    this.#agingMicros = 1000 * checkNumber("agingMs", agingMs, aboveZeroOrInfinity);
  }

  entryOf<Item = Waiter>(options: ShareOptions | undefined, amount: Amount): FairEntry<Item> {
    const { share = "", weight = 1, priority } = options ?? {};
    checkText("share", share);
    checkNumber("weight", weight, aboveZero);
    const list = this.#priorities;
    let rank = Math.max(0, list.length - 1);
    if (priority !== undefined) {
      if (list.length === 0) {
        throw new TypeError("priority needs a limiter with an order: fairShares({ priorities })");
      }
      checkOneOf("priority", priority, list);
      rank = list.indexOf(priority);
    }
    return new FairEntry(rank, share, sizeOf(amount), weight);
  }

  schedule<S extends Supply>(released: S, refuse: Refuse): FairSchedule<S> {
    return new FairSchedule(released, refuse, this.ranks());
  }

  ranks<Member extends HasFairEntry<Member>>(): Ranks<Member> {
    return new Ranks(Math.max(1, this.#priorities.length), this.#agingMicros);
  }
}
