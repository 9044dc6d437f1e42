/**
 * Pieces that rest: they were used, and are of no use to others before they are fresh.
 *
 * What was used of a window or log comes back a window later, wherever it is. A region that got such a piece would have to
 * count it as used just now: it would come back a window after the move, and never if it moved more often. So a region that
 * gives it away does without it, but keeps it until it is fresh, on its lease; or, if no other one lacks it, tells the home
 * when that is. What comes back at a rate does not rest: it is of use at once.
 *
 * - **Dated** permits (sliding windows and logs) come back one after the other. Those that were used last are given away:
 *   at no time are more of them used than the whole state has used.
 * - **Windows and steps of the calendar**: what was given away has no permit left, and is fresh when it has all of them.
 *
 * Example: a log of 100 in 10 s, a part of 0.5, 20 used at 0 s and 20 at 4 s. At 5 s all but 0.1 is given away: 0.1 is
 * fresh. The part keeps 10 of those from 0 s; 0.1 is fresh when the other 10 are back, at 10 s, and 0.2 at 14 s.
 *
 * Where it is inexact: instants are looked at in steps of an eighth, so pieces rest for up to an eighth longer than they
 * need to; and a part that has been given away in many steps has 32 instants, those that are nearest to each other are one.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { WHOLE } from "../stores/ledger.ts";
import { startOf } from "../stores/state/one.ts";

/** What was given away, a part of the limit, and after how many µs it is fresh. */
export interface Rest {
  readonly part: number;
  readonly micros: number;
}

/**
 * What a policy of the whole limit lets through at once, without what may wait; 0 at an infinite rate, where nothing is
 * counted.
 */
export function capacityOf(policy: Policy): number {
  const { algorithm } = policy;
  const capacity =
    policy.maxWaiting === undefined
      ? algorithm.bound(policy, 0, 0)
      : algorithm.quota(policy, algorithm.start(policy, 0), 0).limit;
  return capacity === Infinity ? 0 : capacity;
}

/** How much of a policy was given away and is not fresh. */
export interface Used {
  /** After so many µs all is. */
  readonly end: number;
  /** How much is not fresh after so many µs. */
  at(micros: number): number;
}

/** @param own the state before, of that part; `permits` that were used last are given away */
export function usedLast(
  whole: Policy,
  part: Policy,
  own: unknown,
  permits: number,
  now: number,
): Used {
  const { algorithm } = part;
  const capacity = capacityOf(whole);
  return {
    end: algorithm.lifetime(part, own, now),
    at: (micros) => Math.min(permits, algorithm.deficit(part, own, now + micros)) / capacity,
  };
}

/** What was given away lacks these permits, and has no other ones. */
export function usedUp(whole: Policy, permits: number, now: number, epoch: number): Used {
  const { algorithm } = whole;
  const capacity = capacityOf(whole);
  const own = startOf(whole, now, epoch);
  algorithm.take(whole, own, now, capacity);
  return { end: algorithm.lifetime(whole, own, now), at: () => permits / capacity };
}

/** The instants at which a policy is looked at. */
const STEPS = 8;

/** @param given how much was given away and is not fresh */
export function restOf(used: readonly Used[], given: number): readonly Rest[] {
  const last = Math.max(...used.map(({ end }) => end));
  const steps = used.flatMap(({ end }) =>
    Array.from({ length: STEPS }, (_, k) => (end * (k + 1)) / STEPS),
  );
  const rests: Rest[] = [];
  let left = given;
  for (const micros of steps.sort((a, b) => a - b)) {
    const shares = used.map((one) => (micros < one.end ? one.at(micros) : 0));
    const most = micros === last ? 0 : Math.min(left, Math.max(...shares));
    if (most < left) rests.push({ part: left - most, micros });
    left = most;
  }
  return rests;
}

/** Pieces, in `WHOLE`, that are fresh from an instant of the clock on, ms. */
export interface Pieces {
  readonly count: number;
  readonly freshMs: number;
}

/** More groups are not kept apart. */
const MOST_GROUPS = 32;
/** Most parts never have any. */
const NONE: readonly Pieces[] = [];

/** The pieces of one part that rest. */
export class RestingPieces {
  /** In the order in which they are fresh. */
  #groups = NONE;

  get count(): number {
    return countOf(this.#groups);
  }

  countAt(timeMs: number): number {
    return countOf(this.#groups.filter(({ freshMs }) => freshMs > timeMs));
  }

  /** Ends the rest of those that are fresh now. @returns how many they are */
  takeFresh(nowMs: number): number {
    const isFresh = ({ freshMs }: Pieces) => freshMs <= nowMs;
    const fresh = this.#groups.filter(isFresh);
    if (fresh.length > 0) this.#groups = this.#groups.filter((group) => !isFresh(group));
    return countOf(fresh);
  }

  /** Divides so many pieces among the rests. */
  add(count: number, rests: readonly Rest[], nowMs: number): void {
    if (count === 0) return;
    let left = count;
    const added = rests.map(({ part, micros }, i): Pieces => {
      const isLast = i === rests.length - 1;
      const some = isLast ? left : Math.min(left, Math.floor(part * WHOLE));
      left -= some;
      return { count: some, freshMs: nowMs + Math.ceil(micros) / 1000 };
    });
    const groups = [...this.#groups, ...added].sort((a, b) => a.freshMs - b.freshMs);
    while (groups.length > MOST_GROUPS) mergeNearest(groups);
    this.#groups = groups;
  }

  /** Lets all rest until then. */
  extend(freshMs: number): void {
    const { count } = this;
    if (count > 0) this.#groups = [{ count, freshMs }];
  }

  /** Takes all. */
  take(): readonly Pieces[] {
    const groups = this.#groups;
    this.#groups = NONE;
    return groups;
  }

  clear(): void {
    this.#groups = NONE;
  }
}

/** Lets one group rest for as long as the next one: the group whose pieces are delayed least by that. */
function mergeNearest(groups: Pieces[]): void {
  let [at, least] = [0, Infinity];
  for (const [i, { count, freshMs }] of groups.slice(0, -1).entries()) {
    const longer = count * ((groups[i + 1]?.freshMs ?? freshMs) - freshMs);
    if (longer < least) [at, least] = [i, longer];
  }
  const [one, next] = groups.slice(at, at + 2) as [Pieces, Pieces];
  groups.splice(at, 2, { count: one.count + next.count, freshMs: next.freshMs });
}

function countOf(groups: readonly Pieces[]): number {
  return groups.reduce((sum, { count }) => sum + count, 0);
}
