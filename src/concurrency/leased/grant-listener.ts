/**
 * Subscribes to messages about tickets that become leases, while a caller waits and a little longer.
 *
 * The connection may be dead without an error. So while no message comes, the store is asked for the tickets:
 * after 1 s to 2 s, then after twice as long each time, until the renewals ask as often. A lease that is found so
 * is a message missed. Then the connection is checked, and replaced if it does not answer, and the next questions
 * come after 50 ms, 100 ms and so on, until a message comes.
 */
import { systemClock, type Timer } from "../../ground/clock.ts";
import type { Listening } from "../../stores/lease-store.ts";

/** How long no message may come before the first question, ms; the same once a message was missed. */
const SILENT_MS = 1000;
const DOUBTFUL_MS = 50;
/** How long the connection may take to open once a message has been missed, ms. */
const OPENING_MS = 5000;
/** The longest time that the connection stays open after the last caller has stopped waiting, ms. */
const LINGER_MS = 1000;

export interface GrantListenerOptions {
  readonly listen: () => Listening;
  /** Called when the subscription is active: no later message is missed. */
  readonly ready: () => void;
  /** Asks the store whether tickets have become leases. */
  readonly ask: () => void;
  /** How often the store is asked anyway, ms. */
  readonly renewalMs: number;
  /** Whether a caller waits. */
  readonly isNeeded: () => boolean;
  /** How long the connection may take to answer a check, ms. */
  readonly timeoutMs: number;
}

export class GrantListener {
  readonly #options: GrantListenerOptions;
  #listening: Listening | undefined;
  #isReady = false;
  #isChecked = false;
  /** Set while the connection is open. */
  #timer: Timer | undefined;
  /** The timer for the next question, and how long it waits, ms. */
  #asking: Timer | undefined;
  #silentMs = SILENT_MS;
  /** Whether a message has come since that timer was set. */
  #hasHeard = false;

  constructor(options: GrantListenerOptions) {
    this.#options = options;
  }

  listen(): void {
    if (this.#asking === undefined) this.#askAfter(SILENT_MS);
    if (this.#listening !== undefined) return;
    const listening = this.#options.listen();
    this.#listening = listening;
    this.#isReady = false;
    this.#closeWhenIdle();
    listening.ready.then(
      () => {
        if (this.#listening !== listening) return;
        this.#isReady = true;
        this.#options.ready();
      },
      () => {
        listening.close();
        if (this.#listening === listening) this.#listening = undefined;
      },
    );
  }

  /** Called when a message has come. */
  heard(): void {
    this.#hasHeard = true;
    if (this.#silentMs !== SILENT_MS) this.#askAfter(SILENT_MS);
  }

  #askAfter(ms: number): void {
    this.#asking?.cancel();
    this.#silentMs = ms;
    this.#hasHeard = false;
    this.#asking = systemClock.wakeAt(systemClock.now() + ms, () => this.#ask());
    this.#asking.unref?.();
  }

  #ask(): void {
    const { ask, renewalMs, isNeeded } = this.#options;
    const ms = this.#silentMs;
    this.#asking = undefined;
    if (!isNeeded()) return;
    const isDue = !this.#hasHeard && ms < renewalMs;
    this.#askAfter(isDue ? Math.min(2 * ms, renewalMs) : ms);
    if (isDue) ask();
  }

  /** Called when a ticket has become a lease without a message. */
  missed(): void {
    this.#askAfter(DOUBTFUL_MS);
    this.#check();
  }

  /** Replaces the connection if it does not answer. */
  #check(): void {
    const listening = this.#listening;
    if (listening?.check === undefined || this.#isChecked) return;
    this.#isChecked = true;
    const dead = () => {
      alive();
      if (this.#listening !== listening) return;
      this.#disconnect();
      if (this.#options.isNeeded()) this.listen();
    };
    const alive = () => {
      this.#isChecked = false;
      timer.cancel();
    };
    const limitMs = this.#isReady ? this.#options.timeoutMs : OPENING_MS;
    const timer = systemClock.wakeAt(systemClock.now() + limitMs, dead);
    timer.unref?.();
    (this.#isReady ? listening.check() : listening.ready).then(alive, dead);
  }

  /** Closes the connection when no caller waits: looks every `LINGER_MS`. */
  #closeWhenIdle(): void {
    this.#timer?.cancel();
    this.#timer = systemClock.wakeAt(systemClock.now() + LINGER_MS, () => {
      if (this.#options.isNeeded()) this.#closeWhenIdle();
      else this.close();
    });
    this.#timer.unref?.();
  }

  close(): void {
    this.#asking?.cancel();
    this.#asking = undefined;
    this.#disconnect();
  }

  #disconnect(): void {
    this.#timer?.cancel();
    this.#listening?.close();
    this.#listening = undefined;
  }
}
