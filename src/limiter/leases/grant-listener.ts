/** Subscribes to messages about tickets that become leases, while a caller waits and a little longer. */
import { LONGEST_TIMEOUT_MS } from "../../ground/clock.ts";
import type { Listening } from "../../stores/lease-store.ts";

/** How long the connection may take to open once a message has been missed, ms. */
const OPENING_MS = 5000;
/** How long the connection stays open after the last caller has stopped waiting, ms. */
const LINGER_MS = 1000;

export interface GrantListenerOptions {
  readonly listen: (granted: (ids: readonly string[]) => void) => Listening;
  readonly granted: (ids: readonly string[]) => void;
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
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(options: GrantListenerOptions) {
    this.#options = options;
  }

  listen(): void {
    if (this.#listening !== undefined) return;
    const listening = this.#options.listen(this.#options.granted);
    this.#listening = listening;
    this.#isReady = false;
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
    const { timeoutMs, isNeeded } = this.#options;
    const answer = this.#isReady ? listening.check() : listening.ready;
    this.#isChecked = true;
    void within(answer, this.#isReady ? timeoutMs : OPENING_MS).then((isAlive) => {
      this.#isChecked = false;
      if (isAlive || this.#listening !== listening) return;
      this.close();
      if (isNeeded()) this.listen();
    });
  }

  /** Closes the connection a little later: no caller waits any more. */
  linger(): void {
    if (this.#linger !== undefined) return;
    this.#linger = setTimeout(() => {
      this.#linger = undefined;
      if (!this.#options.isNeeded()) this.close();
    }, LINGER_MS);
    this.#linger.unref?.();
  }

  close(): void {
    this.#listening?.close();
    this.#listening = undefined;
  }
}

/** Resolves to whether the promise resolves in time. */
function within(promise: Promise<unknown>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), Math.min(ms, LONGEST_TIMEOUT_MS));
    timer.unref?.();
    const settle = (isAlive: boolean) => {
      clearTimeout(timer);
      resolve(isAlive);
    };
    promise.then(
      () => settle(true),
      () => settle(false),
    );
  });
}
