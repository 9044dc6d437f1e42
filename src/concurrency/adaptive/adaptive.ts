/**
 * A limit that is learned from the leases that end. How it is learned is up to a strategy; here are the bounds, and the
 * leases that tell when a call started and how it ended.
 *
 * Bounds: the limit is a whole number from `min` to `max`, whatever the strategy answers. So at most `max` slots
 * are ever held, except by a call that weighs more than the limit is now: it runs alone. When the limit goes
 * down, no call is interrupted, and none starts until fewer slots are held than the new limit has.
 *
 * A lease that is never given back holds its slots, as under a fixed limit, and teaches nothing.
 */
import type { Ending } from "../../api/slots-options.ts";
import {
  type Bound,
  checkFunction,
  checkNumber,
  checkOptions,
  wholeAtLeastOne,
} from "../../ground/check.ts";
import type { Clock } from "../../ground/clock.ts";
import { readable } from "../../ground/errors.ts";
import { emitWarning } from "../../ground/node-process.ts";
import { LocalLease } from "../local-lease.ts";
import { gradient } from "./gradient.ts";
import type { ConcurrencyStrategy, EndedCall, LimitBounds } from "./strategy.ts";

/** The options of `adaptive`. */
export interface AdaptiveLimitOptions {
  /** The lowest limit: a whole number, 1 or more. Default 1. */
  readonly min?: number | undefined;
  /** The highest limit, which is never exceeded: a whole number, `min` or more. */
  readonly max: number;
  /** The first limit: a whole number from `min` to `max`. Default: 10, or the nearest of these bounds. */
  readonly start?: number | undefined;
  /** How the limit is learned. Default `gradient()`; `aimd()` learns from refusals only. */
  readonly strategy?: ConcurrencyStrategy | undefined;
}

/** A limit that is learned. Limiters that are created with the same one learn separately. */
export interface AdaptiveLimit extends LimitBounds {
  /** What a limit must be. */
  readonly bound: Bound;
  /** Starts to learn for one limiter, from this limit on. */
  learn(start: number, clock: Clock): LearnedLimit;
}

/** What one limiter has learned. */
export interface LearnedLimit {
  /** The limit now. */
  readonly limit: number;
  /** Creates the lease of a call that starts now. */
  lease(status: CallStatus, giveBack: () => void): LocalLease;
}

type CallStatus = Pick<EndedCall, "active" | "isLimited">;

const OPTIONS = ["min", "max", "start", "strategy"] as const;
const USUAL_START = 10;

/**
 * Creates a limit that is learned, for `ConcurrencyLimiter.create`: for servers that take an unknown or
 * changing number of calls at once.
 *
 * @param options `max`, and by choice `min` (default 1), `start` (default 10) and `strategy` (default `gradient()`)
 * @returns the limit, to pass to `ConcurrencyLimiter.create`
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const limiter = ConcurrencyLimiter.create(adaptive({ max: 200 }));
 * const response = await limiter.run(async (lease) => {
 *   const response = await fetch(url, { signal: AbortSignal.timeout(5000) });
 *   if (response.status === 429 || response.status === 503) lease.overloaded();
 *   return response;
 * });
 */
export function adaptive(options: AdaptiveLimitOptions): AdaptiveLimit {
  checkOptions("adaptive", options, OPTIONS);
  const { min = 1, max, strategy = gradient() } = options;
  checkNumber("min", min, wholeAtLeastOne);
  checkNumber("max", max, between(min, Number.MAX_SAFE_INTEGER));
  const { start = Math.max(min, Math.min(max, USUAL_START)) } = options;
  const bound = between(min, max);
  checkNumber("start", start, bound);
  checkFunction("strategy", strategy);
  const learn = (from: number, clock: Clock) => {
    return new Learned({ min, max, start: from }, strategy, clock);
  };
  return { min, max, start, bound, learn };
}

function between(least: number, most: number): Bound {
  return {
    words: `a whole number from ${least} to ${most}`,
    holds: (value) => value >= least && value <= most && Number.isSafeInteger(value),
  };
}

class Learned implements LearnedLimit {
  limit: number;
  readonly #bounds: LimitBounds;
  readonly #limitAfter: (call: EndedCall) => number;
  readonly #clock: Clock;
  #hasWarned = false;

  constructor(bounds: LimitBounds, strategy: ConcurrencyStrategy, clock: Clock) {
    this.limit = bounds.start;
    this.#bounds = bounds;
    this.#limitAfter = strategy(bounds);
    this.#clock = clock;
  }

  lease(status: CallStatus, giveBack: () => void): LocalLease {
    return new MeasuredLease(this.#clock, (startedMs, ending) => {
      if (ending !== "ignore") this.#ended({ ...status, ...this.#timesOf(startedMs, ending) });
      giveBack();
    });
  }

  #timesOf(startedMs: number, ending: Ending) {
    return { startedMs, endedMs: this.#clock.now(), isOverload: ending === "overloaded" };
  }

  /** An error of the strategy changes nothing: whoever gives back a lease could do nothing about it. */
  #ended(call: EndedCall): void {
    const { min, max } = this.#bounds;
    try {
      const limit = Math.round(this.#limitAfter(call));
      if (!Number.isNaN(limit)) this.limit = Math.min(max, Math.max(min, limit));
    } catch (error) {
      this.#warn(readable(error));
    }
  }

  #warn({ message }: Error): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    emitWarning(`adaptive: the strategy failed, so the limit stays ${this.limit}: ${message}`, {
      type: "SmoothLimiterWarning",
      code: "SMOOTH_LIMITER_STRATEGY",
    });
  }
}

/** A lease that knows when its call started. */
class MeasuredLease extends LocalLease {
  readonly #clock: Clock;
  #startedMs: number;

  constructor(clock: Clock, end: (startedMs: number, ending: Ending) => void) {
    super((ending) => end(this.#startedMs, ending));
    this.#clock = clock;
    this.#startedMs = clock.now();
  }

  started(): void {
    this.#startedMs = this.#clock.now();
  }
}
