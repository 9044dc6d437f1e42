/** So long may callers be answered without a turn of the event loop, ms. */
const LONGEST_TURN_MS = 10;

interface Platform {
  setImmediate?: (callback: () => void) => unknown;
}

/**
 * Lets the event loop turn now and then: a caller that is answered at once, and asks again at once,
 * would otherwise keep timers and sockets waiting for ever, and with them the return of the store.
 */
export class MacrotaskGate {
  #turnSinceMs: number | undefined;
  #waiting: (() => void)[] = [];

  /** Runs it now or, where this turn has lasted too long, in the next one; in order. */
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

/** `setImmediate` where there is one: after the sockets have been looked at. */
function nextTurn(callback: () => void): void {
  const { setImmediate } = globalThis as Platform;
  if (setImmediate === undefined) setTimeout(callback, 0);
  else setImmediate(callback);
}
