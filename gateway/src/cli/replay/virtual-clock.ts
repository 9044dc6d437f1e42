import type { Clock, Timer } from "smooth-limiter";

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
  /** A heap: the next alarm first. */
  readonly #alarms: Alarm[] = [];

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
    this.#push(alarm);
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
    for (
      let [next] = this.#alarms;
      next !== undefined && next.atMs <= timeMs;
      [next] = this.#alarms
    ) {
      this.#pop();
      if (next.isOff) continue;
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.wake();
      hasWoken = true;
    }
    if (timeMs < Infinity) this.#nowMs = Math.max(this.#nowMs, timeMs);
    return hasWoken;
  }

  #push(alarm: Alarm): void {
    const heap = this.#alarms;
    let at = heap.push(alarm) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const other = heap[above] as Alarm;
      if (!isBefore(alarm, other)) break;
      heap[at] = other;
      at = above;
    }
    heap[at] = alarm;
  }

  #pop(): void {
    const heap = this.#alarms;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      const right = heap[below + 1];
      if (right !== undefined && isBefore(right, heap[below] as Alarm)) below += 1;
      const other = heap[below];
      if (other === undefined || !isBefore(other, last)) break;
      heap[at] = other;
      at = below;
    }
    heap[at] = last;
  }
}

function isBefore(one: Alarm, other: Alarm): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}
