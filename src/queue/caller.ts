/** The waiters of `acquire` and of `tryAcquire` with a time-out. */

import type { Meter } from "../api/stats.ts";
import type { Turn } from "../fair/turn.ts";
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import { Waiter } from "./waiter.ts";

/** A caller of `acquire`, or one of `tryAcquire`, which has a deadline and is answered yes or no. */
export class Caller extends Waiter {
  readonly #meter: Meter;
  readonly #resolve: (outcome: unknown) => void;
  readonly #deadline: number | undefined;

  constructor(
    meter: Meter,
    asked: number,
    amount: Amount,
    signal: AbortSignal | undefined,
    turn: Turn<Waiter> | undefined,
    resolve: (outcome: never) => void,
    deadline?: number,
  ) {
    super(asked, amount, signal, turn);
    this.#meter = meter;
    this.#resolve = resolve as (outcome: unknown) => void;
    this.#deadline = deadline;
    meter.enqueued();
  }

  override get deadline(): number {
    return this.#deadline ?? Infinity;
  }

  override release(_at: number, now: number): void {
    const waited = now - this.asked;
    this.#meter.released(this.amount, waited);
    this.#resolve(this.outcome(waited));
  }

  /** What the call returns when it is released. */
  protected outcome(waited: number): unknown {
    return this.#deadline === undefined ? toMillis(waited) : true;
  }

  /** What a `tryAcquire` returns when it is refused. */
  protected get refusal(): unknown {
    return false;
  }

  override refuse(now: number): void {
    this.#meter.expired(this.amount, now - this.asked);
    this.#resolve(this.refusal);
  }

  override drop(reason: Error, now: number): void {
    this.#meter.expired(this.amount, now - this.asked, "queue-full");
    this.#resolve(this.#deadline === undefined ? Promise.reject(reason) : this.refusal);
  }

  override abort(reason: unknown, now: number): void {
    this.#meter.left(this.amount, now - this.asked, reason);
    this.#resolve(Promise.reject(reason));
  }
}
