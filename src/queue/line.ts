import type { Turn } from "../fair/turn.ts";
import { LinkedList } from "../ground/linked-list.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import { Deadlines } from "./deadlines.ts";
import { type Supply, UNKNOWN } from "./supply.ts";
import { Change, type LineEntry, type Waiter } from "./waiter.ts";

/** The supply after the waiters up to `last`, which is released at `at`. */
export interface Promised<S extends Supply = Supply> {
  readonly supply: S;
  at: number;
  last: LineEntry | undefined;
}

/** Returns when that waiter is released if it is the next one. */
export function instantOf(waiter: Waiter, { supply, at }: Readonly<Promised>): number {
  return supply.earliest(Math.max(waiter.asked, at), waiter.amount);
}

/** Whether that instant is known to be after the waiter's deadline. */
export function isTooLate(instant: number, { deadline }: Waiter): boolean {
  return instant !== UNKNOWN && Math.ceil(instant) > deadline;
}

/**
 * The places of one limiter, first in first out, and the state after all of them: a copy of the state after
 * the released waiters, on which the line is replayed as far as it has grown since the last look. Any place
 * can be removed in one step. `FairLine` has another order, and overrides what depends on it.
 */
export class Line<S extends Supply = Supply> {
  readonly #released: S;
  protected readonly refuse: (waiter: Waiter) => void;
  readonly #places = new LinkedList<LineEntry>();
  /** Kept where a waiter may miss its deadline although no other has changed. */
  readonly #deadlines: Deadlines | undefined;
  #promised: Promised<S> | undefined;
  #permits = 0;
  #awaited = 0;

  /**
   * @param released the state after the released waiters
   * @param refuse removes a waiter that could not start before its deadline
   * @param isOvertaken whether later callers may overtake a waiter
   */
  constructor(released: S, refuse: (waiter: Waiter) => void, isOvertaken = false) {
    this.#released = released;
    this.refuse = refuse;
    if (isOvertaken || released.isUncertain) this.#deadlines = new Deadlines();
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** Whether a promise is pending for any waiter. */
  get isAwaited(): boolean {
    return this.#awaited > 0;
  }

  get head(): LineEntry | undefined {
    return this.#places.first;
  }

  /** The waiter with the earliest deadline of those whose instant may move back, or is not known. */
  get urgent(): Waiter | undefined {
    return this.#deadlines?.first;
  }

  *waiters(): Iterable<Waiter> {
    for (let { first: place } = this.#places; place !== undefined; place = place.after) {
      if (!(place instanceof Change)) yield place;
    }
  }

  /** Whether a request that is made now would be the head. */
  isNext(_turn: Turn<Waiter> | undefined): boolean {
    return this.#places.first === undefined;
  }

  /**
   * @param _from no waiter is released before it, here and below
   * @param behind the place in front of it; default: the last one
   */
  append(place: LineEntry, _from: number, behind: LineEntry | undefined = this.#places.last): void {
    this.#places.insert(place, behind);
    if (place instanceof Change) this.#moveUp(place);
    else this.count(place, 1);
  }

  /** Called when a request was granted without a wait. */
  granted(_turn: Turn<Waiter> | undefined, _at: number): void {}

  /**
   * @param at when the waiter is released; `undefined`: it is not
   * @returns whether a change has moved up
   */
  remove(place: LineEntry, _at?: number): boolean {
    const { after } = place;
    if (!(place instanceof Change)) this.count(place, -1);
    if (place === this.#promised?.last) this.discard();
    this.#places.remove(place);
    return this.#moveUp(after);
  }

  /** Discards the copy: the waiters have new instants. */
  discard(): void {
    this.#promised = undefined;
  }

  /** Refuses the waiters that could not start before their deadlines. */
  refuseLate(from: number): void {
    this.replay(from);
  }

  /** Returns the state after all waiters. @param _turn on a fair limiter: only up to that request */
  replay(from: number, _turn?: Turn<Waiter>): Readonly<Promised<S>> {
    // a copy without any replayed waiter is outdated: the released state has changed since
    if (this.#promised?.last === undefined) {
      this.#promised = { supply: this.#released.copy() as S, at: from, last: undefined };
    }
    const promised = this.#promised;
    let place = promised.last === undefined ? this.#places.first : promised.last.after;
    while (place !== undefined) {
      const { after }: LineEntry = place;
      if (this.#promise(place, promised)) promised.last = place;
      place = after;
    }
    return promised;
  }

  /** Replays one place; returns `false` if its instant would be later than its deadline. */
  #promise(place: LineEntry, promised: Promised<S>): boolean {
    if (place instanceof Change) {
      place.apply(promised.supply);
      promised.at = Math.max(promised.at, place.since);
      return true;
    }
    const at = instantOf(place, promised);
    if (isTooLate(at, place)) {
      this.refuse(place);
      return false;
    }
    if (at !== UNKNOWN) promised.supply.take(at, place.taken);
    promised.at = at;
    return true;
  }

  /** Counts a waiter that comes (1) or leaves (-1). */
  protected count(waiter: Waiter, by: 1 | -1): void {
    this.#permits += by * sizeOf(waiter.amount);
    if (waiter.awaited) this.#awaited += by;
    if (by > 0) this.#deadlines?.add(waiter);
    else this.#deadlines?.delete(waiter);
  }

  /** Changes the amount of a waiter. */
  resize(waiter: Waiter, amount: Amount): void {
    this.#permits += sizeOf(amount) - sizeOf(waiter.amount);
    waiter.amount = amount;
  }

  /** Applies all changes now, in order, and removes them. */
  applyChanges(supply: S): void {
    for (const place of this.#places.toArray()) {
      if (!(place instanceof Change)) continue;
      place.apply(supply);
      this.remove(place);
    }
  }

  /**
   * Returns the waiters that may be dropped and have waited longest, as many as ask for at least that many
   * permits; none if all of them ask for fewer.
   */
  oldestDroppable(permits: number): readonly Waiter[] {
    const found: Waiter[] = [];
    let left = permits;
    for (const waiter of this.oldest()) {
      if (waiter.drop === undefined) continue;
      found.push(waiter);
      left -= sizeOf(waiter.amount);
      if (left <= 0) return found;
    }
    return [];
  }

  /** The waiters in the order in which they may be dropped. */
  protected oldest(): Iterable<Waiter> {
    return this.waiters();
  }

  /**
   * A caller waits for the reservation from now on, so changes may overtake it.
   *
   * @returns whether a change has moved up
   */
  release(reservation: Waiter): boolean {
    this.#awaited += 1;
    return this.#moveUp(reservation.after);
  }

  /**
   * Moves the consecutive changes that start at this place before all waiters that were not promised an
   * instant. They stay behind reservations, because callers know their `waitMs`. A change overtakes each waiter
   * at most once, so the cost stays linear.
   *
   * @returns whether one has moved
   */
  #moveUp(place: LineEntry | undefined): boolean {
    let moved = false;
    for (let change = place; change instanceof Change; ) {
      const { before, after } = change;
      let to = before;
      while (to?.awaited) to = to.before;
      if (to !== before) {
        this.#places.remove(change);
        this.#places.insert(change, to);
        moved = true;
      }
      change = after;
    }
    return moved;
  }
}
