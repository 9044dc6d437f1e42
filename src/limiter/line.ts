import { Change, type Place, type Waiter } from "./waiter.ts";

/** The line of those who wait, first in first out; anybody may leave it, in one step. */
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
   * Somebody waits for the reservation now: it holds changes back no longer.
   *
   * @returns whether a change has moved up
   */
  release(reservation: Waiter): boolean {
    return this.#moveUpFrom(reservation.next);
  }

  /** The changes that stand together from this place on, if it is one. */
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
   * A change stands behind the reservations that were told their wait before it, and before
   * everybody who merely waits. Whom it passes it never passes again.
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

  /** Whoever has left may be held for long, and must not hold those in the line. */
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
