/**
 * The waiters of one limiter. `Schedule` says when each of them is released; the queue has the clock: one
 * timer for the head of the line, the signals that cancel waiters, and one update of the line for all
 * waiters that leave in one turn.
 *
 * All times are those of the limiter's `Timeline`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import type { Clock } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import { HeadTimer } from "./head-timer.ts";
import type { Order } from "./order.ts";
import { type Outlook, outlookOf } from "./outlook.ts";
import { Schedule } from "./schedule.ts";
import { Timeline } from "./timeline.ts";
import type { Waiter } from "./waiter.ts";

export class WaiterQueue {
  readonly #time: Timeline;
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    // read before the removal: the waiter's instants are valid only while it is in the line
    const now = this.now();
    this.remove(waiter);
    waiter.abort(reason, now);
  });
  readonly #schedule: Schedule;
  readonly #timer: HeadTimer;
  #settling = false;
  /** The waiters' instants have changed since they were last computed. */
  #stale = false;

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

  constructor(time: Timeline, policyState: PolicyState, order?: Order) {
    this.#time = time;
    const onLeave = (waiter: Waiter) => {
      for (const signal of waiter.signals) this.#signals.delete(signal, waiter);
    };
    this.#schedule = new Schedule(time, policyState, onLeave, order);
    // a timer may fire early: the head that is not due gets a new one
    this.#timer = new HeadTimer(time, () => {
      this.catchUp();
      this.#arm();
    });
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#schedule.permits;
  }

  /** Whether no caller waits, and neither a pause nor a credit for a late timer is in effect. */
  get isIdle(): boolean {
    this.catchUp();
    return this.#schedule.isEmpty && this.#time.last >= this.#schedule.specialUntil;
  }

  /** The state after all released waiters. */
  get policyState(): PolicyState {
    return this.#schedule.policyState;
  }

  /** The state after all waiters; read-only. */
  get outcome(): PolicyState {
    this.catchUp();
    return this.#schedule.outcome;
  }

  now(): number {
    return this.#time.now();
  }

  /**
   * Takes the permits if they can be used now and no caller waits before this one.
   *
   * @param since see `Backlog`
   * @param turn on a fair limiter, here and below
   */
  grant(now: number, amount: Amount, since?: number, turn?: Turn<Waiter>): boolean {
    return this.#schedule.grant(now, amount, since, turn);
  }

  /** Returns the prospects of a request that is made now. */
  outlook(now: number, amount: Amount, turn?: Turn<Waiter>): Outlook {
    const prospect = this.#schedule.lookAhead(now, amount, turn);
    const full = prospect.instant > now ? this.#overflowing(now, amount) : -1;
    return outlookOf({ ...prospect, now, amount, full });
  }

  /** Returns the first instant at which the permits could be used, behind the waiters before this one. */
  instant(now: number, amount: Amount, turn?: Turn<Waiter>): number {
    return this.#schedule.lookAhead(now, amount, turn).instant;
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
    this.#schedule.possible(this.policyState.earliest(this.now(), amount), amount);
    return amount;
  }

  /** Releases all waiters that are due, even if the timer has not fired yet. */
  catchUp(): void {
    this.#schedule.release(this.now());
  }

  add(waiter: Waiter): void {
    this.#schedule.append(waiter);
    for (const signal of waiter.signals) this.#signals.add(signal, waiter);
    // on a fair limiter it may be the head
    if (!this.#timer.isSet || waiter.turn !== undefined) this.#arm();
  }

  /**
   * Called when a caller starts to await a reservation that is in the line: it needs the timer now, and
   * follows every change.
   */
  attend(reservation: Waiter): void {
    const moved = this.#schedule.attend(reservation);
    if (!this.#timer.isSet) this.#arm();
    if (moved) this.#outdate();
  }

  /** Adds a signal that cancels the waiter. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    waiter.signals = [...waiter.signals, signal];
    this.#signals.add(signal, waiter);
  }

  /** Removes a waiter from the line; the waiters behind it move up. */
  remove(waiter: Waiter): void {
    if (this.#schedule.remove(waiter, this.now())) this.#outdate();
    this.#settleSoon();
  }

  /**
   * Drops the callers that have waited longest, until at least that many permits are dropped.
   *
   * @param permits above 0
   * @returns `false` if that many cannot be dropped; then no caller is dropped
   */
  dropOldest(permits: number, reason: (waiter: Waiter) => Error): boolean {
    const victims = this.#schedule.oldestDroppable(permits);
    const now = this.now();
    for (const waiter of victims) {
      const error = reason(waiter);
      this.remove(waiter);
      waiter.drop?.(error, now);
    }
    return victims.length > 0;
  }

  /** Called when a change has moved up in the line: the waiters behind it get new instants. */
  #outdate(): void {
    this.#schedule.outdate();
    this.#stale = true;
    this.#settleSoon();
  }

  /** Changes the amount of a waiter that is still in the line. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#schedule.resettle(waiter, amount);
    this.#retimed();
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

  /**
   * Replaces the state by a new one and ends any pause. The waiters in the line take from the new state,
   * in order.
   */
  reset(): void {
    this.catchUp();
    this.#schedule.reset();
    this.#retimed();
  }

  /** Applies a change to the state when its turn in the line comes. */
  change(deed: (policyState: PolicyState, now: number, epoch: number) => void): void {
    this.catchUp();
    this.#schedule.change(deed);
    this.#retimed();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#schedule.pause(this.#time.last + micros);
    this.#retimed();
  }

  /** Called when the instants of all waiters were computed again. */
  #retimed(): void {
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
      if (this.#stale) this.#schedule.retime();
      this.#retimed();
    });
  }

  #arm(): void {
    const { due } = this.#schedule;
    if (due === undefined) this.#timer.cancel();
    else this.#timer.set(due);
  }

  /** Sets the timer again: the clock went back. */
  rearm(): void {
    this.#timer.cancel();
    this.#settleSoon();
  }

  /** Subtracts `by` from all instants; refuses while there are waiters, which hold instants of their own. */
  rebase(by: number): boolean {
    return this.#schedule.rebase(by);
  }
}
