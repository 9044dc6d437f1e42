import { Change, type Place, type Waiter } from "./waiter.ts";

/** The places of one limiter, first in first out. Any place can be removed in one step. */
export class Line {
  #head: Place | undefined;
  #tail: Place | undefined;

  get head(): Place | undefined {
    return this.#head;
  }

  append(place: Place): void {
    this.#insert(place, this.#tail);
    if (place instanceof Change) this.#moveUp(place);
  }

  /** @returns whether a change has moved up */
  remove(place: Place): boolean {
    const { next } = place;
    this.#unlink(place);
    return this.#moveUpFrom(next);
  }

  /**
   * A caller waits for the reservation from now on, so changes may overtake it.
   *
   * @returns whether a change has moved up
   */
  release(reservation: Waiter): boolean {
    return this.#moveUpFrom(reservation.next);
  }

  /** Moves up the consecutive changes that start at this place. */
  #moveUpFrom(place: Place | undefined): boolean {
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

  #insert(place: Place, before: Place | undefined): void {
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
  #unlink(place: Place): void {
    const { previous, next } = place;
    if (previous === undefined) this.#head = next;
    else previous.next = next;
    if (next === undefined) this.#tail = previous;
    else next.previous = previous;
    place.previous = undefined;
    place.next = undefined;
  }
}
