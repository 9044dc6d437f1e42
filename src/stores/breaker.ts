/**
 * A circuit breaker: whether a store can be reached, shared by all limiters that ask it over the same
 * connection. Once one of them has waited for a reply in vain, the others do not: while the breaker is
 * open nothing is sent but probes, one at a time, after growing and jittered pauses. The first probe
 * that succeeds closes the breaker for all.
 */
import { LONGEST_TIMEOUT_MS } from "../clock.ts";

/** Pauses before the next probe, ms: each twice the one before. */
const FIRST_PAUSE_MS = 25;
export const LONGEST_PAUSE_MS = 1000;

/** A limiter whose store is away. */
export interface BreakerListener {
  readonly timeoutMs: number;
  /** Sends the smallest request that writes: a store that can only read does not help. */
  probe(): Promise<unknown>;
  /** The error comes from a store that is there: a retry does not help. */
  isPermanent(error: unknown): boolean;
  /** A caller waits for the store, which keeps the process alive. */
  readonly isAwaited: boolean;
  /** The store answers, or is to be asked as if it did. */
  found(): void;
  /** Nothing would be lost if it were forgotten; it joins again with its next call. */
  readonly isIdle: boolean;
  forgotten(): void;
}

/** With more listeners than this, those that are idle are forgotten. */
const MANY = 100;

export class Breaker {
  readonly #acceptsLate: boolean;
  readonly #listeners = new Set<BreakerListener>();
  /** How many outages there were: the reply to an earlier probe says nothing of this one. */
  #outages = 0;
  #cause: unknown;
  #isOpen = false;
  #isDisconnected = false;
  #forWaiting: Breaker | undefined;
  /** How long to pause before the next probe. */
  #pauseMs = FIRST_PAUSE_MS;
  /** Since when no probe is under way. */
  #restsSinceMs = 0;
  /** With how many listeners the idle ones are forgotten. */
  #most = MANY;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param acceptsLate a store that answers too late counts as there, and is probed only while a
   *   listener is not idle
   */
  constructor(acceptsLate = false) {
    this.#acceptsLate = acceptsLate;
  }

  /** The breaker of those that accept late replies, over the same connection. */
  forWaiting(): Breaker {
    this.#forWaiting ??= new Breaker(true);
    return this.#forWaiting;
  }

  /** A call has failed, and the store has not been found since. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** The client says that it has no connection; a caller that waits may get one in time. */
  get isDisconnected(): boolean {
    return this.#isDisconnected;
  }

  /** Why the store counts as away. */
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

  /** The client has a connection again: probes at once. */
  reconnected(): void {
    this.#isDisconnected = false;
    this.#pauseMs = FIRST_PAUSE_MS;
    if (this.#isOpen) this.#probe();
  }

  /** The listener's call has failed, or would: it is notified when the store is back. */
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

  /** The listener does not need the store any more. */
  leave(listener: BreakerListener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // nothing looks for the store any more: the next call does
    this.#isOpen = false;
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  /** Keys that are asked once would otherwise pile up as long as the store is away. */
  #forgetIdle(other: BreakerListener): void {
    for (const listener of this.#listeners) {
      if (listener === other || !listener.isIdle) continue;
      this.#listeners.delete(listener);
      listener.forgotten();
    }
    // looking at all of them takes time: the next look comes when there are twice as many
    this.#most = Math.max(MANY, 2 * this.#listeners.size);
  }

  /** The store is there. */
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

  /** A caller waits for the store now. */
  awaited(): void {
    this.#timer?.ref?.();
    this.#scheduleProbe();
  }

  get #isAwaited(): boolean {
    return [...this.#listeners].some((listener) => listener.isAwaited);
  }

  /** Each in its turn: the trouble of one key is not taken for that of all. */
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
    const listener = this.#nextProber;
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
