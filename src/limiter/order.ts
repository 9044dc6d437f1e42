import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import type { ShareOptions } from "./limiter-api.ts";
import { Line } from "./line.ts";
import { Replay } from "./replay.ts";
import type { Waiter } from "./waiter.ts";

/** The order in which the waiters of a limiter are released. */
export interface Order {
  /** Checks the options of a call. Returns its place in the order; `undefined` where all calls are equal. */
  turnOf(options: ShareOptions | undefined, amount: Amount): Turn<Waiter> | undefined;
  open(
    released: PolicyState,
    refuse: (waiter: Waiter) => void,
  ): { readonly line: Line; readonly replay: Replay };
}

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
};
