/** Subscribes to tickets that become leases, while a caller waits and a little longer. */
import type { Listening } from "../../stores/lease-store.ts";

/** How long the connection that listens is kept after the last caller has waited, ms. */
const LINGER_MS = 1000;

export interface GrantListenerOptions {
  readonly listen: (granted: (ids: readonly string[]) => void) => Listening;
  readonly granted: (ids: readonly string[]) => void;
  /** No message is missed from now on. */
  readonly ready: () => void;
  /** Whether a caller waits. */
  readonly isNeeded: () => boolean;
}

export class GrantListener {
  readonly #options: GrantListenerOptions;
  #listening: Listening | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(options: GrantListenerOptions) {
    this.#options = options;
  }

  listen(): void {
    if (this.#listening !== undefined) return;
    const listening = this.#options.listen(this.#options.granted);
    this.#listening = listening;
    listening.ready.then(
      () => this.#options.ready(),
      () => {
        listening.close();
        if (this.#listening === listening) this.#listening = undefined;
      },
    );
  }

  /** No caller waits any more. */
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
