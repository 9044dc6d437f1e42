/**
 * The state of one region's part of a limit, and the move to another part.
 *
 * Promise: all parts together keep the bound of the whole limit, however often they are moved. Think of the limit as a
 * great many equal pieces, each with the same small part of the permits, and each keeping the algorithm's bound. A region
 * holds some of them. If a piece moves with its state, the bound holds whoever holds it. So a move needs no term
 * of its own in the bound; it only must not create permits:
 *
 * - A region that gets pieces gets them *used*, with no permit left: its own permits stay what they were, and only their
 *   rate and capacity grow. A piece of which no permit was used (`fresh`) comes with its permits.
 * - A region that gives pieces away gives fresh ones first, as many as it has; the others take what was used with them.
 *   Of windows and logs such pieces are of no use to anybody: where they arrive, what was used would come back a window
 *   after the move, and never if they moved more often. So they rest with the region that has used them, which does
 *   without them from now on, and go as they become fresh. In a limit with windows `fresh` is about these alone: what
 *   comes back at a rate counts as used in every piece that moves.
 * - A debt (a request that was granted before it was paid for) stays, in permits: at a lower rate it lasts longer, at a
 *   higher one it ends sooner. Logs and sliding windows enter a debt in the future, where nothing can be given back:
 *   they are written anew.
 *
 * In numbers, with capacity C, a move from part p to part q, and d permits lacking to be full:
 *
 *   grow:    lacking = d + (q - p - fresh) C
 *   shrink:  fresh = what is left, at most p - q;  lacking = C q - (what is left - C fresh)
 *
 * Example: 100 permits a second, burst 100, part 0.5 with 30 of 50 permits left. It shrinks to 0.2: pieces with
 * 0.3 x 100 permits go, all of them fresh; none of its permits is left. Another region grows from 0.1 to 0.4 with 5 of
 * 10 left: it has 35 of 40.
 *
 * A piece has the same windows and steps in each region: those of the calendar, as far as the regions' clocks agree
 * (`onGrid`).
 *
 * With a warm-up stored permits are a debt in time, not a burst: they are scaled with the part, so a region that was
 * idle stays cold when it grows. C is 0 then.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { share } from "../algorithms/index.ts";
import { hasInstants, isDated } from "../algorithms/instants.ts";
import type { Bound } from "../ground/check.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Amount } from "../ground/permits.ts";
import { Deadlines, type Due } from "../queue/deadlines.ts";
import { UNKNOWN } from "../queue/supply.ts";
import { type PolicyState, startOf } from "../stores/state/one.ts";

/** A move between two parts of the limit, at an instant of the queue. */
export interface Move {
  readonly from: number;
  readonly to: number;
  /** How much of what is gained is fresh. */
  readonly fresh: number;
}

/** Pieces that were used, and after how many µs they are fresh. */
export interface Resting {
  readonly part: number;
  readonly micros: number;
}

/** What a move sets free; the rest of it can be used by others at once, as pieces that are not fresh. */
export interface Freed {
  /** How much of it is fresh. */
  readonly fresh: number;
  /** How much of it is of no use before it is fresh. */
  readonly resting: readonly Resting[];
}

/** Sums of permits are as exact as this. */
const ROUNDING = 1e-12;

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

/**
 * Moves a state to another part of the limit.
 *
 * @param whole the policies of the whole limit
 */
export function move(
  state: PolicyState,
  whole: readonly Policy[],
  { from, to, fresh }: Move,
  now: number,
  epoch: number,
): Freed {
  const capacities = whole.map(capacityOf);
  const lacking = state.deficit(now);
  const left = capacities.map((capacity, i) => capacity * from - (lacking[i] ?? 0));
  const released = Math.max(0, from - to);
  // beside windows, what comes back at a rate always comes used: it is back before they are
  const rests = whole.some(hasInstants);
  const counts = whole.map((policy, i) =>
    !rests || hasInstants(policy) ? (capacities[i] ?? 0) : 0,
  );
  let freed = released;
  for (const [i, capacity] of counts.entries()) {
    if (capacity > 0) freed = Math.min(freed, Math.max(0, (left[i] ?? 0) / capacity));
  }
  const gained = Math.max(0, to - from);
  const debts = debtsOf(state, whole, now);
  const entries = lastEntries(state, partsOf(whole, from), now);
  const parts = partsOf(whole, to);
  const old = rests && released > 0 ? state.copy() : undefined;
  state.resize(now, parts, epoch);
  const after = state.deficit(now);
  const more: number[] = [];
  const less: number[] = [];
  for (const [i, capacity] of capacities.entries()) {
    const isCounted = (counts[i] ?? 0) > 0;
    const used = gained - (isCounted ? Math.min(fresh, gained) : 0);
    const entry = entries[i];
    if (capacity > 0 && entry !== undefined) {
      const { micros, windowMicros } = entry;
      // within a window requests that were granted come back too: only what is later is a debt alone
      const debt = Math.max(0, micros - windowMicros);
      const exact = now + (micros - debt) + debt * (from / to);
      const part = parts[i] as Policy;
      // rounded down when it grows, and up when it shrinks: to and fro nothing is forgiven, and nothing added
      const at = to > from ? exact : -enter(part, {}, -exact, 1, -epoch) + windowMicros;
      const permits = entry.used + (used - released) * capacity;
      enter(part, statesOf(state)[i] as object, at, permits, epoch);
      more.push(0);
      less.push(0);
      continue;
    }
    const kept = Math.min((left[i] ?? 0) - (isCounted ? freed : 0) * capacity, capacity * to);
    const target = to > from ? (lacking[i] ?? 0) + used * capacity : capacity * to - kept;
    const change = capacity > 0 ? target - (after[i] ?? 0) : (from - to) * (debts[i] ?? 0);
    // by a rounding less: what a full log or window has no room for would be entered in the future, as a debt
    more.push(Math.max(0, change - capacity * to * ROUNDING));
    less.push(Math.max(0, -change));
  }
  if (more.some((permits) => permits > 0)) state.settle(now, like(state, more));
  if (less.some((permits) => permits > 0)) state.giveBack(now, like(state, less));
  if (old === undefined) return { fresh: freed, resting: [] };
  const kept = state.deficit(now);
  const used = whole.flatMap((policy, i) => {
    const permits = Math.max(0, (lacking[i] ?? 0) - (kept[i] ?? 0));
    if (!hasInstants(policy) || permits === 0) return [];
    const capacity = capacities[i] ?? 0;
    return isDated(policy)
      ? usedLast(share(policy, from), statesOf(old)[i], permits, capacity, now)
      : emptied(policy, permits / capacity, now, epoch);
  });
  return { fresh: freed, resting: restOf(used, released - freed) };
}

/** How much of a policy was given away and is not fresh. */
interface Used {
  /** After so many µs all is. */
  readonly end: number;
  at(micros: number): number;
}

/** What was given away are the permits that were used last: no more than all that are still used. */
function usedLast(
  part: Policy,
  own: unknown,
  permits: number,
  capacity: number,
  now: number,
): Used {
  const { algorithm } = part;
  return {
    end: algorithm.lifetime(part, own, now),
    at: (micros) => Math.min(permits, algorithm.deficit(part, own, now + micros)) / capacity,
  };
}

/** What was given away has no permit left, and is fresh when it has all of them. */
function emptied(whole: Policy, size: number, now: number, epoch: number): Used {
  const { algorithm } = whole;
  const own = startOf(whole, now, epoch);
  algorithm.take(whole, own, now, capacityOf(whole));
  return { end: algorithm.lifetime(whole, own, now), at: () => size };
}

/** In so many steps what was given away becomes fresh. */
const STEPS = 8;

/** @param rest how much is not fresh */
function restOf(used: readonly Used[], rest: number): readonly Resting[] {
  const last = Math.max(...used.map(({ end }) => end));
  const steps = used.flatMap(({ end }) =>
    Array.from({ length: STEPS }, (_, k) => (end * (k + 1)) / STEPS),
  );
  const resting: Resting[] = [];
  let left = rest;
  for (const micros of steps.sort((a, b) => a - b)) {
    const shares = used.map((one) => (micros < one.end ? one.at(micros) : 0));
    const most = micros === last ? 0 : Math.min(left, Math.max(...shares));
    if (most < left) resting.push({ part: left - most, micros });
    left = most;
  }
  return resting;
}

/** Returns for each policy with a warm-up the permits that the whole limit lets through until it is free again. */
function debtsOf(state: PolicyState, whole: readonly Policy[], now: number): readonly number[] {
  const instants = state.instants(
    now,
    like(
      state,
      whole.map(() => Number.MIN_VALUE),
    ),
  );
  return whole.map((policy, i) => {
    const { limit, windowMs } = policy.algorithm.quota(
      policy,
      policy.algorithm.start(policy, 0),
      0,
    );
    const micros = Math.max(0, (instants[i] ?? now) - now);
    return windowMs > 0 && micros < UNKNOWN ? (limit / windowMs / 1000) * micros : 0;
  });
}

/** Returns the state of each policy. */
function statesOf(state: PolicyState): readonly unknown[] {
  return typeof state.amount(1) === "number" ? [state.state] : (state.state as readonly unknown[]);
}

/** The last entry of a state that has entered a debt in the future: no permit is granted before it. */
interface LastEntry {
  /** In how many µs it is, and how many permits are used then. */
  readonly micros: number;
  readonly used: number;
  readonly windowMicros: number;
}

/** Returns the last entry of each policy that has entered a debt in the future. */
function lastEntries(
  state: PolicyState,
  parts: readonly Policy[],
  now: number,
): readonly (LastEntry | undefined)[] {
  return statesOf(state).map((own, i) => {
    const part = parts[i] as Policy;
    const { algorithm } = part;
    const { limit, windowMs } = algorithm.quota(part, own, now);
    const lacking = algorithm.deficit(part, own, now);
    if (lacking <= limit) return undefined;
    const emptied = algorithm.copy(own);
    algorithm.giveBack(part, emptied, now, lacking);
    const micros = algorithm.earliest(part, emptied, now, Number.MIN_VALUE) - now;
    if (micros <= 0) return undefined;
    const windowMicros = Math.round(windowMs * 1000);
    // the deficit counts the windows until then as full
    const used = lacking - Math.ceil(micros / windowMicros) * limit;
    return { micros, used, windowMicros };
  });
}

/** Writes a state anew in which so many permits are used at that instant. @returns when they come back */
function enter(part: Policy, own: object, at: number, permits: number, epoch: number): number {
  const { limit } = part.algorithm.quota(part, startOf(part, at, epoch), at);
  Object.assign(own, startOf(part, at, epoch));
  return part.algorithm.take(part, own, at, Math.min(limit, Math.max(limit * ROUNDING, permits)));
}

function like(state: PolicyState, permits: readonly number[]): Amount {
  return typeof state.amount(1) === "number" ? (permits[0] ?? 0) : permits;
}

export function partsOf(whole: readonly Policy[], part: number): readonly Policy[] {
  return whole.map((policy) => share(policy, part));
}

/** Whether the part may be used now: read from the clock before every look at the state. */
export interface Validity {
  readonly isOver: boolean;
}

/**
 * The state of a part, for a queue. While the part is not valid, and for requests that are larger than the part but
 * not than the largest one, it is not known when a request can be granted: that depends on the other regions.
 */
export class PartState implements PolicyState {
  readonly #part: PolicyState;
  readonly #largest: PolicyState;
  readonly #validity: Validity;

  /** @param largest the state of the largest part that it can grow to */
  constructor(part: PolicyState, largest: PolicyState, validity: Validity) {
    this.#part = part;
    this.#largest = largest;
    this.#validity = validity;
  }

  earliest(from: number, amount: Amount): number {
    const isKnown = !this.#validity.isOver && from < UNKNOWN;
    const at = isKnown ? this.#part.earliest(from, amount) : Infinity;
    return at < Infinity || this.#isTooLarge(amount) ? at : UNKNOWN;
  }

  /** A part may shrink below a request that waits in time. */
  deadlines<Item extends Due>(): Deadlines<Item> {
    return new Deadlines();
  }

  #isTooLarge(amount: Amount): boolean {
    return this.#largest.earliest(0, amount) === Infinity;
  }

  instants(from: number, amount: Amount): readonly number[] {
    const instants = this.#part.instants(from, amount);
    return instants.map((at) => (at < Infinity ? at : UNKNOWN));
  }

  excess(now: number, amount: Amount): PermitsExceedCapacityError {
    return this.#largest.excess(now, amount);
  }

  copy(): PartState {
    return new PartState(this.#part.copy(), this.#largest, this.#validity);
  }

  get names(): readonly string[] {
    return this.#part.names;
  }

  get state(): unknown {
    return this.#part.state;
  }

  set state(state: unknown) {
    this.#part.state = state;
  }

  get isStrict(): boolean {
    return this.#part.isStrict;
  }

  get isBounded(): boolean {
    return this.#part.isBounded;
  }

  amount(permits: unknown, bound?: Bound): Amount {
    return this.#part.amount(permits, bound);
  }

  take(at: number, amount: Amount, start?: number): void {
    this.#part.take(at, amount, start);
  }

  giveBack(now: number, amount: Amount): void {
    this.#part.giveBack(now, amount);
  }

  settle(now: number, amount: Amount): void {
    this.#part.settle(now, amount);
  }

  quotas(now: number) {
    return this.#part.quotas(now);
  }

  deficit(now: number): readonly number[] {
    return this.#part.deficit(now);
  }

  overflowing(now: number, amount: Amount): number {
    return this.#part.overflowing(now, amount);
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.#part.resize(now, policies, epoch);
  }

  restart(now: number, epoch: number): void {
    this.#part.restart(now, epoch);
  }

  lifetime(now: number): number {
    return this.#part.lifetime(now);
  }

  shift(by: number): void {
    this.#part.shift(by);
  }
}
