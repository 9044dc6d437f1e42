/**
 * A remote store: it runs requests on the state of one limiter, in order and all at one instant of one
 * clock for all callers. The reply is asynchronous and may be lost. Times are microseconds.
 */
import type { Quota } from "../algorithms/algorithm.ts";
import type { Amount } from "../ground/permits.ts";
import type { BatchCounters, BatchId } from "./batch-id.ts";
import type { Breaker } from "./breaker.ts";
import type { Exchange } from "./ledger.ts";
import type { ProcessCounter } from "./process-counter.ts";

/** Where shared limiters keep their states: `casStore` and `memoryStore` make one. */
export interface Store {
  /**
   * Returns the breaker that is shared by all limiters with keys that become unavailable together with
   * this one; absent, or undefined: each limiter has its own.
   */
  breakerOf?(key: string): Breaker | undefined;
  /**
   * Whether the error comes from a store that is available, so that a retry does not help; absent: true
   * for a `TypeError`.
   */
  isPermanent?(error: unknown): boolean;
  /**
   * Runs the requests on the state of the limiter.
   *
   * @param key the limiter's name
   * @param declared the numbers of its policies, as the caller's code declares them
   * @param now epoch microseconds; absent: the store's own clock
   * @param batch identifies the batch, so that the store does not run it twice; absent: the store runs the
   *   requests each time it receives them
   * @param deadlineMs when the caller gives up, by `performance.now()`: there are no retries after that.
   *   Absent: never
   * @throws LostReplyError if the batch was run before: this call has changed nothing
   */
  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    batchId?: BatchId,
    deadlineMs?: number,
  ): Promise<StoreReply>;
  /** Returns the store for a limiter with limits under these keys; absent: it does not support them. */
  withLimitKeys?(limitKeys: readonly string[]): Store;
  /**
   * Returns a counter of the live processes that use the limiter, the same one for the same key; absent:
   * `instances: "auto"` is rejected.
   */
  processes?(key: string): ProcessCounter;
  /** Exchanges a message with the ledger of a limit that is divided among regions; absent: it keeps no ledgers. */
  exchange?: Exchange;
  /** Returns the location of a limiter's state; absent: it cannot be combined with others. */
  location?(key: string): StateLocation;
}

/** The location of a limiter's state. Limiters with the same store and slot can be used in one atomic step. */
export interface StateLocation {
  readonly store: CombiningStore;
  /** Limiters with the same store and key share one state. */
  readonly key: string;
  readonly slot: string;
}

/** One limiter's part of a combined request. */
export interface CombinedSubrequest {
  readonly location: StateLocation;
  /** As for `run` of a store. */
  readonly declared: string;
  readonly now: number | undefined;
  readonly amount: Amount;
  /** The longest wait that is accepted, microseconds. */
  readonly longest: number;
  readonly late: number;
  /** Number the combinations that this part belongs to, and process the replies. */
  readonly counters: BatchCounters;
  /** Whether the other limiters are used as if this one were absent when it rejects. */
  readonly isOptional: boolean;
}

export interface CombinedReply {
  /** Whether all limiters grant the request; with `take` the permits were then taken from all. */
  readonly passes: boolean;
  readonly parts: readonly {
    readonly inForce: string;
    readonly notes?: readonly LimitNote[];
    /** As in `StoreReply`. */
    readonly others?: readonly string[];
    /** The result for this limiter alone. */
    readonly fate: Fate;
    /** The state of this limiter, after the take if there was one. Receipts as for `reserve`. */
    readonly answer: Answer;
  }[];
}

/** Runs a request to several limiters in one atomic step, which takes from all or changes nothing. */
export interface CombiningStore {
  /** @throws LostReplyError if the client has sent the request again and it was run before */
  runTogether(verb: "take" | "peek", parts: readonly CombinedSubrequest[]): Promise<CombinedReply>;
}

export type StoreRequest =
  /** Takes the amount, `count` times, each time if it is available within `longest`. */
  | {
      readonly verb: "reserve";
      readonly amount: Amount;
      readonly longest: number;
      readonly late: number;
      count: number;
    }
  /** Takes the amount if it is available now, and returns the quotas; `peek` takes nothing. */
  | { readonly verb: "decide" | "peek"; readonly amount: Amount; readonly late: number }
  /** Gives back permits of one grant that were not used, with the receipts of that grant. */
  | { readonly verb: "back"; readonly amount: Amount; readonly receipts: readonly number[] }
  /**
   * Gives back permits that were taken and not used: those of a grant to the window that its receipts name, if the
   * algorithm's receipts name one; all others, and without receipts, as the most recently taken ones.
   */
  | { readonly verb: "refund"; readonly amount: Amount; readonly receipts?: readonly number[] }
  /** Takes the amount in any state. */
  | { readonly verb: "charge"; readonly amount: Amount }
  /** Charges permits that were used during an outage of the store, in accordance with the policies. */
  | { readonly verb: "settle"; readonly amount: Amount }
  /** Grants no request before that many microseconds have passed. */
  | { readonly verb: "pause"; readonly micros: number }
  /** Returns the missing permits of each policy; changes nothing. */
  | { readonly verb: "deficit" }
  /** Puts other numbers in force for all callers that declare the same numbers as this caller. */
  | { readonly verb: "set"; readonly numbers: string }
  /** Puts the declared numbers in force again. */
  | { readonly verb: "unset" }
  /** Resets the state; numbers set at run time stay in force. */
  | { readonly verb: "reset" };

export interface StoreReply {
  /** The numbers in force. */
  readonly inForce: string;
  /** Notes about policies with a limit that is kept in a key and is 0 or not valid. */
  readonly notes?: readonly LimitNote[];
  /** The algorithms of other versions of the code that use the name; absent: there is none. */
  readonly others?: readonly string[];
  /** An answer for each request, in order; for `reserve` as many as its count. */
  readonly answers: readonly Answer[];
}

/**
 * The result for one limiter of a combination: it alone would grant the request; rejects it for now; does
 * not let it wait either (its queue is full, or its limit is 0); or can never grant that many permits.
 */
export type Fate = "passes" | "refused" | "full" | "never";

/** A note about a key in which a limit is kept, if the policy's own number is in force instead. */
export interface LimitNote {
  /** The policy's index. */
  readonly policy: number;
  /** The text that is not a limit; undefined: the limit is 0, and the policy rejects all requests. */
  readonly ignored: string | undefined;
}

export interface Answer {
  /**
   * Microseconds until the permits are available; `REFUSED`: longer than `longest`; `Infinity`:
   * never. For `deficit`: how long no request is granted.
   */
  readonly wait: number;
  /** The receipts that `back` needs to undo the grant; empty if all are 0. */
  readonly receipts: readonly number[];
  /** For `decide` and `peek`: the policy with the longest wait, and the quotas of all policies. */
  readonly slowest: number;
  readonly quotas: readonly PolicyQuota[];
  /** For `deficit`: how many permits each policy lacks to be full. */
  readonly deficit: readonly number[];
  /**
   * For `set` and `unset`: "=" if this caller's numbers were in force at the last write before, else the
   * numbers that were in force; empty if that is unknown.
   */
  readonly writtenUnder?: string;
}

/** The quota of a policy, and whether it alone would grant the permits now. */
export interface PolicyQuota extends Quota {
  readonly allowed: boolean;
}

export const REFUSED = -1;

/** The answer to a request that is granted at once, and to a change. */
export const AT_ONCE: Answer = { wait: 0, receipts: [], slowest: 0, quotas: [], deficit: [] };
