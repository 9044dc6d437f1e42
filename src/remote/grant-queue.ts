/**
 * The callers with promised permits. The store has promised each of them an instant, in the order of their calls.
 * Neighbours that asked for the same amount exchange instants, so that the callers in front always have the earliest
 * ones, even if a caller leaves or a later one was promised an earlier instant.
 *
 * The permits that are left over return to the store, but not while requests are under way: a caller that waits for
 * its reply may want them, and only the latest permits of all can return without a gap in the store's schedule.
 */
import type { Clock, Timer } from "../ground/clock.ts";
import { sameAmount } from "../ground/permits.ts";
import { MonotonicTime } from "../queue/monotonic-time.ts";
import type { Waiter } from "../queue/waiter.ts";
import { WaiterQueue } from "../queue/waiter-queue.ts";
import { type Grant, Grants } from "./grants.ts";

/** A caller with promised permits. */
export interface PromisedCaller extends Waiter {
  /** It is in the queue. */
  readonly isPromised: boolean;
  /** Returns a caller that takes its place in the queue; called when it leaves. */
  heir?(): PromisedCaller | undefined;
}

/** A pause, from its request on. */
export interface Pause {
  /** Until when it lasts. */
  readonly until: number;
}

export class GrantQueue extends WaiterQueue<Grants> {
  readonly #time: MonotonicTime;
  readonly #sendsTime: boolean;
  /** Returns permits to the store. */
  #giveBack: (grant: Grant) => void = () => {};
  /** In the order of their requests. */
  #pauses: Pause[] = [];
  /** Until when the longest one lasts. */
  #heldUntil = 0;
  /** The timers beside the queue that a pause defers. */
  readonly #alarms = new Map<() => void, Timer>();
  #isAsking = false;
  #isReturning = false;
  /** Callers have lost their permits; those that come meanwhile go to the first callers. */
  #isShort = false;
  readonly #afterBatch: (() => void)[] = [];

  /** @param sendsTime whether the store uses this clock, which every batch then carries */
  constructor(clock: Clock, sendsTime = false) {
    const time = new MonotonicTime(clock);
    super(time, new Grants());
    this.#time = time;
    this.#sendsTime = sendsTime;
  }

  /** Refuses: requests under way and reservations hold instants, too. */
  override rebase(): boolean {
    return false;
  }

  /** @param giveBack returns permits to the store */
  open(giveBack: (grant: Grant) => void): void {
    this.#giveBack = giveBack;
  }

  /** How late the timer was for the callers that call again now. */
  get lateBy(): number {
    return this.now() < this.late.until ? this.late.lateBy : 0;
  }

  /** The clock's time at this queue's 0, plus this is Unix time, microseconds. */
  get epoch(): number {
    return this.#time.epoch;
  }

  /** Returns when the wait of an answer is over. @param sentAt when its batch was sent */
  dueAt(wait: number, sentAt: number): number {
    return wait + (this.#sendsTime ? sentAt : this.now());
  }

  /** Adds signals that cancel a request that is not in the queue. */
  heedBeside(waiter: Waiter, signals: readonly AbortSignal[]): void {
    for (const signal of signals) this.signals.add(signal, waiter);
  }

  /** Removes those signals. */
  ignore(waiter: Waiter, signals: readonly AbortSignal[]): void {
    for (const signal of signals) this.signals.delete(signal, waiter);
  }

  /** Whether callers wait: no later one may go before them. */
  get hasCallers(): boolean {
    this.catchUp();
    return this.head !== undefined;
  }

  /** Adds a caller with its grant; it is refused soon if it would wait for too long behind the others. */
  enter(caller: PromisedCaller, grant: Grant): void {
    const isLast = this.supply.add(grant);
    this.add(caller);
    if (!isLast || this.#isShort) this.outdate();
    else if (caller.deadline < Infinity) this.returnSoon();
  }

  /** Removes a caller: its permits go to callers behind it, or return to the store. */
  override remove(caller: PromisedCaller): void {
    const heir = caller.heir?.();
    if (heir !== undefined) this.add(heir, caller);
    super.remove(caller);
    this.returnSoon();
  }

  /** A caller that has no promise yet is not in the queue. */
  override cancel(caller: PromisedCaller, reason: unknown): void {
    if (caller.isPromised) this.remove(caller);
    caller.abort(reason, this.now());
  }

  /** Called when a batch is sent: its callers may want the permits that others leave. */
  asking(): void {
    this.#isAsking = true;
  }

  /** Called when the batch has its outcome. */
  answered(): void {
    this.#isAsking = false;
    for (const task of this.#afterBatch.splice(0)) task();
    this.#return();
  }

  /** Called when a batch has its outcome after its time-out: a later one that is under way brings the end of both. */
  answeredLate(): void {
    if (!this.#isAsking) this.answered();
  }

  /** Called with an answer: runs the task after the other answers of the batch. */
  afterBatch(task: () => void): void {
    this.#afterBatch.push(task);
  }

  /** Adds the permits of a caller that has left before they were promised. */
  addSpare(grant: Grant): void {
    if (!this.supply.add(grant) || this.#isShort) this.outdate();
    this.returnSoon();
  }

  /** Returns permits that are left over, once for all callers that leave in one tick. */
  returnSoon(): void {
    if (this.#isReturning) return;
    this.#isReturning = true;
    queueMicrotask(() => {
      this.#isReturning = false;
      if (!this.#isAsking) this.#return();
    });
  }

  #return(grants: readonly Grant[] = this.outcome.rest): void {
    if (grants.length === 0) return;
    this.supply.remove(new Set(grants));
    this.outdate();
    for (const grant of grants) this.#giveBack(grant);
  }

  /**
   * Drops the permits that are promised: the store has reset the state to which they belong, so they must not return.
   * `empty` then removes the callers that are left without.
   *
   * @returns whether there are any
   */
  forget(): boolean {
    this.catchUp();
    this.supply.remove(new Set(this.supply.rest));
    this.outdate();
    this.#isShort = this.head !== undefined;
    return this.#isShort;
  }

  /**
   * Returns the permits that were promised for before `until` to the store, and removes as many callers, the last ones,
   * without heirs. The others get the later permits. Requests of several sizes cannot exchange permits:
   * then all return if one does, so that no caller is overtaken.
   *
   * @param isAll whether all return if one does, in any case
   * @returns the callers that it has removed, in order
   */
  empty(until = Infinity, isAll = false): readonly Waiter[] {
    const { rest } = this.supply;
    const early = rest.filter(({ instant }) => instant < until);
    if (early.length === 0 && !this.#isShort) return [];
    this.#isShort = false;
    const [first, ...others] = [...rest, ...this.waiters];
    const isMixed = others.some(({ amount }) => !sameAmount(amount, first?.amount ?? 0));
    const back = isMixed || (isAll && early.length > 0) ? rest : early;
    const waiters = this.waiters.slice(rest.length - back.length);
    for (const waiter of waiters) super.remove(waiter);
    this.#return(back);
    return waiters;
  }

  /** Returns until when it pauses, if it does so now. */
  heldFor(micros: number): number {
    return Math.max(this.#heldUntil, this.now() + micros);
  }

  override pause(micros: number): Pause {
    const pause = { until: this.now() + micros };
    this.#pauses.push(pause);
    this.#heldUntil = Math.max(this.#heldUntil, pause.until);
    super.pause(micros);
    return pause;
  }

  /** Called when the store has a pause, which is not ended alone any more: shorter ones before it make no difference. */
  confirm(pause: Pause): void {
    const own = this.#pauses.indexOf(pause);
    this.#pauses = this.#pauses.filter(({ until }, i) => i >= own || until > pause.until);
  }

  /** Ends these pauses; callers that only they held go at their instants, or now. */
  endPauses(ended: readonly Pause[]): void {
    const pauses = new Set(ended);
    this.#pauses = this.#pauses.filter((pause) => !pauses.has(pause));
    this.#heldUntil = this.#pauses.reduce((latest, { until }) => Math.max(latest, until), 0);
    this.restart(() => this.#heldUntil);
    for (const look of [...this.#alarms.keys()]) look();
  }

  /** Called when a reset is requested. @returns ends all pauses until now; to be called when the store has run it */
  reset(): () => void {
    const pauses = [...this.#pauses];
    return () => this.endPauses(pauses);
  }

  /** Returns whether an instant has come and no pause defers it. */
  reached(due: number): boolean {
    return this.now() >= Math.max(due, this.#heldUntil);
  }

  /** Starts a timer beside the queue; a pause defers it, too. */
  alarm(due: number, wake: () => void): Timer {
    const look = () => {
      cancel();
      if (this.reached(due)) wake();
      else this.#alarms.set(look, this.wakeAt(Math.max(due, this.#heldUntil), look));
    };
    const cancel = () => {
      this.#alarms.get(look)?.cancel();
      this.#alarms.delete(look);
    };
    look();
    return { cancel };
  }

  /** Starts a timer beside the queue. */
  wakeAt(instant: number, wake: () => void): Timer {
    return this.#time.wakeAt(instant, wake);
  }
}
