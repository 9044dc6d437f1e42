/**
 * How a combination waits.
 *
 * A caller may only go when every participant lets it, and must not hold permits of one participant while it
 * waits for another: a device that waits an hour for its own limit would keep a common limit short,
 * and callers that hold permits of a pacing limiter until a window opens would then all go at once.
 * So a waiting caller repeats:
 *
 * 1. Take from all participants now, atomically. Done if that succeeds.
 * 2. Otherwise wait in the queue of the binding participant alone, the one with the longest wait, as a
 *    caller of that limiter does: first in, first out; `setRate` and `pause` change its wait.
 * 3. When its permits can be used, take from the other participants at that moment, atomically. Done if
 *    that succeeds: all participants were taken from at one instant, within the bound of each.
 * 4. Otherwise give the permits back and start again.
 *
 * Worked example: 10 a second and a window of 1000 a minute, used up, with 300 callers. The window
 * binds: all 300 wait in its queue. When it opens one of them also gets its permit of the pace; the
 * others give their permits of the window back and queue for the pace. They go 100 ms apart, each
 * with a permit that the window has left.
 *
 * Step 4 alone could starve a caller where other callers keep two participants busy all the time. After
 * it has happened `2 n` times (n participants), a caller keeps what it has and waits for the remaining
 * participants only. A kept permit is used later than the instant for which it was booked; the delay is the
 * wait for the remaining participants. So in any interval a participant may grant its own bound plus the permits
 * that such callers have kept.
 *
 * **Slots.** A concurrency limiter without a free slot binds before every rate limiter: a caller
 * waits for its slot first. Nothing is kept while it waits for another participant: if the rates refuse when
 * the slot is free, the slot goes to the next caller, and this one waits for the rate that refused; if no
 * slot is free when the rate lets it go, the permit goes to the next caller, and this one waits for a slot.
 * After `8 n` such rounds a caller keeps its slots, and its permits while it waits for other permits. It never keeps a
 * permit for a slot: permits that were saved up would all be used when slots become free. And it keeps a slot for
 * another one only if that comes later in an order of all limiters, which is the same for all callers; so callers never
 * wait for each other in a circle.
 */

import type { Limiter, Reservation, ShareOptions } from "../api/limiter-api.ts";
import { refuseShares } from "../api/options.ts";
import {
  boundTo,
  type Check,
  type Combinable,
  type ConcurrencyParticipant,
  endLease,
  type HeldSlots,
  longestAnswer,
  type Participant,
  participantOf,
  type RateParticipant,
  type Subrequest,
  type Taken,
} from "../api/participant.ts";
import { reserveAwaited } from "../api/reserve-awaited.ts";
import { type StepOptions, until, WaitTimeoutError } from "../api/timeout.ts";
import type { Clock } from "../ground/clock.ts";
import { QueueFullError, ReservationCancelledError } from "../ground/errors.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Permits } from "../ground/permits.ts";
import { binds, settled, type Together, takeTogether, undoAll } from "./all-or-none.ts";

/** A rate limiter of a combination, with its participant. */
export interface RateEntry<L = Limiter> {
  readonly limiter: L;
  readonly participant: RateParticipant;
}

/** A limiter for which a combination can wait. */
type Awaitable = Pick<Limiter, "reserve"> | Combinable;

/** A concurrency limiter of a combination; the slots of the call, and its share if the limiter is fair. */
export interface SlotsEntry {
  readonly participant: ConcurrencyParticipant;
  readonly slots: number;
  readonly share: ShareOptions | undefined;
}

type AnyEntry = RateEntry<Awaitable> | SlotsEntry;

/** When a caller stops waiting. */
export interface WaitLimits {
  readonly signal: AbortSignal | undefined;
  /** The longest wait, ms; absent: no end. */
  readonly timeoutMs?: number;
  readonly deadline?: Deadline;
}

/**
 * When the time of a caller is over, by the clock of a participant whose waits may become longer. Without one, what the
 * participants have said is right.
 */
export class Deadline {
  readonly #clock: Clock | undefined;
  readonly #endMs: number;
  /** When the caller stops waiting for stores, by `performance.now()`. */
  readonly #storeEndMs: number;
  readonly #onStores: readonly Participant[];
  #wasAway = false;

  constructor(entries: readonly { readonly participant: Participant }[], timeoutMs: number) {
    const clock = entries.find(({ participant }) => participant.clock)?.participant.clock;
    this.#clock = timeoutMs < Infinity ? clock : undefined;
    this.#endMs = (this.#clock?.now() ?? 0) + timeoutMs;
    this.#storeEndMs = performance.now() + timeoutMs;
    const participants = entries.map(({ participant }) => participant);
    this.#onStores = participants.filter(({ answerMs }) => answerMs !== undefined);
  }

  get leftMs(): number {
    const leftMs = this.#clock === undefined ? Infinity : this.#endMs - this.#clock.now();
    return Math.max(0, this.#wasAway ? Math.min(leftMs, this.storeLeftMs) : leftMs);
  }

  /** How long the caller still waits for a store that is away, ms. */
  get storeLeftMs(): number {
    return Math.max(0, this.#storeEndMs - performance.now());
  }

  /** Asks participants. The time of their answers does not count, but that of an outage does. */
  asking<T>(ask: () => MaybePromise<T>): MaybePromise<T> {
    this.#look();
    return chain(ask(), (answer) => {
      this.#look();
      return answer;
    });
  }

  #look(): void {
    this.#wasAway ||= this.#onStores.some(({ answerMs }) => answerMs === 0);
  }

  /**
   * Waits until it is ready. One that is ready when it was promised is in time, although it was booked a trip later than
   * the call.
   *
   * @param place in this participant
   * @throws WaitTimeoutError if it has become later, and the time is over
   */
  async ready(
    place: Reservation,
    { clock }: Participant,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    if (this.#clock === undefined || clock === undefined) return place.ready({ signal });
    const forMs = Math.max(this.leftMs, place.waitMs < Infinity ? place.waitMs : 0);
    let isLate = false;
    const timer = clock.wakeAt(clock.now() + forMs, () => {
      isLate = true;
      void place.cancel();
    });
    try {
      return await place.ready({ signal });
    } catch (error) {
      throw isLate && error instanceof ReservationCancelledError ? new WaitTimeoutError() : error;
    } finally {
      timer.cancel();
    }
  }
}

/** Returns the options that name the share of a call; `undefined` if there are none. */
export function shareOf(options: ShareOptions | undefined): ShareOptions | undefined {
  const { share, weight, priority } = options ?? {};
  const isGiven = share !== undefined || weight !== undefined || priority !== undefined;
  return isGiven ? { share, weight, priority } : undefined;
}

/**
 * Returns the entries for calls of that share: fair limiters bound to it, the others as they are.
 *
 * @param hasFair whether another limiter of the combination is fair
 * @throws TypeError if a share is given and no limiter is fair
 */
export function entriesOf(
  entries: readonly RateEntry[],
  options: ShareOptions | undefined,
  hasFair = false,
): readonly RateEntry<Limiter | Combinable>[] {
  const share = shareOf(options);
  if (share === undefined) return entries;
  const bound = entries.map((entry) => {
    if (!entry.participant.isFair) return entry;
    const limiter = boundTo(entry.limiter as Limiter & Combinable, share);
    return { limiter, participant: participantOf(limiter) };
  });
  if (!hasFair && bound.every((entry, i) => entry === entries[i])) refuseShares(share);
  return bound;
}

export function subrequestsOf(
  entries: readonly (
    | { readonly participant: Participant }
    | {
        readonly participant: Participant;
        readonly slots: number;
        readonly share: ShareOptions | undefined;
      }
  )[],
  permits: Permits,
  longestMs: number,
): readonly Subrequest[] {
  return entries.map((entry) => {
    const { participant } = entry;
    const stepOptions = { longestMs, isOptional: false };
    if (!("slots" in entry)) return { participant, permits, ...stepOptions };
    return { participant, permits: entry.slots, share: entry.share, ...stepOptions };
  });
}

/**
 * A caller of n participants may give back its permits this many times n before it starts to keep them.
 */
const ROUNDS = 2;
/** The same where a slot is among them: a kept slot is one that no other caller can use. */
const ROUNDS_WITH_SLOTS = 8;

/** What a caller of a combination has taken, and how long it waited, ms. */
export interface TakenAll {
  readonly taken: readonly Taken[];
  readonly waitedMs: number;
}

/**
 * Waits until it can take from all participants, then takes from them.
 *
 * @param entries concurrency limiters in the order of their ranks
 * @returns undefined as soon as it is clear that its time will not suffice
 * @throws WaitTimeoutError when its time is over
 */
export async function acquireAll(
  entries: readonly AnyEntry[],
  permits: Permits,
  { signal, timeoutMs = Infinity, deadline = new Deadline(entries, timeoutMs) }: WaitLimits,
): Promise<TakenAll | undefined> {
  let kept: readonly Kept[] = [];
  let asked = entries;
  let chances = entries.length * (entries.some(isSlots) ? ROUNDS_WITH_SLOTS : ROUNDS);
  let waitedMs = 0;
  const participants = entries.map(({ participant }) => participant);
  const leftMs = () => Math.min(timeoutMs - waitedMs, deadline.leftMs);
  const stepOptions = (): StepOptions => {
    return { signal, timeoutMs: Math.min(leftMs(), deadline.storeLeftMs) };
  };
  /** Gives it back. A store that is away keeps no caller whose time is over. */
  const giveBack = (these: readonly Kept[]) => {
    kept = kept.filter((one) => !these.includes(one));
    return until(undoAll(these), stepOptions(), undefined, () => longestAnswer(participants));
  };
  /** Takes from these participants. @returns the answers if one refuses */
  const refusalOf = (
    participants: readonly AnyEntry[],
  ): MaybePromise<Together["checks"] | undefined> => {
    // at once where possible: a caller that only looks must not hold a slot in the meantime
    return chain(
      deadline.asking(() => takeTogether(subrequestsOf(participants, permits, 0), stepOptions())),
      ({ passes, checks }) => {
        if (!passes) return checks;
        const taken = takenOf(checks);
        kept = [...kept, ...participants.map((entry, i) => ({ entry, taken: taken[i] as Taken }))];
        signal?.throwIfAborted();
        return undefined;
      },
    );
  };
  /** Asks the others when a participant lets the caller go; if one refuses, gives back what was taken. */
  const tryRest = (): MaybePromise<Together["checks"] | undefined> => {
    const others = entries.filter((entry) => !kept.some((one) => one.entry === entry));
    return chain(refusalOf(others), (checks) => {
      if (checks === undefined) return undefined;
      asked = others;
      const lacked = others.filter((_, i) => checks[i]?.passes === false).filter(isSlots);
      const stays = ({ entry }: Kept) => chances <= 0 && mayKeep(entry, lacked);
      const back = kept.filter((one) => !stays(one));
      chances -= 1;
      return chain(giveBack(back), () => checks);
    });
  };
  try {
    let checks = await refusalOf(asked);
    while (checks !== undefined) {
      const binding = bindingOf(asked, checks);
      const entry = asked[binding] as AnyEntry;
      const check = checks[binding] as Check;
      const keep = (taken: Taken) => {
        kept = [...kept, { entry, taken }];
      };
      const ask = (forMs: number) => {
        waitedMs += forMs;
        return tryRest();
      };
      const limits = { signal, timeoutMs: leftMs(), deadline };
      const got = await waitFor(entry, permits, check, limits, keep, ask);
      if (got === undefined) {
        await giveBack(kept);
        return undefined;
      }
      checks = got.checks;
    }
    return { taken: kept.map(({ taken }) => taken), waitedMs };
  } catch (error) {
    await settled(() => giveBack(kept));
    throw error;
  }
}

/** What a caller has taken from a participant. */
interface Kept {
  readonly entry: AnyEntry;
  readonly taken: Taken;
}

/**
 * Whether it may be kept while these slots are lacking. No permit may; and a slot only for later ones, so no two
 * callers wait for what the other one keeps.
 */
function mayKeep(entry: AnyEntry, lacked: readonly SlotsEntry[]): boolean {
  const rankOf = ({ participant }: SlotsEntry) => participant.queue.rank;
  return lacked.every((slots) => isSlots(entry) && rankOf(entry) < rankOf(slots));
}

function isSlots(entry: AnyEntry): entry is SlotsEntry {
  return !("limiter" in entry);
}

/** The answers of the other participants if one refuses. */
interface Waited {
  readonly checks: Together["checks"] | undefined;
}

/** Asks the other participants, when what was taken can be used after a wait of so many ms. */
type AskOthers = (waitedMs: number) => MaybePromise<Waited["checks"]>;

/** Waits in the queue of one participant, and keeps what was taken. @returns undefined: it would be too long */
async function waitFor(
  entry: AnyEntry,
  permits: Permits,
  check: Check,
  { signal, timeoutMs: leftMs, deadline }: Required<WaitLimits>,
  keep: (taken: Taken) => void,
  ask: AskOthers,
): Promise<Waited | undefined> {
  if (isSlots(entry)) return waitForSlots(entry, signal, leftMs, keep, ask);
  const { participant } = entry;
  if (leftMs <= 0 || (check.decision.waitMs > leftMs && !check.isUnknown)) {
    participant.refused(permits, check);
    return undefined;
  }
  const stepOptions = { signal, timeoutMs: Math.min(leftMs, deadline.storeLeftMs) };
  const reservation = await deadline.asking(() => placeOf(entry, permits, leftMs, stepOptions));
  if (reservation === undefined) return undefined;
  keep({ reservation, undo: () => reservation.undo() });
  const isUnknown = reservation.waitMs === Infinity && participant.clock !== undefined;
  if (reservation.waitMs > Math.min(leftMs, deadline.leftMs) && !isUnknown) return undefined;
  return { checks: await ask(await deadline.ready(reservation, participant, signal)) };
}

/** @returns undefined: the queue is full, which is no error for a caller with a time-out */
async function placeOf(
  { limiter, participant }: RateEntry<Awaitable>,
  permits: Permits,
  leftMs: number,
  options: StepOptions,
): Promise<Reservation | undefined> {
  // with a time-out no later caller may overtake it
  const isOvertaken = leftMs === Infinity && reserveAwaited in limiter;
  try {
    const place = isOvertaken ? limiter[reserveAwaited](permits) : limiter.reserve(permits);
    const answerMs = () => longestAnswer([participant]);
    return await until(place, options, (late) => late.undo(), answerMs);
  } catch (error) {
    if (leftMs < Infinity && error instanceof QueueFullError) return undefined;
    throw error;
  }
}

async function waitForSlots(
  { participant: { queue }, slots, share }: SlotsEntry,
  signal: AbortSignal | undefined,
  leftMs: number,
  keep: (taken: Taken) => void,
  ask: AskOthers,
): Promise<Waited | undefined> {
  const before = queue.now();
  const options = { signal, ...share };
  const held = (held: HeldSlots): { readonly checks: MaybePromise<Waited["checks"]> } => {
    keep({ held, undo: () => endLease(held, "ignore") });
    try {
      return { checks: ask(Math.max(0, queue.now() - before)) };
    } catch (error) {
      return { checks: Promise.reject(error) };
    }
  };
  const got =
    leftMs === Infinity
      ? await queue.acquire(slots, options, held)
      : await queue.tryAcquire(slots, { timeoutMs: leftMs, ...options }, held);
  if (got === undefined) return undefined;
  return { checks: await got.checks };
}

/**
 * What was taken from each participant. Only for requests that passed, so every participant took something.
 */
export function takenOf(checks: readonly (Check | undefined)[]): readonly Taken[] {
  return checks.map((check) => (check as Check).taken as Taken);
}

/** The index of the first concurrency limiter that refuses, else of the participant with the longest wait. */
function bindingOf(asked: readonly AnyEntry[], checks: Together["checks"]): number {
  let binding = -1;
  for (const [i, check] of checks.entries()) {
    // a store that is away refuses nothing yet
    if (check === undefined || check.passes) continue;
    if (isSlots(asked[i] as AnyEntry)) return i;
    if (binding < 0 || binds(check.decision, (checks[binding] as Check).decision)) binding = i;
  }
  return binding;
}
