/**
 * How a limiter takes part in a combination: see `all-or-none.ts`. A limiter offers its participant as a
 * method named by the symbol `asParticipant`, so combinations do not depend on the classes of limiters.
 */

import type { Clock } from "../ground/clock.ts";
import { oncePerProcess, VERSION } from "../ground/copies.ts";
import { LimiterError, QueueFullError, TooManyKeysError } from "../ground/errors.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type {
  Decision,
  Limiter,
  LocalLimiter,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "./limiter-api.ts";
import { reserveAwaited, type SequenceLimiter } from "./reserve-awaited.ts";
import type { Ending } from "./slots-options.ts";
import type { CallStats } from "./stats.ts";
import { type StepOptions, until } from "./timeout.ts";

/** How long a limiter may take to answer if that is not known, ms: the default of stores. */
const ANSWER_MS = 1000;

/** Returns how long they may take to answer, ms. */
export function longestAnswer(participants: readonly Participant[]): number {
  return Math.max(0, ...participants.map(({ answerMs = ANSWER_MS }) => answerMs));
}

/** The answer of one limiter to a request. */
export interface Check {
  /** The decision before permits were taken, or after it. */
  readonly decision: Decision;
  /** Whether this limiter alone would grant the request within the wait that it accepts. */
  readonly passes: boolean;
  /** It does not pass because too many callers wait already. */
  readonly isFull?: boolean;
  /** It does not pass, and its wait is not known: a caller may wait until its time is over. */
  readonly isUnknown?: boolean;
  /** It does not pass, and the limiter's own verbs would throw this. */
  readonly error?: Error;
  /** What was taken; absent if nothing was. */
  readonly taken?: Taken;
}

export interface Taken {
  /** Restores the state as if it had not been taken. */
  undo(): MaybePromise<unknown>;
  readonly reservation?: Reservation;
  readonly held?: HeldSlots;
}

/** A lease, in this process or elsewhere. Only limits of this process may learn from it. */
export interface HeldSlots {
  release(): MaybePromise<void>;
  overloaded?(): void;
  ignore?(): void;
  /** Called when all limiters have let the call go, which starts now. */
  started?(): void;
  readonly signal?: AbortSignal;
}

/** Gives back a lease. */
export function endLease(held: HeldSlots, ending: Ending): MaybePromise<void> {
  return (held[ending] ?? held.release).call(held);
}

/** The request to one limiter of a combination. */
export interface Subrequest<M extends Participant = Participant> {
  readonly participant: M;
  readonly permits: Permits;
  /** The longest wait that the request accepts, ms; 0: now or not at all. */
  readonly longestMs: number;
  /** If this limiter refuses, the others are asked and charged as if it were absent. */
  readonly isOptional: boolean;
  /** The share that the request counts for, where the participant is a fair concurrency limiter. */
  readonly share?: ShareOptions | undefined;
}

/** Thrown if the participants of a step turn out to be in several slots. Nothing has changed then. */
export class ScatteredError extends LimiterError {
  static readonly code = "SCATTERED";

  constructor(cause: unknown) {
    super(ScatteredError.code, "the members are in several slots", {}, { cause });
  }
}

/** Asks limiters that can be asked in one atomic step. Answers are in the order of the subrequests. */
export interface AtomicStep {
  check(subrequests: readonly Subrequest[], options: StepOptions): MaybePromise<readonly Check[]>;
  /** Takes from all that pass; takes from none if one that is not optional refuses. */
  take(subrequests: readonly Subrequest[], options: StepOptions): MaybePromise<readonly Check[]>;
}

export interface Participant {
  /** Its waits may become longer than it said: the time of its callers is over by this clock. */
  readonly clock?: Clock;
  /** How long its store may take to answer, ms; 0 while the store is away. Absent: not known. */
  readonly answerMs?: number | undefined;
  /** Members with the same steps and the same slot are asked in one step. */
  readonly steps: AtomicStep;
  readonly slot: string;
  /** Called with a request that is made now. Absent: the steps alone decide. See `combine/fair.ts`. */
  readonly enter?: Entrance | undefined;
  /** Reports a refusal for which this limiter is a reason. */
  refused(permits: Permits, check: Check): void;
}

export type Entrance = (permits: Permits) => OrderedRequest;

/** A request to a fair limiter on a store. Its callers wait in this process. */
export interface OrderedRequest {
  /** Whether it goes before all of them. */
  readonly isNext: boolean;
  /** Adds the wait for those that go before it. */
  seen(decision: Decision): Decision;
  /** Charges its share for what was taken; if that is given back, the share is refunded. */
  charged(taken: Taken): Taken;
}

/** The participant of a rate limiter. */
export interface RateParticipant extends Participant {
  /** Whether its calls have shares. */
  readonly isFair: boolean;
  /** The error of a request that may not wait either: the queue is full, or the limit is 0. */
  full(permits: Permits, check: Check): Error;
}

/** The participant of a concurrency limiter. */
export interface ConcurrencyParticipant extends Participant {
  readonly queue: SlotsQueue;
}

/** How a caller waits for a slot of a concurrency limiter. */
export interface SlotsQueue {
  /**
   * Waits for a slot, then calls `held` and resolves to its result. In this process `held` is called at the
   * instant of the grant, before any other caller can look, so a slot that it gives back at once was never
   * seen as taken. It does not throw.
   */
  acquire<T>(slots: number, options: WaitOptions, held: (held: HeldSlots) => T): Promise<T>;
  /** The same; resolves to undefined when the time is over, or if no more callers may wait. */
  tryAcquire<T>(
    slots: number,
    wait: TryOptions,
    held: (held: HeldSlots) => T,
  ): Promise<T | undefined>;
  /** Whether it takes the options that name the share of a call. */
  readonly isFair: boolean;
  /** The limiter's place in the order in which callers keep slots for others; the same in all processes that share it. */
  readonly rank: string;
  /** The time by which `tryAcquire` measures, ms. */
  now(): number;
}

export const asParticipant: unique symbol = Symbol.for(`smooth-limiter@${VERSION}/member`);

/**
 * What a combination needs of a limiter. One on a store makes its participant itself; one in this process says
 * what its participant needs.
 */
export interface Combinable extends Pick<Limiter, "peek" | "reserve" | "refund">, SequenceLimiter {
  /** @param options the share for which it takes part */
  [asParticipant](options?: ShareOptions): LocalAsked | RateParticipant;
}

/** Returns the limiter for calls of that share. */
export function boundTo(limiter: Combinable, share: ShareOptions): Combinable {
  return {
    peek: (permits) => limiter.peek(permits, share),
    reserve: (permits) => limiter.reserve(permits, share),
    refund: (permits) => limiter.refund(permits),
    [reserveAwaited]: (permits, sequence) => limiter[reserveAwaited](permits, sequence, share),
    [asParticipant]: () => limiter[asParticipant](share),
  };
}

export function participantOf(limiter: Limiter | Combinable): RateParticipant {
  if (!(asParticipant in limiter)) return new ForeignParticipant(limiter);
  const asked = limiter[asParticipant]();
  return "steps" in asked ? asked : new LocalParticipant(limiter as Verbs, asked);
}

/** Counts and publishes a refusal, as the limiter's own verbs do. */
export function reportRefusal(callStats: CallStats, amount: Amount, check: Check): void {
  const { decision, isFull, error } = check;
  if (error instanceof TooManyKeysError) callStats.refused(amount, "too-many-keys");
  else callStats.refused(amount, isFull ? "queue-full" : "too-long", () => decision);
}

/**
 * Whether a request passes that accepts a wait of `longestMs`. If the wait is infinite it cannot.
 */
export function checkWithin(decision: Decision, longestMs: number): Check {
  const isFull = decision.waitMs === Infinity;
  return { decision, passes: !isFull && decision.waitMs <= longestMs, isFull };
}

/** A full queue or key table is a refusal. Every other error is rethrown. */
export function refusalOf(error: unknown, decision: Decision): Check {
  const isFull = error instanceof QueueFullError;
  if (!isFull && !(error instanceof TooManyKeysError)) throw error;
  return { decision: { ...decision, allowed: false }, passes: false, isFull, error };
}

// -- limiters in this process --

/** What a limiter in this process must offer to its participant. */
export interface LocalAsked {
  readonly isFair: boolean;
  /** Like `decide`, but does not report a refusal. */
  decide(permits: Permits): Decision;
  /** Checks the permits of a request. */
  amount(permits: Permits): Amount;
  /** Returns what counts and publishes refusals. */
  callStats(): CallStats;
  full(permits: Permits): Error;
}

/** A participant that can be asked and charged at once. */
export interface Takeable {
  check(permits: Permits, longestMs: number, share?: ShareOptions): Check;
  take(permits: Permits, longestMs: number, share?: ShareOptions): Check;
}

/** A part of a request to limiters in this process. */
type LocalSubrequest = Omit<Subrequest, "participant"> & { readonly participant: Takeable };

export function checkAtOnce(subrequests: readonly LocalSubrequest[]): readonly Check[] {
  return subrequests.map(({ participant, permits, longestMs, share }) => {
    return participant.check(permits, longestMs, share);
  });
}

/** Looks at all at one instant, then takes from all. No other code runs in between. */
export function takeAtOnce(subrequests: readonly LocalSubrequest[]): readonly Check[] {
  const checks = checkAtOnce(subrequests);
  const passes = subrequests.every(({ isOptional }, i) => isOptional || checks[i]?.passes === true);
  if (!passes) return checks;
  const answers: Check[] = [];
  for (const [i, { participant, permits, longestMs, isOptional, share }] of subrequests.entries()) {
    const before = checks[i] as Check;
    const answer = before.passes ? participant.take(permits, longestMs, share) : before;
    // the same limiter occurs twice, or a key table is full
    if (!answer.passes && !isOptional) {
      for (const { taken } of answers.toReversed()) void taken?.undo();
      return checks.map((check, j) => (j === i ? answer : check));
    }
    answers.push(answer);
  }
  return answers;
}

export const localStep: AtomicStep = /* @__PURE__ */ oncePerProcess("local steps", () => ({
  check: (subrequests) => checkAtOnce(subrequests as readonly Subrequest<LocalParticipant>[]),
  take: (subrequests) => takeAtOnce(subrequests as readonly Subrequest<LocalParticipant>[]),
}));

/** The verbs of a limiter that answers at once. */
interface Verbs extends Pick<LocalLimiter, "peek" | "refund"> {
  reserve(permits: Permits): Reservation;
}

export class LocalTaker implements Takeable {
  readonly #limiter: Verbs;
  readonly #decide: LocalAsked["decide"];

  constructor(limiter: Verbs, decide: LocalAsked["decide"]) {
    this.#limiter = limiter;
    this.#decide = decide;
  }

  check(permits: Permits, longestMs: number): Check {
    return checkWithin(this.#limiter.peek(permits), longestMs);
  }

  take(permits: Permits, longestMs: number): Check {
    const limiter = this.#limiter;
    try {
      if (longestMs === 0) return decided(limiter, permits, this.#decide(permits));
      const before = this.check(permits, longestMs);
      if (!before.passes) return before;
      return booked(limiter.reserve(permits), limiter.peek(permits));
    } catch (error) {
      return refusalOf(error, limiter.peek(permits));
    }
  }
}

export class LocalParticipant extends LocalTaker implements RateParticipant {
  readonly steps = localStep;
  readonly slot = "";
  readonly #asked: LocalAsked;

  constructor(limiter: Verbs, asked: LocalAsked) {
    super(limiter, (permits) => asked.decide(permits));
    this.#asked = asked;
  }

  get isFair(): boolean {
    return this.#asked.isFair;
  }

  refused(permits: Permits, check: Check): void {
    reportRefusal(this.#asked.callStats(), this.#asked.amount(permits), check);
  }

  full(permits: Permits): Error {
    return this.#asked.full(permits);
  }
}

/** The answer of a limiter that has taken the permits, if its decision says so. */
function decided(limiter: Pick<Limiter, "refund">, permits: Permits, decision: Decision): Check {
  if (!decision.allowed) return { decision, passes: false };
  return { decision, passes: true, taken: { undo: () => limiter.refund(permits) } };
}

function booked(reservation: Reservation, after: Decision): Check {
  const decision = { ...after, allowed: true, waitMs: reservation.waitMs };
  return { decision, passes: true, taken: { undo: () => reservation.undo(), reservation } };
}

// -- limiters from outside this package --

type Foreign = Pick<Limiter, "peek" | "decide" | "reserve" | "refund">;

/** The store of a limiter that is asked for nothing while the store is away. */
export interface AwaitedStore {
  /** See `Participant`. */
  readonly answerMs: number;
  /** Resolves when the limiter can be asked. */
  back(options: StepOptions): MaybePromise<unknown>;
}

/** Waits for an answer of the limiter until the caller's time is over. */
type Wait = <T>(answer: MaybePromise<T>, undo?: (late: T) => unknown) => MaybePromise<T>;

/** A limiter that offers only the public interface: looking and taking are two steps. */
export class ForeignParticipant implements RateParticipant {
  readonly steps: AtomicStep;
  readonly slot = "";
  readonly isFair: boolean;
  readonly enter: Entrance | undefined;
  readonly #store: AwaitedStore | undefined;

  constructor(limiter: Foreign, enter?: Entrance, store?: AwaitedStore) {
    this.isFair = enter !== undefined;
    this.enter = enter;
    this.#store = store;
    this.steps = {
      check: this.#step((subrequest, wait) => checkOne(limiter, subrequest, wait)),
      take: this.#step((subrequest, wait) => takeFrom(limiter, subrequest, wait)),
    };
  }

  get answerMs(): number | undefined {
    return this.#store?.answerMs;
  }

  /** Every such limiter has steps of its own, so there is exactly one part. */
  #step(ask: (subrequest: Subrequest, wait: Wait) => MaybePromise<Check>): AtomicStep["check"] {
    return ([subrequest], options) => {
      const { signal, timeoutMs = Infinity } = options;
      const endMs = performance.now() + timeoutMs;
      // a call that accepts no wait has no time that could be over: only a store can say that it is away
      const isUntimed = this.#store === undefined && timeoutMs <= 0;
      const wait: Wait = (answer, undo) => {
        const leftMs = isUntimed ? Infinity : endMs - performance.now();
        return until(answer, { signal, timeoutMs: leftMs }, undo, () => longestAnswer([this]));
      };
      return chain(this.#store?.back(options), () =>
        chain(ask(subrequest as Subrequest, wait), (check) => [check]),
      );
    };
  }

  refused(): void {}

  full(): Error {
    return new QueueFullError("limiter", 1, 0, 0);
  }
}

function checkOne(
  limiter: Foreign,
  { permits, longestMs }: Subrequest,
  wait: Wait,
): MaybePromise<Check> {
  return chain(wait(limiter.peek(permits)), (decision) => checkWithin(decision, longestMs));
}

function takeFrom(limiter: Foreign, subrequest: Subrequest, wait: Wait): MaybePromise<Check> {
  const { permits, longestMs } = subrequest;
  if (longestMs === 0) {
    const check = (decision: Decision) => decided(limiter, permits, decision);
    return chain(
      wait(limiter.decide(permits), (late) => check(late).taken?.undo()),
      check,
    );
  }
  return chain(checkOne(limiter, subrequest, wait), (check) => {
    if (!check.passes) return check;
    const place = wait(limiter.reserve(permits), (late) => late.undo());
    return chain(place, (reservation) => {
      if (reservation.waitMs <= longestMs) return booked(reservation, check.decision);
      return chain(wait(reservation.undo()), () => ({ ...check, passes: false }));
    });
  });
}
