import type { Instances } from "../remote/instances.ts";

/** How a limiter stands, all processes together. */
export interface ConcurrencyStatus {
  readonly limit: number;
  /** How many leases are held, and how many wait for one. */
  readonly active: number;
  readonly waiting: number;
}

export interface RemoteConcurrencyOptions {
  readonly name: string;
  readonly leaseMs: number;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail, wait for it, or be let in here: all of them, or as
   * many as this process' share of the limit allows.
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, which `"local"` has to know: 1 or more. */
  readonly instances?: Instances;
}
