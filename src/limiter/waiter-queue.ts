/**
 * The waiters of one limiter. `Schedule` says when each of them is released; the queue adds what depends on
 * the clock: one timer for the head of the line, the signals that cancel waiters, and one update of the line
 * for all waiters that leave in one turn.
 *
 * All times are those of the limiter's `Timeline`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import { asPaused, decision, statusesOf } from "./decision.ts";
import type { Turn } from "./fair/turn.ts";
import type { Decision } from "./limiter-api.ts";
import type { Order } from "./order.ts";
import { Schedule } from "./schedule.ts";
import { Timeline } from "./timeline.ts";
import type { Waiter } from "./waiter.ts";

export class WaiterQueue extends Schedule {
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    // read before the removal: the waiter's instants are valid only while it is in the line
    const now = this.now();
    this.remove(waiter);
    waiter.abort(reason, now);
  });
  /** For the head, or for the earliest deadline. */
  #timer: Timer | undefined;
  #timerAt: number | undefined;
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

  now(): number {
    return this.time.now();
  }

  /**
   * Returns the decision for a request that is made now. `waitMs` is `Infinity` if it may not wait.
   *
   * @param hasRoom whether `maxWaiting` lets it wait
   * @param turn on a fair limiter, here and below
   */
  look(now: number, amount: Amount, hasRoom: () => boolean, turn?: Turn<Waiter>): Decision {
    const { instant, from, policyState, isFirst } = this.lookAhead(now, amount, turn);
    const full = instant > now ? this.#overflowing(now, amount) : -1;
    const mayWait = full < 0 && (instant <= now || hasRoom());
    const slowest = full < 0 ? policyState.slowest(from, amount) : full;
    const allows = policyState.allows(from, now, amount);
    const quotas = statusesOf(policyState.quotas(now), allows);
    return decision(
      policyState.names,
      from > now || !isFirst ? quotas.map((quota) => asPaused(quota, from - now)) : quotas,
      amount,
      mayWait ? instant - now : Infinity,
      slowest,
    );
  }

  /** Returns the first instant at which the permits could be used, behind the waiters before this one. */
  instant(now: number, amount: Amount, turn?: Turn<Waiter>): number {
    return this.lookAhead(now, amount, turn).instant;
  }

  /** Returns whether a policy does not let that many permits wait behind the present waiters. */
  overflows(now: number, amount: Amount): boolean {
    return this.#overflowing(now, amount) >= 0;
  }

  #overflowing(now: number, amount: Amount): number {
    return this.policyState.isBounded ? this.outcome.overflowing(now, amount) : -1;
  }

  override add(waiter: Waiter): void {
    super.add(waiter);
    for (const signal of waiter.signals) this.#signals.add(signal, waiter);
    // on a fair limiter it may be the head
    if (this.#timer === undefined || waiter.turn !== undefined) this.#arm();
  }

  /** Called when a caller starts to await a reservation: it needs the timer now, and follows every change. */
  override attend(reservation: Waiter): void {
    super.attend(reservation);
    if (this.#timer === undefined) this.#arm();
  }

  /** Adds a signal that cancels the waiter. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    waiter.signals = [...waiter.signals, signal];
    this.#signals.add(signal, waiter);
  }

  override remove(waiter: Waiter): void {
    super.remove(waiter);
    this.#settleSoon();
  }

  /**
   * Drops the callers that have waited longest, until at least that many permits are dropped.
   *
   * @param permits above 0
   * @returns `false` if that many cannot be dropped; then no caller is dropped
   */
  dropOldest(permits: number, reason: (waiter: Waiter) => Error): boolean {
    const victims = this.oldestDroppable(permits);
    const now = this.now();
    for (const waiter of victims) {
      const error = reason(waiter);
      this.remove(waiter);
      waiter.drop?.(error, now);
    }
    return victims.length > 0;
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

  protected override left(waiter: Waiter): void {
    for (const signal of waiter.signals) this.#signals.delete(signal, waiter);
  }

  protected override retime(): void {
    super.retime();
    this.#stale = false;
    this.#arm();
  }

  protected override outdate(): void {
    super.outdate();
    this.#stale = true;
    this.#settleSoon();
  }

  /** Updates the line once for all waiters that leave in one turn. */
  #settleSoon(): void {
    if (this.#settling) return;
    this.#settling = true;
    queueMicrotask(() => {
      this.#settling = false;
      this.catchUp();
      if (this.#stale) this.retime();
      else this.#arm();
    });
  }

  #arm(): void {
    const { due } = this;
    if (this.#timer !== undefined && due === this.#timerAt) return;
    this.#timer?.cancel();
    this.#timerAt = due;
    this.#timer = due === undefined ? undefined : this.time.wakeAt(due, this.#wake);
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
}
