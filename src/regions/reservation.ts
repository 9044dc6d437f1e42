import type { LocalReservation, Reservation, WaitOptions } from "../api/limiter-api.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type { CheckedAccount } from "../queue/reservation.ts";
import { known } from "./part-state.ts";
import { payerOf } from "./reserve.ts";

/** Charges or refunds the limiter of the key. */
export type Pay = (verb: "charge" | "refund", amount: Amount) => Promise<void>;

/**
 * A reservation in a region. What was used is settled where it was served: in the reserve, or in the part that the key
 * has now, since its key may have been forgotten meanwhile.
 */
export class RegionalReservation implements Reservation {
  readonly permits: Permits;
  waitMs: number;
  readonly #made: LocalReservation;
  readonly #changed: () => void;
  readonly #payments: Promise<void>[] = [];

  /**
   * @param make makes it in a part
   * @param changed called when it needs other permits while it waits
   */
  constructor(
    supply: CheckedAccount["supply"],
    make: (account: CheckedAccount) => LocalReservation,
    pay: Pay,
    changed: () => void,
  ) {
    const by = (verb: "charge" | "refund") => (amount: Amount) => {
      this.#payments.push(pay(verb, amount));
    };
    this.#made = make({ supply, charge: by("charge"), refund: by("refund") });
    this.#changed = changed;
    this.permits = this.#made.permits;
    this.waitMs = known(this.#made).waitMs;
  }

  ready(options?: WaitOptions): Promise<number> {
    return this.#made.ready(options);
  }

  cancel(): boolean {
    return this.#made.cancel();
  }

  settle(actual: Permits): Promise<void> {
    return this.#correct((reservation) => reservation.settle(actual));
  }

  undo(): Promise<void> {
    return this.#correct((reservation) => reservation.undo());
  }

  async #correct(how: (reservation: Reservation) => MaybePromise<void>): Promise<void> {
    const payer = payerOf(this.#made);
    await how(payer ?? this.#made);
    this.#changed();
    await Promise.all(this.#payments.splice(0));
  }
}
