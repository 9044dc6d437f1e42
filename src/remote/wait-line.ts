import { type Clock, type Timer, toMicros } from "../ground/clock.ts";
import { Fifo } from "../queue/fifo.ts";
import { LateCredit } from "../queue/timer-drift.ts";

/** Permits that a remote store has promised. */
export interface PromisedPermits {
  /** From when the permits can be used, the clock's microseconds. */
  readonly instant: number;
}

/** A caller with promised permits. */
export interface Sleeper {
  /** When the caller wakes: at its promised instant, but never before the caller in front. */
  due: number;
  promised: PromisedPermits | undefined;
  /** How many permits the caller waits for. */
  readonly size: number;
  /** The caller has left and does not want its permits. */
  readonly gone: boolean;
  /** Its own timer, if it waits beside the line. */
  alarm?: Timer | undefined;
  wake(now: number): void;
  /** Returns whether the two callers could exchange their promised permits. */
  isLike(other: Sleeper): boolean;
  /** Returns a caller that takes its place in the line; called when it has left. */
  heir?(): Sleeper | undefined;
  /** Returns the promised permits to the store: no caller here wants them. */
  returnPromised(): void;
}

/** Ignores instants that are earlier by less than this (µs): the time of a round trip varies. */
const JITTER = 1000;

/**
 * Holds callers until the instant that the store has promised to each: first in, first out, with one
 * timer for the head. Unlike the `WaiterQueue` it does not know the policies, which are in the store.
 * But neighbours that asked for the same amount exchange instants, so that the callers in front always
 * have the earliest ones, even if a caller leaves or a later one was promised an earlier instant. The
 * permits that are left over at the end return to the store, but not while requests are under way: only the
 * latest permits of all can return without a gap in the store's schedule.
 *
 * Callers with different amounts do not exchange instants: the last section of ARCHITECTURE.md says why.
 */
export class WaitLine {
  readonly #clock: Clock;
  readonly #sendsTime: boolean;
  /** In the order of their instants. */
  readonly #sleepers = new Fifo<Sleeper>();
  #lastDue = 0;
  #heldUntil = 0;
  #timer: Timer | undefined;
  #timerAt = 0;
  readonly #late = new LateCredit();
  #isClosing = false;
  /** Callers that have left, with permits that nobody wants so far; in no order. */
  #spare: Sleeper[] = [];
  #isAsking = false;
  #permits = 0;

  /** @param sendsTime whether the store uses this clock, which every batch then carries */
  constructor(clock: Clock, sendsTime = false) {
    this.#clock = clock;
    this.#sendsTime = sendsTime;
  }

  now(): number {
    return toMicros(this.#clock.now());
  }

  /** Returns when the wait of an answer is over. @param sentAt when its batch was sent */
  dueAt(wait: number, sentAt: number): number {
    return wait + (this.#sendsTime ? sentAt : this.now());
  }

  /** How long the last caller in the line still sleeps, microseconds. */
  get lastIn(): number {
    return this.#sleepers.size === 0 ? 0 : Math.max(0, this.#lastDue - this.now());
  }

  /** How many permits the callers wait for. */
  get permits(): number {
    return this.#permits;
  }

  /** @param latest the caller must wake no later than this, the clock's microseconds */
  add(sleeper: Sleeper, latest = Infinity): void {
    this.#permits += sleeper.size;
    if (this.#sleepers.size === 0) this.#lastDue = 0;
    const { instant } = sleeper.promised as PromisedPermits;
    const due = Math.max(this.#lastDue, instant);
    if (due > latest) {
      this.#addAside(sleeper, instant);
      return;
    }
    // permits that came back gave it an earlier instant: the first caller in the line gets that one
    if (instant < due - JITTER) this.#closeRanksSoon();
    this.#lastDue = due;
    sleeper.due = due;
    this.#sleepers.append(sleeper);
    if (this.#timer === undefined) this.#arm();
  }

  /** Adds a caller beside the line: its promised instant is in time, but its place in the line is not. */
  #addAside(sleeper: Sleeper, due: number): void {
    sleeper.due = due;
    sleeper.alarm = this.alarm(due, () => {
      this.#permits -= sleeper.size;
      sleeper.wake(this.now());
    });
  }

  /** Removes a caller that is gone: its permits go to callers behind it, or return to the store. */
  leave(sleeper: Sleeper): void {
    this.#permits -= sleeper.size;
    if (sleeper.alarm === undefined) {
      this.#closeRanksSoon();
    } else {
      sleeper.alarm.cancel();
      sleeper.returnPromised();
    }
  }

  /** Called when a batch is sent: its callers may want the permits that others leave. */
  asking(): void {
    this.#isAsking = true;
  }

  /** Called when the batch has its outcome. */
  answered(): void {
    this.#isAsking = false;
    if (this.#isClosing || this.#spare.length > 0) this.#closeRanks();
  }

  /** Adds the permits of a caller that has left before they were promised. */
  addSpare(sleeper: Sleeper): void {
    sleeper.due = (sleeper.promised as PromisedPermits).instant;
    this.#spare.push(sleeper);
    this.#closeRanksSoon();
  }

  /** Redistributes the instants once for all callers that come and leave in one turn. */
  #closeRanksSoon(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    queueMicrotask(() => this.#closeRanks());
  }

  #closeRanks(): void {
    this.#isClosing = false;
    this.#lastDue = 0;
    this.#replace();
    let rank: Sleeper[] = [];
    const sleepers = [...this.#sleepers];
    if (this.#spare.length > 0) {
      sleepers.push(...this.#spare);
      sleepers.sort((a, b) => a.due - b.due);
      this.#spare = [];
    }
    for (const sleeper of sleepers) {
      if (rank[0]?.isLike(sleeper) === false) {
        this.#deal(rank);
        rank = [];
      }
      rank.push(sleeper);
    }
    this.#deal(rank);
    this.#arm();
  }

  /** Puts the heirs of callers that have left into their places. */
  #replace(): void {
    const heirs = new Map<Sleeper, Sleeper>();
    for (const sleeper of this.#sleepers) {
      const heir = sleeper.gone ? sleeper.heir?.() : undefined;
      if (heir === undefined) continue;
      heirs.set(sleeper, heir);
      heir.promised = sleeper.promised;
      sleeper.promised = undefined;
      this.#permits += heir.size;
    }
    if (heirs.size === 0) return;
    for (const sleeper of [...this.#sleepers]) {
      this.#sleepers.remove(sleeper);
      this.#sleepers.append(heirs.get(sleeper) ?? sleeper);
    }
  }

  /** Redistributes the promised permits of neighbours, the earliest first, to those that still wait. */
  #deal(rank: readonly Sleeper[]): void {
    const promised = rank.map((sleeper) => sleeper.promised as PromisedPermits);
    promised.sort((a, b) => a.instant - b.instant);
    const stay = rank.filter((sleeper) => !sleeper.gone);
    const gone = rank.filter((sleeper) => sleeper.gone);
    for (const [i, sleeper] of [...stay, ...gone].entries()) {
      sleeper.promised = promised[i];
    }
    for (const sleeper of stay) {
      this.#lastDue = Math.max(this.#lastDue, (sleeper.promised as PromisedPermits).instant);
      sleeper.due = this.#lastDue;
    }
    for (const sleeper of gone) {
      this.#sleepers.remove(sleeper);
      sleeper.due = (sleeper.promised as PromisedPermits).instant;
      if (this.#isAsking) this.#spare.push(sleeper);
      else sleeper.returnPromised();
    }
  }

  /** Removes all callers from the line. @returns them in order */
  clear(): readonly Sleeper[] {
    const sleepers = [...this.#sleepers];
    for (const sleeper of sleepers) {
      this.#sleepers.remove(sleeper);
      if (!sleeper.gone) this.#permits -= sleeper.size;
    }
    sleepers.push(...this.#spare);
    this.#spare = [];
    this.#lastDue = 0;
    this.#arm();
    return sleepers;
  }

  /** Wakes no caller before that instant. */
  holdUntil(instant: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, instant);
    this.#arm();
  }

  /** The earliest instant for a caller that arrives now: behind all sleeping callers and any pause. */
  get turn(): number {
    return Math.max(this.#sleepers.size === 0 ? 0 : this.#lastDue, this.#heldUntil);
  }

  /** Returns whether an instant has come and no pause defers it. */
  reached(due: number): boolean {
    return this.now() >= Math.max(due, this.#heldUntil);
  }

  /** Starts a timer beside the line; a pause defers it, too. */
  alarm(due: number, wake: () => void): Timer {
    let timer: Timer | undefined;
    const look = () => {
      if (this.reached(due)) wake();
      else timer = this.#clock.wakeAt(Math.max(due, this.#heldUntil) / 1000, look);
    };
    timer = this.#clock.wakeAt(due / 1000, look);
    return { cancel: () => timer?.cancel() };
  }

  /** Returns how late our timer was for the callers that call again now: see `WaiterQueue`. */
  lateBy(): number {
    return this.#late.at(this.now());
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

  /** Wakes all callers that are due, even if the timer has not fired yet. */
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
      this.#late.grant(now - at, now);
    }
    this.#arm();
  }
}
