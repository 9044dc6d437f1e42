/** Hears of tickets that became leases, while somebody waits and a little longer. */
import type { Listening } from "../../stores/lease-store.ts";

/** How long the connection that listens is kept after the last has waited, ms. */
const LINGER_MS = 1000;

export interface LeaseNewsOptions {
  readonly listen: (told: (ids: readonly string[]) => void) => Listening;
  readonly told: (ids: readonly string[]) => void;
  /** Nothing is missed from now on. */
  readonly ready: () => void;
  /** Whether somebody waits. */
  readonly isNeeded: () => boolean;
}

export class LeaseNews {
  readonly #options: LeaseNewsOptions;
  #listening: Listening | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(options: LeaseNewsOptions) {
    this.#options = options;
  }

  listen(): void {
    if (this.#listening !== undefined) return;
    const listening = this.#options.listen(this.#options.told);
    this.#listening = listening;
    listening.ready.then(
      () => this.#options.ready(),
      () => {
        listening.close();
        if (this.#listening === listening) this.#listening = undefined;
      },
    );
  }

  /** Nobody waits any more. */
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
