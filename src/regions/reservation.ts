import type { LocalReservation, Reservation, WaitOptions } from "../api/limiter-api.ts";
import { ReservationCancelledError } from "../ground/errors.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type { CheckedAccount } from "../queue/reservation.ts";
import { isOfReserve } from "./feed.ts";
import { known } from "./part-state.ts";

/** Charges or refunds the reserve, or the part of the key. */
export type Pay = (payments: readonly Payment[], isOfReserve: boolean) => Promise<void>;
export type Payment = readonly ["charge" | "refund", Amount];

/**
 * A reservation in a region. What was used is settled where it was served: in the reserve, or in the part that the key
 * has now, since its key may have been forgotten meanwhile.
 */
export class RegionalReservation implements Reservation {
  readonly permits: Permits;
  waitMs: number;
  /** In the line of the part. */
  readonly place: LocalReservation;
  readonly #changed: () => void;
  readonly #pay: Pay;
  /** What `make` has asked to be paid. */
  readonly #owed: Payment[] = [];
  /** What it has taken, as far as that was paid. */
  #taken: Permits;

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
    const by = (verb: Payment[0]) => (amount: Amount) => void this.#owed.push([verb, amount]);
    this.place = make({ supply, charge: by("charge"), refund: by("refund") });
    this.#pay = pay;
    this.#changed = changed;
    this.permits = this.place.permits;
    this.#taken = this.permits;
    this.waitMs = known(this.place).waitMs;
  }

  async ready(options?: WaitOptions): Promise<number> {
    try {
      return await this.place.ready(options);
    } catch (error) {
      throw error instanceof ReservationCancelledError
        ? new ReservationCancelledError(this.waitMs)
        : error;
    }
  }

  cancel(): boolean {
    return this.place.cancel();
  }

  async settle(actual: Permits): Promise<void> {
    this.place.settle(actual);
    const byReserve = isOfReserve(this.place);
    const owed = this.#owed.splice(0);
    const before = this.#taken;
    this.#taken = typeof actual === "number" ? actual : Object.assign({}, before, actual);
    this.#changed();
    try {
      await this.#pay(owed, byReserve);
    } catch (error) {
      // nothing was charged: it may be settled again
      this.place.settle(before);
      this.#owed.length = 0;
      this.#taken = before;
      throw error;
    }
  }

  undo(): Promise<void> {
    this.place.cancel();
    return this.settle(0);
  }
}
