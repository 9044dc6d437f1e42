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
  /** How late the timer was. Above 0 a request may have to be treated as an earlier one. Only the queue sets both. */
  lateBy = 0;
  /** Until when the caller that was released last counts as one that calls again at once. */
  until = 0;

  /** Called with each release: replaces the credit. */
  grant(lateness: number, now: number): void {
    this.lateBy = Math.min(lateness, LONGEST_CREDIT);
    this.until = now + this.lateBy;
  }

  /**
   * Returns from when a request that is made now may be granted. The lateness is subtracted if the caller
   * came back at once, or would have had to wait had the timer been on time. A caller that is slower than
   * the limit by itself gains nothing.
   */
  from(now: number, supply: Supply, amount: Amount): number {
    const onTime = now - this.lateBy;
    return now < this.until || supply.earliest(onTime, amount) > onTime ? onTime : now;
  }
}
