import { type Clock, type Timer, toMicros } from "../clock.ts";
import { Fifo } from "./fifo.ts";

/** Someone whose instant was told by a store elsewhere. */
export interface Sleeper {
  /** The clock's microseconds. */
  readonly due: number;
  /** It wants its permits no more. */
  readonly gone: boolean;
  /** Not before the one before it. */
  defer(due: number): void;
  wake(now: number): void;
  /** Exchanges what it was promised, if that is as good for the other. */
  swap(other: Sleeper): boolean;
  /** What it was promised is for nobody here. */
  giveUp(): void;
}

/** A blocked event loop is no late timer: more than this is not made up for. */
const LONGEST_CREDIT = 10_000;

/**
 * Those who sleep until the instant that a store told them: first in, first out, with one timer for
 * the head. Unlike the `WaiterQueue` it knows no policies, since these are elsewhere. Where one
 * leaves, those behind it take over each other's instants, as far as they asked for the same; what
 * is left over at the end goes back to the store.
 */
export class WaitLine {
  readonly #clock: Clock;
  /** In the order of their instants. */
  readonly #sleepers = new Fifo<Sleeper>();
  readonly #aside = new Map<Sleeper, Timer>();
  #lastDue = 0;
  #heldUntil = 0;
  #timer: Timer | undefined;
  #timerAt = 0;
  #lateBy = 0;
  #lateUntil = 0;
  #closing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): number {
    return toMicros(this.#clock.now());
  }

  /** How long the last one in the line sleeps, microseconds. */
  get lastIn(): number {
    return this.#sleepers.size === 0 ? 0 : Math.max(0, this.#lastDue - this.now());
  }

  /** @param latest when it must have gone, the clock's microseconds */
  add(sleeper: Sleeper, latest = Infinity): void {
    if (this.#sleepers.size === 0) this.#lastDue = 0;
    // whoever asked first goes first, even if permits that came back made a later one's wait shorter
    const due = Math.max(this.#lastDue, sleeper.due);
    if (due > latest) {
      this.#addAside(sleeper);
      return;
    }
    this.#lastDue = due;
    sleeper.defer(due);
    this.#sleepers.append(sleeper);
    if (this.#timer === undefined) this.#arm();
  }

  /** It cannot wait for those before it, and need not: its own instant was told. */
  #addAside(sleeper: Sleeper): void {
    const timer = this.alarm(sleeper.due, () => {
      this.#aside.delete(sleeper);
      sleeper.wake(this.now());
    });
    this.#aside.set(sleeper, timer);
  }

  remove(sleeper: Sleeper): void {
    this.#aside.get(sleeper)?.cancel();
    this.#aside.delete(sleeper);
    if (this.#sleepers.remove(sleeper) && this.#sleepers.size === 0) this.#arm();
  }

  /** It is gone, and what it was promised can be somebody else's. */
  leave(sleeper: Sleeper): void {
    if (this.#aside.has(sleeper)) {
      this.remove(sleeper);
      sleeper.giveUp();
    } else if (!this.#closing) {
      // once for all who leave in one turn
      this.#closing = true;
      queueMicrotask(() => this.#closeRanks());
    }
  }

  #closeRanks(): void {
    this.#closing = false;
    this.#lastDue = 0;
    const left: Sleeper[] = [];
    // those who are gone and hold an instant that comes before the sleeper's, and the first of them
    const before: Sleeper[] = [];
    let first = 0;
    for (const sleeper of this.#sleepers) {
      const earlier = before[first];
      if (sleeper.gone) {
        this.#sleepers.remove(sleeper);
        left.push(sleeper);
        before.push(sleeper);
      } else if (earlier !== undefined && sleeper.swap(earlier)) {
        first += 1;
        before.push(earlier);
      } else {
        // nobody overtakes it
        first = before.length;
      }
      if (!sleeper.gone) this.#lastDue = sleeper.due;
    }
    for (const sleeper of left) sleeper.giveUp();
    this.#arm();
  }

  /** Everybody, in order, is in the line no more. */
  clear(): readonly Sleeper[] {
    const sleepers = [...this.#sleepers];
    for (const sleeper of sleepers) this.#sleepers.remove(sleeper);
    this.#lastDue = 0;
    this.#arm();
    return sleepers;
  }

  /** Nobody wakes before that. */
  holdUntil(instant: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, instant);
    this.#arm();
  }

  /** Who comes now goes no sooner than this: behind all who sleep, and after a pause. */
  get turn(): number {
    return Math.max(this.#sleepers.size === 0 ? 0 : this.#lastDue, this.#heldUntil);
  }

  /** Whether an instant has come, and no pause defers it. */
  reached(due: number): boolean {
    return this.now() >= Math.max(due, this.#heldUntil);
  }

  /** A timer beside the line, which a pause defers too. */
  alarm(due: number, wake: () => void): Timer {
    let timer: Timer | undefined;
    const look = () => {
      if (this.reached(due)) wake();
      else timer = this.#clock.wakeAt(Math.max(due, this.#heldUntil) / 1000, look);
    };
    timer = this.#clock.wakeAt(due / 1000, look);
    return { cancel: () => timer?.cancel() };
  }

  /** How late our timer was for those who come back now: see `WaiterQueue`. */
  lateBy(): number {
    return this.now() < this.#lateUntil ? this.#lateBy : 0;
  }

  #arm(): void {
    const { head } = this.#sleepers;
    const at = head === undefined ? 0 : Math.max(head.due, this.#heldUntil);
    if (this.#timer !== undefined && this.#timerAt === at) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = head && this.#clock.wakeAt(at / 1000, this.#wake);
  }

  readonly #wake = (): void => {
    this.#timer = undefined;
    this.catchUp();
  };

  /** Wakes who is due, though the timer may not have fired yet. */
  catchUp(): void {
    if (this.#sleepers.size === 0) return;
    const now = this.now();
    for (let sleeper = this.#sleepers.head; sleeper !== undefined; sleeper = this.#sleepers.head) {
      const at = Math.max(sleeper.due, this.#heldUntil);
      if (at > now) break;
      this.#sleepers.remove(sleeper);
      sleeper.wake(now);
      this.#lateBy = Math.min(now - at, LONGEST_CREDIT);
      this.#lateUntil = now + this.#lateBy;
    }
    this.#arm();
  }
}
