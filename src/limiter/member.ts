/**
 * How a limiter takes part in a combination: see `together.ts`. A limiter offers it as a method whose
 * name is the symbol `asMember`, so combinations do not depend on the classes of limiters.
 */
import { QueueFullError, TooManyKeysError } from "../errors.ts";
import type { Amount, Permits } from "../permits.ts";
import type {
  Decision,
  Limiter,
  LocalLimiter,
  Reservation,
  TryOptions,
  WaitOptions,
} from "./face.ts";
import type { Meter } from "./meter.ts";

export type Maybe<T> = T | Promise<T>;

/** How a request stands with one limiter. */
export interface Look {
  /** Without what was taken, or after it. */
  readonly decision: Decision;
  /** This limiter alone would let the request pass within the wait that it accepts. */
  readonly passes: boolean;
  /** It does not pass because too many wait already. */
  readonly isFull?: boolean;
  /** It does not pass, and the verbs of the limiter throw this. */
  readonly error?: Error;
  /** What was taken, if anything. */
  readonly taken?: Taken;
}

export interface Taken {
  /** As if it had not been taken. */
  undo(): Maybe<unknown>;
  readonly reservation?: Reservation;
  readonly place?: HeldPlace;
}

/** A lease, in this process or elsewhere. */
export interface HeldPlace {
  release(): Maybe<void>;
  readonly signal?: AbortSignal;
}

/** What one limiter is asked. */
export interface Part<M extends Member = Member> {
  readonly member: M;
  readonly permits: Permits;
  /** The longest wait that the request accepts, ms; 0: now or not at all. */
  readonly longestMs: number;
  /** Where it refuses, the others are asked and taken from as if it were not there. */
  readonly isOptional: boolean;
}

/** When a caller gives up waiting for a store that is away. */
export interface Terms {
  readonly signal?: AbortSignal | undefined;
  /** ms; absent: never. */
  readonly timeoutMs?: number | undefined;
}

/** Asks limiters that can be asked in one step; the answers are in the order of the parts. */
export interface Steps {
  look(parts: readonly Part[], terms: Terms): Maybe<readonly Look[]>;
  /** Takes from all that pass, or from none if one of them must pass and does not. */
  take(parts: readonly Part[], terms: Terms): Maybe<readonly Look[]>;
}

/** The caller's time was over before a store that is away came back. */
export class GaveUpError extends Error {}

/** Undefined where the caller's time was over first. */
export function inTime<T>(answer: Maybe<T>): Maybe<T | undefined> {
  if (!(answer instanceof Promise)) return answer;
  return answer.catch((error: unknown) => {
    if (error instanceof GaveUpError) return undefined;
    throw error;
  });
}

export interface Member {
  /** Members with the same steps and the same slot are asked in one step. */
  readonly steps: Steps;
  readonly slot: string;
  /** The request was refused, and this limiter is a reason. */
  refused(permits: Permits, look: Look): void;
}

/** Of a limiter of permits. */
export interface RateMember extends Member {
  /** The error of a request that may not wait either: the queue is full, or the limit is 0. */
  full(permits: Permits, look: Look): Error;
}

/** Of a concurrency limiter. */
export interface PlacesMember extends Member {
  readonly queue: PlaceQueue;
}

/** How a caller waits for a place of a concurrency limiter. */
export interface PlaceQueue {
  acquire(options: WaitOptions): Promise<HeldPlace>;
  /** Undefined when the time is over, or where no more callers may wait. */
  tryAcquire(wait: TryOptions): Promise<HeldPlace | undefined>;
  /** The time that `tryAcquire` goes by, ms. */
  now(): number;
}

export const asMember = Symbol("smooth-limiter.asMember");

export interface Participant {
  [asMember](): RateMember;
}

export function memberOf(limiter: Limiter | Participant): RateMember {
  return asMember in limiter ? limiter[asMember]() : new ForeignMember(limiter);
}

/** Counts and publishes a refusal, as the limiter's own verbs do. */
export function reportRefusal(meter: Meter, amount: Amount, look: Look): void {
  const { decision, isFull, error } = look;
  if (error instanceof TooManyKeysError) meter.refused(amount, "too-many-keys");
  else meter.refused(amount, isFull ? "queue-full" : "too-long", () => decision);
}

/** Whether a request that accepts that wait passes. An infinite wait: it may not wait, all is full. */
export function lookWithin(decision: Decision, longestMs: number): Look {
  const isFull = decision.waitMs === Infinity;
  return { decision, passes: !isFull && decision.waitMs <= longestMs, isFull };
}

/** Full queues and tables of keys refuse a request; every other error is a fault. */
export function refusalOf(error: unknown, decision: Decision): Look {
  const isFull = error instanceof QueueFullError;
  if (!isFull && !(error instanceof TooManyKeysError)) throw error;
  return { decision: { ...decision, allowed: false }, passes: false, isFull, error };
}

// -- limiters in this process --

/** What a limiter in this process does for its member. */
export interface LocalAsked {
  look(permits: Permits, longestMs: number): Look;
  /** As `decide`, but a refusal is not reported. */
  decide(permits: Permits): Decision;
  refused(permits: Permits, look: Look): void;
  full(permits: Permits): Error;
}

/** What can be asked and taken from at once. */
export interface Takeable {
  look(permits: Permits, longestMs: number): Look;
  take(permits: Permits, longestMs: number): Look;
}

/** A part of a request to limiters in this process. */
type LocalPart = Omit<Part, "member"> & { readonly member: Takeable };

export function lookAtOnce(parts: readonly LocalPart[]): readonly Look[] {
  return parts.map(({ member, permits, longestMs }) => member.look(permits, longestMs));
}

/** Looks at all at one instant, then takes from all: nothing can happen in between. */
export function takeAtOnce(parts: readonly LocalPart[]): readonly Look[] {
  const looks = lookAtOnce(parts);
  const passes = parts.every(({ isOptional }, i) => isOptional || looks[i]?.passes === true);
  if (!passes) return looks;
  const answers: Look[] = [];
  for (const [i, { member, permits, longestMs, isOptional }] of parts.entries()) {
    const before = looks[i] as Look;
    const answer = before.passes ? member.take(permits, longestMs) : before;
    // the same limiter twice, or a table of keys that is full
    if (!answer.passes && !isOptional) {
      for (const { taken } of answers.toReversed()) void taken?.undo();
      return looks.map((look, j) => (j === i ? answer : look));
    }
    answers.push(answer);
  }
  return answers;
}

export const localSteps: Steps = {
  look: (parts) => lookAtOnce(parts as readonly Part<LocalMember>[]),
  take: (parts) => takeAtOnce(parts as readonly Part<LocalMember>[]),
};

export class LocalMember implements RateMember, Takeable {
  readonly steps = localSteps;
  readonly slot = "";
  readonly #limiter: LocalLimiter;
  readonly #asked: LocalAsked;

  constructor(limiter: LocalLimiter, asked: LocalAsked) {
    this.#limiter = limiter;
    this.#asked = asked;
  }

  look(permits: Permits, longestMs: number): Look {
    return this.#asked.look(permits, longestMs);
  }

  take(permits: Permits, longestMs: number): Look {
    const limiter = this.#limiter;
    try {
      if (longestMs === 0) {
        const decision = this.#asked.decide(permits);
        if (!decision.allowed) return { decision, passes: false };
        return { decision, passes: true, taken: { undo: () => limiter.refund(permits) } };
      }
      const before = this.look(permits, longestMs);
      if (!before.passes) return before;
      return booked(limiter.reserve(permits), limiter.peek(permits));
    } catch (error) {
      return refusalOf(error, limiter.peek(permits));
    }
  }

  refused(permits: Permits, look: Look): void {
    this.#asked.refused(permits, look);
  }

  full(permits: Permits): Error {
    return this.#asked.full(permits);
  }
}

function booked(reservation: Reservation, after: Decision): Look {
  const decision = { ...after, allowed: true, waitMs: reservation.waitMs };
  const undo = () => withdraw(reservation);
  return { decision, passes: true, taken: { undo, reservation } };
}

/** As if the reservation had not been made. */
export function withdraw(reservation: Reservation): Maybe<unknown> {
  return chain(reservation.cancel(), (isCancelled) =>
    isCancelled ? undefined : reservation.settle(0),
  );
}

// -- limiters of other makers --

/** A limiter that shows no more than the interface: its look and what it takes are two steps. */
export class ForeignMember implements RateMember {
  readonly steps: Steps;
  readonly slot = "";

  constructor(limiter: Limiter) {
    this.steps = {
      look: (parts) => eachOf(parts, (part) => lookAt(limiter, part)),
      take: (parts) => eachOf(parts, (part) => takeFrom(limiter, part)),
    };
  }

  refused(): void {}

  full(): Error {
    return new QueueFullError("limiter", 1, 0, 0);
  }
}

/** Each has steps of its own, so there is one part. */
function eachOf(parts: readonly Part[], ask: (part: Part) => Maybe<Look>): Maybe<readonly Look[]> {
  return chain(ask(parts[0] as Part), (look) => [look]);
}

function lookAt(limiter: Limiter, { permits, longestMs }: Part): Maybe<Look> {
  return chain(limiter.peek(permits), (decision) => {
    return lookWithin(decision, longestMs);
  });
}

function takeFrom(limiter: Limiter, part: Part): Maybe<Look> {
  const { permits, longestMs } = part;
  if (longestMs === 0) {
    return chain(limiter.decide(permits), (decision) => {
      if (!decision.allowed) return { decision, passes: false };
      return { decision, passes: true, taken: { undo: () => limiter.refund(permits) } };
    });
  }
  return chain(limiter.peek(permits), (before) => {
    const look = lookWithin(before, longestMs);
    if (!look.passes) return look;
    return chain(limiter.reserve(permits), (reservation) => {
      if (reservation.waitMs <= longestMs) return booked(reservation, before);
      return chain(withdraw(reservation), () => ({ decision: before, passes: false }));
    });
  });
}

export function chain<T, R>(answer: Maybe<T>, go: (answer: T) => Maybe<R>): Maybe<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}
