/**
 * When the waiters of one limiter are released: one line over the state of the policies, first in, first out
 * or in the order of a fair limiter. It has no timer of its own: `WaiterQueue` extends it.
 *
 * The schedule holds two states: the state after all *released* waiters, and the state after all waiters
 * still in the line (`Line.replay`). The second is a copy of the first on which the line is replayed. It is
 * made on demand, and discarded when a waiter is cancelled or the numbers change. So a cancelled waiter
 * leaves no gap, and cancelling n waiters costs n steps.
 *
 * Each waiter is released at the instant at which the policies let it through. A late look at the line
 * releases all waiters that are due, and accounts each at its own instant, so the lateness costs the line
 * no permits. A caller that was released late and calls again is treated as if the timer had been on
 * time: see `LateCredit`.
 */
import type { Amount } from "../ground/permits.ts";
import type { PolicyState } from "../stores/policy-state.ts";
import type { Turn } from "./fair/turn.ts";
import { LateCredit } from "./late-credit.ts";
import type { Line } from "./line.ts";
import { FIFO, type Order } from "./order.ts";
import type { Timeline } from "./timeline.ts";
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

export abstract class Schedule {
  protected readonly time: Timeline;
  readonly #line: Line;
  readonly #released: PolicyState;
  readonly #late = new LateCredit();

  /** The instant of the last grant, and the end of a pause: see `#from`. */
  #floor = 0;
  #pausedUntil = 0;
  /** Before this instant, `grant` has to consider a pause or the lateness of the timer. */
  #specialUntil = 0;

  /** @param order of the waiters; default first in, first out */
  constructor(time: Timeline, policyState: PolicyState, order: Order = FIFO) {
    this.time = time;
    this.#released = policyState;
    this.#line = order.line(policyState, (waiter) => this.#refuse(waiter));
  }

  /** Called with each waiter that leaves the line, for whatever reason. */
  protected abstract left(waiter: Waiter): void;

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
    return this.#isEmpty && this.time.last >= Math.max(this.#pausedUntil, this.#late.until);
  }

  /** The state after all released waiters. */
  get policyState(): PolicyState {
    return this.#released;
  }

  /** The state after all waiters; read-only. */
  get outcome(): PolicyState {
    this.catchUp();
    return this.#isEmpty ? this.#released : this.#line.replay(this.#from).policyState;
  }

  /** When the head is due; `undefined` if no promise is pending for any waiter. */
  protected get due(): number | undefined {
    const head = this.#line.head;
    if (!this.#line.isAwaited || head === undefined || head instanceof Change) return undefined;
    return Math.min(this.#instantOf(head), this.#line.urgent?.deadline ?? Infinity);
  }

  /**
   * Takes the permits if they can be used now and no caller waits before this one.
   *
   * @param since from when the request counts as one that waits, if that is earlier than `now`: see `Backlog`
   * @param turn on a fair limiter
   */
  grant(now: number, amount: Amount, since = Infinity, turn?: Turn<Waiter>): boolean {
    const free = this.#line.head === undefined && now >= this.#specialUntil && now <= since;
    const from = free ? now : this.#grantFrom(now, amount, since, turn);
    const at = this.#released.earliest(from, amount);
    if (at > now) {
      this.#possible(at, amount);
      return false;
    }
    this.#released.take(at, amount, now);
    this.#floor = Math.max(this.#floor, at);
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

  /** Returns the prospect of a request that is made now. @param turn on a fair limiter */
  protected lookAhead(now: number, amount: Amount, turn?: Turn<Waiter>): Prospect {
    this.#release(now);
    let from = this.#onTime(now, amount);
    let policyState = this.#released;
    const isFirst = this.#line.isNext(turn);
    if (!isFirst) {
      const promised = this.#line.replay(this.#from, turn);
      from = Math.max(from, promised.at);
      policyState = promised.policyState;
    }
    return {
      instant: this.#possible(policyState.earliest(from, amount), amount),
      from,
      policyState,
      isFirst,
    };
  }

  /** Returns from when a request that is made now, with no waiter in front, may be granted. */
  #onTime(now: number, amount: Amount): number {
    return Math.max(this.#late.from(now, this.#released, amount), this.#pausedUntil);
  }

  /** Checks the permits of a request, and that the policies could ever let them through. */
  possible(permits: unknown): Amount {
    const amount = this.#released.amount(permits);
    this.#possible(this.#released.earliest(this.time.now(), amount), amount);
    return amount;
  }

  /** Returns the instant. @throws PermitsExceedCapacityError if it is `Infinity` */
  #possible(instant: number, amount: Amount): number {
    if (instant < Infinity) return instant;
    throw this.#released.excess(this.time.last, amount);
  }

  add(waiter: Waiter): void {
    this.#line.append(waiter, this.#from);
  }

  /** Called when a caller starts to await a reservation that is in the line: changes may overtake it. */
  attend(reservation: Waiter): void {
    if (this.#line.release(reservation)) this.outdate();
  }

  /** Removes a waiter from the line; the waiters behind it move up. */
  remove(waiter: Waiter): void {
    const now = this.time.now();
    // it blocked the waiters behind it until now, or until its own instant if our timer is late
    if (waiter === this.#line.head) this.#floor = Math.min(now, this.#instantOf(waiter));
    this.#line.discard();
    if (this.#leave(waiter)) this.outdate();
  }

  /** See `Line.oldestDroppable`. */
  protected oldestDroppable(permits: number): readonly Waiter[] {
    return this.#line.oldestDroppable(permits);
  }

  /** Called when the waiters need new instants, none of them before the present; `retime` computes them. */
  protected outdate(): void {
    this.#floor = Math.max(this.#floor, this.time.last);
    this.#line.discard();
  }

  /** Changes the amount of a waiter that is still in the line. */
  resettle(waiter: Waiter, amount: Amount): void {
    this.#line.resize(waiter, amount);
    this.outdate();
    this.retime();
  }

  /** Applies a change to the state when its turn in the line comes. */
  change(deed: (policyState: PolicyState, now: number, epoch: number) => void): void {
    this.catchUp();
    const { last: now, epoch } = this.time;
    const change = new Change(now, (policyState) => deed(policyState, now, epoch));
    this.#line.append(change, this.#from);
    this.retime();
  }

  /**
   * Replaces the state by a new one and ends any pause. The waiters in the line take from the new state,
   * in order.
   */
  reset(): void {
    this.catchUp();
    const { last: now, epoch } = this.time;
    this.#line.applyChanges(this.#released);
    this.#released.restart(now, epoch);
    this.#floor = now;
    this.#pausedUntil = now;
    this.#late.grant(0, now);
    this.retime();
  }

  pause(micros: number): void {
    this.catchUp();
    this.#pausedUntil = Math.max(this.#pausedUntil, this.time.last + micros);
    this.retime();
  }

  /**
   * Computes the instants of all waiters again: rejects waiters that can no longer meet their deadline,
   * and releases those that are due.
   */
  protected retime(): void {
    this.#line.discard();
    this.#release(this.time.last);
    if (this.#isEmpty) return;
    this.#line.refuseLate(this.#from);
    this.#release(this.time.last);
  }

  /** Releases all waiters that are due, even if the timer has not fired yet. */
  catchUp(): void {
    this.#release(this.time.now());
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
        const { urgent } = this.#line;
        if (urgent !== undefined && urgent.deadline < Math.min(Math.ceil(at), now + 1)) {
          this.#refuse(urgent);
          continue;
        }
        if (at > now) break;
        this.#charge(place, at, now);
        this.#floor = at;
        if (place.awaited) this.#late.grant(now - at, now);
        this.#leave(place, at);
        place.release(at, now);
      }
    }
    this.#specialUntil = this.#late.isOpen ? Infinity : this.#pausedUntil;
  }

  #charge(waiter: Waiter, at: number, now: number): void {
    // a reservation that no caller awaits starts at its instant, by its holder's own timer
    this.#released.take(at, waiter.taken, waiter.awaited ? now : at);
    // the waiters behind it were promised instants that follow its booked one
    if (now > at && this.#released.isStrict) this.#line.discard();
  }

  #instantOf(waiter: Waiter): number {
    return this.#released.earliest(Math.max(waiter.asked, this.#from), waiter.amount);
  }

  /** No waiter is released before this instant. */
  get #from(): number {
    return Math.max(this.#floor, this.#pausedUntil);
  }

  /** Removes a waiter that cannot meet its deadline. */
  #refuse(waiter: Waiter): void {
    this.#leave(waiter);
    waiter.refuse(this.time.last);
  }

  /** @param at when it is released; absent: it is not @returns whether a change has moved up */
  #leave(waiter: Waiter, at?: number): boolean {
    this.left(waiter);
    return this.#line.remove(waiter, at);
  }

  /** Subtracts `by` from all instants; refuses while there are waiters, which hold instants of their own. */
  rebase(by: number): boolean {
    if (!this.#isEmpty) return false;
    this.#released.shift(-by);
    this.#floor -= by;
    this.#pausedUntil -= by;
    this.#late.rebase(by);
    this.#specialUntil -= by;
    return true;
  }
}
