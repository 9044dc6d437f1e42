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

/**
 * Breakers of limiters whose callers wait find the store each by themselves, but only one of them
 * probes at a time. The others probe when that one has found the store, or when its probe fails.
 */
class ProbeCoordinator {
  pauseMs = FIRST_PAUSE_MS;
  readonly #followers = new Set<Breaker>();
  #leader: Breaker | undefined;

  /** @returns whether this breaker is the one that probes */
  leads(breaker: Breaker): boolean {
    this.#leader ??= breaker;
    if (this.#leader !== breaker) this.#followers.add(breaker);
    return this.#leader === breaker;
  }

  /** The next one's turn. */
  leave(breaker: Breaker): void {
    this.#followers.delete(breaker);
    if (this.#leader !== breaker) return;
    this.#leader = undefined;
    for (const follower of this.#followers) {
      this.#followers.delete(follower);
      follower.awaited();
      if (this.#leader !== undefined) return;
    }
  }

  /** One has found the store: the others probe at once. */
  found(breaker: Breaker): void {
    const others = new Set(this.#followers);
    if (this.#leader !== undefined) others.add(this.#leader);
    others.delete(breaker);
    this.#followers.clear();
    this.#leader = undefined;
    for (const other of others) other.reconnected();
  }
}

/** With more listeners than this, each probe forgets those that are idle. */
const MANY = 100;

export class Breaker {
  readonly #acceptsLate: boolean;
  readonly #listeners = new Set<BreakerListener>();
  /** How many outages there were: the reply to an earlier probe says nothing of this one. */
  #outages = 0;
  #cause: unknown;
  #isOpen = false;
  #isDisconnected = false;
  readonly #coordinator: ProbeCoordinator | undefined;
  /** How long to pause before the next probe. */
  readonly #pace: { pauseMs: number };
  #forWaiting: ProbeCoordinator | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param acceptsLate a store that answers too late counts as there, and is probed only while a
   *   listener is not idle
   * @param coordinator of breakers that take turns in probing
   */
  constructor(acceptsLate = false, coordinator?: ProbeCoordinator) {
    this.#acceptsLate = acceptsLate;
    this.#coordinator = coordinator;
    this.#pace = coordinator ?? { pauseMs: FIRST_PAUSE_MS };
  }

  /** A breaker that accepts late replies, over the same connection; all these take turns in probing. */
  forWaiting(): Breaker {
    this.#forWaiting ??= new ProbeCoordinator();
    return new Breaker(true, this.#forWaiting);
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
    this.#pace.pauseMs = FIRST_PAUSE_MS;
    if (this.#isOpen) this.#probe();
  }

  /** The listener's call has failed, or would: it is notified when the store is back. */
  join(listener: BreakerListener, cause: unknown): void {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#outages += 1;
      this.#cause = cause;
    }
    this.#listeners.add(listener);
    this.#scheduleProbe();
  }

  /** The listener does not need the store any more. */
  leave(listener: BreakerListener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#coordinator?.leave(this);
  }

  /** Keys that are asked once would otherwise pile up as long as the store is away. */
  #forgetIdle(prober: BreakerListener): void {
    for (const listener of this.#listeners) {
      if (listener === prober || !listener.isIdle) continue;
      this.#listeners.delete(listener);
      listener.forgotten();
    }
  }

  /** The store is there. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pace.pauseMs = FIRST_PAUSE_MS;
    this.#isOpen = false;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener.found();
    this.#coordinator?.found(this);
  }

  /** A caller waits for the store now. */
  awaited(): void {
    this.#timer?.ref?.();
    this.#scheduleProbe();
  }

  get #isAwaited(): boolean {
    return [...this.#listeners].some((listener) => listener.isAwaited);
  }

  #isWorthProbing(listeners: Iterable<BreakerListener>): boolean {
    return !this.#acceptsLate || [...listeners].some((listener) => !listener.isIdle);
  }

  #scheduleProbe(): void {
    if (this.#timer !== undefined || !this.#isWorthProbing(this.#listeners)) return;
    if (this.#coordinator?.leads(this) === false) return;
    const { pauseMs } = this.#pace;
    this.#sleep(pauseMs * (0.5 + Math.random() / 2), () => this.#probe());
    this.#pace.pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
  }

  #sleep(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, Math.min(LONGEST_TIMEOUT_MS, ms));
    if (!this.#isAwaited) this.#timer.unref?.();
  }

  #probe(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const [listener] = this.#listeners;
    if (listener === undefined || !this.#isWorthProbing([listener])) {
      this.#coordinator?.leave(this);
      return;
    }
    if (this.#listeners.size > MANY) this.#forgetIdle(listener);
    // the next probe is another listener's: the trouble of one key is not taken for that of all
    this.#listeners.delete(listener);
    this.#listeners.add(listener);
    const outage = this.#outages;
    let late = false;
    const again = () => {
      late = true;
      this.#timer = undefined;
      this.#coordinator?.leave(this);
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
