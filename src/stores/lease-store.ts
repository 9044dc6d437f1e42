/** The contract of a store that keeps leases for many processes: see `RemoteConcurrency`. */
import type { Breaker } from "./breaker.ts";
import type { ProcessCounter } from "./process-counter.ts";

/** What somebody has at the store: a place, a ticket that waits for one, or neither. */
export type Standing = "none" | "held" | "waiting";

/**
 * `acquire` a lease, or else a ticket, behind all others; `try` a lease; `keep` either; `release`
 * either; set the `limit`; `look`. `adopt`: a lease whatever the limit, before anything else of the
 * trip, so that nobody is let in who would not be if it had been there all along. `probe`, in a trip
 * of its own: whether the store can write; nothing comes of it, for nobody either.
 */
export type LeaseVerb =
  | "acquire"
  | "try"
  | "keep"
  | "release"
  | "limit"
  | "look"
  | "adopt"
  | "probe";

export interface LeaseRequest {
  readonly verb: LeaseVerb;
  /** The id of the lease or ticket; the limit, where that is set. */
  readonly what: string;
}

export interface LeaseReply {
  /** The limit in force. */
  readonly limit: number;
  /** How many leases and tickets there are, of all processes. */
  readonly active: number;
  readonly waiting: number;
  /** In how many ms the first lease lapses unless it is kept; below 0 where nobody waits. */
  readonly lapseMs: number;
  /** One for each request. */
  readonly standings: readonly Standing[];
}

export interface LeaseStore {
  /** As those of `Store`. */
  breakerOf?(key: string): Breaker | undefined;
  isPermanent?(error: unknown): boolean;
  processes?(key: string): ProcessCounter;

  /**
   * Runs the requests in order, atomically.
   *
   * @param declared the limit that the caller's code declares
   */
  run(key: string, declared: number, requests: readonly LeaseRequest[]): Promise<LeaseReply>;

  /**
   * Hears of tickets that became leases; a message may be lost.
   *
   * @param processId whose tickets, as it stands in their ids
   */
  listen(key: string, processId: string, granted: (ids: readonly string[]) => void): Listening;
}

export interface Listening {
  /** Resolves when no message is missed from now on; rejects when there will be none. */
  readonly ready: Promise<void>;
  /**
   * Resolves when the connection has answered; a dead one never does. Absent: it is not ours to
   * close and open again.
   */
  check?(): Promise<unknown>;
  close(): void;
}

/** Ids tell the store how long they live and by which limit they go; they hold no spaces. */
export function leaseId(leaseMs: number, declared: number, processId: string, n: number): string {
  return `${leaseMs}:${declared}:${processId}:${n}`;
}
