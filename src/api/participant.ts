/**
 * How a limiter takes part in a combination: see `together.ts`. A limiter offers its member as a
 * method named by the symbol `asMember`, so combinations do not depend on the classes of limiters.
 */

import { oncePerProcess, VERSION } from "../ground/copies.ts";
import { LimiterError, QueueFullError, TooManyKeysError } from "../ground/errors.ts";
import { chain, type Maybe } from "../ground/maybe.ts";
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
import { type BacklogLimiter, reserveBehind } from "./reserve-behind.ts";
import type { Meter } from "./stats.ts";

/** The answer of one limiter to a request. */
export interface Look {
  /** The decision before permits were taken, or after it. */
  readonly decision: Decision;
  /** Whether this limiter alone would grant the request within the wait that it accepts. */
  readonly passes: boolean;
  /** It does not pass because too many callers wait already. */
  readonly isFull?: boolean;
  /** It does not pass, and the limiter's own verbs would throw this. */
  readonly error?: Error;
  /** What was taken; absent if nothing was. */
  readonly taken?: Taken;
}

export interface Taken {
  /** Restores the state as if it had not been taken. */
  undo(): Maybe<unknown>;
  readonly reservation?: Reservation;
  readonly place?: HeldPlace;
}

/** A lease, in this process or elsewhere. */
export interface HeldPlace {
  release(): Maybe<void>;
  readonly signal?: AbortSignal;
}

/** The request to one limiter of a combination. */
export interface Part<M extends Member = Member> {
  readonly member: M;
  readonly permits: Permits;
  /** The longest wait that the request accepts, ms; 0: now or not at all. */
  readonly longestMs: number;
  /** If this limiter refuses, the others are asked and charged as if it were absent. */
  readonly isOptional: boolean;
  /** The share that the request counts for, where the member is a fair concurrency limiter. */
  readonly share?: ShareOptions | undefined;
}

/** When a caller stops waiting for a store that is unavailable. */
export interface Terms {
  readonly signal?: AbortSignal | undefined;
  /** ms; absent: never. */
  readonly timeoutMs?: number | undefined;
}

/** Thrown if the members of a step turn out to be in several slots. Nothing has changed then. */
export class ScatteredError extends LimiterError {
  static readonly code = "SCATTERED";

  constructor(cause: unknown) {
    super(ScatteredError.code, "the members are in several slots", {}, { cause });
  }
}

/** Asks limiters that can be asked in one atomic step. Answers are in the order of the parts. */
export interface Steps {
  look(parts: readonly Part[], terms: Terms): Maybe<readonly Look[]>;
  /** Takes from all that pass; takes from none if one that is not optional refuses. */
  take(parts: readonly Part[], terms: Terms): Maybe<readonly Look[]>;
}

export interface Member {
  /** Members with the same steps and the same slot are asked in one step. */
  readonly steps: Steps;
  readonly slot: string;
  /** Called with a request that is made now. Absent: the steps alone decide. See `in-order.ts`. */
  readonly enter?: Entrance | undefined;
  /** Reports a refusal for which this limiter is a reason. */
  refused(permits: Permits, look: Look): void;
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

/** The member of a rate limiter. */
export interface RateMember extends Member {
  /** The error of a request that may not wait either: the queue is full, or the limit is 0. */
  full(permits: Permits, look: Look): Error;
}

/** The member of a concurrency limiter. */
export interface PlacesMember extends Member {
  readonly queue: PlaceQueue;
}

/** How a caller waits for a place of a concurrency limiter. */
export interface PlaceQueue {
  /**
   * Waits for a place, then calls `held` and resolves to its result. In this process `held` is called at the
   * instant of the grant, before any other caller can look, so a place that it gives back at once was never
   * seen as taken. It does not throw.
   */
  acquire<T>(slots: number, options: WaitOptions, held: (place: HeldPlace) => T): Promise<T>;
  /** The same; resolves to undefined when the time is over, or if no more callers may wait. */
  tryAcquire<T>(
    slots: number,
    wait: TryOptions,
    held: (place: HeldPlace) => T,
  ): Promise<T | undefined>;
  /** Whether it takes the options that name the share of a call. */
  readonly isFair: boolean;
  /** The time by which `tryAcquire` measures, ms. */
  now(): number;
}

export const asMember: unique symbol = Symbol.for(`smooth-limiter@${VERSION}/member`);

/** What `takeTogether` and `acquireAll` need of a limiter, for one share. */
export interface BoundLimiter extends Pick<Limiter, "peek" | "reserve" | "refund">, BacklogLimiter {
  [asMember](): LocalAsked | RateMember;
}

export const isFair: unique symbol = Symbol.for(`smooth-limiter@${VERSION}/is-fair`);

/** A limiter that may be fair. */
export interface SharedLimiter
  extends Pick<Limiter, "peek" | "reserve" | "refund">,
    BacklogLimiter {
  readonly [isFair]: boolean;
  [asMember](options?: ShareOptions): LocalAsked | RateMember;
}

export function isSharedLimiter(limiter: object): limiter is SharedLimiter {
  return (limiter as Partial<SharedLimiter>)[isFair] === true;
}

/** Returns the limiter for calls of that share. */
export function boundTo(limiter: SharedLimiter, share: ShareOptions): BoundLimiter {
  return {
    peek: (permits) => limiter.peek(permits, share),
    reserve: (permits) => limiter.reserve(permits, share),
    refund: (permits) => limiter.refund(permits),
    [reserveBehind]: (permits, backlog) => limiter[reserveBehind](permits, backlog, share),
    [asMember]: () => limiter[asMember](share),
  };
}

/** A limiter on a store makes its member itself; one in this process says what its member needs. */
export type Participant = Limiter & { [asMember](): LocalAsked | RateMember };

export function memberOf(limiter: Limiter | Participant | BoundLimiter): RateMember {
  if (!(asMember in limiter)) return new ForeignMember(limiter);
  const asked = limiter[asMember]();
  return "steps" in asked ? asked : new LocalMember(limiter as LocalLimiter, asked);
}

/** Counts and publishes a refusal, as the limiter's own verbs do. */
export function reportRefusal(meter: Meter, amount: Amount, look: Look): void {
  const { decision, isFull, error } = look;
  if (error instanceof TooManyKeysError) meter.refused(amount, "too-many-keys");
  else meter.refused(amount, isFull ? "queue-full" : "too-long", () => decision);
}

/**
 * Whether a request passes that accepts a wait of `longestMs`. If the wait is infinite it cannot.
 */
export function lookWithin(decision: Decision, longestMs: number): Look {
  const isFull = decision.waitMs === Infinity;
  return { decision, passes: !isFull && decision.waitMs <= longestMs, isFull };
}

/** A full queue or key table is a refusal. Every other error is rethrown. */
export function refusalOf(error: unknown, decision: Decision): Look {
  const isFull = error instanceof QueueFullError;
  if (!isFull && !(error instanceof TooManyKeysError)) throw error;
  return { decision: { ...decision, allowed: false }, passes: false, isFull, error };
}

// -- limiters in this process --

/** What a limiter in this process must offer to its member. */
export interface LocalAsked {
  /** Like `decide`, but does not report a refusal. */
  decide(permits: Permits): Decision;
  /** Checks the permits of a request. */
  amount(permits: Permits): Amount;
  /** Returns what counts and publishes refusals. */
  meter(): Meter;
  full(permits: Permits): Error;
}

/** A member that can be asked and charged at once. */
export interface Takeable {
  look(permits: Permits, longestMs: number, share?: ShareOptions): Look;
  take(permits: Permits, longestMs: number, share?: ShareOptions): Look;
}

/** A part of a request to limiters in this process. */
type LocalPart = Omit<Part, "member"> & { readonly member: Takeable };

export function lookAtOnce(parts: readonly LocalPart[]): readonly Look[] {
  return parts.map(({ member, permits, longestMs, share }) => {
    return member.look(permits, longestMs, share);
  });
}

/** Looks at all at one instant, then takes from all. No other code runs in between. */
export function takeAtOnce(parts: readonly LocalPart[]): readonly Look[] {
  const looks = lookAtOnce(parts);
  const passes = parts.every(({ isOptional }, i) => isOptional || looks[i]?.passes === true);
  if (!passes) return looks;
  const answers: Look[] = [];
  for (const [i, { member, permits, longestMs, isOptional, share }] of parts.entries()) {
    const before = looks[i] as Look;
    const answer = before.passes ? member.take(permits, longestMs, share) : before;
    // the same limiter occurs twice, or a key table is full
    if (!answer.passes && !isOptional) {
      for (const { taken } of answers.toReversed()) void taken?.undo();
      return looks.map((look, j) => (j === i ? answer : look));
    }
    answers.push(answer);
  }
  return answers;
}

export const localSteps: Steps = /* @__PURE__ */ oncePerProcess("local steps", () => ({
  look: (parts) => lookAtOnce(parts as readonly Part<LocalMember>[]),
  take: (parts) => takeAtOnce(parts as readonly Part<LocalMember>[]),
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

  look(permits: Permits, longestMs: number): Look {
    return lookWithin(this.#limiter.peek(permits), longestMs);
  }

  take(permits: Permits, longestMs: number): Look {
    const limiter = this.#limiter;
    try {
      if (longestMs === 0) {
        const decision = this.#decide(permits);
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
}

export class LocalMember extends LocalTaker implements RateMember {
  readonly steps = localSteps;
  readonly slot = "";
  readonly #asked: LocalAsked;

  constructor(limiter: Verbs, asked: LocalAsked) {
    super(limiter, (permits) => asked.decide(permits));
    this.#asked = asked;
  }

  refused(permits: Permits, look: Look): void {
    reportRefusal(this.#asked.meter(), this.#asked.amount(permits), look);
  }

  full(permits: Permits): Error {
    return this.#asked.full(permits);
  }
}

function booked(reservation: Reservation, after: Decision): Look {
  const decision = { ...after, allowed: true, waitMs: reservation.waitMs };
  return { decision, passes: true, taken: { undo: () => reservation.undo(), reservation } };
}

// -- limiters from outside this package --

type Foreign = Pick<Limiter, "peek" | "decide" | "reserve" | "refund">;

/** A limiter that offers only the public interface: looking and taking are two steps. */
export class ForeignMember implements RateMember {
  readonly steps: Steps;
  readonly slot = "";
  readonly enter: Entrance | undefined;

  constructor(limiter: Foreign, enter?: Entrance) {
    this.enter = enter;
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

/** Every such limiter has steps of its own, so there is exactly one part. */
function eachOf(parts: readonly Part[], ask: (part: Part) => Maybe<Look>): Maybe<readonly Look[]> {
  return chain(ask(parts[0] as Part), (look) => [look]);
}

function lookAt(limiter: Foreign, { permits, longestMs }: Part): Maybe<Look> {
  return chain(limiter.peek(permits), (decision) => {
    return lookWithin(decision, longestMs);
  });
}

function takeFrom(limiter: Foreign, part: Part): Maybe<Look> {
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
      return chain(reservation.undo(), () => ({ decision: before, passes: false }));
    });
  });
}
