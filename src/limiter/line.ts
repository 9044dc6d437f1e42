import { type Amount, sizeOf } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import { Change, type LineEntry, type Waiter } from "./waiter.ts";

/**
 * The places of one limiter, first in first out. Any place can be removed in one step. `FairLine` has
 * another order, and overrides what depends on it.
 */
export class Line {
  #head: LineEntry | undefined;
  #tail: LineEntry | undefined;
  #permits = 0;
  #awaited = 0;

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** Whether a promise is pending for any waiter. */
  get isAwaited(): boolean {
    return this.#awaited > 0;
  }

  get head(): LineEntry | undefined {
    return this.#head;
  }

  /** The first place that no later one may overtake. */
  get front(): LineEntry | undefined {
    return this.#head;
  }

  /** When a waiter that a later one may overtake has to leave; `Infinity` if none has to. */
  get deadline(): number {
    return Infinity;
  }

  /** Whether a request that is made now would be the head. */
  isNext(_turn: Turn<Waiter> | undefined): boolean {
    return this.#head === undefined;
  }

  append(place: LineEntry): void {
    this.#insert(place, this.#tail);
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
    const { next } = place;
    if (!(place instanceof Change)) this.count(place, -1);
    this.#unlink(place);
    return this.#moveUpFrom(next);
  }

  /** Returns a waiter with a deadline before that instant, if others may have overtaken it. */
  overdue(_instant: number): Waiter | undefined {
    return undefined;
  }

  /** Counts a waiter that comes (1) or leaves (-1). */
  protected count(waiter: Waiter, by: 1 | -1): void {
    this.#permits += by * sizeOf(waiter.amount);
    if (waiter.awaited) this.#awaited += by;
  }

  /** Changes the amount of a waiter. */
  resize(waiter: Waiter, amount: Amount): void {
    this.#permits += sizeOf(amount) - sizeOf(waiter.amount);
    waiter.amount = amount;
  }

  /** Applies all changes now, in order, and removes them. */
  applyChanges(policyState: PolicyState): void {
    for (let place = this.#head; place !== undefined; ) {
      const { next }: LineEntry = place;
      if (place instanceof Change) {
        place.apply(policyState);
        this.remove(place);
      }
      place = next;
    }
  }

  /**
   * Returns the waiters that may be dropped and have waited longest, as many as ask for at least that many
   * permits; none if all of them ask for fewer.
   */
  oldestDroppable(permits: number): readonly Waiter[] {
    const found: Waiter[] = [];
    let left = permits;
    for (let place = this.#head; place !== undefined && left > 0; place = place.next) {
      if (place instanceof Change || place.drop === undefined) continue;
      found.push(place);
      left -= sizeOf(place.amount);
    }
    return left > 0 ? [] : found;
  }

  /**
   * A caller waits for the reservation from now on, so changes may overtake it.
   *
   * @returns whether a change has moved up
   */
  release(reservation: Waiter): boolean {
    this.#awaited += 1;
    return this.#moveUpFrom(reservation.next);
  }

  /** Moves up the consecutive changes that start at this place. */
  #moveUpFrom(place: LineEntry | undefined): boolean {
    let moved = false;
    for (let change = place; change instanceof Change; ) {
      const { next } = change;
      moved = this.#moveUp(change) || moved;
      change = next;
    }
    return moved;
  }

  /**
   * Moves a change before all waiters that were not promised an instant. It stays behind
   * reservations whose `waitMs` the caller knows. A change overtakes each waiter at most once, so
   * the cost stays linear.
   */
  #moveUp(change: Change): boolean {
    let before = change.previous;
    while (before?.awaited) before = before.previous;
    if (before === change.previous) return false;
    this.#unlink(change);
    this.#insert(change, before);
    return true;
  }

  #insert(place: LineEntry, before: LineEntry | undefined): void {
    place.previous = before;
    place.next = before === undefined ? this.#head : before.next;
    if (before === undefined) this.#head = place;
    else before.next = place;
    if (place.next === undefined) this.#tail = place;
    else place.next.previous = place;
  }

  /**
   * Also clears the links of the removed place, so that a caller that keeps it does not keep the
   * others.
   */
  #unlink(place: LineEntry): void {
    const { previous, next } = place;
    if (previous === undefined) this.#head = next;
    else previous.next = next;
    if (next === undefined) this.#tail = previous;
    else next.previous = previous;
    place.previous = undefined;
    place.next = undefined;
  }
}
