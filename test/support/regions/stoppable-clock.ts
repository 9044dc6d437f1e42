import type { Clock } from "smooth-limiter";
import type { FakeClock } from "smooth-limiter/testing";

/** The clock of a process that can be stopped for a while, as by SIGSTOP: time goes on, but no timer runs. */
export class StoppableClock implements Clock {
  readonly epochMs = 0;
  readonly #clock: FakeClock;
  #late: (() => void)[] | undefined;

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  wakeAt(timeMs: number, wake: () => void) {
    return this.#clock.wakeAt(timeMs, () => {
      if (this.#late === undefined) wake();
      else this.#late.push(wake);
    });
  }

  stop(): void {
    this.#late = [];
  }

  goOn(): void {
    const late = this.#late ?? [];
    this.#late = undefined;
    for (const wake of late) wake();
  }
}
