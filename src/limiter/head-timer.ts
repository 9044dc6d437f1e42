import type { Timer } from "../ground/clock.ts";
import type { Timeline } from "./timeline.ts";

/** The one timer of a line: for its head. */
export class HeadTimer {
  readonly #time: Timeline;
  readonly #wake: () => void;
  #timer: Timer | undefined;
  #at = 0;

  /** @param wake called at the instant, or earlier: a timer may fire early */
  constructor(time: Timeline, wake: () => void) {
    this.#time = time;
    this.#wake = wake;
  }

  get isSet(): boolean {
    return this.#timer !== undefined;
  }

  /** Sets the timer for an instant of the timeline, in place of the one that it was set for. */
  set(at: number): void {
    if (this.#timer !== undefined && this.#at === at) return;
    this.cancel();
    this.#at = at;
    this.#timer = this.#time.wakeAt(at, this.#fire);
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  readonly #fire = (): void => {
    this.#timer = undefined;
    this.#wake();
  };
}
