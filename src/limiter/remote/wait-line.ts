import { type Clock, type Timer, toMicros } from "../../clock.ts";
import { Fifo } from "../fifo.ts";
import { LONGEST_CREDIT } from "../timeline.ts";

/** What a store elsewhere has promised. */
export interface Promised {
  /** From when it can be used, the clock's microseconds. */
  readonly instant: number;
}

/** Someone who was promised something. */
export interface Sleeper {
  /** When it goes: at the instant that it was promised, and not before the one before it. */
  due: number;
  readonly promised: Promised;
  /** It wants its permits no more. */
  readonly gone: boolean;
  wake(now: number): void;
  /** Whether each could use what the other was promised. */
  isLike(other: Sleeper): boolean;
  /** Takes what one like it was promised. */
  takeOver(promised: Promised): void;
  /** What it was promised is for nobody here. */
  giveUp(): void;
}

/** Answers take now longer, now shorter: an instant earlier than the last by this is not news. */
const JITTER = 1000;

/**
 * Those who sleep until the instant that a store told them: first in, first out, with one timer for
 * the head. Unlike the `WaiterQueue` it knows no policies, since these are elsewhere. But
 * neighbours who asked for the same can take over each other's instants, and so the earliest are
 * always those of who stand in front, whoever leaves and whatever a later one is told. What is left
 * over at the end goes back to the store.
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
    } else {
      this.#closeRanksSoon();
    }
  }

  /** Once for all who come and leave in one turn. */
  #closeRanksSoon(): void {
    if (this.#closing) return;
    this.#closing = true;
    queueMicrotask(() => this.#closeRanks());
  }

  #closeRanks(): void {
    this.#closing = false;
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

  /** What neighbours were promised, in turn to those of them who want it. */
  #deal(rank: readonly Sleeper[]): void {
    const promised = rank.map((sleeper) => sleeper.promised);
    promised.sort((a, b) => a.instant - b.instant);
    const stay = rank.filter((sleeper) => !sleeper.gone);
    const leave = rank.filter((sleeper) => sleeper.gone);
    for (const [i, sleeper] of [...stay, ...leave].entries()) {
      sleeper.takeOver(promised[i] as Promised);
    }
    for (const sleeper of stay) {
      this.#lastDue = Math.max(this.#lastDue, sleeper.promised.instant);
      sleeper.due = this.#lastDue;
    }
    for (const sleeper of leave) {
      this.#sleepers.remove(sleeper);
      sleeper.giveUp();
    }
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
