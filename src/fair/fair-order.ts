import type { ShareOptions } from "../api/limiter-api.ts";
import type { FairOptions } from "../api/options.ts";
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
import { FIFO, type Order } from "../queue/order.ts";
import type { Supply } from "../queue/supply.ts";
import type { Waiter } from "../queue/waiter.ts";
import { FairLine } from "./fair-line.ts";
import { Ranks } from "./ranks.ts";
import { type Placed, Turn } from "./turn.ts";

/** Returns the order that the option `fair` asks for. */
export function orderOf(fair: boolean | FairOptions = false): Order {
  if (fair === false) return FIFO;
  return new FairOrder(fair === true ? {} : fair);
}

class FairOrder implements Order {
  readonly #priorities: readonly string[];
  readonly #agingMicros: number;

  constructor(options: FairOptions) {
    checkOptions("fair", options, ["priorities", "agingMs"]);
    const { priorities = [], agingMs = Infinity } = options;
    if (!Array.isArray(priorities) || new Set(priorities).size < priorities.length) {
      failCheck("fair.priorities", "an array of different strings", priorities);
    }
    for (const [i, priority] of priorities.entries()) checkText(`fair.priorities[${i}]`, priority);
    if (options.agingMs !== undefined && priorities.length < 2) {
      throw new TypeError("fair.agingMs has no effect without two priorities: leave it out");
    }
    this.#priorities = priorities;
    this.#agingMicros = 1000 * checkNumber("fair.agingMs", agingMs, aboveZeroOrInfinity);
  }

  turnOf<Item = Waiter>(options: ShareOptions | undefined, amount: Amount): Turn<Item> {
    const { share = "", weight = 1, priority } = options ?? {};
    checkText("share", share);
    checkNumber("weight", weight, aboveZero);
    const list = this.#priorities;
    let rank = Math.max(0, list.length - 1);
    if (priority !== undefined) {
      if (list.length === 0) {
        throw new TypeError("priority needs a limiter that was created with fair: { priorities }");
      }
      checkOneOf("priority", priority, list);
      rank = list.indexOf(priority);
    }
    return new Turn(rank, share, sizeOf(amount), weight);
  }

  line<S extends Supply>(released: S, refuse: (waiter: Waiter) => void): FairLine<S> {
    return new FairLine(released, refuse, this.ranks());
  }

  ranks<Member extends Placed<Member>>(): Ranks<Member> {
    return new Ranks(Math.max(1, this.#priorities.length), this.#agingMicros);
  }
}
