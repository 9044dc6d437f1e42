import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import { Fifo } from "./fifo.ts";
import type { ShareOptions } from "./limiter-api.ts";
import { Line } from "./line.ts";
import { Replay } from "./replay.ts";
import type { Waiter } from "./waiter.ts";

/** The order in which the waiters of a limiter are released. */
export interface Order {
  /** Checks the options of a call. Returns its place in the order; `undefined` where all calls are equal. */
  turnOf<Item = Waiter>(options: ShareOptions | undefined, amount: Amount): Turn<Item> | undefined;
  open(
    released: PolicyState,
    refuse: (waiter: Waiter) => void,
  ): { readonly line: Line; readonly replay: Replay };
  /** The queue of a limiter without a state. @param now the time, microseconds */
  fifo<Member extends Placed<Member>>(now: () => number): FifoQueue<Member>;
}

/** A member of such a queue. */
export interface Placed<Member> {
  readonly turn: Turn<Member> | undefined;
}

export type FifoQueue<Member> = Pick<
  Fifo<Member>,
  "size" | "head" | "append" | "remove" | "shift" | typeof Symbol.iterator
>;

const NONE: ShareOptions = {};

export const FIFO: Order = {
  turnOf(options) {
    const { share, weight, priority } = options ?? NONE;
    if (share !== undefined || weight !== undefined || priority !== undefined) {
      throw new TypeError(
        "share, weight and priority need a limiter that was created with { fair: true }",
      );
    }
    return undefined;
  },
  open(released, refuse) {
    const line = new Line();
    return { line, replay: new Replay(line, released, refuse) };
  },
  fifo: () => new Fifo(),
};
