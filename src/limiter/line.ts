import { Change, type Place, type Waiter } from "./waiter.ts";

/**
 * The line of those who wait, first in first out. Cancelled waiters are marked and dropped in
 * passing, or all together once they outnumber the others: so that each costs one step, and a line
 * whose head waits for long does not keep them.
 */
export class Line {
  #head: Place | undefined;
  #tail: Place | undefined;
  #waiters = 0;
  #gone = 0;
  #changes = 0;
  #seated = true;

  get head(): Place | undefined {
    return this.#head;
  }

  append(place: Place): void {
    if (this.#tail === undefined) this.#head = place;
    else this.#tail.next = place;
    this.#tail = place;
    if (place instanceof Change) {
      this.#changes += 1;
      this.#seated = false;
    } else {
      this.#waiters += 1;
    }
  }

  /** The head has had its turn. */
  advance(): void {
    const head = this.#head;
    if (head === undefined) return;
    if (head instanceof Change) this.#changes -= 1;
    else if (head.gone) this.#gone -= 1;
    else this.#waiters -= 1;
    this.#head = head.next;
    // somebody may hold it for long, and must not hold those behind it
    head.next = undefined;
    if (this.#head === undefined) this.#tail = undefined;
  }

  drop(waiter: Waiter): void {
    waiter.gone = true;
    this.#waiters -= 1;
    this.#gone += 1;
    this.unseat(waiter);
  }

  /**
   * A reservation that was told its wait holds the changes back no longer: it left, or somebody
   * waits for it now.
   */
  unseat(waiter: Waiter): void {
    if (waiter.next instanceof Change) this.#seated = false;
  }

  /** Unlinks the cancelled ones behind the head. */
  sweep(): void {
    if (this.#gone <= this.#waiters) return;
    let kept = this.#head;
    let place = kept?.next;
    while (kept !== undefined && place !== undefined) {
      const next: Place | undefined = place.next;
      place.next = undefined;
      if (place.gone) this.#gone -= 1;
      else {
        kept.next = place;
        kept = place;
      }
      place = next;
    }
    if (kept !== undefined) kept.next = undefined;
    this.#tail = kept;
  }

  /**
   * Seats the changes: each stands behind the reservations that were told their wait before it, and
   * before everybody who merely waits.
   *
   * @returns whether one has moved
   */
  seatChanges(): boolean {
    if (this.#seated) return false;
    this.#seated = true;
    let moved = false;
    let seat: Place | undefined;
    let before: Place | undefined;
    for (let place = this.#head; place !== undefined; ) {
      const next: Place | undefined = place.next;
      if (place instanceof Change && before !== undefined && before !== seat) {
        this.#moveUp(place, before, seat);
        seat = place;
        moved = true;
      } else {
        if (!place.gone && !place.awaited) seat = place;
        before = place;
      }
      place = next;
    }
    return moved;
  }

  #moveUp(place: Place, before: Place, seat: Place | undefined): void {
    before.next = place.next;
    if (place.next === undefined) this.#tail = before;
    if (seat === undefined) {
      place.next = this.#head;
      this.#head = place;
    } else {
      place.next = seat.next;
      seat.next = place;
    }
  }
}
