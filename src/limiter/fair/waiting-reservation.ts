import { atLeastZero } from "../../ground/check.ts";
import { ReservationCancelledError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { Reservation, WaitOptions } from "../limiter-api.ts";
import { checkSignalOptions } from "../options.ts";
import type { RemoteQueue } from "../remote/remote-queue.ts";
import type { FairCall } from "./fair-call.ts";
import type { Ranks } from "./ranks.ts";

/** A call that waits in fair order: others may overtake it until the store has it. */
export class WaitingReservation implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #store: RemoteQueue;
  readonly #line: Ranks<FairCall>;
  readonly #call: FairCall;
  readonly #granted: Promise<number>;
  #taken: Amount;
  /** Settled when the call is over. */
  readonly #isGranted: Promise<boolean>;
  #isUndone = false;

  /** @param granted resolves to how long the call has waited, ms */
  constructor(
    store: RemoteQueue,
    line: Ranks<FairCall>,
    call: FairCall,
    granted: Promise<number>,
    permits: Permits,
    waitMs: number,
  ) {
    this.permits = permits;
    this.waitMs = waitMs;
    this.#store = store;
    this.#line = line;
    this.#call = call;
    this.#granted = granted;
    this.#taken = call.amount;
    this.#isGranted = granted.then(
      () => true,
      // `ready` rejects with it
      () => false,
    );
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkSignalOptions(options);
    const leave = () => this.#leave(signal?.reason);
    if (signal?.aborted) leave();
    signal?.addEventListener("abort", leave);
    try {
      return await this.#granted;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  async cancel(): Promise<boolean> {
    return this.#leave(new ReservationCancelledError(this.waitMs));
  }

  /** @returns whether it still waited */
  #leave(reason: unknown): boolean {
    if (this.#call.isOver) return false;
    this.#call.leave(reason);
    return true;
  }

  async settle(actual: Permits): Promise<void> {
    if (this.#call.isOver && !(await this.#isGranted)) return;
    const used = this.#store.parts.policyState.amount(actual, atLeastZero);
    const { after, done } = this.#store.correct(this.#taken, used);
    this.#taken = after;
    await done;
  }

  async undo(): Promise<void> {
    if ((await this.cancel()) || !(await this.#isGranted)) return;
    if (!this.#isUndone) this.#line.refund(this.#call.turn);
    this.#isUndone = true;
    await this.settle(0);
  }
}
