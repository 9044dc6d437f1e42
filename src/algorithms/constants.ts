/** Numbers that several algorithms use. Times are microseconds. */

export const SECOND = 1_000_000;
export const HOUR = 3600 * SECOND;

/** The latest instant of a state (142 years): whole numbers are exact up to twice as much. */
export const FAR = 2 ** 52;

/** A level below this loses digits, so `take` recomputes it for a later instant. */
export const DEEP = -(2 ** 20);

/**
 * The upper limit of sums and products of huge numbers: `Infinity` would mean "never", and
 * Infinity - Infinity is NaN.
 */
export const LARGEST = Number.MAX_VALUE;
