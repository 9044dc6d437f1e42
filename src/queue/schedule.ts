import type { FairEntry } from "../fair/fair-entry.ts";
import { LinkedList } from "../ground/linked-list.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { Deadlines } from "./deadlines.ts";
import { type Supply, UNKNOWN } from "./supply.ts";
import { Change, type QueueEntry, type Waiter } from "./waiter.ts";

/** The supply after the waiters up to `last`, which is released at `at`. */
export interface Promised<S extends Supply = Supply> {
  readonly supply: S;
  at: number;
  last: QueueEntry | undefined;
}

/** Removes a waiter which the supply, as it is at its turn, does not serve, or not in time. */
export type Refuse = (waiter: Waiter, supply: Supply) => void;

/** Returns when that waiter is released if it is the next one. */
export function instantOf(waiter: Waiter, { supply, at }: Readonly<Promised>): number {
  return supply.earliest(Math.max(waiter.asked, at), waiter.amount);
}

/** Takes for the next waiter what it is promised. @returns whether it can start, and before its deadline */
export function promise(waiter: Waiter, promised: Promised): boolean {
  const at = instantOf(waiter, promised);
  if (at !== UNKNOWN && (at === Infinity || Math.ceil(at) > waiter.deadline)) return false;
  promised.supply.take(at, waiter.taken);
  promised.at = at;
  return true;
}

/**
 * The entries of one limiter, first in first out, and the state after all of them: a copy of the state after
 * the released waiters, on which the queue is replayed as far as it has grown since the last look. Any entry
 * can be removed in one step. `FairSchedule` has another order, and overrides what depends on it.
 */
export class Schedule<S extends Supply = Supply> {
  readonly #released: S;
  protected readonly refuse: Refuse;
  readonly #entries = new LinkedList<QueueEntry>();
  /** Present where a waiter may miss its deadline although no other has changed. */
  readonly #deadlines: Deadlines<Waiter> | undefined;
  #promised: Promised<S> | undefined;
  #permits = 0;
  #awaited = 0;

  /**
   * @param released the state after the released waiters
   * @param refuse removes a waiter that could not start, or not before its deadline
   * @param deadlines where later callers may overtake a waiter; default: those of the supply, if any
   */
  constructor(
    released: S,
    refuse: Refuse,
    deadlines: Deadlines<Waiter> | undefined = released.deadlines?.(),
  ) {
    this.#released = released;
    this.refuse = refuse;
    this.#deadlines = deadlines;
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** Whether a promise is pending for any waiter. */
  get isAwaited(): boolean {
    return this.#awaited > 0;
  }

  get head(): QueueEntry | undefined {
    return this.#entries.first;
  }

  /** The waiter with the earliest deadline of those whose instant may move back, or is not known. */
  get urgent(): Waiter | undefined {
    return this.#deadlines?.first;
  }

  entries(): Iterable<QueueEntry> {
    return this.#entries;
  }

  /** Whether a request that is made now would be the head. */
  isNext(_fairEntry: FairEntry<Waiter> | undefined): boolean {
    return this.#entries.first === undefined;
  }

  /**
   * @param _from no waiter is released before it, here and below
   * @param behind the entry in front of it; default: the last one
   */
  append(
    entry: QueueEntry,
    _from: number,
    behind: QueueEntry | undefined = this.#entries.last,
  ): void {
    this.#entries.insert(entry, behind);
    if (entry instanceof Change) this.#moveUp(entry);
    else this.count(entry, 1);
  }

  /** Called when a request was granted without a wait. */
  granted(_fairEntry: FairEntry<Waiter> | undefined, _at: number): void {}

  /**
   * @param at when the waiter is released; `undefined`: it is not
   * @returns whether a change has moved up
   */
  remove(entry: QueueEntry, _at?: number): boolean {
    const { after } = entry;
    if (!(entry instanceof Change)) this.count(entry, -1);
    if (entry === this.#promised?.last) this.discard();
    this.#entries.remove(entry);
    return this.#moveUp(after);
  }

  /** Discards the copy: the waiters have new instants. */
  discard(): void {
    this.#promised = undefined;
  }

  /**
   * Returns the state after all waiters. Those that could not start, or not before their deadlines, are refused.
   *
   * @param _fairEntry on a fair limiter: only up to that request
   */
  replay(from: number, _fairEntry?: FairEntry<Waiter>): Readonly<Promised<S>> {
    // no waiter has been replayed yet, so the released state may have changed since: copy it again
    if (this.#promised?.last === undefined) {
      this.#promised = { supply: this.#released.copy() as S, at: from, last: undefined };
    }
    const promised = this.#promised;
    let entry = promised.last === undefined ? this.#entries.first : promised.last.after;
    while (entry !== undefined) {
      const { after }: QueueEntry = entry;
      if (this.#promise(entry, promised)) promised.last = entry;
      entry = after;
    }
    return promised;
  }

  /** Replays one entry; returns `false` if its instant would be later than its deadline. */
  #promise(entry: QueueEntry, promised: Promised<S>): boolean {
    if (entry instanceof Change) {
      entry.apply(promised.supply);
      promised.at = Math.max(promised.at, entry.since);
      return true;
    }
    const isInTime = promise(entry, promised);
    if (!isInTime) this.refuse(entry, promised.supply);
    return isInTime;
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

  /**
   * Returns the waiters that may be dropped and have waited longest, as many as ask for at least that many
   * permits; none if all of them ask for fewer.
   */
  oldestDroppable(permits: number): readonly Waiter[] {
    const found: Waiter[] = [];
    let left = permits;
    for (const waiter of this.oldest()) {
      if (waiter instanceof Change || waiter.drop === undefined) continue;
      found.push(waiter);
      left -= sizeOf(waiter.amount);
      if (left <= 0) return found;
    }
    return [];
  }

  /** The waiters in the order in which they may be dropped. */
  protected oldest(): Iterable<QueueEntry> {
    return this.#entries;
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
   * Moves the consecutive changes that start at this entry before all waiters that were not promised an
   * instant. They stay behind reservations, because callers know their `waitMs`. A change overtakes each waiter
   * at most once, so the cost stays linear.
   *
   * @returns whether one has moved
   */
  #moveUp(entry: QueueEntry | undefined): boolean {
    let moved = false;
    for (let change = entry; change instanceof Change; ) {
      const { before, after } = change;
      let to = before;
      while (to?.awaited) to = to.before;
      if (to !== before) {
        this.#entries.remove(change);
        this.#entries.insert(change, to);
        moved = true;
      }
      change = after;
    }
    return moved;
  }
}
