/**
 * How a combination waits.
 *
 * A caller may only go when every member lets it, and must not hold permits of one member while it
 * waits for another: a device that waits an hour for its own limit would keep a common limit short,
 * and callers that hold permits of a pacing limiter until a window opens would then all go at once.
 * So a waiting caller repeats:
 *
 * 1. Take from all members now, atomically. Done if that succeeds.
 * 2. Otherwise wait in the queue of the binding member alone, the one with the longest wait, as a
 *    caller of that limiter does: first in, first out; `setRate` and `pause` change its wait.
 * 3. When its permits can be used, take from the other members at that moment, atomically. Done if
 *    that succeeds: all members were taken from at one instant, within the bound of each.
 * 4. Otherwise give the permits back and start again.
 *
 * Worked example: 10 a second and a window of 1000 a minute, used up, with 300 callers. The window
 * binds: all 300 wait in its queue. When it opens one of them also gets its permit of the pace; the
 * others give their permits of the window back and queue for the pace. They go 100 ms apart, each
 * with a permit that the window has left.
 *
 * Step 4 alone could starve a caller where other callers keep two members busy all the time. After
 * it has happened `2 n` times (n members), a caller keeps what it has and waits for the remaining
 * members only. A kept permit is used later than the instant for which it was booked; the delay is the
 * wait for the remaining members. So in any interval a member may grant its own bound plus the permits
 * that such callers have kept.
 *
 * **Places.** A concurrency limiter without a free place binds before every rate limiter: a caller
 * waits for its place first. Nothing is kept while it waits for another member: if the rates refuse when
 * the place is free, the place goes to the next caller, and this one waits for the rate that refused; if no
 * place is free when the rate lets it go, the permit goes to the next caller, and this one waits for a place.
 * After `8 n` such rounds a caller keeps its place. It never keeps a permit for a place: permits that were
 * saved up would all be used when places become free.
 */

import type { Limiter, ShareOptions } from "../api/limiter-api.ts";
import { refuseShares } from "../api/options.ts";
import {
  type BoundLimiter,
  boundTo,
  type HeldPlace,
  isSharedLimiter,
  type Look,
  type Member,
  memberOf,
  type Part,
  type PlacesMember,
  type RateMember,
  type Taken,
} from "../api/participant.ts";
import { reserveBehind } from "../api/reserve-behind.ts";
import { chain, type Maybe } from "../ground/maybe.ts";
import type { Permits } from "../ground/permits.ts";
import { binds, type Together, takeTogether, undoAll } from "./all-or-none.ts";

/** A rate limiter of a combination, with its member. */
export interface RateEntry<L = Limiter> {
  readonly limiter: L;
  readonly member: RateMember;
}

/** A limiter for which a combination can wait. */
type Awaitable = Pick<Limiter, "reserve"> | BoundLimiter;

/** A concurrency limiter of a combination; the slots of the call, and its share if the limiter is fair. */
export interface PlaceEntry {
  readonly member: PlacesMember;
  readonly slots: number;
  readonly share: ShareOptions | undefined;
}

type AnyEntry = RateEntry<Awaitable> | PlaceEntry;

/** When a caller stops waiting. */
export interface WaitTerms {
  readonly signal: AbortSignal | undefined;
  /** The longest wait, ms; absent: no end. */
  readonly timeoutMs?: number;
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
): readonly RateEntry<Limiter | BoundLimiter>[] {
  const share = shareOf(options);
  if (share === undefined) return entries;
  const bound = entries.map((entry) => {
    if (!isSharedLimiter(entry.limiter)) return entry;
    const limiter = boundTo(entry.limiter, share);
    return { limiter, member: memberOf(limiter) };
  });
  if (!hasFair && bound.every((entry, i) => entry === entries[i])) refuseShares(share);
  return bound;
}

export function partsOf(
  entries: readonly (
    | { readonly member: Member }
    | { readonly member: Member; readonly slots: number; readonly share: ShareOptions | undefined }
  )[],
  permits: Permits,
  longestMs: number,
): readonly Part[] {
  return entries.map((entry) => {
    const { member } = entry;
    const terms = { longestMs, isOptional: false };
    if (!("slots" in entry)) return { member, permits, ...terms };
    return { member, permits: entry.slots, share: entry.share, ...terms };
  });
}

/**
 * A caller of n members may give back its permits this many times n before it starts to keep them.
 */
const ROUNDS = 2;
/** The same where a place is among them: a kept place is one that no other caller can use. */
const ROUNDS_WITH_PLACES = 8;

/** What a caller of a combination has taken, and how long it waited, ms. */
export interface TakenAll {
  readonly taken: readonly Taken[];
  readonly waitedMs: number;
}

/**
 * Waits until it can take from all members, then takes from them.
 *
 * @returns undefined when its time is over, or as soon as it is clear that it will not suffice
 */
export async function acquireAll(
  entries: readonly AnyEntry[],
  permits: Permits,
  { signal, timeoutMs = Infinity }: WaitTerms,
): Promise<TakenAll | undefined> {
  const kept: Taken[] = [];
  let rest = entries;
  let asked = entries;
  let chances = entries.length * (entries.some(isPlaces) ? ROUNDS_WITH_PLACES : ROUNDS);
  let waitedMs = 0;
  const undo = () => undoAll(kept.map((taken) => ({ taken })));
  /** Takes from these members. @returns the answers if one refuses */
  const refusalOf = (members: readonly AnyEntry[]): Maybe<Together["looks"] | undefined> => {
    const terms = timeoutMs < Infinity ? { signal, timeoutMs: timeoutMs - waitedMs } : { signal };
    // at once where possible: a caller that only looks must not hold a place in the meantime
    return chain(takeTogether(partsOf(members, permits, 0), terms), ({ passes, looks }) => {
      if (!passes) return looks;
      kept.push(...takenOf(looks));
      signal?.throwIfAborted();
      return undefined;
    });
  };
  /** Asks the others when this member lets the caller go; if one refuses, gives back what was taken. */
  const tryRest = (entry: AnyEntry): Maybe<Together["looks"] | undefined> => {
    const others = rest.filter((other) => other !== entry);
    return chain(refusalOf(others), (looks) => {
      if (looks === undefined) return undefined;
      asked = others;
      if (chances <= 0 && (isPlaces(entry) || !others.some(isPlaces))) {
        rest = others;
        return looks;
      }
      chances -= 1;
      return chain(kept.pop()?.undo(), () => looks);
    });
  };
  try {
    let looks = await refusalOf(asked);
    while (looks !== undefined) {
      const binding = bindingOf(looks);
      const entry = asked[binding] as AnyEntry;
      const leftMs = timeoutMs - waitedMs;
      const look = looks[binding] as Look;
      const ask = () => tryRest(entry);
      const got = await waitFor(entry, permits, look, signal, leftMs, kept, ask);
      if (got === undefined) {
        await undo();
        return undefined;
      }
      waitedMs += got.waitedMs;
      looks = got.looks;
    }
    return { taken: kept, waitedMs };
  } catch (error) {
    await undo();
    throw error;
  }
}

function isPlaces(entry: AnyEntry): entry is PlaceEntry {
  return !("limiter" in entry);
}

/** How long a caller waited in a queue, ms, and the answers of the other members if one refuses. */
interface Waited {
  readonly waitedMs: number;
  readonly looks: Together["looks"] | undefined;
}

/** Asks the other members, when what was taken can be used. */
type AskOthers = () => Maybe<Waited["looks"]>;

/** Waits in the queue of one member, and adds what was taken to `kept`. @returns undefined: it would be too long */
async function waitFor(
  entry: AnyEntry,
  permits: Permits,
  look: Look,
  signal: AbortSignal | undefined,
  leftMs: number,
  kept: Taken[],
  ask: AskOthers,
): Promise<Waited | undefined> {
  if (isPlaces(entry)) return waitForPlace(entry, signal, leftMs, kept, ask);
  const { limiter, member } = entry;
  if (look.decision.waitMs > leftMs) {
    member.refused(permits, look);
    return undefined;
  }
  // with a time-out no later caller may overtake it
  const isOvertaken = leftMs === Infinity && reserveBehind in limiter;
  const reserved = isOvertaken ? limiter[reserveBehind](permits) : limiter.reserve(permits);
  const reservation = reserved instanceof Promise ? await reserved : reserved;
  kept.push({ reservation, undo: () => reservation.undo() });
  if (reservation.waitMs > leftMs) return undefined;
  const waitedMs = await reservation.ready({ signal });
  return { waitedMs, looks: await ask() };
}

async function waitForPlace(
  { member: { queue }, slots, share }: PlaceEntry,
  signal: AbortSignal | undefined,
  leftMs: number,
  kept: Taken[],
  ask: AskOthers,
): Promise<Waited | undefined> {
  const before = queue.now();
  const options = { signal, ...share };
  const held = (place: HeldPlace): { readonly looks: Maybe<Waited["looks"]> } => {
    kept.push({ place, undo: () => place.release() });
    try {
      return { looks: ask() };
    } catch (error) {
      return { looks: Promise.reject(error) };
    }
  };
  const got =
    leftMs === Infinity
      ? await queue.acquire(slots, options, held)
      : await queue.tryAcquire(slots, { timeoutMs: leftMs, ...options }, held);
  if (got === undefined) return undefined;
  return { waitedMs: Math.max(0, queue.now() - before), looks: await got.looks };
}

/**
 * What was taken from each member. Only for requests that passed, so every member took something.
 */
function takenOf(looks: readonly (Look | undefined)[]): readonly Taken[] {
  return looks.map((look) => (look as Look).taken as Taken);
}

/** The index of the member with the longest wait of those that refuse. */
function bindingOf(looks: Together["looks"]): number {
  let binding = -1;
  for (const [i, look] of looks.entries()) {
    // a store that is away refuses nothing yet
    if (look === undefined || look.passes) continue;
    if (binding < 0 || binds(look.decision, (looks[binding] as Look).decision)) binding = i;
  }
  return binding;
}
