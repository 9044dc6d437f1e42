import { asyncDispose } from "../../ground/dispose.ts";
import type { RemoteLease } from "../leases/remote-lease.ts";

/** A lease of a fair concurrency limiter, which notices the release. */
export class FairLease implements RemoteLease {
  readonly #lease: RemoteLease;
  readonly #giveBack: (lease: RemoteLease) => Promise<void>;
  #released: Promise<void> | undefined;

  /** @param giveBack releases the lease */
  constructor(lease: RemoteLease, giveBack: (lease: RemoteLease) => Promise<void>) {
    this.#lease = lease;
    this.#giveBack = giveBack;
  }

  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  release(): Promise<void> {
    this.#released ??= this.#giveBack(this.#lease);
    return this.#released;
  }

  [asyncDispose](): Promise<void> {
    return this.release();
  }
}
