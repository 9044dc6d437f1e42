import { asyncDispose, dispose } from "../ground/dispose.ts";

/** A slot, held until it is released. */
export interface Lease extends Disposable, AsyncDisposable {
  /** Gives the slot back; a second call does nothing. `using` and `await using` call it. */
  release(): void;
}

/** A lease of a `ConcurrencyLimiter`. */
export class LocalLease implements Lease {
  #giveBack: (() => void) | undefined;

  constructor(giveBack: () => void) {
    this.#giveBack = giveBack;
  }

  release(): void {
    const giveBack = this.#giveBack;
    this.#giveBack = undefined;
    giveBack?.();
  }

  [dispose](): void {
    this.release();
  }

  async [asyncDispose](): Promise<void> {
    this.release();
  }
}
