import type { Limiter } from "../../api/limiter-api.ts";
import {
  aboveZero,
  type Bound,
  checkFunction,
  checkNumber,
  checkOptions,
} from "../../ground/check.ts";

/** The options of a rate that is found by trying: docs/fetch.md describes how. */
export interface AdaptiveOptions {
  /** The lowest rate, permits per second, above 0. */
  readonly min: number;
  /** The highest rate, permits per second, `min` or more. */
  readonly max: number;
  /** The first rate, permits per second, from `min` to `max`. Default `max`. */
  readonly start?: number | undefined;
  /** The largest increase in a second of use, permits per second. Default `max` / 50. */
  readonly increase?: number | undefined;
  /** The smallest share of the rate that one refusal leaves, above 0 and below 1. Default 0.4. */
  readonly decrease?: number | undefined;
  /**
   * Sets the limiter's rate: `(rate) => limiter.setRate(rate)`, or a function that calls `update`.
   */
  readonly setRate: (permitsPerSecond: number, limiter: Limiter) => void | Promise<void>;
}

const ADAPTIVE_OPTIONS = ["min", "max", "start", "increase", "decrease", "setRate"] as const;

type Adaptive = Readonly<
  Required<{ [Name in keyof AdaptiveOptions]: NonNullable<AdaptiveOptions[Name]> }>
>;

/** Returns the options, checked and completed. */
export function checkAdaptive(options: AdaptiveOptions): Adaptive {
  checkOptions("adaptive", options, ADAPTIVE_OPTIONS);
  const { min, max, start = max, increase = max / 50, decrease = 0.4, setRate } = options;
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

const fraction: Bound = {
  words: "a number above 0 and below 1",
  holds: (value) => value > 0 && value < 1,
};

/** The rate rises at most once in this many ms. */
const STEP_MS = 1000;
/** How many steps of use the rate stays constant after a refusal. */
const HOLD = 45;
/**
 * The same after a rough measurement: a refusal that came within this many pauses after a pause.
 */
const ROUGH_HOLD = 20;
const ROUGH = 4;
/**
 * The growth of the first step after that, the increase of the growth in each step, and its
 * maximum.
 */
const GROWTH = 1 / 2000;
const MOST_GROWTH = 1 / 50;
/** A refusal lowers the rate to this share of the rate that the server sustained. */
const NEAR = 0.98;
/** `Retry-After` is rounded up to seconds: by this much on average, ms. */
const ROUNDED_MS = 500;

/**
 * Multiplicative decrease to the rate that the server sustained, then a plateau, then a search that
 * gets faster.
 *
 * A refusal asks the client to wait for r. If requests were granted for n since the last such
 * pause, the server sustained about this share of the rate that was tried:
 *
 *     sustained = n / (n + r)
 *
 * For a window that began with n and ends with r that is what it granted, averaged over the window;
 * for a bucket, where n has used up what one pause has refilled, it is exact. (Servers round r up
 * to seconds, so half a second is subtracted, except for n from r to 4 r, which indicates a
 * bucket.)
 *
 *     rate := rate 2 s ago * max(decrease, 0.98 * sustained)
 *
 * Long after the last refusal `sustained` is nearly 1: the rate was only slightly too high, and a
 * small decrease is enough. When the server's capacity drops suddenly, the first refusal looks like
 * a chance event; but a second one comes right after the pause, and measures the new capacity.
 *
 * Then the rate stays for 45 s, or 20 s if n was below 4 r. After that it grows by 0.05 % in one
 * second, by 0.1 % in the next, up to 2 % and never by more than `increase`. So it is slow near the
 * rate that was refused, is refused only once there, and still doubles within a minute if the
 * server accepts more than before. Before the first refusal nothing is known, and it grows by
 * `increase`.
 *
 * Refusals of requests that were sent before the pause ended contain no news. A refusal before any
 * request was granted since the pause says that the pause was too short. The rate rises only while
 * requests wait for the limiter: an idle client learns nothing about the server.
 *
 * A worked example: a server accepts 50 in each second and sends `Retry-After: 1`; the client
 * starts at
 * 100. The 51st request is refused after n = 0.5 s; sustained = 0.5 / (0.5 + 0.5), so the rate is
 *   49. It stays for 20 s, grows for about 10 s, and is refused at 50.2: about 49 again, from now
 *   on for 45 s. When the server drops to 25, it refuses one request at 49, which makes 48, and the
 *   next one 25 / 48 s after the pause: sustained = 0.52 / (0.52 + 0.5), and the rate is 24.
 *
 * The plateau and the search are those of CUBIC (RFC 9438) with a square for the cube; lowering the
 * rate to what was delivered is BBR's idea (Cardwell and others, ACM Queue 14-5, 2016).
 */
export class AdaptiveRate {
  readonly #options: Adaptive;
  #rate: number;
  /** The rates one and two steps ago: a refused request was sent at one of them. */
  #before: readonly [number, number];
  /** Steps until it rises again; below 0 while it rises; `undefined` before the first refusal. */
  #holds: number | undefined;
  #raisedAt: number;
  /** When the last pause ended. `#letIn`: whether a request was granted since. */
  #resumedAt: number;
  #letIn = false;

  constructor(options: Adaptive, now: number) {
    this.#options = options;
    this.#rate = options.start;
    this.#before = [options.start, options.start];
    this.#raisedAt = now;
    this.#resumedAt = now;
  }

  /** Permits per second. */
  get rate(): number {
    return this.#rate;
  }

  /**
   * Records a request that the server accepted.
   *
   * @param sentAt when it was sent, ms
   * @param waited whether it had to wait for the limiter
   * @returns whether the rate has changed
   */
  accepted(sentAt: number, now: number, waited: boolean): boolean {
    if (sentAt >= this.#resumedAt) this.#letIn = true;
    if (!waited || now < this.#raisedAt + STEP_MS) return false;
    this.#raisedAt = now;
    const { increase, max } = this.#options;
    this.#before = [this.#rate, this.#before[0]];
    return this.#set(Math.min(max, this.#rate + increase, this.#rate * (1 + this.#growth())));
  }

  /**
   * Records a request that the server refused.
   *
   * @param sentAt when it was sent, ms
   * @param pauseMs how long all requests pause, ms
   * @returns whether the rate has changed
   */
  refused(sentAt: number, now: number, pauseMs: number): boolean {
    const tookMs = sentAt - this.#resumedAt;
    const tells = tookMs >= 0 && this.#letIn;
    this.#resumedAt = Math.max(this.#resumedAt, now + pauseMs);
    this.#raisedAt = this.#resumedAt;
    if (tookMs >= 0) this.#letIn = false;
    if (!tells) return false;

    const { min, decrease } = this.#options;
    const rough = tookMs < ROUGH * pauseMs;
    const ofBucket = rough && tookMs >= pauseMs;
    const awayMs = ofBucket ? pauseMs : Math.max(pauseMs - ROUNDED_MS, pauseMs / 2);
    const sustained = awayMs > 0 ? tookMs / (tookMs + awayMs) : 1;
    const changes = this.#set(
      Math.max(min, this.#before[1] * Math.max(decrease, NEAR * sustained)),
    );
    this.#before = [this.#rate, this.#rate];
    this.#holds = rough ? ROUGH_HOLD : HOLD;
    return changes;
  }

  /** The growth in this step, as a share of the rate. */
  #growth(): number {
    if (this.#holds === undefined) return Infinity;
    this.#holds -= 1;
    return Math.min(MOST_GROWTH, GROWTH * Math.max(0, -this.#holds));
  }

  #set(rate: number): boolean {
    const changes = rate !== this.#rate;
    this.#rate = rate;
    return changes;
  }
}
