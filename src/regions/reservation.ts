import type { Reservation, WaitOptions } from "../api/limiter-api.ts";
import { atLeastZero } from "../ground/check.ts";
import { ReservationCancelledError } from "../ground/errors.ts";
import { type Exclusive, settleInTurn } from "../ground/in-turn.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import {
  type AccountedReservation,
  type CheckedAccount,
  type Payment,
  unpaid,
} from "../queue/reservation.ts";
import type { PolicyState } from "../stores/state/one.ts";
import { chargeOf, isOfReserve } from "./feed.ts";
import { known } from "./part-state.ts";

type Supply = Pick<PolicyState, "amount" | "names">;

/** Charges and refunds the reserve, or the part of the key. @param failed called for each payment that was not made */
export type Pay = (
  payments: readonly Payment[],
  isOfReserve: boolean,
  failed: (payment: Payment) => void,
) => Promise<void>;

/**
 * A reservation in a region. What was used is settled where it was served: in the reserve, or in the part that the key
 * has now, since its key may have been forgotten meanwhile.
 */
export class RegionalReservation implements Reservation, Exclusive {
  readonly permits: Permits;
  waitMs: number;
  /** In the line of the part. */
  readonly place: AccountedReservation;
  readonly #changed: () => void;
  readonly #pay: Pay;
  /** What `make` has asked to be paid. */
  readonly #owed: Payment[] = [];
  readonly #supply: Supply;
  underWay: Exclusive["underWay"];

  /**
   * @param make makes it in a part
   * @param changed called when it needs other permits while it waits
   */
  constructor(
    supply: Supply,
    make: (account: CheckedAccount) => AccountedReservation,
    pay: Pay,
    changed: () => void,
  ) {
    const by = (verb: Payment[0]) => (amount: Amount) => void this.#owed.push([verb, amount]);
    this.place = make({ supply, charge: by("charge"), refund: by("refund") });
    this.#supply = supply;
    this.#pay = pay;
    this.#changed = changed;
    this.permits = this.place.permits;
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
    const amount = this.#supply.amount(actual, atLeastZero);
    await settleInTurn(this, amount, (used) =>
      chain(chargeOf(this.place), () => this.#settle(used)),
    );
  }

  /** Nothing is under way after it while the reservation waits: it owes nothing then. */
  #settle(used: Amount): MaybePromise<void> {
    this.place.settle(this.#permitsOf(used));
    const owed = this.#owed.splice(0);
    this.#changed();
    if (owed.length === 0) return;
    return this.#pay(owed, isOfReserve(this.place), (payment) => {
      this.place.used = unpaid(this.place.used, payment);
    });
  }

  #permitsOf(amount: Amount): Permits {
    if (typeof amount === "number") return amount;
    const named = this.#supply.names.flatMap((name, i) => {
      const permits = amount[i];
      return permits === undefined ? [] : [[name, permits] as const];
    });
    return Object.fromEntries(named);
  }

  undo(): Promise<void> {
    this.place.cancel();
    return this.settle(0);
  }
}
