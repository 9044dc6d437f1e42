import { aboveZero, type Bound, checkFunction, checkNumber, checkOptions } from "../../check.ts";
import type { Limiter } from "../../limiter/face.ts";

/** A rate that is found by trying: additive increase, multiplicative decrease. */
export interface AdaptiveOptions {
  /** The lowest rate, permits per second, above 0. */
  readonly min: number;
  /** The highest rate, permits per second, `min` or more. */
  readonly max: number;
  /** Where to begin, permits per second, from `min` to `max`. Default `max`. */
  readonly start?: number | undefined;
  /** By how much the rate rises in a second in use, permits per second. Default `max` / 50. */
  readonly increase?: number | undefined;
  /** What a refusal multiplies the rate by, above 0 and below 1. Default 0.7. */
  readonly decrease?: number | undefined;
  /** Gives the limiter the rate: `(rate) => limiter.setRate(rate)`, or one that calls `update`. */
  readonly setRate: (permitsPerSecond: number, limiter: Limiter) => void | Promise<void>;
}

const ADAPTIVE_OPTIONS = ["min", "max", "start", "increase", "decrease", "setRate"] as const;

type Adaptive = Readonly<
  Required<{ [Name in keyof AdaptiveOptions]: NonNullable<AdaptiveOptions[Name]> }>
>;

/** The options, checked and complete. */
export function checkAdaptive(options: AdaptiveOptions): Adaptive {
  checkOptions("adaptive", options, ADAPTIVE_OPTIONS);
  const { min, max, start = max, increase = max / 50, decrease = 0.7, setRate } = options;
  checkNumber("adaptive.min", min, aboveZero);
  checkNumber("adaptive.max", max, between(min, Infinity));
  checkNumber("adaptive.start", start, between(min, max));
  checkNumber("adaptive.increase", increase, aboveZero);
  checkNumber("adaptive.decrease", decrease, fraction);
  checkFunction("adaptive.setRate", setRate);
  return { min, max, start, increase, decrease, setRate };
}

function between(least: number, most: number): Bound {
  return {
    words:
      most < Infinity ? `a number from ${least} to ${most}` : `a finite number, ${least} or more`,
    holds: (value) => value >= least && value <= most && value < Infinity,
  };
}

/** The rate rises once in so many ms. */
const STEP_MS = 1000;
/** From this share of the rate that was last refused on, it rises this much more slowly. */
const NEAR = 0.95;
const SLOWLY = 1 / 40;

const fraction: Bound = {
  words: "a number above 0 and below 1",
  holds: (value) => value > 0 && value < 1,
};

/**
 * AIMD, with CUBIC's idea in straight lines: climb fast to where it last went wrong, then slowly, so
 * that little is refused and little is wasted; once past that, climb fast again, for the server may
 * bear more than before.
 *
 * What is refused of requests that were sent before the last decrease says nothing of the rate since
 * then: one decrease for each round. And the rate rises only while requests wait for the limiter: an
 * idle client does not learn what the server bears.
 *
 * With the defaults, at a server that bears as much as `max`: from 0.7 to 0.95 of it in 12 seconds,
 * in 100 more to where it is refused again. That is 96 % of the allowance on average, and one
 * refusal, or one burst of those under way, in two minutes. Where it bears half as much, all goes
 * twice as fast.
 */
export class AdaptiveRate {
  readonly #options: Adaptive;
  #rate: number;
  /** The rate that was refused last. */
  #refused = Infinity;
  #raisedAt: number;
  #loweredAt = -Infinity;

  constructor(options: Adaptive, now: number) {
    this.#options = options;
    this.#rate = options.start;
    this.#raisedAt = now;
  }

  /** Permits per second. */
  get rate(): number {
    return this.#rate;
  }

  /**
   * A request that had to wait was let in.
   *
   * @returns whether the rate is another one
   */
  accepted(now: number): boolean {
    if (now < this.#raisedAt + STEP_MS) return false;
    this.#raisedAt = now;
    const { increase, max } = this.#options;
    if (this.#rate > this.#refused) this.#refused = Infinity;
    const near = NEAR * this.#refused;
    const rate =
      this.#rate < near ? Math.min(near, this.#rate + increase) : this.#rate + increase * SLOWLY;
    return this.#set(Math.min(max, rate));
  }

  /** A request that was sent then was refused; answers as `accepted` does. */
  refused(sentAt: number, now: number): boolean {
    if (sentAt < this.#loweredAt) return false;
    this.#loweredAt = now;
    this.#raisedAt = now;
    this.#refused = this.#rate;
    const { min, decrease } = this.#options;
    return this.#set(Math.max(min, this.#rate * decrease));
  }

  #set(rate: number): boolean {
    const changes = rate !== this.#rate;
    this.#rate = rate;
    return changes;
  }
}
