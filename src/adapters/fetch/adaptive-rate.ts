import { aboveZero, type Bound, checkFunction, checkNumber, checkOptions } from "../../check.ts";
import type { Limiter } from "../../limiter/face.ts";

/** A rate that is found by trying: see `AdaptiveRate`. */
export interface AdaptiveOptions {
  /** The lowest rate, permits per second, above 0. */
  readonly min: number;
  /** The highest rate, permits per second, `min` or more. */
  readonly max: number;
  /** Where to begin, permits per second, from `min` to `max`. Default `max`. */
  readonly start?: number | undefined;
  /** The most by which the rate rises in a second in use, permits per second. Default `max` / 50. */
  readonly increase?: number | undefined;
  /** The least that one refusal leaves of the rate, above 0 and below 1. Default 0.4. */
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

/** The rate rises once in so many ms. */
const STEP_MS = 1000;
/** For so many steps in use the rate stays what a refusal has made of it. */
const HOLD = 45;
/** The same where what it was made of is rough: it was refused within so many pauses after one. */
const ROUGH_HOLD = 20;
const ROUGH = 4;
/** What it grows by in the first step after that, by so much more in each further one, and at most. */
const GROWTH = 1 / 2000;
const MOST_GROWTH = 1 / 50;
/** To how much of what was borne a refusal lowers the rate. */
const NEAR = 0.98;
/** `Retry-After` is rounded up to seconds: by so much on average, ms. */
const ROUNDED_MS = 500;

/**
 * Multiplicative decrease to what was borne, then a plateau, then a search that gets faster.
 *
 * A refusal asks to stay away for r. If requests were let in for n since the last such pause, then
 * the server bears, of the rate that was tried, about the share
 *
 *     borne = n / (n + r)
 *
 * For a window that began with n and ends with r that is what it let in, spread over all of it; for a
 * bucket, which n has emptied of what one pause has filled in, it is exact. (Servers round r up to
 * seconds, so half a second of it is left out, but not for n from r to 4 r, which tells of a bucket.)
 *
 *     rate := rate 2 s ago * max(decrease, 0.98 * borne)
 *
 * Long after the last refusal `borne` is nearly 1: the rate was too high by very little, and a little
 * less is enough. Where the server suddenly bears much less the first refusal cannot tell, for chance
 * looks the same, but right after the pause comes a second one, and measures it.
 *
 * Then the rate stays for 45 s, or 20 s if n was below 4 r, and then grows by 0.05 % in a second, by
 * 0.1 % in the next, up to 2 % and never by more than `increase`: slowly about where it was refused,
 * so that it is refused once, and by 100 % within a minute where the server bears more than before.
 * Before the first refusal nothing is known, and it grows by `increase`.
 *
 * What is refused of requests that were sent before the pause ended says nothing new, and a refusal
 * before anything was let in since says that the pause was too short. The rate rises only while
 * requests wait for the limiter: an idle client does not learn what the server bears.
 *
 * A worked example, a server of 50 in each second that says `Retry-After: 1`, and a start at 100: the
 * 51st request is refused after n = 0.5 s; borne = 0.5 / (0.5 + 0.5), so the rate is 49. It stays for
 * 20 s, grows for about 10, and is refused at 50.2: 49 or so again, from now on for 45 s. When the
 * server falls to 25 it refuses one at 49, which makes 48, and the next one 25 / 48 s after the pause:
 * borne = 0.52 / (0.52 + 0.5), and the rate is 24.
 *
 * The plateau and the search are those of CUBIC (RFC 9438) with a square for the cube; to lower the
 * rate to what was delivered is BBR's idea (Cardwell and others, ACM Queue 14-5, 2016).
 */
export class AdaptiveRate {
  readonly #options: Adaptive;
  #rate: number;
  /** The rates one step ago and two: a request that is refused was one too many some time ago. */
  #before: readonly [number, number];
  /** Steps until it rises again, below 0 when it does; `undefined` before the first refusal. */
  #holds: number | undefined;
  #raisedAt: number;
  /** When the last pause ended, and whether anything was let in since. */
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
   * A request that was sent then was let in; `waited` if it stood in the limiter's line before.
   *
   * @returns whether the rate is another one
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
   * A request that was sent then was refused, and so long everybody stays away, ms.
   *
   * @returns whether the rate is another one
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
    const borne = awayMs > 0 ? tookMs / (tookMs + awayMs) : 1;
    const changes = this.#set(Math.max(min, this.#before[1] * Math.max(decrease, NEAR * borne)));
    this.#before = [this.#rate, this.#rate];
    this.#holds = rough ? ROUGH_HOLD : HOLD;
    return changes;
  }

  /** By which share it grows in this step. */
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
