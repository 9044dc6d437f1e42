/** What the callers of a queue wait for: permits of the policies in this process, grants of a store, slots. */
import type { Amount } from "../ground/permits.ts";
import type { Deadlines, Due } from "./deadlines.ts";

/**
 * The instant of an amount that is not available, and of which it is not known when it will be: a slot that another
 * caller holds. It lies behind all other instants, but it is not `Infinity`, which means never.
 */
export const UNKNOWN = Number.MAX_VALUE;

/** Times are microseconds on the time scale of the queue. */
export interface Supply {
  /**
   * Returns the first instant at or after `from` at which the amount is available, and changes nothing. `Infinity`:
   * never; `UNKNOWN`: it depends on what others do.
   */
  earliest(from: number, amount: Amount): number;
  /** Takes the amount for that instant. @param start when the caller really starts, if that is later */
  take(at: number, amount: Amount, start?: number): void;
  /** Present where `earliest` may return `UNKNOWN`: the deadlines of waiters then need a timer. */
  deadlines?<Item extends Due>(): Deadlines<Item>;
  /** Whether it is charged at the instants at which waiters really start. */
  readonly isStrict?: boolean;
  /** Whether it bounds how much may be waited for; `overflowing` is -1 if that amount may. */
  readonly isBounded?: boolean;
  overflowing?(now: number, amount: Amount): number;
  /** Returns the error for an amount of which the instant is `Infinity`; absent where there is none. */
  excess?(now: number, amount: Amount): Error;
  /** Adds `by` to all instants; absent where the time scale stays. */
  shift?(by: number): void;
  copy(): Supply;
}
