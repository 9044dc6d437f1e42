/**
 * Everyone who waits for one limiter: one first-in-first-out line, and one timer for its head.
 *
 * The queue holds the state after what has been *released*, and the state after all who *wait*. The
 * second is a copy of the first on which the line is replayed. It is made when somebody asks for
 * it, and thrown away when a waiter is cancelled or the numbers change: so a cancelled waiter
 * leaves no gap, and cancelling n waiters costs n steps.
 *
 * Each waiter is released at its own instant, the one at which the policies let it go. A late timer
 * releases all who are due, each accounted for at its instant, so that lateness costs nobody in the
 * line anything. Whoever was released late and asks again is treated as if it had been on time: see
 * `#lateBy`.
 *
 * Times are those of the limiter's `Timeline`.
 */
import type { Clock, Timer } from "../clock.ts";
import { type Amount, sizeOf } from "../permits.ts";
import { type Cell, openCell, type PolicyList, restart } from "../stores/memory.ts";
import { AbortGroups } from "./abort-groups.ts";
import { held, statusesOf } from "./decision.ts";
import type { PolicyStatus } from "./face.ts";
import { Line } from "./line.ts";
import { LONGEST_CREDIT, Timeline } from "./timeline.ts";
import { Change, type Place, type Waiter } from "./waiter.ts";

/** The state after everyone in the line up to `last`, who goes at `at`. */
interface Promised {
  readonly cell: Cell;
  at: number;
  last: Place | undefined;
}

/** What somebody who asks at the end of the line meets. */
export interface Outlook {
  /**
   * The first instant at which the permits could be used; `Infinity` where a policy does not let
   * them wait.
   */
  readonly instant: number;
  /**
   * The policy that does not let the permits wait, or else makes them wait longest; and how all
   * stand after everyone who waits.
   */
  readonly slowest: number;
  readonly quotas: readonly PolicyStatus[];
}

export class WaiterQueue {
  readonly #time: Timeline;
  readonly #line = new Line();
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    // read while it stands in the line, where its instants hold
    const now = this.now();
    this.remove(waiter);
    waiter.abort(reason, now);
  });
  readonly #released: Cell;
  #promised: Promised | undefined;

  /** How many permits are waited for, and how many waiters have a pending promise. */
  #permits = 0;
  #awaited = 0;

  /** Nobody is released before these: the instant of the last release, and the end of a pause. */
  #floor = 0;
  #pausedUntil = 0;

  /**
   * How late our own timer was, and until when those whom it released ask as if it had not been:
   * who comes back at once would otherwise pay for our timer with time that is not stored. Bounded
   * by the lateness itself and by `LONGEST_CREDIT`; replaced at each release, never added up;
   * nobody is let in before its instant.
   */
  #lateBy = 0;
  #lateUntil = 0;
  /** Until here there is a pause to respect or lateness to make up for. */
  #specialUntil = 0;

  #timer: Timer | undefined;
  #timerAt = 0;
  #settling = false;
  /** Those in the line have other instants than when they were last looked at. */
  #stale = false;

  /** A queue with a time of its own. */
  static open(clock: Clock, policies: PolicyList): WaiterQueue {
    return WaiterQueue.over(clock, (now, epoch) => openCell(policies, now, epoch));
  }

  /** @param open the state, at a time of the queue; Unix time at its 0, whole microseconds */
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

  /** How many permits are waited for. */
  get permits(): number {
    return this.#permits;
  }

  /** Nobody waits, and there is neither a pause nor lateness to make up for. */
  get isIdle(): boolean {
    this.catchUp();
    const until = Math.max(this.#pausedUntil, this.#lateUntil);
    return this.#line.head === undefined && this.#time.last >= until;
  }

  /** The state after what has been released. */
  get cell(): Cell {
    return this.#released;
  }

  /** The state after all who wait: to be looked at only. */
  get outcome(): Cell {
    this.catchUp();
    return this.#line.head === undefined ? this.#released : this.#promiseAll().cell;
  }

  now(): number {
    return this.#time.now();
  }

  /** Takes the permits if they can be used now and nobody stands before. */
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

  /** From when: those who are due go first, and nobody goes before those who are not. */
  #turn(now: number, amount: Amount): number {
    this.#release(now);
    if (this.#line.head !== undefined) return now + 1;
    const from = this.#from(now, amount);
    if (from === now) this.#lateBy = 0;
    return from;
  }

  /** The end of the line, as it looks to somebody who asks now. */
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

  /** The first instant at which the permits could be used if all who wait go first. */
  instant(now: number, amount: Amount): number {
    return this.#lookAhead(now, amount).instant;
  }

  /** Whether the permits are more than may wait behind those who do. */
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
   * From when somebody who asks now and has nobody before may be let in. As if our timer had been
   * on time, if it came back at once or would then have had to wait: who is slower than the pace by
   * itself gains nothing.
   */
  #from(now: number, amount: Amount): number {
    const onTime = now - this.#lateBy;
    const credited = now < this.#lateUntil || this.#released.earliest(onTime, amount) > onTime;
    return Math.max(credited ? onTime : now, this.#pausedUntil);
  }

  /** Hands the instant back, unless it will never come. */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.#released.excess(this.#time.last, amount);
  }

  /** Checks what somebody asks for, and that there is any use in waiting for it. */
  possible(permits: unknown): Amount {
    const amount = this.#released.amount(permits);
    this.#possible(this.#released.earliest(this.now(), amount), amount);
    return amount;
  }

  /** Releases who is due, though the timer may not have fired yet. */
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
   * A reservation in the line has a promise that waits for it now: it needs the timer, and follows
   * every change.
   */
  attend(reservation: Waiter): void {
    this.#attend();
    if (this.#line.release(reservation)) this.#outdated();
  }

  /** From now on the waiter heeds this signal too. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    waiter.signals = [...waiter.signals, signal];
    this.#signals.add(signal, waiter);
  }

  /** Takes a waiter out of the line; those behind it move up. */
  remove(waiter: Waiter): void {
    // it held those behind it back until now, or until its own instant if our timer is late
    if (waiter === this.#line.head) {
      this.#floor = Math.min(this.now(), this.#instantOf(waiter));
    }
    if (this.#leave(waiter)) this.#outdated();
    this.#promised = undefined;
    this.#settleSoon();
  }

  /**
   * Drops the callers that have waited longest, until that many permits fewer are waited for.
   *
   * @returns `false`: that many cannot be dropped, and none was
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

  /** A change has moved up: whoever stands behind it has another instant, from now on. */
  #outdated(): void {
    this.#floor = Math.max(this.#floor, this.#time.last);
    this.#promised = undefined;
    this.#stale = true;
    this.#settleSoon();
  }

  /** The waiter, still in the line, asks for another amount. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#permits += sizeOf(amount) - sizeOf(waiter.amount);
    waiter.amount = amount;
    this.#floor = Math.max(this.#floor, this.#time.last);
    this.#retime();
  }

  /** Taken whatever the state; those who wait pay. */
  charge(amount: Amount): void {
    this.change((cell, now) => cell.take(now, amount));
  }

  refund(amount: Amount): void {
    this.change((cell, now) => cell.giveBack(now, amount));
  }

  resize(policies: PolicyList): void {
    this.change((cell, now, epoch) => cell.resize(now, policies.list, epoch));
  }

  /**
   * The state is a new one from now on, and no pause holds any more. Those in the line take from
   * it, in their order.
   *
   * @param policies in force after every change that is still in the line
   */
  reset(policies: PolicyList): void {
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
    restart(this.#released, policies, now, this.#time.epoch);
    this.#floor = now;
    this.#pausedUntil = now;
    this.#lateBy = 0;
    this.#lateUntil = now;
    this.#retime();
  }

  /** Something happens to the state, in its turn. */
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
   * Everyone in the line may have another instant: some can no longer meet their deadline, some are
   * due.
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

  /** Once for all who leave in one turn. */
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

  /** Lets go all who are due, each at its instant. */
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
    // a reservation that is not awaited starts by its holder's own timer
    this.#released.take(at, waiter.taken, waiter.awaited ? now : at);
    // those behind were promised the instants that follow its booked one
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

  /** Replays the line, from where that was last done to its end. */
  #promiseAll(): Promised {
    // what was promised to nobody says nothing: the state has gone on since
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

  /** The place takes its turn in what is promised; `false`: that would be too late for it. */
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

  /** The clock went back, and the timer with it. */
  rearm(): void {
    this.#disarm();
    this.#settleSoon();
  }

  /** All instants become less by that; while somebody waits there are too many of them. */
  rebase(by: number): boolean {
    if (this.#line.head !== undefined) return false;
    this.#released.shift(-by);
    this.#floor -= by;
    this.#pausedUntil -= by;
    this.#lateUntil -= by;
    this.#specialUntil -= by;
    return true;
  }

  /** A timer may be early; whoever is not due then gets a new one. */
  readonly #wake = (): void => {
    this.#timer = undefined;
    this.#release(this.now());
    this.#arm();
  };
}
