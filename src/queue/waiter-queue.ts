/**
 * The waiters of one limiter: one queue over what they wait for (`Supply`), first in, first out or in the order of a
 * fair limiter; one timer for the head of the queue; and the signals that cancel waiters.
 *
 * The queue holds two states of the supply: after all *released* waiters, and after all waiters still in
 * the queue (`Schedule.replay`). The second is a copy of the first on which the queue is replayed. It is made on
 * demand, and discarded when a waiter is cancelled or the supply changes. So a cancelled waiter leaves no gap,
 * and cancelling n waiters costs n steps.
 *
 * Each waiter is released at the instant at which the supply lets it through. A late look at the queue
 * releases all waiters that are due, and accounts each at its own instant, so the lateness costs the queue
 * no permits. A caller that was released late and calls again is treated as if the timer had been on
 * time: see `TimerDrift`.
 *
 * All times are those of the limiter's `MonotonicTime`.
 */
import type { OnFull } from "../api/options.ts";
import type { FairEntry } from "../fair/fair-entry.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import type { Timer } from "../ground/clock.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { MonotonicTime } from "./monotonic-time.ts";
import { FIFO, type Order } from "./order.ts";
import type { Refuse, Schedule } from "./schedule.ts";
import { type Supply, UNKNOWN } from "./supply.ts";
import { TimerDrift } from "./timer-drift.ts";
import { Change, type Waiter } from "./waiter.ts";

/** The first instant at which a request at the end of the queue could be granted, and what precedes it. */
export interface Estimate<S> {
  readonly instant: number;
  /** When the request would be the head of the queue: later than now if callers wait before it. */
  readonly from: number;
  /** The supply after all waiters before it. */
  readonly supply: S;
}

export class WaiterQueue<S extends Supply = Supply> {
  /** The supply after all released waiters. */
  readonly supply: S;
  readonly order: Order;
  readonly #time: MonotonicTime;
  readonly #schedule: Schedule<S>;
  protected readonly late = new TimerDrift();
  protected readonly signals = new AbortGroups<Waiter>((waiter, reason) => {
    this.cancel(waiter, reason);
  });

  /** The instant of the last grant, and the end of a pause: see `#from`. */
  #floor = 0;
  #pausedUntil = 0;
  /** Before this instant, `grant` has to consider a pause or the lateness of the timer. */
  #specialUntil = 0;

  /** For the head, or for the earliest deadline. */
  #timer: Timer | undefined;
  #timerAt = UNKNOWN;
  #settling = false;
  /** The waiters' instants have changed since they were last computed. */
  #stale = false;

  /** @param order of the waiters; default first in, first out */
  constructor(time: MonotonicTime, supply: S, order: Order = FIFO) {
    this.#time = time;
    time.owner ??= this;
    this.supply = supply;
    this.order = order;
    this.#schedule = order.schedule(supply, this.#refuse);
  }

  /** Reads the clock. */
  now(): number {
    return this.#time.now();
  }

  /** The last reading: the present of the call that is under way. */
  get last(): number {
    return this.#time.last;
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#schedule.permits;
  }

  /** The waiters now, in order. */
  get waiters(): readonly Waiter[] {
    const entries = [...this.#schedule.entries()];
    return entries.flatMap((entry) => (entry instanceof Change ? [] : entry));
  }

  /** The waiter that goes next, once the queue has caught up. */
  get head(): Waiter | undefined {
    return this.#schedule.head as Waiter | undefined;
  }

  /** Whether no caller waits, and neither a pause nor a credit for a late timer is in effect. */
  get isIdle(): boolean {
    this.catchUp();
    return !this.head && this.last >= Math.max(this.#pausedUntil, this.late.until);
  }

  /** No request that is made now is released before this: all waiters and any pause precede it. */
  get end(): number {
    return this.#schedule.replay(this.#from).at;
  }

  /** The supply after all waiters; read-only. */
  get outcome(): S {
    this.catchUp();
    return this.head === undefined ? this.supply : this.#schedule.replay(this.#from).supply;
  }

  /**
   * Reads the clock, and takes the permits if they can be used now and no caller waits before this one.
   *
   * @param fairEntry on a fair limiter, here and below
   * @param since from when the request counts as one that waits, if that is earlier than now: see `RequestSequence`
   */
  grant(amount: Amount, fairEntry?: FairEntry<Waiter>, since = Infinity): boolean {
    const now = this.now();
    const free = this.#schedule.head === undefined && now >= this.#specialUntil && now <= since;
    const from = free ? now : this.#grantFrom(now, amount, fairEntry, since);
    const at = this.supply.earliest(from, amount);
    if (at > now) {
      this.possible(at, amount);
      return false;
    }
    this.supply.take(at, amount, now);
    if (at > this.#floor) this.#floor = at;
    this.#schedule.granted(fairEntry, at);
    return true;
  }

  /** Releases due waiters, then returns from when a new request may go: later than `now` if others precede. */
  #grantFrom(
    now: number,
    amount: Amount,
    fairEntry: FairEntry<Waiter> | undefined,
    since: number,
  ): number {
    this.#release(now);
    if (!this.#schedule.isNext(fairEntry)) return now + 1;
    if (since < now) return Math.max(since, this.#from);
    const from = this.#onTime(amount);
    if (from === now) this.late.lateBy = 0;
    return from;
  }

  /** Called after `grant` or `catchUp`: returns when the permits could be used, behind the waiters before this one. */
  estimate(amount: Amount, fairEntry?: FairEntry<Waiter>): Estimate<S> {
    let from = this.#onTime(amount);
    let { supply } = this;
    if (!this.#schedule.isNext(fairEntry)) {
      const promised = this.#schedule.replay(this.#from, fairEntry);
      from = Math.max(from, promised.at);
      supply = promised.supply;
    }
    const instant = this.possible(supply.earliest(from, amount), amount);
    return { instant, from, supply };
  }

  /** Returns from when a request that is made now, with no waiter in front, may be granted. */
  #onTime(amount: Amount): number {
    return Math.max(this.late.from(this.last, this.supply, amount), this.#pausedUntil);
  }

  /** Returns what does not let that much be waited for behind the present waiters; -1: nothing. */
  overflowing(amount: Amount): number {
    const { supply, last } = this;
    return supply.isBounded ? (this.outcome.overflowing?.(last, amount) ?? -1) : -1;
  }

  /** Returns the instant. @throws the error of the supply if it is `Infinity` */
  protected possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.supply.excess?.(this.last, amount);
  }

  /** @param behind the waiter in front of it; default: the last one */
  add(waiter: Waiter, behind?: Waiter): void {
    this.#schedule.append(waiter, this.#from, behind);
    for (const signal of waiter.signals) this.signals.add(signal, waiter);
    // on a fair limiter it may be the head
    if (this.#timer === undefined || waiter.fairEntry || waiter === this.#schedule.urgent)
      this.#arm();
  }

  /**
   * Called when a caller awaits a reservation.
   *
   * @param isFirst whether none did before: from now on it needs the timer, and follows every change
   * @param signal cancels it
   */
  attend(reservation: Waiter, isFirst: boolean, signal: AbortSignal | undefined): void {
    if (isFirst && this.#schedule.release(reservation)) this.outdate();
    if (signal !== undefined) this.signals.add(signal, reservation);
    this.#arm();
  }

  /** Removes a waiter from the queue; the waiters behind it move up. @param at absent: it was not served */
  remove(waiter: Waiter, at?: number): void {
    this.now();
    this.#schedule.discard();
    if (this.#leave(waiter, at)) this.outdate();
    this.#settleSoon();
  }

  /** Removes a waiter that leaves for that reason. */
  cancel(waiter: Waiter, reason: unknown): void {
    this.remove(waiter);
    // not `now()`: the waiter's instants are valid only while it is in the queue
    waiter.abort(reason, this.last);
  }

  /**
   * Whether a request may wait, where callers may wait for `maxWaiting` permits.
   *
   * @param onFull what to do about those that have waited longest, if they are too many
   * @param full the error for those that are dropped
   */
  hasRoom(
    amount: Amount,
    maxWaiting: number,
    onFull: OnFull,
    full: (amount: Amount) => Error,
  ): boolean {
    if (this.overflowing(amount) >= 0) return false;
    const excess = this.permits + sizeOf(amount) - maxWaiting;
    if (excess <= 0 || onFull === "wait") return true;
    if (onFull === "reject") return false;
    const victims = this.#schedule.oldestDroppable(excess);
    for (const waiter of victims) {
      const error = full(waiter.amount);
      this.remove(waiter);
      waiter.drop?.(error, this.last);
    }
    return victims.length > 0;
  }

  /** Changes the amount of a waiter that is still in the queue. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#schedule.resize(waiter, amount);
    this.outdate();
    this.#retime();
  }

  /** Applies a change to the supply when its turn in the queue comes. */
  change(apply: (supply: S, now: number, epoch: number) => void): void {
    this.catchUp();
    const { last: now, epoch } = this.#time;
    const change = new Change(now, (supply) => apply(supply as S, now, epoch));
    this.#schedule.append(change, this.#from);
    this.#retime();
  }

  /**
   * Changes the supply, and ends any pause. The waiters in the queue take from it, in order.
   *
   * @param apply may return until when a pause lasts nevertheless
   */
  protected restart(apply: (now: number, epoch: number) => number | undefined): void {
    this.catchUp();
    const { last: now, epoch } = this.#time;
    for (const entry of [...this.#schedule.entries()]) {
      if (entry instanceof Change) this.#apply(entry);
    }
    this.#pausedUntil = apply(now, epoch) ?? now;
    this.#floor = now;
    this.late.lateBy = 0;
    this.#retime();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#pausedUntil = Math.max(this.#pausedUntil, this.last + micros);
    this.#retime();
  }

  /** Releases all waiters that are due, even if the timer has not fired yet. */
  catchUp(): void {
    this.#release(this.now());
  }

  /** Releases all waiters that are due, each at its instant. */
  #release(now: number): void {
    for (let entry = this.#schedule.head; entry !== undefined; entry = this.#schedule.head) {
      if (entry instanceof Change) {
        this.#apply(entry);
      } else {
        const at = this.#instantOf(entry);
        const { urgent } = this.#schedule;
        if (urgent !== undefined && urgent.deadline < Math.min(Math.ceil(at), now + 1)) {
          this.#refuse(urgent, this.supply);
          continue;
        }
        if (at > now) break;
        // a reservation that no caller awaits starts at its instant, by its holder's own timer
        this.supply.take(at, entry.taken, entry.awaited ? now : at);
        // the waiters behind it were promised instants that follow its booked one
        if (now > at && this.supply.isStrict) this.#schedule.discard();
        if (entry.awaited) this.late.grant(now - at, now);
        this.#leave(entry, at);
        entry.release(at, now);
      }
    }
    this.#specialUntil = this.late.lateBy > 0 ? Infinity : this.#pausedUntil;
  }

  #apply(change: Change): void {
    change.apply(this.supply);
    this.#floor = Math.max(this.#floor, change.since);
    this.#schedule.remove(change);
  }

  #instantOf(waiter: Waiter): number {
    return this.supply.earliest(Math.max(waiter.asked, this.#from), waiter.amount);
  }

  /** No waiter is released before this instant. */
  get #from(): number {
    return Math.max(this.#floor, this.#pausedUntil);
  }

  /** Removes a waiter that cannot meet its deadline, or for which the supply has become too small. */
  readonly #refuse: Refuse = (waiter, supply) => {
    this.#leave(waiter);
    const { last } = this;
    const isPossible = supply.earliest(last, waiter.amount) < Infinity;
    waiter.refuse(last, isPossible ? undefined : supply.excess?.(last, waiter.amount));
  };

  /** @param at when it is released; absent: it is not @returns whether a change has moved up */
  #leave(waiter: Waiter, at?: number): boolean {
    // a head that is not released blocked the waiters behind it until it left; our timer may be late
    if (at !== undefined) this.#floor = Math.max(this.#floor, at);
    else if (waiter === this.#schedule.head)
      this.#floor = Math.min(this.last, this.#instantOf(waiter));
    for (const signal of waiter.signals) this.signals.delete(signal, waiter);
    return this.#schedule.remove(waiter, at);
  }

  /** Called when the waiters need new instants, none of them before the present; `#retime` computes them. */
  outdate(): void {
    this.#floor = Math.max(this.#floor, this.last);
    this.#schedule.discard();
    this.#stale = true;
    this.#settleSoon();
  }

  /**
   * Computes the instants of all waiters again: rejects waiters that can no longer meet their deadline,
   * and releases those that are due.
   */
  #retime(): void {
    this.#schedule.discard();
    this.#release(this.last);
    if (this.head) {
      this.#schedule.replay(this.#from);
      this.#release(this.last);
    }
    this.#stale = false;
    this.#arm();
  }

  /** Updates the queue once for all waiters that leave in one tick. */
  #settleSoon(): void {
    if (this.#settling) return;
    this.#settling = true;
    queueMicrotask(() => {
      this.#settling = false;
      this.catchUp();
      if (this.#stale) this.#retime();
      else this.#arm();
    });
  }

  /** Sets the timer to when the head is due; clears it if no promise is pending for any waiter. */
  #arm(): void {
    const { head, isAwaited, urgent } = this.#schedule;
    const isDue = isAwaited && head !== undefined && !(head instanceof Change);
    const due = isDue ? Math.min(this.#instantOf(head), urgent?.deadline ?? Infinity) : UNKNOWN;
    if (this.#timer !== undefined && due === this.#timerAt) return;
    this.#timer?.cancel();
    this.#timerAt = due;
    this.#timer = due === UNKNOWN ? undefined : this.#time.wakeAt(due, this.#wake);
  }

  /** A timer may fire early: the head that is not due gets a new one. */
  readonly #wake = (): void => {
    this.#timer = undefined;
    this.supplied();
  };

  /** Called when more of the supply is available: releases all waiters that are due. */
  supplied(): void {
    this.catchUp();
    this.#arm();
  }

  /** Sets the timer again: the clock went back. */
  rearm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#settleSoon();
  }

  /** Subtracts `by` from all instants; refuses while there are waiters, which hold instants of their own. */
  rebase(by: number): boolean {
    if (this.head) return false;
    this.supply.shift?.(-by);
    this.#floor -= by;
    this.#pausedUntil -= by;
    this.late.until -= by;
    return true;
  }
}
