import { failCheck } from "./check.ts";

/**
 * The source of a limiter's time. Pass your own to run a limiter on another time: `FakeClock` from
 * `smooth-limiter/testing`, a simulation, a coarse clock.
 */
export interface Clock {
  /** Returns monotonic milliseconds from any origin; fractions are allowed. */
  now(): number;
  /**
   * Calls `wake` once when `now()` has reached `timeMs`. The call may come a little early or late.
   */
  wakeAt(timeMs: number, wake: () => void): Timer;
  /**
   * What to add to `now()` to get Unix time, ms. Only windows that are aligned to the epoch use it.
   * Default 0.
   */
  readonly epochMs?: number;
}

/** A wake-up that a `Clock` has scheduled. */
export interface Timer {
  /** Cancels the wake-up; without effect if it is over. */
  cancel(): void;
  /** From now on the timer does not keep the process alive. Absent: it never did. */
  unref?(): void;
}

/** The longest delay of `setTimeout`, ms. With a longer one it fires at once. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * 1000 plus two units in the last place. (n / 1000) * 1000 may come out just below n, and the floor
 * would then lose a microsecond that `now()` did report. Two units never add a microsecond.
 */
const MICROS_PER_MS = 1000 * (1 + Number.EPSILON);
const MICROS_PER_MS_BELOW_0 = 1000 * (1 - Number.EPSILON);

/** Whole microseconds, floored. */
export function toMicros(ms: number): number {
  return Math.floor(ms * (ms < 0 ? MICROS_PER_MS_BELOW_0 : MICROS_PER_MS));
}

/**
 * Converts microseconds to milliseconds, rounded up: a caller that returns after this time is not
 * early.
 */
export function toMillis(micros: number): number {
  return Math.ceil(micros) / 1000;
}

/** The platform's own functions, saved at load time: a later difference means fake timers. */
const { Date: RealDate, setTimeout: realSetTimeout } = globalThis;
const realNow = performance.now;

/**
 * Whether fake timers are in use that leave `performance` alone (node:test, Deno, vitest before 3):
 * then `Date` has their time. A program that replaces only `Date` has real timers and real time.
 */
export function isFakedByDate(): boolean {
  return Date !== RealDate && setTimeout !== realSetTimeout && performance.now === realNow;
}

function systemNow(): number {
  return Date !== RealDate && isFakedByDate() ? Date.now() : performance.now();
}

/** A class, because V8 reads an object literal with a getter slowly: 2.5 ns a call. */
export class PlatformClock implements Clock {
  now(): number {
    return systemNow();
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    return new Timeout(timeMs, wake).sleep();
  }

  get epochMs(): number {
    return isFakedByDate() ? 0 : performance.timeOrigin;
  }
}

/**
 * The platform's monotonic clock and `setTimeout`. It reads both from the global object at every
 * call, so it follows fake timers (sinon, jest, vitest, node:test), which replace them.
 */
export const systemClock: Clock = /* @__PURE__ */ new PlatformClock();

export class Timeout implements Timer {
  readonly #timeMs: number;
  readonly #wake: () => void;
  #timeout: ReturnType<typeof setTimeout> | undefined;
  protected isIdle = false;

  constructor(timeMs: number, wake: () => void) {
    this.#timeMs = timeMs;
    this.#wake = wake;
  }

  cancel(): void {
    clearTimeout(this.#timeout);
  }

  unref(): void {
    this.isIdle = true;
    unref(this.#timeout);
  }

  /** Sleeps until its time has come. */
  sleep(): this {
    // Node warns of negative delays
    this.sleepFor(Math.max(0, this.#timeMs - systemNow()));
    return this;
  }

  protected sleepFor(left: number): void {
    this.#timeout = setTimeout(this.look, Math.min(left, LONGEST_TIMEOUT_MS));
    if (this.isIdle) unref(this.#timeout);
  }

  /**
   * Checks the time before waking: a timer may fire up to a millisecond early, and a long sleep is
   * cut into several.
   */
  protected readonly look = (): void => {
    const left = this.#timeMs - systemNow();
    if (left <= 0) this.#wake();
    else this.sleepFor(left);
  };
}

/** What turns readings of `performance.now()` into Unix time, ms. */
let unixOffsetMs = 0;

/**
 * The machine's own clock: whole microseconds of Unix time. `Date` has the time that other processes
 * and machines have too, but only its milliseconds; between two of them `performance` counts on.
 */
export function unixMicros(): number {
  const ms = performance.now();
  const wholeMs = Date.now();
  unixOffsetMs = Math.min(Math.max(unixOffsetMs, wholeMs - ms), wholeMs + 0.999 - ms);
  return Math.floor((ms + unixOffsetMs) * 1000);
}

/** In some runtimes timers are numbers, which never keep a process alive. */
export function unref(timer: unknown): void {
  (timer as { unref?(): void } | undefined)?.unref?.();
}

/** Returns the clock; throws an error that says what it lacks. */
export function checkClock(clock: unknown): Clock {
  const { now, wakeAt, epochMs = 0 } = Object(clock) as Partial<Clock>;
  if (typeof now !== "function" || typeof wakeAt !== "function") {
    throw new TypeError("clock must have now() and wakeAt(timeMs, wake)");
  }
  checkReading("clock.now()", (clock as Clock).now());
  checkReading("clock.epochMs", epochMs);
  return clock as Clock;
}

/** Rejects what a clock must not return. */
export function checkReading(name: string, ms: unknown): void {
  if (!Number.isFinite(ms)) failCheck(name, "a finite number of ms", ms);
}
