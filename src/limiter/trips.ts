/**
 * Calls to a store share trips: those of one turn of the event loop, and those that arrive while a
 * trip is under way, travel together in the order in which they came. Each is answered within
 * `timeoutMs` of asking, be it by an error, unless it is patient; what a late reply grants to
 * somebody who does not wait for it any more is given back.
 */
import { LONGEST_TIMEOUT_MS } from "../clock.ts";
import { noAnswer, StoreUnavailableError } from "../errors.ts";
import type { Amount } from "../permits.ts";
import type { Answer, Store, StoreReply, StoreRequest } from "../stores/store.ts";
import { type Arrival, type Call, inOrder, Message, pack } from "./call.ts";

/** A script keeps everybody else waiting while it runs: more calls than this take the next trip. */
const LONGEST_TRIP = 4096;

/**
 * Pauses before a store that is away is tried again, ms: each twice the one before, and jittered.
 */
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1000;

/** Callers who come within this, ms, while the store is away run out of time together. */
const SAME_TIME_MS = 10;

const NOBODY: ReadonlySet<Call> = new Set();

type Timeout = ReturnType<typeof setTimeout> | undefined;

export interface TripOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /** Calls wait for a store that is away, instead of failing. */
  readonly patient: boolean;
  /** The limiter's clock, microseconds. */
  readonly now: () => number;
  /** Added to that it is the time which the store goes by; absent: the store has its own clock. */
  readonly epoch: number | undefined;
  /** How late our own timer was for those who ask now, microseconds. */
  readonly lateBy: () => number;
}

export interface Sending {
  readonly taken?: Amount;
  readonly longest?: number;
  readonly again?: boolean;
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

export class Trips {
  readonly #store: Store;
  readonly #key: string;
  readonly #declared: string;
  readonly #options: TripOptions;
  #inForce: string;

  #queue: Batch[] = [];
  /** Nothing leaves while this holds: a trip is about to leave or under way, or the store is away. */
  #blocked = false;

  /**
   * The store is away: a trip is overdue, or (patient) has failed. No other leaves, lest what it
   * takes for callers who have given up be missing when the store is back.
   */
  #away = false;
  /** How often it has been away: what was asked before says nothing of this time. */
  #absences = 0;
  /** The overdue trip whose answer may still come. */
  #lost: Trip | undefined;
  #pauseMs = FIRST_PAUSE_MS;
  /** When the store is looked for next, and when the first of those who wait for it must fail. */
  #look: Timeout;
  #expiry: Timeout;

  /** The trip that is under way and not overdue, and when it will be. */
  #trip: Trip | undefined;
  #deadline: Timeout;
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
  }

  /** The numbers in force, as the last reply told them. */
  get inForce(): string {
    return this.#inForce;
  }

  ask(call: Call): void {
    if (this.#closed !== undefined) {
      call.fail(this.#closed);
      return;
    }
    const last = this.#queue.at(-1);
    const joins =
      last !== undefined &&
      last.calls.length < LONGEST_TRIP &&
      !(this.#away && performance.now() - last.askedMs > SAME_TIME_MS);
    if (joins) last.calls.push(call);
    else this.#queue.push({ calls: [call], askedMs: performance.now() });
    if (this.#away) this.#expect(call);
    else this.#leaveSoon();
  }

  /**
   * Sends a request. What it takes is given back if the answer comes too late.
   *
   * @param taken what it takes when it is granted
   * @param longest the longest wait with which it is granted, microseconds
   * @param again whether it may be sent again where it is not known whether it arrived
   */
  send(
    request: (late: number) => StoreRequest,
    { taken = 0, longest = Number.MAX_VALUE, again = true }: Sending = {},
  ): Promise<Arrival> {
    const undo = (answer: Answer) => {
      if (taken === 0 || answer.wait < 0 || answer.wait > longest) return;
      this.giveBack(taken, answer).catch(() => {});
    };
    const message = new Message(request, undo, again);
    this.ask(message);
    return message.answered;
  }

  /** What was granted is not wanted. If this fails, the permits are lost. */
  async giveBack(amount: Amount, { receipts }: Answer): Promise<void> {
    const request = () => ({ verb: "back", amount, receipts }) as const;
    const message = new Message(request, () => {}, false, Math.max(0, ...receipts));
    this.ask(message);
    await message.answered;
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
      this.#drained = () => void setTimeout(() => this.#isIdle && this.#drained && end(), 0);
      if (this.#isIdle) this.#drained();
    });
  }

  get #isIdle(): boolean {
    return !this.#blocked && this.#queue.length === 0;
  }

  #abandon(error: Error): void {
    for (const timer of [this.#deadline, this.#look, this.#expiry]) clearTimeout(timer);
    const calls = this.#queue.flatMap((batch) => batch.calls);
    this.#queue = [];
    for (const trip of [this.#lost, this.#trip]) {
      if (trip === undefined) continue;
      calls.unshift(...(trip.waiting ?? trip.calls));
      // what its reply grants, should there be one, is for nobody
      trip.waiting = NOBODY;
    }
    for (const call of calls) if (!call.gone) call.fail(error);
  }

  /**
   * With the microtasks of this turn, so that all calls of the turn are there and a lone one is not
   * held up.
   */
  #leaveSoon(): void {
    if (this.#isIdle) this.#drained?.();
    if (this.#blocked || this.#queue.length === 0) return;
    this.#blocked = true;
    queueMicrotask(() => this.#leave());
  }

  #leave(): void {
    const { calls, askedMs } = this.#queue.shift() as Batch;
    const waiting = inOrder(calls.filter((call) => !call.gone));
    if (waiting.length === 0) this.#unblock();
    else this.#travel(waiting, askedMs);
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
      })
      .then(
        (reply) => this.#arrive(trip, reply),
        (error) => this.#fall(trip, error),
      );
  }

  #run(requests: readonly StoreRequest[], sentAt: number): Promise<StoreReply> {
    const { epoch } = this.#options;
    const now = epoch === undefined ? undefined : sentAt + epoch;
    return this.#store.run(this.#key, this.#declared, requests, now);
  }

  #arrive(trip: Trip, { inForce, answers }: StoreReply): void {
    const { calls, sentAt, waiting } = trip;
    this.#inForce = inForce;
    const queue = this.#queue;
    if (waiting !== undefined) this.#queue = [];
    calls.forEach((call, i) => {
      const answer = answers[i] as Answer;
      if (call.gone || waiting?.has(call) === false) call.undo(answer);
      else call.answer(answer, sentAt);
    });
    // what is given back goes before those who ask
    if (waiting !== undefined) this.#queue.push(...queue);
    if (waiting === undefined || trip === this.#lost) this.#back(NOBODY);
  }

  /** The trip has failed. */
  #fall(trip: Trip, cause: unknown): void {
    if (trip.waiting !== undefined && trip !== this.#lost) return;
    const waiting = this.#repeatable(this.#keep(trip, cause), cause);
    if (waiting.length === 0) {
      this.#back(NOBODY);
    } else {
      this.#lost = undefined;
      this.#requeue(waiting);
      this.#goAway();
    }
  }

  /** Its callers' time is over, but not the trip. */
  #overdue(trip: Trip): void {
    this.#lost = trip;
    this.#trip = undefined;
    trip.waiting = this.#keep(trip, noAnswer(this.#options.timeoutMs));
    this.#goAway();
  }

  /** Of those on the trip only they go on waiting who can; the others fail. */
  #keep({ calls, waiting }: Trip, cause: unknown): ReadonlySet<Call> {
    const patient = this.#options.patient && !isPermanent(cause);
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
    const { name, timeoutMs } = this.#options;
    const error = new StoreUnavailableError(name, timeoutMs, cause);
    for (const call of calls) if (!call.gone) call.fail(error);
  }

  #requeue(calls: readonly Call[]): void {
    if (calls.length > 0) this.#queue.unshift({ calls: [...calls], askedMs: performance.now() });
  }

  #goAway(): void {
    this.#absences += 1;
    this.#away = true;
    this.#blocked = true;
    for (const { calls } of this.#queue) for (const call of calls) this.#expect(call);
    this.#lookOut();
  }

  /** The call waits for the store to come back: not for ever, unless it is patient. */
  #expect(call: Call): void {
    if (this.#options.patient) call.delayed();
    else this.#expiry ??= this.#expireAt(this.#queue[0]);
    this.#lookOut();
  }

  #expireAt(batch: Batch | undefined): Timeout {
    if (batch === undefined) return undefined;
    const { timeoutMs } = this.#options;
    const expire = () => {
      this.#queue = this.#queue.filter((other) => other !== batch);
      this.#fail(batch.calls, noAnswer(this.#options.timeoutMs));
      this.#expiry = this.#expireAt(this.#queue[0]);
    };
    const delay = batch.askedMs + timeoutMs - performance.now();
    return setTimeout(expire, Math.min(LONGEST_TIMEOUT_MS, delay));
  }

  /** Looks for the store, with longer and longer pauses, as long as somebody waits for it. */
  #lookOut(): void {
    if (this.#look !== undefined || !this.#isAwaited()) return;
    this.#look = setTimeout(() => this.#probe(), this.#pauseMs * (0.5 + Math.random()));
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  #isAwaited(): boolean {
    const waits = (call: Call) => !call.gone;
    this.#queue = this.#queue.filter(({ calls }) => calls.some(waits));
    return this.#queue.length > 0 || [...(this.#lost?.waiting ?? [])].some(waits);
  }

  /** Asks for nothing: whether there is an answer is the question. */
  #probe(): void {
    if (!this.#isAwaited()) {
      this.#look = undefined;
      return;
    }
    const again = () => {
      if (this.#look !== look) return;
      this.#look = undefined;
      this.#lookOut();
    };
    const look = setTimeout(again, Math.min(LONGEST_TIMEOUT_MS, this.#options.timeoutMs));
    this.#look = look;
    const absence = this.#absences;
    const isStillAway = () => this.#away && absence === this.#absences;
    // later than the overdue trip, where both replies come together: that one is not lost then
    const afterThat = () => {};
    this.#run([], this.#options.now())
      .finally(afterThat)
      .finally(afterThat)
      .then(
        () => {
          if (isStillAway()) this.#back();
        },
        (error) => {
          clearTimeout(look);
          // the calls will hear it themselves
          if (isStillAway() && isPermanent(error)) this.#back();
          again();
        },
      );
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
      clearTimeout(this.#look);
      clearTimeout(this.#expiry);
      this.#look = undefined;
      this.#expiry = undefined;
      this.#away = false;
      this.#requeue(this.#repeatable(lost, noAnswer(this.#options.timeoutMs)));
      if (this.#options.patient) this.#regroup();
    }
    this.#pauseMs = FIRST_PAUSE_MS;
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

/** What waiting does not mend. */
function isPermanent(cause: unknown): boolean {
  return (
    cause instanceof TypeError || /WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|CROSSSLOT/.test(`${cause}`)
  );
}
