import type { Instances } from "../remote/instances.ts";

/** The status of a limiter, for all processes together. */
export interface ConcurrencyStatus {
  readonly limit: number;
  /** How many leases are held, and how many callers wait for one. */
  readonly active: number;
  readonly waiting: number;
}

export interface RemoteConcurrencyOptions {
  readonly name: string;
  readonly leaseMs: number;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail, wait for it, or be granted in this process: all of
   * them (`"allow"`), or as many as this process' share of the limit allows (`"local"`).
   */
  readonly whenUnavailable: "throw" | "wait" | "allow" | "local";
  /** How many processes share the limit, 1 or more; required by `"local"`. */
  readonly instances?: Instances;
}
