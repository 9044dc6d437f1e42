/** The longest time for which calls are answered without a turn of the event loop, ms. */
const LONGEST_TURN_MS = 10;

interface Platform {
  setImmediate?: (callback: () => void) => unknown;
}

/**
 * Yields to the event loop regularly. Otherwise a caller that is answered at once, and calls again at
 * once, would block timers and sockets for ever, so that the return of the store is never detected.
 */
export class MacrotaskGate {
  #turnSinceMs: number | undefined;
  #waiting: (() => void)[] = [];

  /** Runs the callback now or, if this turn has lasted too long, in the next one; keeps the order. */
  pass(deed: () => void): void {
    if (this.#turnSinceMs === undefined) {
      this.#turnSinceMs = performance.now();
      nextTurn(() => this.#turn());
    }
    const isLong = performance.now() - this.#turnSinceMs > LONGEST_TURN_MS;
    if (isLong || this.#waiting.length > 0) this.#waiting.push(deed);
    else deed();
  }

  #turn(): void {
    this.#turnSinceMs = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const deed of waiting) deed();
  }
}

/**
 * Runs the callback in the next turn of the event loop, behind all that were passed here before. Uses
 * `setImmediate` where available: it runs after the event loop has polled the sockets.
 */
export function nextTurn(callback: () => void): void {
  const { setImmediate } = globalThis as Platform;
  if (setImmediate === undefined) setTimeout(callback, 0);
  else setImmediate(callback);
}
