/**
 * The waiters of one limiter: one line over the state of the policies, first in, first out or in the order of a
 * fair limiter; one timer for the head of the line; and the signals that cancel waiters.
 *
 * The queue holds two states: the state after all *released* waiters, and the state after all waiters still in
 * the line (`Line.replay`). The second is a copy of the first on which the line is replayed. It is made on
 * demand, and discarded when a waiter is cancelled or the numbers change. So a cancelled waiter leaves no gap,
 * and cancelling n waiters costs n steps.
 *
 * Each waiter is released at the instant at which the policies let it through. A late look at the line
 * releases all waiters that are due, and accounts each at its own instant, so the lateness costs the line
 * no permits. A caller that was released late and calls again is treated as if the timer had been on
 * time: see `LateCredit`.
 *
 * All times are those of the limiter's `Timeline`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { decisionOn } from "../api/decision.ts";
import type { Decision } from "../api/limiter-api.ts";
import type { Turn } from "../fair/turn.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Line } from "./line.ts";
import { FIFO, type Order } from "./order.ts";
import { Timeline } from "./timeline.ts";
import { LateCredit } from "./timer-drift.ts";
import { Change, type Waiter } from "./waiter.ts";

/** The first instant at which a request at the end of the line could be granted, and what precedes it. */
interface Prospect {
  readonly instant: number;
  /** When the request would be the head of the line. */
  readonly from: number;
  /** The state after all waiters before it. */
  readonly policyState: PolicyState;
  /** Whether no caller waits before it. */
  readonly isFirst: boolean;
}

export class WaiterQueue {
  /** The state after all released waiters. */
  readonly policyState: PolicyState;
  readonly #time: Timeline;
  readonly #line: Line;
  readonly #late = new LateCredit();
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    // read before the removal: the waiter's instants are valid only while it is in the line
    const now = this.now();
    this.remove(waiter);
    waiter.abort(reason, now);
  });

  /** The instant of the last grant, and the end of a pause: see `#from`. */
  #floor = 0;
  #pausedUntil = 0;
  /** Before this instant, `grant` has to consider a pause or the lateness of the timer. */
  #specialUntil = 0;

  /** For the head, or for the earliest deadline. */
  #timer: Timer | undefined;
  #timerAt: number | undefined;
  #settling = false;
  /** The waiters' instants have changed since they were last computed. */
  #stale = false;

  /** @param order of the waiters; default first in, first out */
  constructor(time: Timeline, policyState: PolicyState, order: Order = FIFO) {
    this.#time = time;
    this.policyState = policyState;
    this.#line = order.line(policyState, (waiter) => this.#refuse(waiter));
  }

  /**
   * Creates a queue with a timeline of its own.
   *
   * @param open creates the state at `now`; `epoch` is the Unix time of the queue's 0, whole microseconds
   * @param order of the waiters; default first in, first out
   */
  static over(
    clock: Clock,
    open: (now: number, epoch: number) => PolicyState,
    order?: Order,
  ): WaiterQueue {
    const time = new Timeline(
      clock,
      () => queue.rearm(),
      (by) => queue.rebase(by),
    );
    const queue = new WaiterQueue(time, open(time.last, time.epoch), order);
    return queue;
  }

  now(): number {
    return this.#time.now();
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#line.permits;
  }

  get #isEmpty(): boolean {
    return this.#line.head === undefined;
  }

  /** Whether no caller waits, and neither a pause nor a credit for a late timer is in effect. */
  get isIdle(): boolean {
    this.catchUp();
    return this.#isEmpty && this.#time.last >= Math.max(this.#pausedUntil, this.#late.until);
  }

  /** The state after all waiters; read-only. */
  get outcome(): PolicyState {
    this.catchUp();
    return this.#isEmpty ? this.policyState : this.#line.replay(this.#from).policyState;
  }

  /**
   * Takes the permits if they can be used now and no caller waits before this one.
   *
   * @param since from when the request counts as one that waits, if that is earlier than `now`: see `Backlog`
   * @param turn on a fair limiter, here and below
   */
  grant(now: number, amount: Amount, since = Infinity, turn?: Turn<Waiter>): boolean {
    const free = this.#line.head === undefined && now >= this.#specialUntil && now <= since;
    const from = free ? now : this.#grantFrom(now, amount, since, turn);
    const at = this.policyState.earliest(from, amount);
    if (at > now) {
      this.#possible(at, amount);
      return false;
    }
    this.policyState.take(at, amount, now);
    if (at > this.#floor) this.#floor = at;
    this.#line.granted(turn, at);
    return true;
  }

  /** Releases due waiters, then returns from when a new request may go: later than `now` if others precede. */
  #grantFrom(now: number, amount: Amount, since: number, turn: Turn<Waiter> | undefined): number {
    this.#release(now);
    if (!this.#line.isNext(turn)) return now + 1;
    if (since < now) return Math.max(since, this.#from);
    const from = this.#onTime(now, amount);
    if (from === now) this.#late.end();
    return from;
  }

  /**
   * Returns the decision for a request that is made now. `waitMs` is `Infinity` if it may not wait.
   *
   * @param hasRoom whether `maxWaiting` lets it wait
   */
  look(now: number, amount: Amount, hasRoom: () => boolean, turn?: Turn<Waiter>): Decision {
    const { instant, from, policyState, isFirst } = this.#lookAhead(now, amount, turn);
    const full = instant > now ? this.#overflowing(now, amount) : -1;
    const mayWait = full < 0 && (instant <= now || hasRoom());
    const wait = mayWait ? instant - now : Infinity;
    return decisionOn(policyState, now, from, amount, wait, full, isFirst);
  }

  /** Returns the first instant at which the permits could be used, behind the waiters before this one. */
  instant(now: number, amount: Amount, turn?: Turn<Waiter>): number {
    return this.#lookAhead(now, amount, turn).instant;
  }

  #lookAhead(now: number, amount: Amount, turn: Turn<Waiter> | undefined): Prospect {
    this.#release(now);
    let from = this.#onTime(now, amount);
    let { policyState } = this;
    const isFirst = this.#line.isNext(turn);
    if (!isFirst) {
      const promised = this.#line.replay(this.#from, turn);
      from = Math.max(from, promised.at);
      policyState = promised.policyState;
    }
    const instant = this.#possible(policyState.earliest(from, amount), amount);
    return { instant, from, policyState, isFirst };
  }

  /** Returns from when a request that is made now, with no waiter in front, may be granted. */
  #onTime(now: number, amount: Amount): number {
    return Math.max(this.#late.from(now, this.policyState, amount), this.#pausedUntil);
  }

  /** Returns whether a policy does not let that many permits wait behind the present waiters. */
  overflows(now: number, amount: Amount): boolean {
    return this.#overflowing(now, amount) >= 0;
  }

  #overflowing(now: number, amount: Amount): number {
    return this.policyState.isBounded ? this.outcome.overflowing(now, amount) : -1;
  }

  /** Checks the permits of a request, and that the policies could ever let them through. */
  possible(permits: unknown): Amount {
    const amount = this.policyState.amount(permits);
    this.#possible(this.policyState.earliest(this.now(), amount), amount);
    return amount;
  }

  /** Returns the instant. @throws PermitsExceedCapacityError if it is `Infinity` */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.policyState.excess(this.#time.last, amount);
  }

  add(waiter: Waiter): void {
    this.#line.append(waiter, this.#from);
    for (const signal of waiter.signals) this.#signals.add(signal, waiter);
    // on a fair limiter it may be the head
    if (this.#timer === undefined || waiter.turn !== undefined) this.#arm();
  }

  /** Called when a caller starts to await a reservation: it needs the timer now, and follows every change. */
  attend(reservation: Waiter): void {
    if (this.#line.release(reservation)) this.#outdate();
    if (this.#timer === undefined) this.#arm();
  }

  /** Adds a signal that cancels the waiter. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    waiter.signals = [...waiter.signals, signal];
    this.#signals.add(signal, waiter);
  }

  /** Removes a waiter from the line; the waiters behind it move up. */
  remove(waiter: Waiter): void {
    const now = this.now();
    // it blocked the waiters behind it until now, or until its own instant if our timer is late
    if (waiter === this.#line.head) this.#floor = Math.min(now, this.#instantOf(waiter));
    this.#line.discard();
    if (this.#leave(waiter)) this.#outdate();
    this.#settleSoon();
  }

  /**
   * Drops the callers that have waited longest, until at least that many permits are dropped.
   *
   * @param permits above 0
   * @returns `false` if that many cannot be dropped; then no caller is dropped
   */
  dropOldest(permits: number, reason: (waiter: Waiter) => Error): boolean {
    const victims = this.#line.oldestDroppable(permits);
    const now = this.now();
    for (const waiter of victims) {
      const error = reason(waiter);
      this.remove(waiter);
      waiter.drop?.(error, now);
    }
    return victims.length > 0;
  }

  /** Changes the amount of a waiter that is still in the line. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#line.resize(waiter, amount);
    this.#outdate();
    this.#retime();
  }

  /** Takes the permits whatever the state; the waiters are delayed accordingly. */
  charge(amount: Amount): void {
    this.change((policyState, now) => policyState.take(now, amount));
  }

  refund(amount: Amount): void {
    this.change((policyState, now) => policyState.giveBack(now, amount));
  }

  resize(policies: readonly Policy[]): void {
    this.change((policyState, now, epoch) => policyState.resize(now, policies, epoch));
  }

  /** Applies a change to the state when its turn in the line comes. */
  change(deed: (policyState: PolicyState, now: number, epoch: number) => void): void {
    this.catchUp();
    const { last: now, epoch } = this.#time;
    const change = new Change(now, (policyState) => deed(policyState, now, epoch));
    this.#line.append(change, this.#from);
    this.#retime();
  }

  /**
   * Replaces the state by a new one and ends any pause. The waiters in the line take from the new state,
   * in order.
   */
  reset(): void {
    this.catchUp();
    const { last: now, epoch } = this.#time;
    this.#line.applyChanges(this.policyState);
    this.policyState.restart(now, epoch);
    this.#floor = now;
    this.#pausedUntil = now;
    this.#late.grant(0, now);
    this.#retime();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#time.last + micros);
    this.#retime();
  }

  /** Releases all waiters that are due, even if the timer has not fired yet. */
  catchUp(): void {
    this.#release(this.now());
  }

  /** Releases all waiters that are due, each at its instant. */
  #release(now: number): void {
    for (let place = this.#line.head; place !== undefined; place = this.#line.head) {
      if (place instanceof Change) {
        place.apply(this.policyState);
        this.#floor = Math.max(this.#floor, place.since);
        this.#line.remove(place);
      } else {
        const at = this.#instantOf(place);
        const { urgent } = this.#line;
        if (urgent !== undefined && urgent.deadline < Math.min(Math.ceil(at), now + 1)) {
          this.#refuse(urgent);
          continue;
        }
        if (at > now) break;
        // a reservation that no caller awaits starts at its instant, by its holder's own timer
        this.policyState.take(at, place.taken, place.awaited ? now : at);
        // the waiters behind it were promised instants that follow its booked one
        if (now > at && this.policyState.isStrict) this.#line.discard();
        this.#floor = at;
        if (place.awaited) this.#late.grant(now - at, now);
        this.#leave(place, at);
        place.release(at, now);
      }
    }
    this.#specialUntil = this.#late.isOpen ? Infinity : this.#pausedUntil;
  }

  #instantOf(waiter: Waiter): number {
    return this.policyState.earliest(Math.max(waiter.asked, this.#from), waiter.amount);
  }

  /** No waiter is released before this instant. */
  get #from(): number {
    return Math.max(this.#floor, this.#pausedUntil);
  }

  /** Removes a waiter that cannot meet its deadline. */
  #refuse(waiter: Waiter): void {
    this.#leave(waiter);
    waiter.refuse(this.#time.last);
  }

  /** @param at when it is released; absent: it is not @returns whether a change has moved up */
  #leave(waiter: Waiter, at?: number): boolean {
    for (const signal of waiter.signals) this.#signals.delete(signal, waiter);
    return this.#line.remove(waiter, at);
  }

  /** Called when the waiters need new instants, none of them before the present; `#retime` computes them. */
  #outdate(): void {
    this.#floor = Math.max(this.#floor, this.#time.last);
    this.#line.discard();
    this.#stale = true;
    this.#settleSoon();
  }

  /**
   * Computes the instants of all waiters again: rejects waiters that can no longer meet their deadline,
   * and releases those that are due.
   */
  #retime(): void {
    this.#line.discard();
    this.#release(this.#time.last);
    if (!this.#isEmpty) {
      this.#line.refuseLate(this.#from);
      this.#release(this.#time.last);
    }
    this.#stale = false;
    this.#arm();
  }

  /** Updates the line once for all waiters that leave in one turn. */
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
    const { head, isAwaited, urgent } = this.#line;
    const isDue = isAwaited && head !== undefined && !(head instanceof Change);
    const due = isDue ? Math.min(this.#instantOf(head), urgent?.deadline ?? Infinity) : undefined;
    if (this.#timer !== undefined && due === this.#timerAt) return;
    this.#timer?.cancel();
    this.#timerAt = due;
    this.#timer = due === undefined ? undefined : this.#time.wakeAt(due, this.#wake);
  }

  /** A timer may fire early: the head that is not due gets a new one. */
  readonly #wake = (): void => {
    this.#timer = undefined;
    this.catchUp();
    this.#arm();
  };

  /** Sets the timer again: the clock went back. */
  rearm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#settleSoon();
  }

  /** Subtracts `by` from all instants; refuses while there are waiters, which hold instants of their own. */
  rebase(by: number): boolean {
    if (!this.#isEmpty) return false;
    this.policyState.shift(-by);
    this.#floor -= by;
    this.#pausedUntil -= by;
    this.#late.rebase(by);
    this.#specialUntil -= by;
    return true;
  }
}
