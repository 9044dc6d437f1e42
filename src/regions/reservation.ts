import type { LocalReservation, Reservation, WaitOptions } from "../api/limiter-api.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type { CheckedAccount } from "../queue/reservation.ts";
import { isOfReserve } from "./feed.ts";
import { known } from "./part-state.ts";

/** Charges or refunds the reserve, or the part of the key. */
export type Pay = (verb: Verb, amount: Amount, isOfReserve: boolean) => Promise<void>;
export type Verb = "charge" | "refund";

/**
 * A reservation in a region. What was used is settled where it was served: in the reserve, or in the part that the key
 * has now, since its key may have been forgotten meanwhile.
 */
export class RegionalReservation implements Reservation {
  readonly permits: Permits;
  waitMs: number;
  readonly #made: LocalReservation;
  readonly #changed: () => void;
  readonly #pay: Pay;
  /** What `make` has asked to be paid. */
  readonly #owed: [Verb, Amount][] = [];
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
    const by = (verb: Verb) => (amount: Amount) => void this.#owed.push([verb, amount]);
    this.#made = make({ supply, charge: by("charge"), refund: by("refund") });
    this.#pay = pay;
    this.#changed = changed;
    this.permits = this.#made.permits;
    this.#taken = this.permits;
    this.waitMs = known(this.#made).waitMs;
  }

  ready(options?: WaitOptions): Promise<number> {
    return this.#made.ready(options);
  }

  cancel(): boolean {
    return this.#made.cancel();
  }

  async settle(actual: Permits): Promise<void> {
    this.#made.settle(actual);
    const byReserve = isOfReserve(this.#made);
    const owed = this.#owed.splice(0);
    const before = this.#taken;
    this.#taken = typeof actual === "number" ? actual : Object.assign({}, before, actual);
    this.#changed();
    try {
      await Promise.all(owed.map((one) => this.#pay(...one, byReserve)));
    } catch (error) {
      // nothing was charged: it may be settled again
      this.#made.settle(before);
      this.#owed.length = 0;
      this.#taken = before;
      throw error;
    }
  }

  undo(): Promise<void> {
    this.#made.cancel();
    return this.settle(0);
  }
}
