import type { Clock, Timer } from "smooth-limiter";

interface Alarm {
  readonly atMs: number;
  readonly wake: () => void;
}

/**
 * The time of a log. It changes only when it is moved. Alarms on the way are called in order, each
 * at its own instant, without waiting.
 */
export class VirtualClock implements Clock {
  readonly epochMs: number;
  #nowMs = 0;
  /** In the order of their instants; those of one instant in the order in which they were set. */
  readonly #alarms: Alarm[] = [];

  /** @param epochMs the Unix time at which it begins; counted from there, microseconds are exact */
  constructor(epochMs: number) {
    this.epochMs = epochMs;
  }

  now(): number {
    return this.#nowMs;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    const alarm: Alarm = { atMs: timeMs, wake };
    const alarms = this.#alarms;
    // from the end: most alarms are later than those that were set before
    alarms.splice(alarms.findLastIndex(({ atMs }) => atMs <= timeMs) + 1, 0, alarm);
    return {
      cancel: () => {
        const at = alarms.indexOf(alarm);
        if (at >= 0) alarms.splice(at, 1);
      },
    };
  }

  /**
   * @param timeMs where to; the clock never goes back. `Infinity`: until the last alarm
   * @returns whether an alarm was called
   */
  moveTo(timeMs: number): boolean {
    let hasWoken = false;
    for (let [next] = this.#alarms; next && next.atMs <= timeMs; [next] = this.#alarms) {
      this.#alarms.shift();
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.wake();
      hasWoken = true;
    }
    if (timeMs < Infinity) this.#nowMs = Math.max(this.#nowMs, timeMs);
    return hasWoken;
  }
}
