import type { Clock } from "smooth-limiter";

/** The lateness of Node's timers on an idle machine, ms: mostly small, at times a millisecond. */
const LATENESS_MS = [0.07, 0.11, 0.06, 1.08, 0.09, 0.34, 0.08, 0.81, 0.07, 0.07, 0.52];

/** Simulated time in which every timer is late. Nothing else takes time, so any loss is the limiter's. */
export class LateClock implements Clock {
  #now = 0;
  #alarms = 0;
  #wake: (() => void) | undefined;

  now(): number {
    return this.#now;
  }

  wakeAt(timeMs: number, wake: () => void) {
    this.#alarms += 1;
    const late = LATENESS_MS[this.#alarms % LATENESS_MS.length] ?? 0;
    const fire = () => {
      this.#now = Math.max(this.#now, timeMs + late);
      wake();
    };
    this.#wake = fire;
    return {
      cancel: () => {
        if (this.#wake === fire) this.#wake = undefined;
      },
    };
  }

  /** Advances the time by the duration of a worker's job. */
  spend(ms: number): void {
    this.#now += ms;
  }

  /** Advances the time to the pending timer and fires it. Without one it does nothing. */
  next(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
