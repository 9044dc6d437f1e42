import type { Reservation, WaitOptions } from "../../api/limiter-api.ts";
import { checkSignalOptions } from "../../api/options.ts";
import type { Ranks } from "../../fair/ranks.ts";
import { ReservationCancelledError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { RemoteCalls } from "../remote-calls.ts";
import type { Charged } from "../remote-waiter.ts";
import type { OrderedCaller } from "./ordered-caller.ts";

/** A call that waits in fair order: others may overtake it until the store has it. */
export class WaitingReservation implements Reservation, Charged {
  readonly permits: Permits;
  waitMs = 0;
  readonly call: OrderedCaller;
  /** Resolves to how long the call has waited, ms. */
  readonly granted: Promise<number>;
  readonly #store: RemoteCalls;
  readonly #ranks: Ranks<OrderedCaller>;
  charged: Amount;
  #state: "waiting" | "granted" | "left" | "undone" = "waiting";

  /** @param enter makes the call */
  constructor(
    store: RemoteCalls,
    ranks: Ranks<OrderedCaller>,
    permits: Permits,
    enter: (resolve: (outcome: number | Promise<never>) => void) => OrderedCaller,
  ) {
    let settle = (_: number | Promise<never>) => {};
    this.granted = new Promise((resolve) => {
      settle = resolve;
    });
    this.call = enter((outcome) => {
      this.#state = typeof outcome === "number" ? "granted" : "left";
      settle(outcome);
    });
    this.permits = permits;
    this.#store = store;
    this.#ranks = ranks;
    this.charged = this.call.amount;
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkSignalOptions(options);
    const leave = () => this.#leave(signal?.reason);
    if (signal?.aborted) leave();
    signal?.addEventListener("abort", leave);
    try {
      return await this.granted;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  async cancel(): Promise<boolean> {
    return this.#leave(new ReservationCancelledError(this.waitMs));
  }

  /** @returns whether it still waited */
  #leave(reason: unknown): boolean {
    if (this.#state !== "waiting") return false;
    this.call.leave(reason);
    return true;
  }

  async settle(actual: Permits): Promise<void> {
    if (this.#state !== "left") await this.#store.settle(this, actual);
  }

  async undo(): Promise<void> {
    if (await this.cancel()) return;
    if (this.#state === "granted") {
      this.#ranks.refund(this.call.fairEntry);
      this.#state = "undone";
    }
    await this.settle(0);
  }
}
