import { atLeastZero, checkNumber } from "../check.ts";
import { type Clock, type Timer, toMicros } from "../clock.ts";

interface Alarm {
  readonly at: number;
  readonly wake: () => void;
}

/** Taken at load time: other people's fake timers must not stop ours. */
const { setImmediate, setTimeout } = globalThis;

/**
 * A clock that stands still until it is told to move on: give it to a limiter as `clock`, and a day
 * passes in no time.
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
  /** Microseconds: adding up fractions of milliseconds would drift. */
  #now: number;
  readonly #alarms = new Set<Alarm>();
  #moving: Promise<void> = Promise.resolve();

  /** @param startMs where it begins, ms; default 0, and Unix time is a start as good as any */
  constructor(startMs = 0) {
    this.#now = toMicros(checkNumber("startMs", startMs, atLeastZero));
  }

  now(): number {
    return this.#now / 1000;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    const alarm: Alarm = { at: toMicros(timeMs), wake };
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  /**
   * Moves the time on. Everything that falls due on the way runs at its own instant, in order, and
   * so does what it sets off; when the promise resolves, whoever was released has run on as far as
   * it could.
   *
   * @param ms how far, to the microsecond; 0 or more
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

/** Lets everything run that is ready to run. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    if (setImmediate === undefined) setTimeout(resolve, 0);
    else setImmediate(resolve);
  });
}
