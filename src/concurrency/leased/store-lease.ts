import type { FairEntry } from "../../fair/fair-entry.ts";
import type { Timer } from "../../ground/clock.ts";
import { asyncDispose } from "../../ground/dispose.ts";

/** A lease: the right to run as one of at most `limit` holders in all processes. */
export interface RemoteLease extends AsyncDisposable {
  /**
   * Aborted with a LeaseLostError when the lease may have lapsed, so that another caller may hold it: it
   * could not be renewed in time (Redis was away, or this process suspended), or its state was lost.
   * With `whenUnavailable` `"local"` or `"allow"` an outage of Redis does not abort it. `close()` aborts it
   * with a LimiterClosedError.
   *
   * A timer aborts it. If the event loop was blocked, code that runs before the next timer still reads
   * `aborted === false` though the lease may have lapsed: wait for a tick of the loop first.
   */
  readonly signal: AbortSignal;
  /**
   * Releases the lease; a second call does nothing. Resolves when the store has replied, or the request
   * has failed; it is then retried in the background until the lease has lapsed. Never rejects.
   */
  release(): Promise<void>;
}

/** The status of a limiter, for all processes together. */
export interface ConcurrencyStatus {
  /** How many slots there are. */
  readonly limit: number;
  /** How many slots are held. */
  readonly active: number;
  /** How many callers wait for a lease. */
  readonly waiting: number;
}

/** What a caller asks for. */
export interface WantedLease
  extends Pick<StoreLease, "slots" | "insists" | "waitSignal" | "fairEntry" | "resolve"> {
  /** The longest wait, ms. */
  readonly longestMs: number;
}

/** What a caller has at the store: a request, then a ticket or a lease. Callers get it as their lease. */
export class StoreLease implements RemoteLease {
  /** Its id at the store; "" before it is sent. */
  id = "";
  /** Its number in the order of arrival. */
  readonly number: number;
  /** How many slots it asks for. */
  readonly slots: number;
  /** Whether a rejection is an error (`acquire`) or `undefined` (`tryAcquire`). */
  readonly insists: boolean;
  /** The caller's signal, which ends the wait. */
  readonly waitSignal: AbortSignal | undefined;
  /** Its entry in the order of the shares, on a fair limiter. */
  readonly fairEntry: FairEntry<StoreLease> | undefined;
  readonly resolve: (outcome: RemoteLease | undefined | Promise<never>) => void;
  readonly #asked = performance.now();
  /**
   * `queued`: not requested yet, on a fair limiter. `asked`: a request for a lease is under way. `waiting`: it
   * has a ticket, or the store is away.
   */
  state: "queued" | "asked" | "waiting" | "held" | "gone" = "asked";
  /** Whether it may wait for a lease; no longer, if its longest wait ends during its first request. */
  waits: boolean;
  hasWaited = false;
  /** Whether the store may have a lease or ticket of it. */
  isKnown = false;
  /** The verb that renews it; `adopt` after an outage: the store may not have it, and then creates it. */
  verb: "keep" | "adopt" = "keep";
  /** After this time the lease or ticket may have lapsed in the store, by `performance.now()`, ms. */
  deadline = 0;
  /** Ends its longest wait. */
  timer: Timer | undefined;
  readonly #giveBack: (lease: StoreLease) => Promise<void>;
  #released: Promise<void> | undefined;
  /** Created on the first access to `signal`: most callers never use it. */
  #controller: AbortController | undefined;
  #lost: Error | undefined;

  constructor(number: number, wanted: WantedLease, giveBack: (lease: StoreLease) => Promise<void>) {
    this.number = number;
    this.slots = wanted.slots;
    this.insists = wanted.insists;
    this.waitSignal = wanted.waitSignal;
    this.fairEntry = wanted.fairEntry;
    this.resolve = wanted.resolve;
    this.waits = wanted.longestMs > 0;
    this.#giveBack = giveBack;
  }

  /** Takes the ticket of a caller that has left. */
  inherit({ id, isKnown, verb, deadline }: StoreLease): void {
    this.id = id;
    this.isKnown = isKnown;
    this.verb = verb;
    this.deadline = deadline;
  }

  /** How long it has waited, microseconds. */
  get waited(): number {
    return (performance.now() - this.#asked) * 1000;
  }

  lose(error: Error): void {
    this.#lost = error;
    this.#controller?.abort(error);
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#lost !== undefined) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  release(): Promise<void> {
    this.#released ??= this.#giveBack(this);
    return this.#released;
  }

  [asyncDispose](): Promise<void> {
    return this.release();
  }
}
