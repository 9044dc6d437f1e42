import type { Clock } from "smooth-limiter";

/** ms by which a timer is late on an idle machine, as Node's are: mostly a little, at times a millisecond. */
const LATENESS_MS = [0.07, 0.11, 0.06, 1.08, 0.09, 0.34, 0.08, 0.81, 0.07, 0.07, 0.52];

/** Simulated time in which every timer is late. Nothing else happens in it, so what is slow is the limiter. */
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

  /** Somebody works for so long. */
  spend(ms: number): void {
    this.#now += ms;
  }

  /** Goes on to the timer that is set, if there is one. */
  next(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
