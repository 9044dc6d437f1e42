import { atLeastZero } from "../../ground/check.ts";
import { type Timer, toMillis } from "../../ground/clock.ts";
import type { RefusedMessage } from "../../ground/diagnostics.ts";
import { QueueFullError, ReservationCancelledError } from "../../ground/errors.ts";
import { type Amount, combine, type Permits, sameAmount, sizeOf } from "../../ground/permits.ts";
import type { Reservation, WaitOptions } from "../face.ts";
import { checkWaitOptions } from "../options.ts";
import type { Here } from "./permit-request.ts";
import { type Grant, RemoteWaiter, type WaiterHost, type Wanted } from "./remote-waiter.ts";

/** The part of the limiter that a reservation uses beyond what every waiter does. */
export interface ReservationHost extends WaiterHost {
  /** Checks the permits and returns them as an amount. */
  amount(permits: Permits, bound: typeof atLeastZero): Amount;
  /** Called when the store has granted the reservation. */
  reserved(reservation: RemoteReservation): void;
  change(verb: "charge" | "refund", amount: Amount): Promise<void>;
  checkOpen(): void;
}

/**
 * Permits that the store has promised, or is asked for. No caller awaits them until `ready()` is called.
 * The promised instant never changes; only a pause defers it.
 */
export class RemoteReservation extends RemoteWaiter implements Reservation {
  readonly permits: Permits;
  waitMs = 0;
  readonly #host: ReservationHost;
  readonly #resolve: (outcome: Reservation | PromiseLike<never>) => void;
  /** The permits charged for it: the estimate, the amount given to `settle`, or 0 once returned. */
  #taken: Amount;
  /** When its permits can be used, as promised by the store. */
  #instant = Infinity;
  #isCancelled = false;
  /** The promise behind `ready()`; the `#signals` below can end it. */
  #ready: Promise<void> | undefined;
  #rejectReady: ((reason: unknown) => void) | undefined;
  #alarm: Timer | undefined;
  readonly #signals = new Set<AbortSignal>();

  constructor(
    host: ReservationHost,
    wanted: Wanted,
    resolve: (outcome: Reservation | PromiseLike<never>) => void,
  ) {
    super(host, wanted);
    this.#host = host;
    this.permits = wanted.permits;
    this.#taken = wanted.amount;
    this.#resolve = resolve;
  }

  // -- requested --

  protected override granted(wait: number, { instant }: Grant): void {
    this.#instant = instant;
    this.waitMs = toMillis(wait);
    this.untrack();
    this.#host.reserved(this);
    this.#host.meter.granted(this.amount, wait);
    this.#resolve(this);
  }

  override refuse(full: () => Error, _reason?: RefusedMessage["reason"]): void {
    this.untrack();
    this.#host.meter.refused(this.amount, "queue-full");
    this.reject(full());
  }

  protected override reject(reason: unknown): void {
    this.#resolve(Promise.reject(reason));
  }

  override runHere(here: Here): void {
    this.untrack();
    this.answered();
    try {
      const reservation = here.reserve(this.permits, this.amount);
      this.#host.meter.granted(this.amount, reservation.waitMs * 1000);
      this.#resolve(reservation);
    } catch (error) {
      if (error instanceof QueueFullError) this.refuse(() => error);
      else this.reject(error);
    }
  }

  override delayed(): void {}

  override leave(reason: unknown): void {
    const taken = this.#taken;
    if (this.grant !== undefined) {
      // no caller waits for this request: if it fails, the permits are lost
      if (this.#giveUp(reason)) this.#return(taken).catch(() => {});
    } else {
      this.gone = true;
      this.fail(reason);
    }
  }

  // -- promised --

  /** Whether the reservation is neither cancelled nor due. */
  get isPending(): boolean {
    return !this.#isCancelled && !this.#isDue;
  }

  get #isDue(): boolean {
    return this.#host.line.reached(this.#instant);
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkWaitOptions(options);
    if (signal?.aborted) {
      this.leave(signal.reason);
      throw signal.reason;
    }
    if (this.#isCancelled) throw new ReservationCancelledError(this.waitMs);
    if (this.#isDue) return this.waitMs;
    this.#host.checkOpen();
    this.#host.track(this, signal);
    if (signal !== undefined) this.#signals.add(signal);
    this.#ready ??= new Promise((resolve, reject) => {
      this.#rejectReady = reject;
      this.#alarm = this.#host.line.alarm(this.#instant, () => {
        this.#stopWaiting();
        resolve();
      });
    });
    await this.#ready;
    return this.waitMs;
  }

  async cancel(): Promise<boolean> {
    const taken = this.#taken;
    if (!this.#giveUp(new ReservationCancelledError(this.waitMs))) return false;
    await this.#return(taken);
    return true;
  }

  /** Returns all its permits, even if its instant has come. */
  async undo(): Promise<void> {
    const taken = this.#taken;
    if (sizeOf(taken) === 0) return;
    this.#giveUp(new ReservationCancelledError(this.waitMs));
    this.#taken = combine(taken, taken, () => 0);
    await this.#return(taken);
  }

  async settle(actual: Permits): Promise<void> {
    const used = this.#host.amount(actual, atLeastZero);
    const before = this.#taken;
    const after = combine(before, used, (was, is = was) => is);
    const more = combine(before, used, (was, is = was) => Math.max(0, is - was));
    const less = combine(before, used, (was, is = was) => Math.max(0, was - is));
    this.#taken = after;
    try {
      await Promise.all([this.#host.change("charge", more), this.#host.change("refund", less)]);
    } catch (error) {
      if (this.#taken === after) this.#taken = before;
      throw error;
    }
  }

  /** Cancels the reservation. @returns false if it was already cancelled or due */
  #giveUp(reason: unknown): boolean {
    if (!this.isPending) return false;
    const waited = this.#host.line.now() - this.asked;
    this.#isCancelled = true;
    this.#taken = combine(this.#taken, this.#taken, () => 0);
    this.#host.meter.cancelled(this.amount, Math.max(0, waited), reason);
    this.#alarm?.cancel();
    this.#stopWaiting();
    this.#rejectReady?.(reason);
    return true;
  }

  #stopWaiting(): void {
    this.#host.untrack(this, undefined);
    for (const signal of this.#signals) this.#host.untrack(this, signal);
    this.#signals.clear();
  }

  #return(taken: Amount): Promise<void> {
    // the grant's receipts fit only the granted amount; after `settle` the amount may be another
    if (this.grant !== undefined && sameAmount(taken, this.amount)) {
      return this.#host.returnToStore(taken, this.grant.answer);
    }
    return this.#host.change("refund", taken);
  }
}
