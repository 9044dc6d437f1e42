/**
 * Where a limiter takes its time from. Give your own to put a limiter on other time:
 * `FakeClock` from `smooth-limiter/testing`, a simulation, a coarse clock.
 */
export interface Clock {
  /** Monotonic milliseconds from any origin; fractions are welcome. */
  now(): number;
  /** Calls `wake` once when `now()` has reached `timeMs`; a little early or late is put up with. */
  wakeAt(timeMs: number, wake: () => void): Timer;
  /**
   * Added to `now()` it gives Unix time; for windows that lie on the epoch's grid only. Default 0.
   */
  readonly epochMs?: number;
}

export interface Timer {
  cancel(): void;
  /** It keeps no process alive from now on. Absent: it never did. */
  unref?(): void;
}

/** `setTimeout` fires at once when asked for more than this. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * 1000, and a hair more: (n / 1000) * 1000 may come out just below n, and the floor would then lose
 * a microsecond that `now()` did tell. The hair is two units in the last place, so nothing is ever
 * gained.
 */
const MICROS_PER_MS = 1000 * (1 + Number.EPSILON);
const MICROS_PER_MS_BELOW_0 = 1000 * (1 - Number.EPSILON);

/** Whole microseconds, floored. */
export function toMicros(ms: number): number {
  return Math.floor(ms * (ms < 0 ? MICROS_PER_MS_BELOW_0 : MICROS_PER_MS));
}

/**
 * Milliseconds for a number of microseconds, rounded up to a whole one: who comes back then is not
 * early.
 */
export function toMillis(micros: number): number {
  return Math.ceil(micros) / 1000;
}

/** Taken at load time: what is another one later on was replaced by somebody's fake timers. */
const { Date: RealDate, setTimeout: realSetTimeout } = globalThis;
const realNow = performance.now;

/**
 * Fake timers which leave `performance` alone (node:test, Deno, vitest before 3): `Date` tells their
 * time. Who replaces `Date` without the timers has real timers, and real time.
 */
function isFakedByDate(): boolean {
  return Date !== RealDate && setTimeout !== realSetTimeout && performance.now === realNow;
}

function systemNow(): number {
  return Date !== RealDate && isFakedByDate() ? Date.now() : performance.now();
}

/** A class, since V8 reads an object literal that has a getter slowly: 2.5 ns a call. */
class PlatformClock implements Clock {
  readonly #spinMs: number;

  constructor(spinMs: number) {
    this.#spinMs = spinMs;
  }

  now(): number {
    return systemNow();
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    // no time passes between the immediates of fake timers
    const canSpin = typeof setImmediate === "function" && !isFakedByDate();
    return new Timeout(timeMs, wake, canSpin ? this.#spinMs : 0);
  }

  get epochMs(): number {
    return isFakedByDate() ? 0 : performance.timeOrigin;
  }
}

/**
 * The platform's monotonic clock and `setTimeout`. They are looked up at every call, so that other
 * people's fake timers (sinon, jest, vitest, node:test), which replace them, are heeded.
 */
export const systemClock: Clock = new PlatformClock(0);

/**
 * As `systemClock`, but the last two milliseconds before an instant are spent looking at the clock
 * between the events of the loop (`setImmediate`): a gap is then off by hundredths of a millisecond
 * instead of one, and one core is busy while somebody waits. Without `setImmediate` it is
 * `systemClock`.
 */
export const preciseClock: Clock = new PlatformClock(2);

class Timeout implements Timer {
  readonly #timeMs: number;
  readonly #wake: () => void;
  readonly #spinMs: number;
  #timeout: ReturnType<typeof setTimeout> | undefined;
  #immediate: ReturnType<typeof setImmediate> | undefined;
  #idle = false;

  constructor(timeMs: number, wake: () => void, spinMs: number) {
    this.#timeMs = timeMs;
    this.#wake = wake;
    this.#spinMs = spinMs;
    this.#sleep(timeMs - systemNow());
  }

  cancel(): void {
    clearTimeout(this.#timeout);
    if (this.#immediate !== undefined) clearImmediate(this.#immediate);
  }

  unref(): void {
    this.#idle = true;
    unref(this.#timeout);
    unref(this.#immediate);
  }

  #sleep(left: number): void {
    if (left < this.#spinMs) this.#immediate = setImmediate(this.#look);
    else this.#timeout = setTimeout(this.#look, Math.min(left - this.#spinMs, LONGEST_TIMEOUT_MS));
    if (this.#idle) this.unref();
  }

  /**
   * A timer may fire up to a millisecond early, and a long sleep is cut into pieces: look before
   * waking.
   */
  readonly #look = (): void => {
    const left = this.#timeMs - systemNow();
    if (left <= 0) this.#wake();
    else this.#sleep(left);
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

/** In some runtimes timers are numbers, and nothing of them keeps a process alive. */
export function unref(timer: unknown): void {
  (timer as { unref?(): void } | undefined)?.unref?.();
}

/** Hands the clock back, or says what it lacks. */
export function checkClock(clock: unknown): Clock {
  const { now, wakeAt, epochMs = 0 } = Object(clock) as Partial<Clock>;
  if (typeof now !== "function" || typeof wakeAt !== "function") {
    throw new TypeError("clock must have now() and wakeAt(timeMs, wake)");
  }
  const valid = clock as Clock;
  if (!Number.isFinite(valid.now())) {
    throw new TypeError(`clock.now() must give a finite number of ms, got ${String(valid.now())}`);
  }
  if (!Number.isFinite(epochMs)) {
    throw new TypeError(`clock.epochMs must be a finite number of ms, got ${String(epochMs)}`);
  }
  return valid;
}
