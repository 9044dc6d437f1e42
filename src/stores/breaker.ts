/**
 * A circuit breaker: tracks whether a store can be reached, for all limiters that use it over the same
 * connection. After one of them has waited for a reply in vain, the others do not wait: while the breaker
 * is open only probes are sent, one at a time, after growing and jittered pauses. The first probe that
 * succeeds closes the breaker for all.
 */
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";

/** Pauses before the next probe, ms: each twice the one before. */
const FIRST_PAUSE_MS = 25;
export const LONGEST_PAUSE_MS = 1000;

/** A limiter with a store that is unavailable. */
export interface BreakerListener {
  readonly timeoutMs: number;
  /** Sends the smallest request that writes: a store that can only read is of no use. */
  probe(): Promise<unknown>;
  /** Whether the error comes from a store that is available, so that a retry does not help. */
  isPermanent(error: unknown): boolean;
  /** Whether a caller waits for the store: then the breaker's timer keeps the process alive. */
  readonly isAwaited: boolean;
  /** Called when the store replies again, or is to be used as if it did. */
  found(): void;
  /** Whether the listener can be removed without loss; it joins again with its next call. */
  readonly isIdle: boolean;
  forgotten(): void;
}

/** With more listeners than this, idle ones are removed. */
const MANY = 100;

export class Breaker {
  readonly #acceptsLate: boolean;
  readonly #listeners = new Set<BreakerListener>();
  /** The number of outages so far: a reply to a probe of an earlier outage is ignored. */
  #outages = 0;
  #cause: unknown;
  #isOpen = false;
  #isDisconnected = false;
  #forWaiting: Breaker | undefined;
  /** The pause before the next probe. */
  #pauseMs = FIRST_PAUSE_MS;
  /** The time since which no probe is in flight. */
  #restsSinceMs = 0;
  /** With more listeners than this, idle ones are removed. */
  #most = MANY;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param acceptsLate whether a store that replies too late counts as available; it is then probed only
   *   while a listener is not idle, or was not when the next probe was scheduled
   */
  constructor(acceptsLate = false) {
    this.#acceptsLate = acceptsLate;
  }

  /** Returns the breaker of limiters that accept late replies, over the same connection. */
  forWaiting(): Breaker {
    this.#forWaiting ??= new Breaker(true);
    return this.#forWaiting;
  }

  /** Whether a call has failed and the store has not replied since. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether the client reports that it has no connection; it may get one before a waiter times out. */
  get isDisconnected(): boolean {
    return this.#isDisconnected;
  }

  /** The error because of which the store counts as unavailable. */
  get cause(): unknown {
    return this.#cause;
  }

  /** How many listeners will be notified when the store is back. */
  get size(): number {
    return this.#listeners.size;
  }

  disconnected(cause: unknown): void {
    this.#isDisconnected = true;
    if (!this.#isOpen) this.#cause = cause;
  }

  /** Probes at once, because the client has a connection again. */
  reconnected(): void {
    this.#isDisconnected = false;
    this.#pauseMs = FIRST_PAUSE_MS;
    if (this.#isOpen) this.#probe();
  }

  /** Adds a listener after its call has failed, or would: it is notified when the store is back. */
  join(listener: BreakerListener, cause: unknown): void {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#outages += 1;
      this.#cause = cause;
      this.#restsSinceMs = performance.now();
    }
    this.#listeners.add(listener);
    if (this.#listeners.size > this.#most) this.#forgetIdle(listener);
    this.#scheduleProbe();
  }

  /** Removes a listener that does not need the store any more. */
  leave(listener: BreakerListener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // no listener is left to probe the store, so let the next call try it
    this.#isOpen = false;
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  /** Removes idle listeners: keys that are used once would otherwise pile up during an outage. */
  #forgetIdle(other: BreakerListener): void {
    for (const listener of this.#listeners) {
      if (listener === other || !listener.isIdle) continue;
      this.#listeners.delete(listener);
      listener.forgotten();
    }
    // a scan of all listeners takes time: the next one is due when there are twice as many
    this.#most = Math.max(MANY, 2 * this.#listeners.size);
  }

  /** Closes the breaker and notifies all listeners: the store is available. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#most = MANY;
    this.#isOpen = false;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener.found();
  }

  /** Called when a reply arrives after its request has failed. */
  answeredLate(): void {
    if (this.#acceptsLate) this.close();
  }

  /** Called when a caller starts to wait for the store. */
  awaited(): void {
    this.#timer?.ref?.();
    this.#scheduleProbe();
  }

  get #isAwaited(): boolean {
    return [...this.#listeners].some((listener) => listener.isAwaited);
  }

  /** The listeners take turns, so a failure of one key does not count as a failure of all keys. */
  get #nextProber(): BreakerListener | undefined {
    for (const listener of this.#listeners) {
      if (!this.#acceptsLate || !listener.isIdle) return listener;
    }
    return undefined;
  }

  #scheduleProbe(): void {
    if (this.#timer !== undefined || this.#nextProber === undefined) return;
    const restedMs = performance.now() - this.#restsSinceMs;
    const pauseMs = this.#pauseMs * (0.5 + Math.random() / 2);
    this.#sleep(Math.max(0, pauseMs - restedMs), () => this.#probe());
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  #sleep(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, Math.min(LONGEST_TIMEOUT_MS, ms));
    if (!this.#isAwaited) this.#timer.unref?.();
  }

  #probe(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // a caller that did not wait for long has left by now, but the next one needs the reply
    const [first] = this.#listeners;
    const listener = this.#nextProber ?? first;
    if (listener === undefined) return;
    if (this.#listeners.size > MANY) this.#forgetIdle(listener);
    this.#listeners.delete(listener);
    this.#listeners.add(listener);
    const outage = this.#outages;
    let late = false;
    const again = () => {
      late = true;
      this.#timer = undefined;
      this.#restsSinceMs = performance.now();
      if (this.#isOpen) this.#scheduleProbe();
    };
    this.#sleep(listener.timeoutMs, again);
    const probe = this.#timer;
    const isCurrent = () => this.#isOpen && outage === this.#outages;
    listener.probe().then(
      () => {
        if (isCurrent() && (!late || this.#acceptsLate)) this.close();
      },
      (error) => {
        // callers get this error themselves
        if (isCurrent() && listener.isPermanent(error)) this.close();
        else if (this.#timer === probe) {
          clearTimeout(probe);
          again();
        }
      },
    );
  }
}
