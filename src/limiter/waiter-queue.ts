/**
 * Everyone who waits for one limiter: one first-in-first-out line, and one timer for its head.
 *
 * The queue holds the state after what has been *released*, and the state after all who *wait*. The second is a copy
 * of the first on which the line is replayed. It is made when somebody asks for it, and thrown away when a waiter is
 * cancelled or the numbers change: so a cancelled waiter leaves no gap, and cancelling n waiters costs n steps.
 *
 * Each waiter is released at its own instant, the one at which the policies let it go. A late timer releases all who are
 * due, each accounted for at its instant, so that lateness costs nobody in the line anything. Whoever was released late
 * and asks again is treated as if it had been on time: see `#lateBy`.
 *
 * Times are microseconds since the queue was made.
 */
import type { Quota } from "../algorithms/algorithm.ts";
import { type Clock, type Timer, toMicros } from "../clock.ts";
import { type Amount, sizeOf } from "../permits.ts";
import { type Cell, openCell, type PolicyList } from "../stores/memory.ts";
import { AbortGroups } from "./abort-groups.ts";
import { held } from "./decision.ts";
import { Change, type Place, type Waiter } from "./waiter.ts";

/** A blocked event loop is no late timer: more than this is not made up for. */
const LONGEST_CREDIT = 10_000;

/** The state after everyone in the line up to `last`, who goes at `at`. */
interface LineUp {
  readonly cell: Cell;
  at: number;
  last: Place | undefined;
}

/** What somebody who asks at the end of the line meets. */
export interface Outlook {
  /** The first instant at which the permits could be used. */
  readonly instant: number;
  /** Which policy makes the permits wait longest, and how all stand after everyone who waits. */
  readonly slowest: number;
  readonly quotas: readonly Quota[];
}

export class WaiterQueue {
  readonly #clock: Clock;
  readonly #signals = new AbortGroups<Waiter>((waiter, reason) => {
    this.remove(waiter);
    waiter.abort(reason);
  });
  readonly #released: Cell;
  #lineUp: LineUp | undefined;

  /** The clock's microseconds at our 0, and our last reading. */
  #origin: number;
  #now = 0;

  #head: Place | undefined;
  #tail: Place | undefined;
  /** How many in the line are waiters, cancelled waiters, and changes of numbers. */
  #alive = 0;
  #gone = 0;
  #changes = 0;
  #seated = true;
  /** How many permits are waited for, and how many waiters have a pending promise. */
  #permits = 0;
  #awaited = 0;

  /** Nobody is released before these: the instant of the last release, and the end of a pause. */
  #floor = 0;
  #pausedUntil = 0;

  /**
   * How late our own timer was, and until when those whom it released ask as if it had not been: who comes back at once
   * would otherwise pay for our timer with time that is not stored. Bounded by the lateness itself and by
   * `LONGEST_CREDIT`; replaced at each release, never added up; nobody is let in before its instant.
   */
  #lateBy = 0;
  #lateUntil = 0;
  /** Until here there is a pause to respect or lateness to make up for. */
  #specialUntil = 0;

  #timer: Timer | undefined;
  #timerAt = 0;
  #settling = false;

  constructor(clock: Clock, policies: PolicyList) {
    this.#clock = clock;
    this.#origin = toMicros(clock.now());
    this.#released = openCell(policies, 0);
  }

  /** How many permits are waited for. */
  get permits(): number {
    return this.#permits;
  }

  /** The state after what has been released. */
  get cell(): Cell {
    return this.#released;
  }

  now(): number {
    const now = toMicros(this.#clock.now()) - this.#origin;
    if (now >= this.#now) {
      this.#now = now;
      return now;
    }
    return this.#stepBack(now);
  }

  /** The clock went back. Time goes on from where it was: nothing is minted, and nobody waits for the hour to come round again. */
  #stepBack(now: number): number {
    if (Number.isNaN(now)) throw new TypeError("clock.now() must give a finite number, got NaN");
    this.#origin += now - this.#now;
    this.#disarm();
    this.#settleSoon();
    return this.#now;
  }

  /** Takes the permits if they can be used now and nobody stands before. */
  grant(now: number, amount: Amount): boolean {
    let from = now;
    if (this.#head !== undefined || now < this.#specialUntil) {
      this.#release(now);
      if (this.#head !== undefined) {
        this.#possible(this.#released.earliest(now, amount), amount);
        return false;
      }
      from = this.#from(now);
    }
    const at = this.#released.earliest(from, amount);
    if (at > now) {
      this.#possible(at, amount);
      return false;
    }
    this.#released.take(at, amount);
    return true;
  }

  /** The end of the line, as it looks to somebody who asks now. */
  outlook(now: number, amount: Amount): Outlook {
    const { instant, from, cell } = this.#lookAhead(now, amount);
    const quotas = cell.quotas(now);
    return {
      instant,
      slowest: cell.slowest(from, amount),
      quotas: from > now || this.#head ? quotas.map((quota) => held(quota, from - now)) : quotas,
    };
  }

  /** The first instant at which the permits could be used if all who wait go first. */
  instant(now: number, amount: Amount): number {
    return this.#lookAhead(now, amount).instant;
  }

  #lookAhead(now: number, amount: Amount): { instant: number; from: number; cell: Cell } {
    this.#release(now);
    let from = this.#from(now);
    let cell = this.#released;
    if (this.#head !== undefined) {
      const line = this.#lineUpToTail();
      from = Math.max(from, line.at);
      cell = line.cell;
    }
    return { instant: this.#possible(cell.earliest(from, amount), amount), from, cell };
  }

  /** From when somebody who asks now and has nobody before may be let in. */
  #from(now: number): number {
    const asked = now < this.#lateUntil ? now - this.#lateBy : now;
    return Math.max(asked, this.#pausedUntil);
  }

  /** Hands the instant back, unless it will never come. */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.#released.excess(this.#now, amount);
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
    this.#append(waiter);
    this.#alive += 1;
    this.#permits += sizeOf(waiter.amount);
    if (waiter.signal !== undefined) this.#signals.add(waiter.signal, waiter);
    if (waiter.awaited) this.attend();
  }

  /** One waiter more has a promise that waits: it needs the timer. */
  attend(): void {
    this.#awaited += 1;
    this.#seated = this.#changes === 0;
    if (this.#timer === undefined) this.#arm();
  }

  /** From now on the waiter heeds this signal too. */
  heed(waiter: Waiter, signal: AbortSignal): void {
    if (waiter.signal !== undefined) this.#signals.delete(waiter.signal, waiter);
    waiter.signal = waiter.signal === undefined ? signal : AbortSignal.any([waiter.signal, signal]);
    this.#signals.add(waiter.signal, waiter);
  }

  /** Takes a waiter out of the line; those behind it move up. */
  remove(waiter: Waiter): void {
    this.#drop(waiter);
    this.#lineUp = undefined;
    this.#seated = this.#changes === 0;
    if (this.#gone > this.#alive) this.#sweep();
    if (this.#awaited === 0 || this.#head?.gone) this.#settleSoon();
  }

  /** The waiter, still in the line, asks for another amount. */
  change(waiter: Waiter, amount: Amount): void {
    this.#permits += sizeOf(amount) - sizeOf(waiter.amount);
    waiter.amount = amount;
    this.#retime();
  }

  /** Taken whatever the state; those who wait pay. */
  charge(amount: Amount): void {
    this.catchUp();
    this.#released.take(this.#now, amount);
    this.#retime();
  }

  refund(amount: Amount): void {
    this.catchUp();
    this.#released.giveBack(this.#now, amount);
    this.#retime();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#now + micros);
    this.#retime();
  }

  resize(policies: PolicyList): void {
    this.catchUp();
    this.#append(new Change(this.#now, policies));
    this.#changes += 1;
    this.#seated = false;
    this.#retime();
  }

  /** Everyone in the line may have another instant: some can no longer meet their deadline, some are due. */
  #retime(): void {
    this.#lineUp = undefined;
    this.#release(this.#now);
    this.#lineUpToTail();
    this.#release(this.#now);
    this.#arm();
  }

  /** Once for all cancellations of one turn. */
  #settleSoon(): void {
    if (this.#settling) return;
    this.#settling = true;
    queueMicrotask(() => {
      this.#settling = false;
      this.#release(this.now());
      this.#arm();
    });
  }

  /** Lets go all who are due, each at its instant. */
  #release(now: number): void {
    if (!this.#seated) this.#seatChanges();
    // those behind a cancelled head may have been able to go earlier, but they were not let
    if (this.#head?.gone) this.#floor = Math.max(this.#floor, now);
    let place = this.#head;
    for (; place !== undefined; place = place.next) {
      if (place instanceof Change) {
        this.#changes -= 1;
        this.#released.resize(place.since, place.policies.list);
      } else if (place.gone) {
        this.#gone -= 1;
      } else {
        const at = this.#instantOf(place);
        if (at > now) break;
        this.#released.take(at, place.taken);
        this.#floor = at;
        this.#leave(place);
        place.release(at, now);
        if (place === this.#lineUp?.last) this.#lineUp = undefined;
        this.#lateBy = Math.min(now - at, LONGEST_CREDIT);
        this.#lateUntil = now + this.#lateBy;
      }
    }
    this.#head = place;
    if (place === undefined) {
      this.#tail = undefined;
      this.#lineUp = undefined;
    }
    this.#specialUntil = Math.max(this.#pausedUntil, this.#lateUntil);
  }

  #instantOf(waiter: Waiter): number {
    const from = Math.max(waiter.asked, this.#floor, this.#pausedUntil);
    return this.#released.earliest(from, waiter.amount);
  }

  /** Replays the line, from where that was last done to its end. */
  #lineUpToTail(): LineUp {
    this.#lineUp ??= { cell: this.#released.copy(), at: this.#floor, last: undefined };
    const line = this.#lineUp;
    let place = line.last === undefined ? this.#head : line.last.next;
    for (; place !== undefined; place = place.next) {
      line.last = place;
      if (place instanceof Change) line.cell.resize(place.since, place.policies.list);
      else if (!place.gone) {
        const from = Math.max(place.asked, line.at, this.#pausedUntil);
        const at = line.cell.earliest(from, place.amount);
        if (Math.ceil(at) > place.deadline) {
          this.#drop(place);
          place.refuse();
        } else {
          line.cell.take(at, place.taken);
          line.at = at;
        }
      }
    }
    return line;
  }

  /**
   * A change of numbers stands behind the reservations that were told their wait under the old ones, and before
   * everybody who merely waits. When such a reservation has left, the change moves up.
   */
  #seatChanges(): void {
    this.#seated = true;
    let seat: Place | undefined;
    let before: Place | undefined;
    for (let place = this.#head; place !== undefined; ) {
      const next = place.next;
      const isChange = place instanceof Change;
      if (isChange && before !== seat && before !== undefined) {
        before.next = next;
        if (next === undefined) this.#tail = before;
        if (seat === undefined) {
          place.next = this.#head;
          this.#head = place;
        } else {
          place.next = seat.next;
          seat.next = place;
        }
        seat = place;
        this.#lineUp = undefined;
      } else {
        if (!place.gone && !place.awaited) seat = place;
        before = place;
      }
      place = next;
    }
  }

  #append(place: Place): void {
    if (this.#tail === undefined) this.#head = place;
    else this.#tail.next = place;
    this.#tail = place;
  }

  #drop(waiter: Waiter): void {
    this.#leave(waiter);
    waiter.gone = true;
    this.#gone += 1;
  }

  #leave(waiter: Waiter): void {
    this.#alive -= 1;
    this.#permits -= sizeOf(waiter.amount);
    if (waiter.awaited) this.#awaited -= 1;
    if (waiter.signal !== undefined) this.#signals.delete(waiter.signal, waiter);
  }

  /** Unlinks the cancelled ones behind the head: a line whose head waits long must not keep them all. */
  #sweep(): void {
    let kept = this.#head;
    for (let place = kept?.next; place !== undefined; place = place.next) {
      if (place.gone) this.#gone -= 1;
      else {
        if (kept !== undefined) kept.next = place;
        kept = place;
      }
    }
    if (kept !== undefined) kept.next = undefined;
    this.#tail = kept;
  }

  #arm(): void {
    const head = this.#head;
    if (this.#awaited === 0 || head === undefined || head instanceof Change) {
      this.#disarm();
      return;
    }
    const at = Math.ceil(this.#instantOf(head));
    if (this.#timer !== undefined && this.#timerAt === at) return;
    this.#disarm();
    this.#timerAt = at;
    this.#timer = this.#clock.wakeAt((this.#origin + at) / 1000, this.#wake);
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** A timer may be early; whoever is not due then gets a new one. */
  readonly #wake = (): void => {
    this.#timer = undefined;
    this.#release(this.now());
    this.#arm();
  };
}
