/**
 * A store elsewhere: it runs requests on the state of one limiter, in order and all at one instant
 * of one clock for everybody who asks. It answers later, and perhaps not at all. Times are
 * microseconds.
 */
import type { Quota } from "../algorithms/algorithm.ts";
import type { Amount } from "../permits.ts";
import type { Breaker } from "./breaker.ts";
import type { ProcessCounter } from "./process-counter.ts";
import type { Trip } from "./trip.ts";

export interface Store {
  /** It runs the requests for a key in the order of the calls of `run`. Absent: it may not. */
  readonly isOrdered?: boolean;
  /**
   * Shared by all limiters whose keys go away together with this one; absent, or undefined: each
   * limiter has its own.
   */
  breakerOf?(key: string): Breaker | undefined;
  /** Whether the error comes from a store that is there, and a retry does not help; absent: never. */
  isPermanent?(error: unknown): boolean;
  /**
   * @param key the limiter's name
   * @param declared the numbers of its policies, as the caller's code has them
   * @param now epoch microseconds; absent: the store's own clock
   * @param trip by which the store recognizes a trip that it has run before; absent: it runs it
   *   however often it receives it
   * @throws LostReplyError where the trip was run before: nothing has changed
   */
  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    trip?: Trip,
  ): Promise<StoreReply>;
  /**
   * Counts the live processes that use the limiter; absent: `instances: "auto"` is refused. The same
   * for the same key.
   */
  processes?(key: string): ProcessCounter;
  /** Where the state of a limiter lies; absent: it cannot be asked together with others. */
  place?(key: string): Place;
}

/** Where the state of a limiter lies. Limiters with the same store and slot can be asked in one step. */
export interface Place {
  readonly store: CombiningStore;
  /** Limiters with the same store and key have one state. */
  readonly key: string;
  readonly slot: string;
}

/** One limiter's part of a combined request. */
export interface CombinedPart {
  readonly place: Place;
  /** As for `run` of a store. */
  readonly declared: string;
  readonly now: number | undefined;
  readonly amount: Amount;
  /** The longest wait that is accepted, microseconds. */
  readonly longest: number;
  readonly late: number;
  /** Where it refuses, the others are asked and taken from as if it were not there. */
  readonly isOptional: boolean;
}

export interface CombinedReply {
  /** All let the request pass; with `take`: and were taken from. */
  readonly passes: boolean;
  readonly parts: readonly {
    readonly inForce: string;
    readonly notes?: readonly LimitNote[];
    /** This limiter alone would let it pass. */
    readonly fate: Fate;
    /** How it stands: after what was taken, if it was taken from. Receipts as for `reserve`. */
    readonly answer: Answer;
  }[];
}

/** Asks several limiters in one atomic step, which takes from all of them or changes nothing. */
export interface CombiningStore {
  /** @throws LostReplyError where the client has sent the request again, and it was run before */
  runTogether(verb: "take" | "peek", parts: readonly CombinedPart[]): Promise<CombinedReply>;
}

export type StoreRequest =
  /** Take the amount, `count` times over, each time if it can be used within `longest`. */
  | {
      readonly verb: "reserve";
      readonly amount: Amount;
      readonly longest: number;
      readonly late: number;
      count: number;
    }
  /** Take the amount if it can be used now, and tell how things stand; `peek` takes nothing. */
  | { readonly verb: "decide" | "peek"; readonly amount: Amount; readonly late: number }
  /** What was granted was not used: the receipts are the grant's. */
  | { readonly verb: "back"; readonly amount: Amount; readonly receipts: readonly number[] }
  /** What was taken was not used, whoever had it. */
  | { readonly verb: "refund"; readonly amount: Amount }
  /** Taken whatever the state. */
  | { readonly verb: "charge"; readonly amount: Amount }
  /** Used elsewhere while the store could not be asked, and as the policies allow. */
  | { readonly verb: "settle"; readonly amount: Amount }
  /** Nobody goes before that many microseconds have passed. */
  | { readonly verb: "pause"; readonly micros: number }
  /** Tell what is owed; nothing changes. */
  | { readonly verb: "owed" }
  /** Other numbers are in force from now on for all who declare what this caller declares. */
  | { readonly verb: "set"; readonly numbers: string }
  /** The declared numbers are in force again. */
  | { readonly verb: "unset" }
  /** The state is as if new; what was set stays in force. */
  | { readonly verb: "reset" };

export interface StoreReply {
  /** The numbers in force. */
  readonly inForce: string;
  /** Of policies whose limit is kept in a key: those for which that is 0, or no limit. */
  readonly notes?: readonly LimitNote[];
  /** An answer for each request, in order; for `reserve` as many as its count. */
  readonly answers: readonly Answer[];
}

/**
 * What comes of a limiter's part in a combination: it alone would let the request pass; refuses it
 * for now; does not let it wait either (its queue is full, or its limit is 0); or can never let so
 * many permits pass.
 */
export type Fate = "passes" | "refused" | "full" | "never";

/** What a key in which a limit is kept holds, where the policy's own number is in force instead. */
export interface LimitNote {
  /** The policy's index. */
  readonly policy: number;
  /** The text that is no limit; undefined: it is 0, and the policy lets nothing through. */
  readonly ignored: string | undefined;
}

export interface Answer {
  /**
   * Microseconds until the permits can be used; `REFUSED`: longer than `longest`; `Infinity`:
   * never. For `owed`: for how long nobody goes.
   */
  readonly wait: number;
  /** What `back` needs to undo it; none if there is nothing to say. */
  readonly receipts: readonly number[];
  /** For `decide` and `peek`: which policy makes it wait longest, and how they all stand. */
  readonly slowest: number;
  readonly quotas: readonly PolicyQuota[];
  /** For `owed`: how many permits each policy lacks to its being full. */
  readonly owed: readonly number[];
  /**
   * For `set` and `unset`: "=" where this caller's numbers were in force at the last write before,
   * else those that were; empty where that is not known.
   */
  readonly writtenUnder?: string;
}

/** How a policy stands, and whether it alone would let the permits go now. */
export interface PolicyQuota extends Quota {
  readonly allowed: boolean;
}

export const REFUSED = -1;

/** Of permits that can be used at once, and of changes. */
export const AT_ONCE: Answer = { wait: 0, receipts: [], slowest: 0, quotas: [], owed: [] };
