/** The reservations of a fair limiter on a store. */
import { ReservationCancelledError } from "../../ground/errors.ts";
import type { Permits } from "../../ground/permits.ts";
import type { Reservation, WaitOptions } from "../limiter-api.ts";
import { checkSignalOptions } from "../options.ts";

/** A reservation in the store. Its share is charged for it, unless it is cancelled. */
export class ChargedReservation implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #reservation: Reservation;
  #refund: (() => void) | undefined;

  /** @param refund undoes the charge */
  constructor(reservation: Reservation, refund: () => void) {
    this.permits = reservation.permits;
    this.waitMs = reservation.waitMs;
    this.#reservation = reservation;
    this.#refund = refund;
  }

  async ready(options?: WaitOptions): Promise<number> {
    checkSignalOptions(options);
    try {
      return await this.#reservation.ready(options);
    } catch (error) {
      this.#refundShare();
      throw error;
    }
  }

  async cancel(): Promise<boolean> {
    const isCancelled = await this.#reservation.cancel();
    if (isCancelled) this.#refundShare();
    return isCancelled;
  }

  async settle(actual: Permits): Promise<void> {
    await this.#reservation.settle(actual);
  }

  async undo(): Promise<void> {
    this.#refundShare();
    await this.#reservation.undo();
  }

  #refundShare(): void {
    this.#refund?.();
    this.#refund = undefined;
  }
}

/** What such a reservation needs of the limiter. */
export interface WaitingCall {
  /** Resolves to how long the call has waited, ms; the controller ends the wait. */
  readonly granted: Promise<number>;
  readonly controller: AbortController;
  /** Corrects the permits that it has taken. */
  settle(actual: Permits): Promise<void>;
  /** Undoes the charge of its share. */
  refund(): void;
}

/** A call that waits in fair order: others may overtake it until the store has it. */
export class WaitingReservation implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #call: WaitingCall;
  #isGranted = false;
  #isUndone = false;

  constructor(permits: Permits, waitMs: number, call: WaitingCall) {
    this.permits = permits;
    this.waitMs = waitMs;
    this.#call = call;
    call.granted.then(
      () => {
        this.#isGranted = true;
      },
      // `ready` rejects with it
      () => {},
    );
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkSignalOptions(options);
    const { controller, granted } = this.#call;
    const leave = () => controller.abort(signal?.reason);
    if (signal?.aborted) leave();
    signal?.addEventListener("abort", leave);
    try {
      return await granted;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  async cancel(): Promise<boolean> {
    const { controller } = this.#call;
    if (this.#isGranted || controller.signal.aborted) return false;
    controller.abort(new ReservationCancelledError(this.waitMs));
    return true;
  }

  async settle(actual: Permits): Promise<void> {
    if (!this.#call.controller.signal.aborted) await this.#call.settle(actual);
  }

  async undo(): Promise<void> {
    if (await this.cancel()) return;
    if (this.#isGranted && !this.#isUndone) this.#call.refund();
    this.#isUndone = true;
    await this.settle(0);
  }
}
