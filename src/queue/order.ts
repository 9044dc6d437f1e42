import type { ShareOptions } from "../api/limiter-api.ts";
import { type CallOrder, refuseShares } from "../api/options.ts";
import type { Ranks } from "../fair/ranks.ts";
import type { Placed, Turn } from "../fair/turn.ts";
import { failCheck } from "../ground/check.ts";
import type { Amount } from "../ground/permits.ts";
import { Line } from "./line.ts";
import type { Supply } from "./supply.ts";
import type { Waiter } from "./waiter.ts";

/** The order in which the waiters of a limiter are released. */
export interface Order extends CallOrder {
  /** Checks the options of a call. Returns its place in the order; `undefined` where all calls are equal. */
  turnOf<Item = Waiter>(options: ShareOptions | undefined, amount: Amount): Turn<Item> | undefined;
  /** Returns the line of a limiter. @param released and `refuse`: see `Line` */
  line<S extends Supply>(released: S, refuse: (waiter: Waiter) => void): Line<S>;
  /** New queues of shares, one for each priority; `undefined` where there are no shares. */
  ranks<Member extends Placed<Member>>(): Ranks<Member> | undefined;
}

/** Checks the option `order`. */
export function orderIn(options: { readonly order?: CallOrder | undefined }): Order {
  const { order = FIFO } = options;
  if (typeof (Object(order) as Partial<Order>).turnOf === "function") return order as Order;
  failCheck("order", "what fairShares() returns", order);
}

export const FIFO: Order = {
  turnOf(options) {
    refuseShares(options);
    return undefined;
  },
  line: (released, refuse) => new Line(released, refuse),
  ranks: () => undefined,
};
