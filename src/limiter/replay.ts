import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import type { Line } from "./line.ts";
import { Change, type LineEntry, type Waiter } from "./waiter.ts";

/** The state after all waiters up to `last`, which is released at `at`. */
export interface Promised {
  readonly policyState: PolicyState;
  at: number;
  last: LineEntry | undefined;
}

/**
 * The state after all waiters of a line: a copy of the state after the released ones, on which the line is
 * replayed as far as it has grown since the last look.
 */
export class Replay {
  readonly #line: Line;
  readonly #released: PolicyState;
  readonly #refuse: (waiter: Waiter) => void;
  #promised: Promised | undefined;

  /**
   * @param refuse removes a waiter from the line whose instant would be later than its deadline
   */
  constructor(line: Line, released: PolicyState, refuse: (waiter: Waiter) => void) {
    this.#line = line;
    this.#released = released;
    this.#refuse = refuse;
  }

  /** Fixes the instants of all waiters that go before a reservation: here they are fixed anyway. */
  settle(_turn: Turn<Waiter> | undefined, _floor: number, _pausedUntil: number): void {}

  /** Discards the copy: the waiters have new instants. */
  discard(): void {
    this.#promised = undefined;
  }

  /** Called when a place has left at the front of the line, as it was promised. */
  passed(place: LineEntry): void {
    if (place === this.#promised?.last) this.#promised = undefined;
  }

  /** Refuses the waiters whose instants would be later than their deadlines. */
  refuseLate(floor: number, pausedUntil: number): void {
    this.run(floor, pausedUntil);
  }

  /**
   * Replays the line from the last waiter that was replayed to the end.
   *
   * @param floor no waiter is released before it: the instant of the last release
   * @param pausedUntil no waiter is released before it either
   * @param _turn on a fair limiter: only up to that request, if it were in the line
   */
  run(floor: number, pausedUntil: number, _turn?: Turn<Waiter>): Readonly<Promised> {
    // a copy without any replayed waiter is outdated: the released state has changed since
    if (this.#promised?.last === undefined) {
      this.#promised = { policyState: this.#released.copy(), at: floor, last: undefined };
    }
    const promised = this.#promised;
    let place = promised.last === undefined ? this.#line.front : promised.last.next;
    while (place !== undefined) {
      const { next }: LineEntry = place;
      if (this.#promise(place, promised, pausedUntil)) promised.last = place;
      place = next;
    }
    return promised;
  }

  /** Replays one place; returns `false` if its instant would be later than its deadline. */
  #promise(place: LineEntry, promised: Promised, pausedUntil: number): boolean {
    if (place instanceof Change) {
      place.apply(promised.policyState);
      promised.at = Math.max(promised.at, place.since);
      return true;
    }
    const from = Math.max(place.asked, promised.at, pausedUntil);
    const at = promised.policyState.earliest(from, place.amount);
    if (Math.ceil(at) > place.deadline) {
      this.#refuse(place);
      return false;
    }
    promised.policyState.take(at, place.taken);
    promised.at = at;
    return true;
  }
}
