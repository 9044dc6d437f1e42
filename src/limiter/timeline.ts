import { type Clock, type Timer, toMicros } from "../clock.ts";

/**
 * Time is counted from a multiple of 2^24 microseconds (17 s), as the twin on Redis does, so that
 * the two have the same fractions to the last bit; and from a later one when 2^32 (72 min) have
 * passed, so that 20 binary places remain.
 */
const UNIT = 2 ** 24;
const REBASE = 2 ** 32;

/** A blocked event loop is no late timer: more than this is not made up for, microseconds. */
export const LONGEST_CREDIT = 10_000;

/**
 * A limiter's own time: whole microseconds that never go back, and small enough for exact
 * fractions.
 */
export class Timeline {
  readonly #clock: Clock;
  readonly #onStepBack: () => void;
  readonly #onRebase: (by: number) => boolean;
  /** The clock's microseconds at our 0. */
  #origin: number;
  #now: number;

  /**
   * @param onStepBack the timers that are set do not fit the clock any more
   * @param onRebase all instants become less by that much; `false`: not now
   */
  constructor(clock: Clock, onStepBack: () => void, onRebase: (by: number) => boolean) {
    this.#clock = clock;
    this.#onStepBack = onStepBack;
    this.#onRebase = onRebase;
    const now = toMicros(clock.now());
    this.#origin = Math.floor(now / UNIT) * UNIT;
    this.#now = now - this.#origin;
  }

  /** The last reading. */
  get last(): number {
    return this.#now;
  }

  /** Unix time at our 0, whole microseconds. */
  get epoch(): number {
    return this.#origin + toMicros(this.#clock.epochMs ?? 0);
  }

  now(): number {
    const now = toMicros(this.#clock.now()) - this.#origin;
    if (now >= this.#now && now < REBASE) {
      this.#now = now;
      return now;
    }
    return this.#adjust(now);
  }

  wakeAt(instant: number, wake: () => void): Timer {
    return this.#clock.wakeAt((this.#origin + Math.ceil(instant)) / 1000, wake);
  }

  #adjust(now: number): number {
    if (!Number.isFinite(now)) {
      throw new TypeError(`clock.now() must give a finite number of ms, got ${this.#clock.now()}`);
    }
    if (now < this.#now) {
      // the clock went back: time goes on from where it was; nothing is minted, and nobody waits
      // for the hour to come round again
      this.#origin += now - this.#now;
      this.#onStepBack();
      return this.#now;
    }
    const by = Math.floor((this.#origin + now) / UNIT) * UNIT - this.#origin;
    if (this.#onRebase(by)) {
      this.#origin += by;
      this.#now = now - by;
    } else {
      this.#now = now;
    }
    return this.#now;
  }
}
