/** The waiters of `acquire` and of `tryAcquire` with a time-out. */

import type { CallStats } from "../api/stats.ts";
import type { FairEntry } from "../fair/fair-entry.ts";
import { toMillis } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import { Waiter } from "./waiter.ts";

/** A caller of `acquire`, or one of `tryAcquire`, which has a deadline and is answered yes or no. */
export class LocalCaller extends Waiter {
  readonly #callStats: CallStats;
  readonly #resolve: (outcome: unknown) => void;
  readonly #deadline: number | undefined;

  constructor(
    callStats: CallStats,
    asked: number,
    amount: Amount,
    signal: AbortSignal | undefined,
    fairEntry: FairEntry<Waiter> | undefined,
    resolve: (outcome: never) => void,
    deadline?: number,
  ) {
    super(asked, amount, signal, fairEntry);
    this.#callStats = callStats;
    this.#resolve = resolve as (outcome: unknown) => void;
    this.#deadline = deadline;
    callStats.enqueued();
  }

  override get deadline(): number {
    return this.#deadline ?? Infinity;
  }

  override release(_at: number, now: number): void {
    const waited = now - this.asked;
    this.#callStats.released(this.amount, waited);
    this.#resolve(this.#deadline === undefined ? toMillis(waited) : true);
  }

  override refuse(now: number, excess?: Error): void {
    if (excess) this.#callStats.ended();
    else this.#callStats.expired(this.amount, now - this.asked);
    this.#resolve(excess ? Promise.reject(excess) : false);
  }

  override drop(reason: Error, now: number): void {
    this.#callStats.expired(this.amount, now - this.asked, "queue-full");
    this.#resolve(this.#deadline === undefined ? Promise.reject(reason) : false);
  }

  override abort(reason: unknown, now: number): void {
    this.#callStats.ended();
    this.#callStats.cancelled(this.amount, now - this.asked, reason);
    this.#resolve(Promise.reject(reason));
  }
}
