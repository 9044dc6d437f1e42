import { type Clock, checkReading, type Timer, toMicros } from "../ground/clock.ts";

/**
 * Time is counted from a multiple of 2^24 µs (17 s), as in the Lua twin on Redis, so that both
 * compute the same fractions to the last bit. When 2^32 µs (72 min) have passed it is counted from
 * a later multiple, so that 20 binary places remain.
 */
const UNIT = 2 ** 24;
const REBASE = 2 ** 32;

/** What has instants of a `MonotonicTime`. */
export interface HasInstants {
  /** Called when the clock went back: pending timers do not fit it any more. */
  rearm(): void;
  /** Called to shift all instants down by `by`; returns `false` if that is not possible now. */
  rebase(by: number): boolean;
}

/**
 * A limiter's own time: whole microseconds that never go back, small enough for exact fractions.
 */
export class MonotonicTime {
  readonly #clock: Clock;
  /** The first queue of this time, unless its creator has set another owner. */
  owner: HasInstants | undefined;
  /** The clock's microseconds at 0 of this time. */
  #origin: number;
  #now: number;

  constructor(clock: Clock, owner?: HasInstants) {
    this.#clock = clock;
    this.owner = owner;
    const now = toMicros(clock.now());
    this.#origin = Math.floor(now / UNIT) * UNIT;
    this.#now = now - this.#origin;
  }

  /** The last reading. */
  get last(): number {
    return this.#now;
  }

  /** Unix time at 0 of this time, whole microseconds. */
  get epoch(): number {
    return this.#origin + toMicros(this.#clock.epochMs ?? 0);
  }

  now(): number {
    const ms = this.#clock.now();
    const now = toMicros(ms) - this.#origin;
    if (now >= this.#now && now < REBASE) {
      this.#now = now;
      return now;
    }
    checkReading("clock.now()", ms);
    return this.#adjust(now);
  }

  wakeAt(instant: number, wake: () => void): Timer {
    return this.#clock.wakeAt((this.#origin + Math.ceil(instant)) / 1000, wake);
  }

  #adjust(now: number): number {
    if (now < this.#now) {
      // the clock went back: time goes on from its last reading, so no permits are gained, and no
      // caller waits until the clock has caught up
      this.#origin += now - this.#now;
      this.owner?.rearm();
      return this.#now;
    }
    const by = Math.floor((this.#origin + now) / UNIT) * UNIT - this.#origin;
    const moved = this.owner?.rebase(by) ? by : 0;
    this.#origin += moved;
    this.#now = now - moved;
    return this.#now;
  }
}
