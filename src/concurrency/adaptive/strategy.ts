/** The contract between an adaptive limit and the strategy that learns it. */

/** A call that has ended, as a strategy sees it. */
export interface EndedCall {
  /** When it got its slots, ms by the limiter's clock. */
  readonly startedMs: number;
  /** When it gave them back, ms by the same clock. */
  readonly endedMs: number;
  /** How many slots were held when it had got its own. */
  readonly active: number;
  /** Whether the limit was in use then: no slot was left, or another call waited. */
  readonly isLimited: boolean;
  /** Whether it met a limit: a time-out, a 429, a 503. How long it was held says nothing then. */
  readonly isOverload: boolean;
}

/** The bounds of a limit: whole numbers, `min` ≤ `start` ≤ `max`. */
export interface LimitBounds {
  /** The lowest limit. */
  readonly min: number;
  /** The highest limit. */
  readonly max: number;
  /** The first limit. */
  readonly start: number;
}

/**
 * Learns a limit from the calls that end. It is called once for each limiter, with the bounds, and returns a
 * function that is called with each call that ends, and returns the limit from then on. The limiter rounds it
 * and keeps it within the bounds. If the function throws, the limit stays, and a process warning says so once.
 */
export type ConcurrencyStrategy = (bounds: LimitBounds) => (call: EndedCall) => number;
