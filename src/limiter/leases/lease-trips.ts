/**
 * Requests about leases share trips to their store, one trip at a time and in the order in which
 * they came: what gives a lease back never overtakes what asked for it. Each request is answered
 * within `timeoutMs` of asking, be it by a StoreUnavailableError.
 *
 * While the store is away no trip leaves: requests fail at once, but those that nobody else can
 * answer wait, if their limiter does.
 */
import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { noAnswer, StoreUnavailableError } from "../../errors.ts";
import { type Absentee, Breaker, isPermanent } from "../../stores/breaker.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  Standing,
} from "../../stores/lease-store.ts";

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
  /**
   * What requests do while the store is away: fail; fail too, but to look, or to set the limit,
   * waits; or fail even before one has tried, when the client says that it has no connection.
   */
  readonly whenAway: "fail" | "wait" | "yield";
  /** Told of every reply in time. */
  readonly replied: (reply: LeaseReply) => void;
  /** Told of what somebody has at the store, after its asker had got an error. */
  readonly late: (id: string, answer: LeaseAnswer) => void;
  /** The store is away; and it is back. */
  readonly lost: () => void;
  readonly found: () => void;
  /** Somebody waits for the store. */
  readonly isAwaited: () => boolean;
  /** The store could not be asked, or did not answer in time. */
  readonly failed: (cause: unknown) => void;
}

interface Call extends LeaseRequest {
  askedAt: number;
  /** Waits while the store is away. */
  readonly waits: boolean;
  resolve(answer: LeaseAnswer): void;
  reject(error: Error): void;
}

interface Trip {
  readonly calls: readonly Call[];
  readonly sentAt: number;
  overdue: boolean;
}

export class LeaseTrips implements Absentee {
  readonly #store: LeaseStore;
  readonly #key: string;
  readonly #declared: number;
  readonly #options: LeaseTripOptions;
  readonly #patient: boolean;
  readonly #breaker: Breaker;
  #queue: Call[] = [];
  /** The trip that is about to leave or under way. */
  #trip: Trip | true | undefined;
  #away = false;
  #ended = false;
  /** Why, for all who ask meanwhile: an error takes longer to make than an answer. */
  #error: StoreUnavailableError | undefined;

  constructor(store: LeaseStore, key: string, declared: number, options: LeaseTripOptions) {
    this.#store = store;
    this.#key = key;
    this.#declared = declared;
    this.#options = options;
    this.#patient = options.whenAway === "wait";
    // to who is patient a late answer is as good as one in time: another idea of being away
    this.#breaker = (this.#patient ? undefined : store.breaker) ?? new Breaker();
  }

  get isAway(): boolean {
    return this.#away;
  }

  get timeoutMs(): number {
    return this.#options.timeoutMs;
  }

  send(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    return new Promise((resolve, reject) => {
      const { isOpen, isCut, cause } = this.#breaker;
      if (isOpen || (isCut && this.#options.whenAway === "yield")) this.#goAway(cause);
      const waits = this.#patient && (verb === "look" || verb === "limit");
      if (this.#away && !waits) {
        this.#error ??= this.#unavailable(this.#breaker.cause);
        reject(this.#error);
        return;
      }
      const askedAt = performance.now();
      this.#queue.push({ verb, what, askedAt, waits, resolve, reject });
      if (this.#away) this.awaited();
      else this.#leaveSoon();
    });
  }

  /** From now on nobody looks whether the store is back: each request finds out by itself. */
  end(error: Error): void {
    this.#ended = true;
    this.#away = false;
    this.#breaker.leave(this);
    const waiting = this.#queue.filter(({ waits }) => waits);
    this.#queue = this.#queue.filter(({ waits }) => !waits);
    for (const call of waiting) call.reject(error);
  }

  /** With the microtasks of this turn, so that all requests of the turn are there. */
  #leaveSoon(): void {
    if (this.#trip !== undefined || this.#away || this.#queue.length === 0) return;
    this.#trip = true;
    queueMicrotask(() => this.#leave());
  }

  #leave(): void {
    this.#trip = undefined;
    const [first] = this.#queue;
    if (this.#away || first === undefined) return;
    const calls = this.#queue.slice(0, LONGEST_TRIP);
    this.#queue = this.#queue.slice(LONGEST_TRIP);
    this.#travel(calls, first.askedAt);
  }

  #travel(calls: readonly Call[], askedAt: number): void {
    const { timeoutMs } = this.#options;
    const sentAt = performance.now();
    const trip: Trip = { calls, sentAt, overdue: false };
    this.#trip = trip;
    const leftMs = askedAt + timeoutMs - sentAt;
    const timeout = setTimeout(
      () => {
        trip.overdue = true;
        this.#fall(trip, noAnswer(timeoutMs));
      },
      Math.min(LONGEST_TIMEOUT_MS, leftMs),
    );
    this.#store
      .run(this.#key, this.#declared, calls)
      .finally(() => clearTimeout(timeout))
      .then(
        (reply) => (trip.overdue ? this.#late(trip, reply) : this.#arrive(trip, reply)),
        (error) => {
          if (!trip.overdue) this.#fall(trip, error);
        },
      );
  }

  #arrive({ calls, sentAt }: Trip, reply: LeaseReply): void {
    calls.forEach((call, i) => {
      call.resolve({ standing: reply.standings[i] as Standing, sentAt, reply });
    });
    this.#options.replied(reply);
    this.#trip = undefined;
    this.#leaveSoon();
    // in time: whoever has taken it to be away was wrong
    if (this.#breaker.isOpen) this.#breaker.close();
  }

  #late({ calls, sentAt }: Trip, reply: LeaseReply): void {
    calls.forEach((call, i) => {
      const standing = reply.standings[i] as Standing;
      if (call.waits) this.#answer(call, { standing, sentAt, reply });
      else if (standing !== "none") this.#options.late(call.what, { standing, sentAt, reply });
    });
    if (this.#patient) this.#breaker.close();
  }

  /** It need not be asked again. */
  #answer(call: Call, answer: LeaseAnswer): void {
    this.#queue = this.#queue.filter((one) => one !== call);
    call.resolve(answer);
  }

  #fall({ calls, overdue }: Trip, cause: unknown): void {
    this.#trip = undefined;
    const isAway = (overdue || this.#options.whenAway !== "fail") && !isPermanent(cause);
    const waiting = calls.filter(({ waits }) => waits && isAway && !this.#ended);
    const failing = calls.filter((call) => !waiting.includes(call));
    this.#queue.unshift(...waiting);
    // in the order in which they came, those who have not left yet behind them
    this.#fail(failing, cause);
    if (isAway) this.#goAway(cause);
    this.#leaveSoon();
  }

  #fail(calls: readonly Call[], cause: unknown): void {
    this.#options.failed(cause);
    const error = this.#unavailable(cause);
    for (const call of calls) call.reject(error);
  }

  #unavailable(cause: unknown): StoreUnavailableError {
    const { name, timeoutMs } = this.#options;
    return new StoreUnavailableError(name, timeoutMs, cause);
  }

  #goAway(cause: unknown): void {
    if (this.#away || this.#ended) return;
    this.#away = true;
    this.#breaker.join(this, cause);
    this.#options.failed(cause);
    const calls = this.#queue;
    this.#queue = calls.filter(({ waits }) => waits);
    this.#options.lost();
    this.#fail(
      calls.filter(({ waits }) => !waits),
      cause,
    );
  }

  get isAwaited(): boolean {
    return this.#patient && (this.#queue.length > 0 || this.#options.isAwaited());
  }

  awaited(): void {
    if (this.#patient) this.#breaker.awaited();
  }

  probe(): Promise<unknown> {
    const probe = this.#store.run(this.#key, this.#declared, [{ verb: "probe", what: "" }]);
    if (this.#patient) {
      const close = () => this.#breaker.close();
      probe.then(close, () => {});
    }
    return probe;
  }

  found(): void {
    this.#away = false;
    this.#error = undefined;
    const now = performance.now();
    // those who waited for the store have their full time again
    for (const call of this.#queue) call.askedAt = now;
    this.#options.found();
    this.#leaveSoon();
  }
}
