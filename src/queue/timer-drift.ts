import type { Amount } from "../ground/permits.ts";
import type { Supply } from "./supply.ts";

/** The longest lateness of a timer that is made up for, µs. More than this is a blocked event loop. */
const LONGEST_CREDIT = 10_000;

/**
 * Makes up for the lateness of a limiter's own timer: how late it was at the last release, and until when a
 * request is treated as if the timer had been on time. Otherwise a caller that calls again at once would
 * lose that time, because it is not stored. The credit is at most the lateness and `LONGEST_CREDIT`. Each
 * release replaces it, so it never adds up. No caller gets permits before its instant.
 */
export class TimerDrift {
  #lateBy = 0;
  #until = 0;

  /** Whether a request may have to be treated as an earlier one. */
  get isOpen(): boolean {
    return this.#lateBy > 0;
  }

  /** Until when the caller that was released last counts as one that calls again at once. */
  get until(): number {
    return this.#until;
  }

  /** Called with each release: replaces the credit. */
  grant(lateness: number, now: number): void {
    this.#lateBy = Math.min(lateness, LONGEST_CREDIT);
    this.#until = now + this.#lateBy;
  }

  /** Returns how late the timer was for a caller that calls again now. */
  at(now: number): number {
    return now < this.#until ? this.#lateBy : 0;
  }

  /**
   * Returns from when a request that is made now may be granted. The lateness is subtracted if the caller
   * came back at once, or would have had to wait had the timer been on time. A caller that is slower than
   * the limit by itself gains nothing.
   */
  from(now: number, supply: Supply, amount: Amount): number {
    const onTime = now - this.#lateBy;
    return now < this.#until || supply.earliest(onTime, amount) > onTime ? onTime : now;
  }

  /** Ends the credit. */
  end(): void {
    this.#lateBy = 0;
  }

  /** Subtracts `by` from its instant. */
  rebase(by: number): void {
    this.#until -= by;
  }
}
