import { atLeastZero, checkNumber } from "../ground/check.ts";
import { type Clock, type Timer, toMicros } from "../ground/clock.ts";

interface Alarm {
  readonly at: number;
  readonly wake: () => void;
}

/** Captured at load time, so that fake timers of a test framework do not stop this clock. */
const { setImmediate, setTimeout, MessageChannel } = globalThis;

/**
 * A clock that stands still until `advance` is called. Pass it to a limiter as `clock`, and a test can
 * cover a day without waiting.
 *
 * @example
 * const clock = new FakeClock();
 * const limiter = RateLimiter.create(1, { clock });
 * limiter.tryAcquire();              // true
 * const waited = limiter.acquire();  // pending
 * await clock.advance(1000);
 * await waited;                      // 1000
 */
export class FakeClock implements Clock {
  /** Whole microseconds: sums of fractional milliseconds would drift. */
  #now: number;
  readonly #alarms = new Set<Alarm>();
  #moving: Promise<void> = Promise.resolve();

  /** @param startMs the time at which the clock begins, ms, for example a Unix time; default 0 */
  constructor(startMs = 0) {
    this.#now = toMicros(checkNumber("startMs", startMs, atLeastZero));
  }

  /** The time of this clock, ms. */
  now(): number {
    return this.#now / 1000;
  }

  /** Calls `wake` when the clock is advanced to this time, ms, or past it. */
  wakeAt(timeMs: number, wake: () => void): Timer {
    const alarm: Alarm = { at: toMicros(timeMs), wake };
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  /**
   * Advances the time. Each timer that becomes due runs at its own instant, in order, and so do
   * the timers that it starts. When the promise resolves, all callers that were released have run on as
   * far as they could.
   *
   * @param ms how far, rounded to the microsecond; 0 or more
   */
  advance(ms: number): Promise<void> {
    const micros = Math.round(checkNumber("ms", ms, atLeastZero) * 1000);
    const moved = this.#moving.then(() => this.#moveTo(this.#now + micros));
    this.#moving = moved.catch(() => {});
    return moved;
  }

  async #moveTo(end: number): Promise<void> {
    await turn();
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#alarms.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.wake();
      await turn();
    }
    this.#now = end;
    await turn();
  }

  #next(end: number): Alarm | undefined {
    let next: Alarm | undefined;
    for (const alarm of this.#alarms) {
      if (alarm.at <= end && (next === undefined || alarm.at < next.at)) next = alarm;
    }
    return next;
  }
}

/** Waits until all callbacks that are ready have run. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    if (setImmediate !== undefined) setImmediate(resolve);
    else if (MessageChannel !== undefined) passMessage(resolve);
    else setTimeout(resolve, 0);
  });
}

/** Browsers delay nested timers by 4 ms, but not messages: a simulated hour has thousands of turns. */
function passMessage(receive: () => void): void {
  const { port1, port2 } = new MessageChannel();
  const onmessage = () => {
    port1.close();
    receive();
  };
  Object.assign(port1, { onmessage });
  port2.postMessage(undefined);
}
