/**
 * The waiters of one limiter: one first-in-first-out line, and one timer for its head.
 *
 * The queue holds two states: the state after all *released* waiters, and the state after all waiters
 * still in the line. The second is a copy of the first on which the line is replayed. It is made on
 * demand, and discarded when a waiter is cancelled or the numbers change. So a cancelled waiter leaves no
 * gap, and cancelling n waiters costs n steps.
 *
 * Each waiter is released at the instant at which the policies let it through. A late timer releases
 * all waiters that are due, and accounts each at its own instant, so the lateness costs the line no
 * permits. A caller that was released late and calls again is treated as if the timer had been on
 * time: see `#lateBy`.
 *
 * All times are those of the limiter's `Timeline`.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import type { Clock, Timer } from "../ground/clock.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { Cell } from "../stores/cell.ts";
import { held, statusesOf } from "./decision.ts";
import type { PolicyStatus } from "./face.ts";
import { Line } from "./line.ts";
import { LONGEST_CREDIT, Timeline } from "./timeline.ts";
import { Change, type Place, type Waiter } from "./waiter.ts";

/** The state after all waiters up to `last`, which is released at `at`. */
interface Promised {
  readonly cell: Cell;
  at: number;
  last: Place | undefined;
}

/** The prospects of a request at the end of the line. */
export interface Outlook {
  /**
   * The first instant at which the permits could be used; `Infinity` if a policy does not let the
   * request wait.
   */
  readonly instant: number;
  /**
   * `slowest` is the policy that does not let the request wait, or else makes it wait longest; `quotas`
   * is the status of all policies after all waiters.
   */
  readonly slowest: number;
  readonly quotas: readonly PolicyStatus[];
}

export class WaiterQueue {
  readonly #time: Timeline;
  readonly #line = new Line();
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    // read before the removal: the waiter's instants are valid only while it is in the line
    const now = this.now();
    this.remove(waiter);
    waiter.abort(reason, now);
  });
  readonly #released: Cell;
  #promised: Promised | undefined;

  /** How many permits the waiters ask for, and how many waiters have a pending promise. */
  #permits = 0;
  #awaited = 0;

  /** No waiter is released before these: the instant of the last release, and the end of a pause. */
  #floor = 0;
  #pausedUntil = 0;

  /**
   * How late our own timer was at the last release, and until when a request is treated as if the timer
   * had been on time. Otherwise a caller that calls again at once would lose that time, because it is
   * not stored. The credit is at most the lateness and `LONGEST_CREDIT`. Each release replaces it, so it
   * never adds up. No caller gets permits before its instant.
   */
  #lateBy = 0;
  #lateUntil = 0;
  /** Before this instant, `grant` has to consider a pause or the lateness of the timer. */
  #specialUntil = 0;

  #timer: Timer | undefined;
  #timerAt = 0;
  #settling = false;
  /** The waiters' instants have changed since they were last computed. */
  #stale = false;

  /**
   * Creates a queue with a timeline of its own.
   *
   * @param open creates the state at `now`; `epoch` is the Unix time of the queue's 0, whole microseconds
   */
  static over(clock: Clock, open: (now: number, epoch: number) => Cell): WaiterQueue {
    const time = new Timeline(
      clock,
      () => queue.rearm(),
      (by) => queue.rebase(by),
    );
    const queue = new WaiterQueue(time, open(time.last, time.epoch));
    return queue;
  }

  constructor(time: Timeline, cell: Cell) {
    this.#time = time;
    this.#released = cell;
  }

  /** How many permits the waiters ask for. */
  get permits(): number {
    return this.#permits;
  }

  /** Whether no caller waits, and neither a pause nor a credit for a late timer is in effect. */
  get isIdle(): boolean {
    this.catchUp();
    const until = Math.max(this.#pausedUntil, this.#lateUntil);
    return this.#line.head === undefined && this.#time.last >= until;
  }

  /** The state after all released waiters. */
  get cell(): Cell {
    return this.#released;
  }

  /** The state after all waiters; read-only. */
  get outcome(): Cell {
    this.catchUp();
    return this.#line.head === undefined ? this.#released : this.#promiseAll().cell;
  }

  now(): number {
    return this.#time.now();
  }

  /** Takes the permits if they can be used now and no caller waits. */
  grant(now: number, amount: Amount): boolean {
    const free = this.#line.head === undefined && now >= this.#specialUntil;
    const at = this.#released.earliest(free ? now : this.#turn(now, amount), amount);
    if (at > now) {
      this.#possible(at, amount);
      return false;
    }
    this.#released.take(at, amount, now);
    return true;
  }

  /** Releases due waiters, then returns from when a new request may go: later than `now` if any remain. */
  #turn(now: number, amount: Amount): number {
    this.#release(now);
    if (this.#line.head !== undefined) return now + 1;
    const from = this.#from(now, amount);
    if (from === now) this.#lateBy = 0;
    return from;
  }

  /** Returns the prospects of a request that is made now. */
  outlook(now: number, amount: Amount): Outlook {
    const { instant, from, cell } = this.#lookAhead(now, amount);
    const full = instant > now && cell.isBounded ? cell.overflowing(now, amount) : -1;
    const allows = cell.allows(from, now, amount);
    const quotas = statusesOf(cell.quotas(now), (i) => allows[i] === true);
    return {
      instant: full >= 0 ? Infinity : instant,
      slowest: full >= 0 ? full : cell.slowest(from, amount),
      quotas:
        from > now || this.#line.head ? quotas.map((quota) => held(quota, from - now)) : quotas,
    };
  }

  /** Returns the first instant at which the permits could be used, behind all waiters. */
  instant(now: number, amount: Amount): number {
    return this.#lookAhead(now, amount).instant;
  }

  /** Returns whether a policy does not let that many permits wait behind the present waiters. */
  overflows(now: number, amount: Amount): boolean {
    const bounded = this.#released.isBounded;
    return bounded && this.#lookAhead(now, amount).cell.overflowing(now, amount) >= 0;
  }

  #lookAhead(now: number, amount: Amount): { instant: number; from: number; cell: Cell } {
    this.#release(now);
    let from = this.#from(now, amount);
    let cell = this.#released;
    if (this.#line.head !== undefined) {
      const promised = this.#promiseAll();
      from = Math.max(from, promised.at);
      cell = promised.cell;
    }
    return { instant: this.#possible(cell.earliest(from, amount), amount), from, cell };
  }

  /**
   * Returns from when a request that is made now, with no waiter in front, may be granted. The lateness
   * of our timer is subtracted if the caller came back at once, or would have had to wait had the timer
   * been on time. A caller that is slower than the limit by itself gains nothing.
   */
  #from(now: number, amount: Amount): number {
    const onTime = now - this.#lateBy;
    const credited = now < this.#lateUntil || this.#released.earliest(onTime, amount) > onTime;
    return Math.max(credited ? onTime : now, this.#pausedUntil);
  }

  /** Returns the instant. @throws PermitsExceedCapacityError if it is `Infinity` */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.#released.excess(this.#time.last, amount);
  }

  /** Checks the permits of a request, and that the policies could ever let them through. */
  possible(permits: unknown): Amount {
    const amount = this.#released.amount(permits);
    this.#possible(this.#released.earliest(this.now(), amount), amount);
    return amount;
  }

  /** Releases all waiters that are due, even if the timer has not fired yet. */
  catchUp(): void {
    this.#release(this.now());
  }

  add(waiter: Waiter): void {
    this.#line.append(waiter);
    this.#permits += sizeOf(waiter.amount);
    for (const signal of waiter.signals) this.#signals.add(signal, waiter);
    if (waiter.awaited) this.#attend();
  }

  #attend(): void {
    this.#awaited += 1;
    if (this.#timer === undefined) this.#arm();
  }

  /**
   * Called when a caller starts to await a reservation that is in the line: it needs the timer now, and
   * follows every change.
   */
  attend(reservation: Waiter): void {
    this.#attend();
    if (this.#line.release(reservation)) this.#outdated();
  }

  /** Adds a signal that cancels the waiter. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    waiter.signals = [...waiter.signals, signal];
    this.#signals.add(signal, waiter);
  }

  /** Removes a waiter from the line; the waiters behind it move up. */
  remove(waiter: Waiter): void {
    // it blocked the waiters behind it until now, or until its own instant if our timer is late
    if (waiter === this.#line.head) {
      this.#floor = Math.min(this.now(), this.#instantOf(waiter));
    }
    if (this.#leave(waiter)) this.#outdated();
    this.#promised = undefined;
    this.#settleSoon();
  }

  /**
   * Drops the callers that have waited longest, until at least that many permits are dropped.
   *
   * @returns `false` if that many cannot be dropped; then no caller is dropped
   */
  dropOldest(permits: number, reason: (waiter: Waiter) => Error): boolean {
    const victims: Waiter[] = [];
    let left = permits;
    for (let place = this.#line.head; place !== undefined && left > 0; place = place.next) {
      if (place instanceof Change || place.drop === undefined) continue;
      victims.push(place);
      left -= sizeOf(place.amount);
    }
    if (left > 0) return false;
    const now = this.now();
    for (const waiter of victims) {
      const error = reason(waiter);
      this.remove(waiter);
      waiter.drop?.(error, now);
    }
    return true;
  }

  /** Called when a change has moved up in the line: the waiters behind it get new instants. */
  #outdated(): void {
    this.#floor = Math.max(this.#floor, this.#time.last);
    this.#promised = undefined;
    this.#stale = true;
    this.#settleSoon();
  }

  /** Changes the amount of a waiter that is still in the line. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#permits += sizeOf(amount) - sizeOf(waiter.amount);
    waiter.amount = amount;
    this.#floor = Math.max(this.#floor, this.#time.last);
    this.#retime();
  }

  /** Takes the permits whatever the state; the waiters are delayed accordingly. */
  charge(amount: Amount): void {
    this.change((cell, now) => cell.take(now, amount));
  }

  refund(amount: Amount): void {
    this.change((cell, now) => cell.giveBack(now, amount));
  }

  resize(policies: readonly Policy[]): void {
    this.change((cell, now, epoch) => cell.resize(now, policies, epoch));
  }

  /**
   * Replaces the state by a new one and ends any pause. The waiters in the line take from the new state,
   * in order.
   */
  reset(): void {
    this.catchUp();
    const now = this.#time.last;
    for (let place = this.#line.head; place !== undefined; ) {
      const { next }: Place = place;
      if (place instanceof Change) {
        place.apply(this.#released);
        this.#line.remove(place);
      }
      place = next;
    }
    this.#released.restart(now, this.#time.epoch);
    this.#floor = now;
    this.#pausedUntil = now;
    this.#lateBy = 0;
    this.#lateUntil = now;
    this.#retime();
  }

  /** Applies a change to the state when its turn in the line comes. */
  change(deed: (cell: Cell, now: number, epoch: number) => void): void {
    this.catchUp();
    const now = this.#time.last;
    const { epoch } = this.#time;
    this.#line.append(new Change(now, (cell) => deed(cell, now, epoch)));
    this.#retime();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#time.last + micros);
    this.#retime();
  }

  /**
   * Computes the instants of all waiters again: rejects waiters that can no longer meet their deadline,
   * and releases those that are due.
   */
  #retime(): void {
    this.#stale = false;
    this.#promised = undefined;
    this.#release(this.#time.last);
    if (this.#line.head !== undefined) {
      this.#promiseAll();
      this.#release(this.#time.last);
    }
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

  /** Releases all waiters that are due, each at its instant. */
  #release(now: number): void {
    for (let place = this.#line.head; place !== undefined; place = this.#line.head) {
      if (place instanceof Change) {
        place.apply(this.#released);
        this.#floor = Math.max(this.#floor, place.since);
        this.#line.remove(place);
      } else {
        const at = this.#instantOf(place);
        if (at > now) break;
        this.#charge(place, at, now);
        this.#floor = at;
        if (place.awaited) this.#makeUpFor(now - at, now);
        this.#leave(place);
        place.release(at, now);
      }
      if (place === this.#promised?.last) this.#promised = undefined;
    }
    this.#specialUntil = this.#lateBy > 0 ? Infinity : this.#pausedUntil;
  }

  #charge(waiter: Waiter, at: number, now: number): void {
    // a reservation that no caller awaits starts at its instant, by its holder's own timer
    this.#released.take(at, waiter.taken, waiter.awaited ? now : at);
    // the waiters behind it were promised instants that follow its booked one
    if (now > at && this.#released.isStrict) this.#promised = undefined;
  }

  #makeUpFor(lateness: number, now: number): void {
    this.#lateBy = Math.min(lateness, LONGEST_CREDIT);
    this.#lateUntil = now + this.#lateBy;
  }

  #instantOf(waiter: Waiter): number {
    const from = Math.max(waiter.asked, this.#floor, this.#pausedUntil);
    return this.#released.earliest(from, waiter.amount);
  }

  /** Replays the line from the last waiter that was replayed to the end. */
  #promiseAll(): Promised {
    // a copy without any replayed waiter is outdated: the released state has changed since
    if (this.#promised?.last === undefined) {
      this.#promised = { cell: this.#released.copy(), at: this.#floor, last: undefined };
    }
    const promised = this.#promised;
    let place = promised.last === undefined ? this.#line.head : promised.last.next;
    while (place !== undefined) {
      const { next }: Place = place;
      if (this.#promise(place, promised)) promised.last = place;
      place = next;
    }
    return promised;
  }

  /** Replays one place; returns `false` if its instant would be later than its deadline. */
  #promise(place: Place, promised: Promised): boolean {
    if (place instanceof Change) {
      place.apply(promised.cell);
      promised.at = Math.max(promised.at, place.since);
      return true;
    }
    const from = Math.max(place.asked, promised.at, this.#pausedUntil);
    const at = promised.cell.earliest(from, place.amount);
    if (Math.ceil(at) > place.deadline) {
      this.#leave(place);
      place.refuse(this.#time.last);
      return false;
    }
    promised.cell.take(at, place.taken);
    promised.at = at;
    return true;
  }

  /** @returns whether a change has moved up */
  #leave(waiter: Waiter): boolean {
    this.#permits -= sizeOf(waiter.amount);
    if (waiter.awaited) this.#awaited -= 1;
    for (const signal of waiter.signals) this.#signals.delete(signal, waiter);
    return this.#line.remove(waiter);
  }

  #arm(): void {
    const head = this.#line.head;
    if (this.#awaited === 0 || head === undefined || head instanceof Change) {
      this.#disarm();
      return;
    }
    const at = this.#instantOf(head);
    if (this.#timer !== undefined && this.#timerAt === at) return;
    this.#disarm();
    this.#timerAt = at;
    this.#timer = this.#time.wakeAt(at, this.#wake);
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** Sets the timer again: the clock went back. */
  rearm(): void {
    this.#disarm();
    this.#settleSoon();
  }

  /** Subtracts `by` from all instants; refuses while there are waiters, which hold instants of their own. */
  rebase(by: number): boolean {
    if (this.#line.head !== undefined) return false;
    this.#released.shift(-by);
    this.#floor -= by;
    this.#pausedUntil -= by;
    this.#lateUntil -= by;
    this.#specialUntil -= by;
    return true;
  }

  /** Releases due waiters; a timer may fire early, so the head that is not due gets a new timer. */
  readonly #wake = (): void => {
    this.#timer = undefined;
    this.#release(this.now());
    this.#arm();
  };
}
