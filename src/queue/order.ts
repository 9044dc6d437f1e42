import type { ShareOptions } from "../api/limiter-api.ts";
import { type CallOrder, refuseShares } from "../api/options.ts";
import type { FairEntry, HasFairEntry } from "../fair/fair-entry.ts";
import type { Ranks } from "../fair/ranks.ts";
import { failCheck } from "../ground/check.ts";
import type { Amount } from "../ground/permits.ts";
import { type Refuse, Schedule } from "./schedule.ts";
import type { Supply } from "./supply.ts";
import type { Waiter } from "./waiter.ts";

/** The order in which the waiters of a limiter are released. */
export interface Order extends CallOrder {
  /** Checks the options of a call. Returns its place in the order; `undefined` where all calls are equal. */
  entryOf<Item = Waiter>(
    options: ShareOptions | undefined,
    amount: Amount,
  ): FairEntry<Item> | undefined;
  /** Returns the schedule of a limiter. @param released and `refuse`: see `Schedule` */
  schedule<S extends Supply>(released: S, refuse: Refuse): Schedule<S>;
  /** New queues of shares, one for each priority; `undefined` where there are no shares. */
  ranks<Member extends HasFairEntry<Member>>(): Ranks<Member> | undefined;
}

/** Checks the option `order`. */
export function orderIn(options: { readonly order?: CallOrder | undefined }): Order {
  const { order = FIFO } = options;
  if (typeof (Object(order) as Partial<Order>).entryOf === "function") return order as Order;
  failCheck("order", "what fairShares() returns", order);
}

export const FIFO: Order = {
  entryOf(options) {
    refuseShares(options);
    return undefined;
  },
  schedule: (released, refuse) => new Schedule(released, refuse),
  ranks: () => undefined,
};
