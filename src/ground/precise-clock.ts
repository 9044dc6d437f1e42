import { type Clock, isFakedByDate, PlatformClock, Timeout, type Timer, unref } from "./clock.ts";

/** How long before an instant it polls the clock, ms. */
const SPIN_MS = 2;

class PreciseClock extends PlatformClock {
  override wakeAt(timeMs: number, wake: () => void): Timer {
    // fake timers do not advance between immediates
    const canSpin = typeof setImmediate === "function" && !isFakedByDate();
    return canSpin ? new SpinningTimeout(timeMs, wake).sleep() : super.wakeAt(timeMs, wake);
  }
}

/**
 * Like `systemClock`, but polls the clock in the event loop (`setImmediate`) for the last two
 * milliseconds before an instant. A gap is then off by hundredths of a millisecond instead of one
 * millisecond; in return, one core is busy while a caller waits. Without `setImmediate` it behaves
 * like `systemClock`.
 */
export const preciseClock: Clock = /* @__PURE__ */ new PreciseClock();

class SpinningTimeout extends Timeout {
  #immediate: ReturnType<typeof setImmediate> | undefined;

  override cancel(): void {
    super.cancel();
    if (this.#immediate !== undefined) clearImmediate(this.#immediate);
  }

  override unref(): void {
    super.unref();
    unref(this.#immediate);
  }

  protected override sleepFor(left: number): void {
    if (left >= SPIN_MS) {
      super.sleepFor(left - SPIN_MS);
      return;
    }
    this.#immediate = setImmediate(this.look);
    if (this.isIdle) unref(this.#immediate);
  }
}
