/** The contract of a store that keeps leases for many processes: see `RemoteConcurrency`. */
import type { Breaker } from "./breaker.ts";
import type { ProcessCounter } from "./process-counter.ts";

/** What an id has at the store: a lease, a ticket that waits for one, or neither. */
export type TicketState = "none" | "held" | "waiting";

/**
 * `acquire` a lease, or else a ticket, behind all others; `try` to get a lease; `keep` either; `release`
 * either; set the `limit`; `look` reads only. `adopt` registers a lease regardless of the limit, before
 * all other requests of the batch, so that these see the same state as if the lease had always been
 * registered. `probe`, in a batch of its own, tests whether the store can write, and grants nothing.
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
  /** The id of the lease or ticket; for `limit` the new limit. */
  readonly what: string;
}

export interface LeaseReply {
  /** The limit in force. */
  readonly limit: number;
  /** The number of slots held and the number of tickets, of all processes. */
  readonly active: number;
  readonly waiting: number;
  /** In how many ms the first lease lapses unless it is kept; below 0 if no ticket waits. */
  readonly lapseMs: number;
  /** One for each request. */
  readonly standings: readonly TicketState[];
}

export interface LeaseStore {
  /** These three as in `Store`. */
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
   * Subscribes to messages about tickets that became leases; a message may be lost.
   *
   * @param processId the process that the tickets belong to, as in their ids
   * @param resumed called when the subscription is active again after the connection was lost: messages
   *   may have been missed. Some clients do not report it
   */
  listen(
    key: string,
    processId: string,
    granted: (ids: readonly string[]) => void,
    resumed: () => void,
  ): Listening;
}

export interface Listening {
  /** Resolves when the subscription is active; rejects if it cannot become active. */
  readonly ready: Promise<void>;
  /**
   * Resolves when the connection has replied; never, if it is dead. Absent: the connection is shared, so
   * it must not be closed and opened again.
   */
  check?(): Promise<unknown>;
  close(): void;
}

/**
 * Returns an id, which contains the lease time, the declared limit and the slots for the store; without spaces.
 *
 * @param n the number of the call in its process
 */
export function leaseId(
  leaseMs: number,
  declared: number,
  processId: string,
  n: number,
  slots = 1,
): string {
  const id = `${leaseMs}:${declared}:${processId}:${n}`;
  return slots === 1 ? id : `${id}:${slots}`;
}
