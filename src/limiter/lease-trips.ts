/**
 * Requests about leases share trips to their store, one trip at a time and in the order in which
 * they came: what gives a lease back never overtakes what asked for it. Each request is answered
 * within `timeoutMs` of asking, be it by a StoreUnavailableError.
 */
import { LONGEST_TIMEOUT_MS } from "../clock.ts";
import { noAnswer, StoreUnavailableError } from "../errors.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  Standing,
} from "../stores/lease-store.ts";

/** A script keeps everybody else waiting while it runs: more requests take the next trip. */
const LONGEST_TRIP = 1024;

export interface LeaseAnswer {
  readonly standing: Standing;
  /** When the trip left, ms: the store cannot have acted earlier. */
  readonly sentAt: number;
  readonly reply: LeaseReply;
}

export interface LeaseTripOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /** Told of every reply in time. */
  readonly replied: (reply: LeaseReply) => void;
  /** Told of what was granted after its asker had got an error. */
  readonly late: (id: string) => void;
  /** Told that the store could not be asked, or did not answer in time. */
  readonly lost: (cause: unknown) => void;
}

interface Call extends LeaseRequest {
  readonly askedAt: number;
  resolve(answer: LeaseAnswer): void;
  reject(error: StoreUnavailableError): void;
}

export class LeaseTrips {
  readonly #store: LeaseStore;
  readonly #key: string;
  readonly #declared: number;
  readonly #options: LeaseTripOptions;
  #queue: Call[] = [];
  /** A trip is about to leave, or under way. */
  #busy = false;

  constructor(store: LeaseStore, key: string, declared: number, options: LeaseTripOptions) {
    this.#store = store;
    this.#key = key;
    this.#declared = declared;
    this.#options = options;
  }

  send(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ verb, what, askedAt: performance.now(), resolve, reject });
      this.#leaveSoon();
    });
  }

  /** With the microtasks of this turn, so that all requests of the turn are there. */
  #leaveSoon(): void {
    const [first] = this.#queue;
    if (this.#busy || first === undefined) return;
    this.#busy = true;
    queueMicrotask(() => {
      const calls = this.#queue.slice(0, LONGEST_TRIP);
      this.#queue = this.#queue.slice(LONGEST_TRIP);
      this.#travel(calls, first.askedAt);
    });
  }

  #travel(calls: readonly Call[], askedAt: number): void {
    const sentAt = performance.now();
    let overdue = false;
    const leftMs = askedAt + this.#options.timeoutMs - sentAt;
    const timeout = setTimeout(
      () => {
        overdue = true;
        this.#fail(calls, noAnswer(this.#options.timeoutMs));
      },
      Math.min(LONGEST_TIMEOUT_MS, leftMs),
    );
    this.#store
      .run(this.#key, this.#declared, calls)
      .finally(() => clearTimeout(timeout))
      .then(
        (reply) => {
          if (overdue) this.#undo(calls, reply);
          else this.#arrive(calls, reply, sentAt);
        },
        (error) => {
          if (!overdue) this.#fail(calls, error);
        },
      );
  }

  #arrive(calls: readonly Call[], reply: LeaseReply, sentAt: number): void {
    calls.forEach((call, i) => {
      call.resolve({ standing: reply.standings[i] as Standing, sentAt, reply });
    });
    this.#options.replied(reply);
    this.#unblock();
  }

  #undo(calls: readonly Call[], reply: LeaseReply): void {
    calls.forEach(({ verb, what }, i) => {
      const asked = verb === "acquire" || verb === "try";
      if (asked && reply.standings[i] !== "none") this.#options.late(what);
    });
  }

  #fail(calls: readonly Call[], cause: unknown): void {
    const { name, timeoutMs } = this.#options;
    this.#options.lost(cause);
    const error = new StoreUnavailableError(name, timeoutMs, cause);
    for (const call of calls) call.reject(error);
    this.#unblock();
  }

  #unblock(): void {
    this.#busy = false;
    this.#leaveSoon();
  }
}
