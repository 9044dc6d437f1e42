/** Subscribes to messages about tickets that become leases, while a caller waits and a little longer. */
import { systemClock, type Timer } from "../../ground/clock.ts";
import type { Listening } from "../../stores/lease-store.ts";

/** How long the connection may take to open once a message has been missed, ms. */
const OPENING_MS = 5000;
/** The longest time that the connection stays open after the last caller has stopped waiting, ms. */
const LINGER_MS = 1000;

export interface GrantListenerOptions {
  readonly listen: () => Listening;
  /** Called when the subscription is active: no later message is missed. */
  readonly ready: () => void;
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

  constructor(options: GrantListenerOptions) {
    this.#options = options;
  }

  listen(): void {
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

  /**
   * Called when a ticket has become a lease without a message. The connection may be dead without an
   * error: it is replaced if it does not answer.
   */
  missed(): void {
    const listening = this.#listening;
    if (listening?.check === undefined || this.#isChecked) return;
    this.#isChecked = true;
    const dead = () => {
      alive();
      if (this.#listening !== listening) return;
      this.close();
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
    this.#timer?.cancel();
    this.#listening?.close();
    this.#listening = undefined;
  }
}
