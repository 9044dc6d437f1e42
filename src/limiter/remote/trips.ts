/**
 * Calls to a store share trips: those of one turn of the event loop, and those that arrive while a
 * trip is under way, travel together in the order in which they came. Each is answered within
 * `timeoutMs` of asking, be it by an error, unless it is patient; what a late reply grants to
 * somebody who does not wait for it any more is given back.
 *
 * While the store is away no trip leaves, lest what it takes for callers who have given up be
 * missing when the store is back: calls fail at once, or wait if they are patient.
 */
import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { noAnswer, StoreUnavailableError } from "../../errors.ts";
import type { Amount } from "../../permits.ts";
import { type Absentee, Breaker, isPermanent } from "../../stores/breaker.ts";
import type {
  Answer,
  LimitNote,
  Place,
  Store,
  StoreReply,
  StoreRequest,
} from "../../stores/store.ts";
import { type Arrival, type Call, inOrder, Message, pack } from "./call.ts";

/** A script keeps everybody else waiting while it runs: more calls than this take the next trip. */
const LONGEST_TRIP = 4096;

const NOBODY: ReadonlySet<Call> = new Set();

export interface TripOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /**
   * What calls do while the store is away: fail; wait until it is back; or fail even before one has
   * tried, when the client says that it has no connection, since their limiter knows what to do.
   */
  readonly whenAway: "fail" | "wait" | "yield";
  /** The limiter's clock, microseconds. */
  readonly now: () => number;
  /** Added to that it is the time which the store goes by; absent: the store has its own clock. */
  readonly epoch: number | undefined;
  /** How late our own timer was for those who ask now, microseconds. */
  readonly lateBy: () => number;
  /** What a reply tells of limits that are kept in keys; called before its calls are answered. */
  readonly noted?: (notes: readonly LimitNote[] | undefined) => void;
  /** What else is to be asked with a trip that is about to leave. */
  readonly along?: () => Call | undefined;
  /** The store could not be asked, or did not answer in time; and it has answered. */
  readonly lost?: (cause: unknown) => void;
  readonly answered?: () => void;
  /** The store, which was away, is back, and nothing has left yet. */
  readonly found?: () => void;
  /** Nothing has to be remembered of its being away. */
  readonly isIdle?: () => boolean;
}

export interface Sending {
  readonly taken?: Amount;
  readonly longest?: number;
  readonly again?: boolean;
  readonly heard?: (answer: Answer) => void;
}

/** Calls that travel together. */
interface Batch {
  readonly calls: Call[];
  /** When the first of them asked, ms. */
  readonly askedMs: number;
}

/** A batch on its way. */
interface Trip {
  readonly calls: readonly Call[];
  readonly sentAt: number;
  /** Once it is overdue: those who wait for the answer nevertheless. */
  waiting: ReadonlySet<Call> | undefined;
}

export class Trips implements Absentee {
  readonly #store: Store;
  readonly #key: string;
  readonly #declared: string;
  readonly #options: TripOptions;
  readonly #patient: boolean;
  readonly #breaker: Breaker;
  #inForce: string;

  #queue: Batch[] = [];
  /** Nothing leaves while this holds: a trip is about to leave or under way, or the store is away. */
  #blocked = false;
  /** Counts the trips that were to leave: one that was called off before it did must not. */
  #departure = 0;
  #away = false;
  /** Why, for all who ask meanwhile: an error takes longer to make than an answer. */
  #error: StoreUnavailableError | undefined;
  /** The overdue trip whose answer may still come. */
  #lost: Trip | undefined;
  /** The trip that is under way and not overdue, and when it will be. */
  #trip: Trip | undefined;
  #deadline: ReturnType<typeof setTimeout> | undefined;
  /** What happens when nothing is asked for any more; and what then happens to those who ask. */
  #drained: (() => void) | undefined;
  #closed: Error | undefined;

  /**
   * @param declared the numbers of the caller's code, as the store is told them
   * @param fallback the same, where limits are kept elsewhere
   */
  constructor(
    store: Store,
    key: string,
    declared: string,
    options: TripOptions,
    fallback = declared,
  ) {
    this.#store = store;
    this.#key = key;
    this.#declared = declared;
    this.#inForce = fallback;
    this.#options = options;
    this.#patient = options.whenAway === "wait";
    // to who is patient a late answer is as good as one in time
    const shared = this.#patient ? store.breaker?.forPatient() : store.breaker;
    this.#breaker = shared ?? new Breaker(this.#patient);
  }

  /** The numbers in force, as the last reply told them. */
  get inForce(): string {
    return this.#inForce;
  }

  /** Where the state lies, for requests that ask several limiters. */
  get place(): Place | undefined {
    return this.#store.place?.(this.#key);
  }

  combinedPart(): { declared: string; now: number | undefined } {
    return { declared: this.#declared, now: this.#storeTime(this.#options.now()) };
  }

  /** A combined request was answered. */
  replied({ inForce, notes }: Pick<StoreReply, "inForce" | "notes">): void {
    this.#inForce = inForce;
    this.#options.noted?.(notes);
    if (!this.#away) this.#options.answered?.();
  }

  /** A combined request was not answered; an error by itself says nothing of the next request. */
  lost(cause: unknown, isOverdue: boolean): void {
    const yields = this.#options.whenAway === "yield" && !isPermanent(cause);
    if (isOverdue || yields) this.#goAway(cause);
  }

  get isAway(): boolean {
    return this.#away;
  }

  get timeoutMs(): number {
    return this.#options.timeoutMs;
  }

  ask(call: Call): void {
    if (this.#closed !== undefined) {
      call.fail(this.#closed);
      return;
    }
    const error = this.refusal();
    // what is given back waits: it is nobody's who is here
    if (error !== undefined && call.tail === undefined) {
      call.fail(error);
      return;
    }
    const last = this.#queue.at(-1);
    if (last !== undefined && last.calls.length < LONGEST_TRIP) last.calls.push(call);
    else this.#queue.push({ calls: [call], askedMs: performance.now() });
    if (!this.#away) {
      this.#leaveSoon();
    } else {
      call.delayed();
      if (this.#patient) this.#breaker.awaited();
    }
  }

  /** With what those fail who ask now; undefined: the store is asked, or they wait for it. */
  refusal(): StoreUnavailableError | undefined {
    const { isOpen, isCut, cause } = this.#breaker;
    if (!this.#away && (isOpen || (isCut && this.#options.whenAway === "yield"))) {
      this.#goAway(cause);
    }
    if (!this.#away || this.#patient) return undefined;
    this.#error ??= this.#unavailable(this.#breaker.cause);
    return this.#error;
  }

  /**
   * Sends a request. What it takes is given back if the answer comes too late.
   *
   * @param taken what it takes when it is granted
   * @param longest the longest wait with which it is granted, microseconds
   * @param again whether it may be sent again where it is not known whether it arrived
   * @param heard called with the answer, before any other call is answered
   */
  send(
    request: (late: number) => StoreRequest,
    { taken = 0, longest = Number.MAX_VALUE, again = true, heard }: Sending = {},
  ): Promise<Arrival> {
    const undo = (answer: Answer) => {
      if (taken === 0 || answer.wait < 0 || answer.wait > longest) return;
      this.giveBack(taken, answer).catch(() => {});
    };
    const message = new Message(request, undo, again, undefined, heard);
    this.ask(message);
    return message.answered;
  }

  /**
   * What was granted is not wanted: the store is told now or, if it is away and nobody is to wait for
   * it, when it is back. If this fails, the permits are lost.
   */
  async giveBack(amount: Amount, { receipts }: Answer): Promise<void> {
    const request = () => ({ verb: "back", amount, receipts }) as const;
    const message = new Message(request, () => {}, false, Math.max(0, ...receipts));
    const isKept = new Promise<void>((resolve) => {
      if (!this.#patient) message.delayed = resolve;
    });
    this.ask(message);
    await Promise.race([message.answered, isKept]);
  }

  /**
   * Ends the trips when nothing is asked for any more, or after `timeoutMs`: what is still under way
   * then fails, and so does what is asked later.
   */
  close(error: Error): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(last);
        this.#drained = undefined;
        this.#closed = error;
        this.#abandon(error);
        resolve();
      };
      const last = setTimeout(end, Math.min(LONGEST_TIMEOUT_MS, this.#options.timeoutMs));
      // what is answered now may still lead to something that is given back
      this.#drained = () => void setTimeout(() => this.#isDrained && this.#drained && end(), 0);
      if (this.#isDrained) this.#drained();
    });
  }

  get #isDrained(): boolean {
    const isUnderWay = this.#away ? (this.#trip ?? this.#lost) !== undefined : this.#blocked;
    return !isUnderWay && this.#queue.length === 0;
  }

  #abandon(error: Error): void {
    clearTimeout(this.#deadline);
    this.#breaker.leave(this);
    const calls = this.#queue.flatMap((batch) => batch.calls);
    this.#queue = [];
    for (const trip of [this.#lost, this.#trip]) {
      if (trip === undefined) continue;
      calls.unshift(...(trip.waiting ?? trip.calls));
      // what its reply grants, should there be one, is for nobody
      trip.waiting = NOBODY;
    }
    this.#lost = undefined;
    for (const call of calls) if (!call.gone) call.fail(error);
  }

  /**
   * With the microtasks of this turn, so that all calls of the turn are there and a lone one is not
   * held up.
   */
  #leaveSoon(): void {
    if (this.#isDrained) this.#drained?.();
    if (this.#blocked || this.#queue.length === 0) return;
    this.#blocked = true;
    const departure = ++this.#departure;
    queueMicrotask(() => {
      if (departure === this.#departure) this.#leave();
    });
  }

  #leave(): void {
    const { calls, askedMs } = this.#queue.shift() as Batch;
    const waiting = inOrder(calls.filter((call) => !call.gone));
    if (waiting.length === 0) {
      this.#unblock();
      return;
    }
    const along = this.#options.along?.();
    this.#travel(along === undefined ? waiting : [...waiting, along], askedMs);
  }

  #travel(calls: readonly Call[], askedMs: number): void {
    const { now, lateBy, timeoutMs } = this.#options;
    const trip: Trip = { calls, sentAt: now(), waiting: undefined };
    const deadline = setTimeout(
      () => this.#overdue(trip),
      Math.min(LONGEST_TIMEOUT_MS, askedMs + timeoutMs - performance.now()),
    );
    this.#trip = trip;
    this.#deadline = deadline;
    this.#run(pack(calls, lateBy()), trip.sentAt)
      .finally(() => {
        clearTimeout(deadline);
        if (this.#trip === trip) this.#trip = undefined;
        if (this.#lost === trip && !this.#patient) this.#lost = undefined;
      })
      .then(
        (reply) => this.#arrive(trip, reply),
        (error) => this.#fall(trip, error),
      );
  }

  #run(requests: readonly StoreRequest[], sentAt: number): Promise<StoreReply> {
    return this.#store.run(this.#key, this.#declared, requests, this.#storeTime(sentAt));
  }

  /** An instant of the limiter's clock as the store is told it. */
  #storeTime(instant: number): number | undefined {
    const { epoch } = this.#options;
    return epoch === undefined ? undefined : instant + epoch;
  }

  #arrive(trip: Trip, { inForce, notes, answers }: StoreReply): void {
    const { calls, sentAt, waiting } = trip;
    this.#inForce = inForce;
    this.#options.noted?.(notes);
    const queue = this.#queue;
    if (waiting !== undefined) this.#queue = [];
    calls.forEach((call, i) => {
      const answer = answers[i] as Answer;
      if (call.gone || waiting?.has(call) === false) call.undo(answer);
      else call.answer(answer, sentAt);
    });
    // what is given back goes before those who ask
    if (waiting !== undefined) this.#queue.push(...queue);
    if (waiting === undefined) {
      this.#options.answered?.();
      if (!this.#away) this.#unblock();
      // in time: whoever has taken it to be away was wrong
      if (this.#breaker.isOpen) this.#breaker.close();
    } else if (trip === this.#lost && this.#patient) {
      this.#back(NOBODY);
    }
  }

  /** The trip has failed. */
  #fall(trip: Trip, cause: unknown): void {
    if (trip.waiting !== undefined && !(this.#patient && trip === this.#lost)) return;
    const waiting = this.#repeatable(this.#keep(trip, cause), cause);
    const yields = this.#options.whenAway === "yield" && !isPermanent(cause);
    if (waiting.length > 0 || yields) {
      this.#lost = undefined;
      this.#requeue(waiting);
      this.#goAway(cause);
    } else if (this.#patient) {
      this.#back(NOBODY);
    } else if (!this.#away) {
      this.#unblock();
    }
  }

  /** Its callers' time is over, but not the trip. */
  #overdue(trip: Trip): void {
    const cause = noAnswer(this.#options.timeoutMs);
    trip.waiting = this.#keep(trip, cause);
    this.#lost = trip;
    this.#trip = undefined;
    this.#goAway(cause);
  }

  /** Of those on the trip only they go on waiting who can; the others fail. */
  #keep({ calls, waiting }: Trip, cause: unknown): ReadonlySet<Call> {
    const patient = this.#patient && !isPermanent(cause);
    const kept = new Set<Call>();
    const failed: Call[] = [];
    for (const call of waiting ?? calls) {
      if (!patient) failed.push(call);
      else if (!call.gone) kept.add(call);
    }
    for (const call of kept) call.delayed();
    this.#fail(failed, cause);
    return kept;
  }

  /** What must not be done twice fails, for it may have been done. */
  #repeatable(calls: ReadonlySet<Call>, cause: unknown): readonly Call[] {
    const once = [...calls].filter((call) => !call.repeatable);
    this.#fail(once, cause);
    return [...calls].filter((call) => call.repeatable);
  }

  #fail(calls: readonly Call[], cause: unknown): void {
    if (calls.length === 0) return;
    this.#options.lost?.(cause);
    const error = this.#unavailable(cause);
    for (const call of calls) if (!call.gone) call.fail(error);
  }

  #unavailable(cause: unknown): StoreUnavailableError {
    const { name, timeoutMs } = this.#options;
    return new StoreUnavailableError(name, timeoutMs, cause);
  }

  #requeue(calls: readonly Call[]): void {
    if (calls.length > 0) this.#queue.unshift({ calls: [...calls], askedMs: performance.now() });
  }

  #goAway(cause: unknown): void {
    this.#blocked = true;
    if (this.#away) return;
    this.#away = true;
    this.#departure += 1;
    this.#breaker.join(this, cause);
    this.#options.lost?.(cause);
    const calls = this.#queue.flatMap((batch) => batch.calls);
    const waits = (call: Call) => this.#patient || call.tail !== undefined;
    if (!this.#patient) {
      this.#queue = [];
      this.#requeue(calls.filter(waits));
    }
    for (const call of calls.filter(waits)) call.delayed();
    this.#fail(
      calls.filter((call) => !waits(call)),
      cause,
    );
  }

  get isAwaited(): boolean {
    if (!this.#patient) return false;
    const waits = (call: Call) => !call.gone;
    this.#queue = this.#queue.filter(({ calls }) => calls.some(waits));
    return this.#queue.length > 0 || [...(this.#lost?.waiting ?? [])].some(waits);
  }

  /** A pause of no length changes nothing but that it is written. */
  probe(): Promise<unknown> {
    const afterThat = () => {};
    return (
      this.#run([{ verb: "pause", micros: 0 }], this.#options.now())
        // later than the overdue trip, where both replies come together: that one is not lost then
        .finally(afterThat)
        .finally(afterThat)
    );
  }

  found(): void {
    if (this.#away) this.#back();
  }

  get isIdle(): boolean {
    return this.#queue.length === 0 && (this.#options.isIdle?.() ?? true);
  }

  /** It will see that the store is away when it is asked. */
  forgotten(): void {
    this.#away = false;
    this.#blocked = false;
    this.#error = undefined;
  }

  /**
   * The store answers, or is to be asked as if it did.
   *
   * @param lost those who are to be asked for again
   */
  #back(lost = this.#lost?.waiting ?? NOBODY): void {
    if (this.#lost !== undefined) this.#lost.waiting = NOBODY;
    this.#lost = undefined;
    if (this.#away) {
      this.#away = false;
      this.#error = undefined;
      if (this.#patient) this.#breaker.close();
      this.#requeue(this.#repeatable(lost, noAnswer(this.#options.timeoutMs)));
      this.#options.found?.();
      this.#regroup();
    }
    this.#unblock();
  }

  /** Those who waited for the store have their full time again, and need few trips. */
  #regroup(): void {
    const askedMs = performance.now();
    const calls = this.#queue.flatMap((batch) => batch.calls);
    this.#queue = [];
    for (let from = 0; from < calls.length; from += LONGEST_TRIP) {
      this.#queue.push({ calls: calls.slice(from, from + LONGEST_TRIP), askedMs });
    }
  }

  #unblock(): void {
    this.#blocked = false;
    this.#leaveSoon();
  }
}
