import type { Clock, Timer } from "smooth-limiter";
import { Heap } from "./heap.ts";

interface Alarm {
  readonly atMs: number;
  /** Of two alarms at one instant the first that was set is called first. */
  readonly order: number;
  readonly wake: () => void;
  isOff: boolean;
}

/**
 * The time of a log. It changes only when it is moved. Alarms on the way are called in order, each
 * at its own instant, without waiting.
 */
export class VirtualClock implements Clock {
  readonly epochMs: number;
  #nowMs = 0;
  #set = 0;
  readonly #alarms = new Heap<Alarm>(isBefore);

  /** @param epochMs the Unix time at which it begins; counted from there, microseconds are exact */
  constructor(epochMs: number) {
    this.epochMs = epochMs;
  }

  now(): number {
    return this.#nowMs;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    const alarm: Alarm = { atMs: timeMs, order: this.#set, wake, isOff: false };
    this.#set += 1;
    this.#alarms.push(alarm);
    return {
      cancel: () => {
        alarm.isOff = true;
      },
    };
  }

  /**
   * @param timeMs where to; the clock never goes back. `Infinity`: until the last alarm
   * @returns whether an alarm was called
   */
  moveTo(timeMs: number): boolean {
    let hasWoken = false;
    for (;;) {
      const next = this.#alarms.first;
      if (next === undefined || next.atMs > timeMs) break;
      this.#alarms.pop();
      if (next.isOff) continue;
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.wake();
      hasWoken = true;
    }
    if (timeMs < Infinity) this.#nowMs = Math.max(this.#nowMs, timeMs);
    return hasWoken;
  }
}

function isBefore(one: Alarm, other: Alarm): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}
