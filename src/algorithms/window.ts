/** Helpers of the algorithms that count in windows. */
import { type Bound, checkNumber } from "../ground/check.ts";

const aWindow: Bound = {
  words: "a number above 0, at most 1e12 (31 years)",
  holds: (value) => value > 0 && value <= 1e12,
};

export function checkWindow(windowMs: unknown): number {
  return checkNumber("windowMs", windowMs, aWindow);
}

/** Rounds to whole microseconds, at least one. */
export function wholeMicros(micros: number): number {
  return Math.max(1, Math.floor(micros + 0.5));
}
