import { type Clock, type Timer, toMicros } from "../../clock.ts";
import { Fifo } from "../fifo.ts";
import { LONGEST_CREDIT } from "../timeline.ts";

/** What a store elsewhere has promised. */
export interface Promised {
  /** From when it can be used, the clock's microseconds. */
  readonly instant: number;
}

/** A caller that was promised something. */
export interface Sleeper {
  /** When it goes: at the instant that it was promised, and not before the one before it. */
  due: number;
  promised: Promised;
  /** How many permits it waits for. */
  readonly size: number;
  /** It wants its permits no more. */
  readonly gone: boolean;
  wake(now: number): void;
  /** Whether each could use what the other was promised. */
  isLike(other: Sleeper): boolean;
  /** No caller here wants what it was promised. */
  returnPromised(): void;
}

/** Replies take now longer, now shorter: ignores instants that are earlier by less than this (µs). */
const JITTER = 1000;

/**
 * Callers that sleep until the instant that a store has promised: first in, first out, with one timer
 * for the head. Unlike the `WaiterQueue` it knows no policies, since these are elsewhere. But
 * neighbours that asked for the same exchange instants: so the earliest are always those of the
 * callers in front, whoever leaves and whatever a later one was promised. What is left over at the
 * end returns to the store.
 *
 * Only neighbours that asked for the same: an earlier grant for fewer permits would have to be kept
 * until the rest of the amount is there, and permits that are used later than they were granted for
 * come on top of what the limit lets through in that time.
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
  #isClosing = false;
  #permits = 0;

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

  /** How many permits are waited for. */
  get permits(): number {
    return this.#permits;
  }

  /** @param latest when it must have gone, the clock's microseconds */
  add(sleeper: Sleeper, latest = Infinity): void {
    this.#permits += sleeper.size;
    if (this.#sleepers.size === 0) this.#lastDue = 0;
    const { instant } = sleeper.promised;
    const due = Math.max(this.#lastDue, instant);
    if (due > latest) {
      this.#addAside(sleeper);
      return;
    }
    // permits that came back made its wait shorter: that is for whoever asked first
    if (instant < due - JITTER) this.#closeRanksSoon();
    this.#lastDue = due;
    sleeper.due = due;
    this.#sleepers.append(sleeper);
    if (this.#timer === undefined) this.#arm();
  }

  /** It cannot wait for those before it, and need not: its own instant was told. */
  #addAside(sleeper: Sleeper): void {
    sleeper.due = sleeper.promised.instant;
    const timer = this.alarm(sleeper.due, () => {
      this.#aside.delete(sleeper);
      this.#permits -= sleeper.size;
      sleeper.wake(this.now());
    });
    this.#aside.set(sleeper, timer);
  }

  /** The sleeper is gone: what it was promised goes to those behind it, or returns to the store. */
  leave(sleeper: Sleeper): void {
    this.#permits -= sleeper.size;
    const alarm = this.#aside.get(sleeper);
    if (alarm === undefined) {
      this.#closeRanksSoon();
    } else {
      alarm.cancel();
      this.#aside.delete(sleeper);
      sleeper.returnPromised();
    }
  }

  /** Once for all that come and leave in one turn. */
  #closeRanksSoon(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    queueMicrotask(() => this.#closeRanks());
  }

  #closeRanks(): void {
    this.#isClosing = false;
    this.#lastDue = 0;
    let rank: Sleeper[] = [];
    for (const sleeper of [...this.#sleepers]) {
      if (rank[0]?.isLike(sleeper) === false) {
        this.#deal(rank);
        rank = [];
      }
      rank.push(sleeper);
    }
    this.#deal(rank);
    this.#arm();
  }

  /** What neighbours were promised, in turn to those of them that want it. */
  #deal(rank: readonly Sleeper[]): void {
    const promised = rank.map((sleeper) => sleeper.promised);
    promised.sort((a, b) => a.instant - b.instant);
    const stay = rank.filter((sleeper) => !sleeper.gone);
    const gone = rank.filter((sleeper) => sleeper.gone);
    for (const [i, sleeper] of [...stay, ...gone].entries()) {
      sleeper.promised = promised[i] as Promised;
    }
    for (const sleeper of stay) {
      this.#lastDue = Math.max(this.#lastDue, sleeper.promised.instant);
      sleeper.due = this.#lastDue;
    }
    for (const sleeper of gone) {
      this.#sleepers.remove(sleeper);
      sleeper.returnPromised();
    }
  }

  /** Takes all out of the line. @returns them in order */
  clear(): readonly Sleeper[] {
    const sleepers = [...this.#sleepers];
    for (const sleeper of sleepers) {
      this.#sleepers.remove(sleeper);
      if (!sleeper.gone) this.#permits -= sleeper.size;
    }
    this.#lastDue = 0;
    this.#arm();
    return sleepers;
  }

  /** No sleeper wakes before that. */
  holdUntil(instant: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, instant);
    this.#arm();
  }

  /** A caller that comes now goes no sooner than this: behind all that sleep, and after a pause. */
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

  /** How late our timer was for callers that come back now: see `WaiterQueue`. */
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

  /** Wakes those that are due, though the timer may not have fired yet. */
  catchUp(): void {
    if (this.#isClosing) this.#closeRanks();
    if (this.#sleepers.size === 0) return;
    const now = this.now();
    for (let sleeper = this.#sleepers.head; sleeper !== undefined; sleeper = this.#sleepers.head) {
      const at = Math.max(sleeper.due, this.#heldUntil);
      if (at > now) break;
      this.#sleepers.remove(sleeper);
      this.#permits -= sleeper.size;
      sleeper.wake(now);
      this.#lateBy = Math.min(now - at, LONGEST_CREDIT);
      this.#lateUntil = now + this.#lateBy;
    }
    this.#arm();
  }
}
