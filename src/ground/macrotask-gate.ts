/** The longest time for which calls are answered without a tick of the event loop, ms. */
const LONGEST_TICK_MS = 10;

interface Platform {
  setImmediate?: (callback: () => void) => unknown;
}

/**
 * Yields to the event loop regularly. Otherwise a caller that is answered at once, and calls again at
 * once, would block timers and sockets for ever, so that the return of the store is never detected.
 */
export class MacrotaskGate {
  #tickSinceMs: number | undefined;
  #waiting: (() => void)[] = [];

  /** Runs the callback now or, if this tick has lasted too long, in the next one; keeps the order. */
  pass(callback: () => void): void {
    if (this.#tickSinceMs === undefined) {
      this.#tickSinceMs = performance.now();
      nextMacrotask(() => this.#tick());
    }
    const isLong = performance.now() - this.#tickSinceMs > LONGEST_TICK_MS;
    if (isLong || this.#waiting.length > 0) this.#waiting.push(callback);
    else callback();
  }

  #tick(): void {
    this.#tickSinceMs = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const callback of waiting) callback();
  }
}

/**
 * Runs the callback in the next tick of the event loop, behind all that were passed here before. Uses
 * `setImmediate` where available: it runs after the event loop has polled the sockets.
 */
export function nextMacrotask(callback: () => void): void {
  const { setImmediate } = globalThis as Platform;
  if (setImmediate === undefined) setTimeout(callback, 0);
  else setImmediate(callback);
}
