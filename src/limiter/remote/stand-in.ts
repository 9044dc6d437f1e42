/**
 * What lets callers in while their store is away. It is thrown away when the store is back: who still
 * waits asks the store, and what was used here is charged to it.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { share } from "../../algorithms/index.ts";
import { type Clock, toMillis } from "../../clock.ts";
import type { Amount, Permits } from "../../permits.ts";
import type { Cell } from "../../stores/memory.ts";
import type { StandInCell } from "../../stores/stand-in.ts";
import { decision, passedBy } from "../decision.ts";
import type { Decision, LocalReservation } from "../face.ts";
import type { Meter } from "../meter.ts";
import { type Account, correct, QueuedReservation } from "../reservation.ts";
import { Waiter } from "../waiter.ts";
import { WaiterQueue } from "../waiter-queue.ts";
import type { Asker } from "./asker.ts";

/** How often it is asked how many share the limit, microseconds. */
const SHARE_HOLDS = 1_000_000;

/** What the store has to be told. */
export interface Settlement {
  readonly used: Amount;
  /** Nobody goes before that many microseconds have passed. */
  readonly pause: number;
  /** Those who wait, in order. */
  readonly askers: readonly Asker[];
}

export interface StandInOptions {
  readonly clock: Clock;
  /** Knows what the store would never let through. */
  readonly whole: Cell;
  /** The policies in force. */
  readonly policies: readonly Policy[];
  /** Which part of them is this process' own. */
  readonly fraction: () => number;
  readonly open: (fraction: number, now: number, epoch: number) => StandInCell;
  /** Whether so much more may wait beside what waits already; if not, what to throw. */
  readonly hasRoom: (amount: Amount) => boolean;
  readonly full: (amount: Amount, policies: readonly Policy[]) => Error;
  /** Is told what is let in, and whose reservations were cancelled. */
  readonly granted: (amount: Amount) => void;
  readonly meter: Meter;
}

export class StandIn implements Account {
  readonly #options: StandInOptions;
  readonly #queue: WaiterQueue;
  readonly #cell: StandInCell;
  readonly #waiters = new Map<Asker, AskerInLine>();
  #fraction: number;
  #askedAgainAt: number;
  #pausedUntil = 0;
  /** Where corrections go when the store is back. */
  #successor: Account | undefined;

  constructor(options: StandInOptions) {
    this.#options = options;
    this.#fraction = options.fraction();
    let cell: StandInCell | undefined;
    this.#queue = WaiterQueue.over(options.clock, (now, epoch) => {
      cell = options.open(this.#fraction, now, epoch);
      return cell;
    });
    this.#cell = cell as StandInCell | undefined as StandInCell;
    this.#askedAgainAt = this.#queue.now() + SHARE_HOLDS;
  }

  /** How many permits are waited for. */
  get waiting(): number {
    return this.#queue.permits;
  }

  /** Nobody waits, nothing is missing and nothing is paused. */
  get isIdle(): boolean {
    const now = this.#queue.now();
    return this.#queue.isIdle && this.#cell.owed(now).every((permits) => permits === 0);
  }

  /** @throws PermitsExceedCapacityError */
  check(amount: Amount): void {
    const { whole } = this.#options;
    if (whole.earliest(0, amount) === Infinity) throw whole.excess(0, amount);
  }

  /** Somebody who asked the store, in vain. */
  admit(asker: Asker): void {
    const now = this.#now();
    const { amount, left } = asker;
    if (this.#queue.grant(now, amount)) {
      this.#options.granted(amount);
      asker.letIn();
    } else if (this.#hasRoom(now, amount) && this.#queue.instant(now, amount) <= now + left) {
      const waiter = new AskerInLine(this, now, asker, now + left);
      this.#waiters.set(asker, waiter);
      this.#queue.add(waiter);
    } else {
      asker.turnAway(() => this.#full(asker.amount));
    }
  }

  /** The asker has left the line. */
  answer(asker: Asker, isLetIn: boolean): void {
    this.#waiters.delete(asker);
    if (isLetIn) {
      this.#options.granted(asker.amount);
      asker.letIn();
    } else {
      asker.turnAway(() => this.#full(asker.amount));
    }
  }

  /** It is answered, or does not want its permits any more. */
  remove(asker: Asker): void {
    const waiter = this.#waiters.get(asker);
    if (waiter === undefined) return;
    this.#waiters.delete(asker);
    this.#queue.remove(waiter);
  }

  reserve(permits: Permits, amount: Amount): LocalReservation {
    const now = this.#now();
    let waitMs = 0;
    if (!this.#queue.grant(now, amount)) {
      if (!this.#hasRoom(now, amount)) throw this.#full(amount);
      waitMs = toMillis(this.#queue.instant(now, amount) - now);
    }
    this.#options.granted(amount);
    const accounts = [this.#queue, this, this.#options.meter] as const;
    return new StandInReservation(this, ...accounts, permits, now, amount, waitMs);
  }

  decide(amount: Amount): Decision {
    const now = this.#now();
    if (!this.#queue.grant(now, amount)) return this.#look(now, amount);
    this.#options.granted(amount);
    return decision(this.#cell.names, passedBy(this.#cell.quotas(now)), amount, 0, 0);
  }

  peek(amount: Amount): Decision {
    return this.#look(this.#now(), amount);
  }

  #look(now: number, amount: Amount): Decision {
    const { instant, slowest, quotas } = this.#queue.outlook(now, amount);
    const isFull = instant > now && !this.#options.hasRoom(amount);
    const wait = isFull ? Infinity : instant - now;
    return decision(this.#cell.names, quotas, amount, wait, slowest);
  }

  charge(amount: Amount): void {
    if (this.#successor !== undefined) this.#successor.charge(amount);
    else this.#queue.charge(amount);
  }

  refund(amount: Amount): void {
    if (this.#successor !== undefined) this.#successor.refund(amount);
    else this.#queue.refund(amount);
  }

  /** What the store could not be told after all. */
  settle(amount: Amount): void {
    this.#queue.change((cell, now) => cell.settle(now, amount));
  }

  /** Nobody goes before that many microseconds have passed, as the store knows. */
  holdFor(micros: number): void {
    this.#queue.pause(micros);
  }

  pause(micros: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#queue.now() + micros);
    this.#queue.pause(micros);
  }

  /**
   * The store is back. Those who have reservations keep their instants, and pay with the others.
   *
   * @param successor settles from now on what is reserved here
   */
  retire(successor: Account): Settlement {
    this.#queue.catchUp();
    const askers = [...this.#waiters.keys()];
    for (const waiter of this.#waiters.values()) this.#queue.remove(waiter);
    this.#waiters.clear();
    const now = this.#queue.now();
    const used = (this.#queue.outcome as StandInCell).used(now);
    this.#successor = successor;
    return { used, pause: Math.max(0, this.#pausedUntil - now), askers };
  }

  /** What is reserved here was charged to the store. */
  get isRetired(): boolean {
    return this.#successor !== undefined;
  }

  /** The time; now and then the share is looked at anew. */
  #now(): number {
    const now = this.#queue.now();
    if (now >= this.#askedAgainAt) {
      this.#askedAgainAt = now + SHARE_HOLDS;
      const fraction = this.#options.fraction();
      if (fraction !== this.#fraction) {
        this.#fraction = fraction;
        const { policies } = this.#options;
        this.#queue.change((cell, at, epoch) =>
          (cell as StandInCell).reshare(at, policies, fraction, epoch),
        );
      }
    }
    return now;
  }

  #hasRoom(now: number, amount: Amount): boolean {
    return this.#options.hasRoom(amount) && !this.#queue.overflows(now, amount);
  }

  #full(amount: Amount): Error {
    const { policies } = this.#options;
    return this.#options.full(
      amount,
      policies.map((policy) => share(policy, this.#fraction)),
    );
  }
}

/** Reserved while the store was away. */
class StandInReservation extends QueuedReservation {
  readonly #standIn: StandIn;

  constructor(standIn: StandIn, ...reservation: QueuedReservationArguments) {
    super(...reservation);
    this.#standIn = standIn;
  }

  override settle(actual: Permits): void {
    const isCharged = this.#standIn.isRetired && this.isWaiting();
    const before = this.taken;
    super.settle(actual);
    if (isCharged) correct(this.#standIn, before, this.taken);
  }

  override abort(reason: unknown, now: number): void {
    const { taken } = this;
    super.abort(reason, now);
    if (this.#standIn.isRetired) this.#standIn.refund(taken);
  }
}

type QueuedReservationArguments = ConstructorParameters<typeof QueuedReservation>;

/** An asker, waiting here instead of at the store. */
class AskerInLine extends Waiter {
  readonly #standIn: StandIn;
  readonly #asker: Asker;
  readonly #deadline: number;

  constructor(standIn: StandIn, asked: number, asker: Asker, deadline: number) {
    super(asked, asker.amount);
    this.#standIn = standIn;
    this.#asker = asker;
    this.#deadline = deadline;
  }

  override get deadline(): number {
    return this.#deadline;
  }

  override release(): void {
    this.#standIn.answer(this.#asker, true);
  }

  override refuse(): void {
    this.#standIn.answer(this.#asker, false);
  }

  /** Signals are the asker's own affair. */
  override abort(): void {}
}
