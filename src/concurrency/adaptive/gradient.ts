/**
 * Learns a concurrency limit from latencies: as many calls as keep all workers of the server busy, and few that
 * queue there. Neither the number of workers nor the latency without a queue (the baseline) is known; both are learned.
 *
 * **How many calls queue.** By Little's law, calls in flight = rate × latency. Of a call that takes `held` ms,
 * `delay` ms are spent in the queue, so of `limit` calls in flight this many queue:
 *
 *     queued = limit × delay / held        delay = latency now − baseline
 *
 * **The step.** The strategy looks at windows of calls: two for each slot, and at least 20. After each one
 *
 *     limit := limit + √limit − queued     (by half of that where it goes down; below 4, limit / 2 instead of √limit)
 *
 * so it rests where √limit calls queue, and at 2 where there is one worker. This is enough to keep the workers busy, and it is the same number for every
 * client that sees the same delay: clients that share a server approach equal limits, because the one with the
 * higher limit has more calls in the queue than it is allowed, and the other one fewer.
 *
 * A worked example: 10 workers, 50 ms a call. Under a limit of 20, ten calls queue: a call takes 100 ms, the delay is
 * 50, queued = 20 × 50 / 100 = 10. The next limit is 20 + (4.5 − 10) / 2 = 17.2. It rests at 13.7, as
 * 13.7 − √13.7 = 10: all workers are busy, and a call takes 68 ms. When 10 more workers are added, the delay is gone,
 * and the limit rises by √limit a window: 13.7, 17.4, 21.6, 24.5 (= 20 + √24.5), in less than a second.
 *
 * **Latency** means here: of the faster half of the window, on average. One slow call, or a server of which one
 * call in ten takes ten times as long, does not change it; a queue delays all calls. `held` is the mean of all.
 *
 * **Only calls that started in a window count**, so all of them ran under the limit that they judge, and a
 * lease that is never released delays nothing. A window during which the limit was not in use changes no limit:
 * calls that come rarely say nothing about it, and an idle client keeps what it has learned.
 *
 * **The baseline** is measured anew from time to time: the limit is halved for a window, so that the queue drains.
 * If it does not drain (under half the limit just as many calls end in a second), the limit is halved again. The latency of
 * the last window is the new baseline, averaged with the old one unless it differs by more than half; then the limit returns.
 * Rates of short windows differ by chance, so a baseline more than twice the old one is doubted: the limit is halved once
 * more, and only a latency that stays is believed. If 24 workers become 3, and calls take 50 ms, the first window under
 * half the limit, 15, shows 230 ms: under 7 it shows 110, under 3 it shows 50, and under 1 it still does.
 * Measurements take up to 1/40 of the time, and cost less, as the server works meanwhile. They come earlier when almost half
 * of the calls seem to queue: then either there are fewer workers (the latency falls when the limit is halved), or the
 * server has become slower for good (it does not fall, and is the new baseline). In between, the baseline follows a latency
 * that is lower; it never goes up without a measurement, so a queue that never ends is not taken for the normal state.
 * Windows in which at most half the limit was in use measure it for free.
 *
 * **An overload** (a time-out, a 429, a 503) leaves 80 % of the limit, once for all calls that were in flight; how
 * long such a call took is no sample. Windows with an overload do not raise the limit.
 *
 * **Bounds.** The limit is never above `max` and never below `min`. When it goes down, calls in flight go on: until
 * they end, as many as before run, at most `max`. With n workers the limit rests at n + √(n + 1/4) + 1/2, and a call takes as
 * many times the baseline as that is times n: 1.1 × with 100 workers, 1.4 × with 10, 1.8 × with 3, and 2 × with one. Set `max`
 * where only a few are known.
 *
 * **Where it is inexact.** If `min` is higher than what the server can take, the queue never drains and the baseline is
 * too long. Where more than half of the calls are slow ones in some windows and not in others, it is noisy.
 *
 * The queue of √limit is that of Netflix' concurrency-limits (Gradient2), the number of queued calls that of TCP
 * Vegas (Brakmo and Peterson, 1994); measuring with a lower limit is what TCP BBR and Envoy's filter do.
 */
import type { ConcurrencyStrategy, EndedCall, LimitBounds } from "./strategy.ts";

/** A window has this many calls for each slot, and at least `FEWEST`. */
const CALLS_PER_SLOT = 2;
const FEWEST = 20;
/** How much of a decrease takes effect: a window may be slow by chance. */
const DAMPING = 0.5;
/** How much of the way to a shorter latency the baseline goes in one window. */
const BASELINE_STEP = 0.1;
/** Measurements of the baseline take this part of the time at most. */
const MEASURED_PART = 1 / 40;
/** If this part of the calls queues, the baseline is measured early: after this part of the interval. */
const FAR_OFF = 0.45;
const EARLY = 1 / 5;
/** The queue has not drained if the rate is this part of the rate before, or more. */
const SAME_RATE = 0.85;
/** A baseline that differs by this factor replaces the old one, and if it is longer, it is soon measured again. */
const DIFFERENT = 1.5;
const SOON = 1 / 8;
/** A baseline that is longer by this factor is doubted. */
const DOUBTFUL = 2;
/** What an overload leaves of the limit. */
const DECREASE = 0.8;

/**
 * The default strategy of `adaptive`: finds the limit by how latencies grow when calls queue at the server. The
 * comment at the head of its file has the formulas. For servers that refuse instead of queueing see `aimd`.
 *
 * @returns the strategy, to pass to `adaptive`
 * @example
 * const limiter = ConcurrencyLimiter.create(adaptive({ max: 200, strategy: gradient() }));
 */
export function gradient(): ConcurrencyStrategy {
  return (bounds) => {
    const learned = new Gradient(bounds);
    return (call) => learned.ended(call);
  };
}

/** How long the calls of a window were held, ms: the mean of the faster half, and of all. */
interface Held {
  readonly fastMs: number;
  readonly meanMs: number;
}

/** A measurement of the baseline that is under way. */
interface Measurement {
  readonly sinceMs: number;
  /** The limit before it, and the last window under that limit. */
  readonly limit: number;
  readonly held: Held;
  /** How many calls ended in a ms in the window before the present one. */
  rate: number;
  /** The latency in that window, ms; under the limit before the measurement it says nothing. */
  fastMs: number;
}

class Gradient {
  readonly #bounds: LimitBounds;
  #limit: number;
  /** The latency without a queue, ms. */
  #baselineMs: number | undefined;
  #measurement: Measurement | undefined;
  #measuredAtMs = -Infinity;
  /** How long after a measurement the next one is due, ms. */
  #intervalMs = 0;
  /** The queue of the server fills during the first window, which therefore tells nothing. */
  #isFirst = true;
  /** The window: the calls that started at `#fromMs` or later. */
  #fromMs = -Infinity;
  #heldMs: number[] = [];
  /** How many of its calls were started while the limit was in use, and the most slots that were held. */
  #limited = 0;
  #peak = 0;

  constructor(bounds: LimitBounds) {
    this.#bounds = bounds;
    this.#limit = bounds.start;
  }

  ended(call: EndedCall): number {
    if (call.startedMs >= this.#fromMs) {
      if (call.isOverload) this.#overloaded(call.endedMs);
      else this.#add(call);
    }
    return this.#limit;
  }

  #overloaded(now: number): void {
    this.#measurement = undefined;
    this.#set(DECREASE * this.#limit);
    this.#begin(now);
  }

  #add({ startedMs, endedMs, active, isLimited }: EndedCall): void {
    this.#heldMs.push(endedMs - startedMs);
    if (isLimited) this.#limited += 1;
    this.#peak = Math.max(this.#peak, active);
    const size = Math.max(FEWEST, CALLS_PER_SLOT * this.#limit);
    if (this.#heldMs.length < size) return;
    if (this.#isFirst) this.#isFirst = false;
    else this.#judge(heldIn(this.#heldMs), endedMs);
    this.#begin(endedMs);
  }

  #begin(now: number): void {
    this.#fromMs = now;
    this.#heldMs = [];
    this.#limited = 0;
    this.#peak = 0;
  }

  #judge(held: Held, now: number): void {
    const isInUse = 2 * this.#limited >= this.#heldMs.length;
    const isQuiet = 2 * this.#peak <= this.#limit;
    if (this.#measurement !== undefined) this.#measured(this.#measurement, held, now);
    else if (isInUse) this.#follow(held, now);
    else if (isQuiet) this.#setBaseline(held.fastMs, now);
  }

  #follow(held: Held, now: number): void {
    const baselineMs = this.#baselineMs ?? held.fastMs;
    this.#baselineMs = baselineMs + BASELINE_STEP * Math.min(0, held.fastMs - baselineMs);
    const isFarOff = this.#queued(this.#limit, held) > FAR_OFF * this.#limit;
    const passed = now - this.#measuredAtMs;
    if (passed < this.#intervalMs * (isFarOff ? EARLY : 1)) {
      this.#set(this.#next(this.#limit, held));
      return;
    }
    const rate = this.#limit / held.meanMs;
    this.#measurement = { sinceMs: now, limit: this.#limit, held, rate, fastMs: Infinity };
    this.#halve();
  }

  /** The limit after a window in which it was in use. */
  #next(limit: number, held: Held): number {
    const allowed = Math.min(Math.sqrt(limit), limit / 2);
    const change = allowed - this.#queued(limit, held);
    return limit + (change < 0 ? DAMPING : 1) * change;
  }

  /** How many calls queued at the server. */
  #queued(limit: number, { fastMs, meanMs }: Held): number {
    // calls that take no time do not queue
    if (meanMs === 0) return 0;
    return (limit * Math.max(0, fastMs - (this.#baselineMs ?? fastMs))) / meanMs;
  }

  #measured(measurement: Measurement, held: Held, now: number): void {
    const rate = this.#limit / held.meanMs;
    const isDoubtful = held.fastMs > DOUBTFUL * (this.#baselineMs ?? held.fastMs);
    const hasFallen = held.fastMs * DIFFERENT < measurement.fastMs;
    const isDrained = rate < SAME_RATE * measurement.rate && !(isDoubtful && hasFallen);
    if (this.#limit > this.#bounds.min && !isDrained) {
      measurement.rate = rate;
      measurement.fastMs = held.fastMs;
      this.#halve();
      return;
    }
    this.#measurement = undefined;
    this.#intervalMs = (now - measurement.sinceMs) / MEASURED_PART;
    this.#setBaseline(held.fastMs, now);
    const { limit, held: before } = measurement;
    this.#set(Math.min(limit, this.#next(limit, before)));
  }

  #setBaseline(fastMs: number, now: number): void {
    const old = this.#baselineMs ?? fastMs;
    const isLonger = fastMs > DIFFERENT * old;
    const isShorter = fastMs * DIFFERENT < old;
    this.#baselineMs = isLonger || isShorter ? fastMs : (old + fastMs) / 2;
    this.#measuredAtMs = isLonger ? now - (1 - SOON) * this.#intervalMs : now;
  }

  #halve(): void {
    this.#set(Math.floor(Math.round(this.#limit) / 2));
  }

  #set(limit: number): void {
    const { min, max } = this.#bounds;
    this.#limit = Math.min(max, Math.max(min, limit));
  }
}

function heldIn(heldMs: readonly number[]): Held {
  const sorted = Float64Array.from(heldMs).sort();
  return {
    fastMs: meanOf(sorted.subarray(0, Math.ceil(sorted.length / 2))),
    meanMs: meanOf(sorted),
  };
}

function meanOf(values: Float64Array): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
