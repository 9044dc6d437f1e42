import type { Ending } from "../api/slots-options.ts";
import { asyncDispose, dispose } from "../ground/dispose.ts";

/** A slot, held until it is given back: by whichever of the three methods is called first. */
export interface Lease extends Disposable, AsyncDisposable {
  /**
   * Gives the slot back; a later call does nothing. `using` and `await using` call it. An adaptive limit
   * learns from how long it was held.
   */
  release(): void;
  /**
   * Gives the slot back after a call that met a limit: a time-out, a 429, a 503. An adaptive limit becomes
   * lower; a fixed one does not change.
   */
  overloaded(): void;
  /** Gives the slot back after a call that says nothing about the limit: it failed, or was cancelled. */
  ignore(): void;
}

/** A lease of a `ConcurrencyLimiter`. */
export class LocalLease implements Lease {
  #end: ((ending: Ending) => void) | undefined;

  constructor(end: (ending: Ending) => void) {
    this.#end = end;
  }

  release(): void {
    this.#endAs("release");
  }

  overloaded(): void {
    this.#endAs("overloaded");
  }

  ignore(): void {
    this.#endAs("ignore");
  }

  #endAs(ending: Ending): void {
    const end = this.#end;
    this.#end = undefined;
    end?.(ending);
  }

  [dispose](): void {
    this.release();
  }

  async [asyncDispose](): Promise<void> {
    this.release();
  }
}
