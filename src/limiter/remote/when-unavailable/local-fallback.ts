/**
 * A limiter in this process that replaces the store during an outage: an ordinary in-process limiter on
 * this process' share of the policies. When the store is back, callers that still wait are requested
 * from it, and the permits used here are charged to it. Reservations keep their instants.
 */
import type { Policy } from "../../../algorithms/algorithm.ts";
import { share } from "../../../algorithms/index.ts";
import type { Clock } from "../../../ground/clock.ts";
import type { PermitsExceedCapacityError } from "../../../ground/errors.ts";
import type { Amount, Permits } from "../../../ground/permits.ts";
import type { Cell } from "../../../stores/cell.ts";
import type { OutageCell } from "../../../stores/outage-cell.ts";
import type { PolicyList } from "../../../stores/policies.ts";
import type { Decision, LocalReservation } from "../../face.ts";
import { QueueingLimiter, type Reserved } from "../../limiter.ts";
import { Meter } from "../../meter.ts";
import { type Account, correct, QueuedReservation } from "../../reservation.ts";
import { Waiter } from "../../waiter.ts";
import { WaiterQueue } from "../../waiter-queue.ts";
import type { KeptLimits } from "../kept-limits.ts";
import type { ChangeVerb, Here, PermitRequest, Visitor } from "../permit-request.ts";

/** How long the number of processes that share the limit is used before it is read again, microseconds. */
const SHARE_HOLDS = 1_000_000;

export interface FallbackOptions {
  readonly name: string;
  readonly clock: Clock;
  /** The full policies: they decide which requests the store would never let through. */
  readonly whole: Cell;
  /** The policies in force, and their names. */
  readonly names: readonly string[];
  /** Limits that operators keep in keys. */
  readonly limits: KeptLimits;
  readonly policies: readonly Policy[];
  /** Returns this process' share of the policies, at most 1. */
  readonly fraction: () => number;
  readonly open: (fraction: number, now: number, epoch: number) => OutageCell;
  /** `hasRoom` returns whether `maxWaiting` allows that many more permits; `full` is the error if not. */
  readonly hasRoom: (amount: Amount) => boolean;
  readonly full: (amount: Amount, policies: readonly Policy[]) => Error;
  /** Counts permits that were granted without the store. */
  readonly granted: (amount: Amount) => void;
  /** Counts cancelled reservations. */
  readonly meter: Meter;
}

/** The result of an outage, for the store when it is back. */
export interface Settlement {
  readonly used: Amount;
  /** How much longer a pause lasts, microseconds. */
  readonly pause: number;
  /** The callers that still wait, in order. */
  readonly visitors: readonly (Visitor & PermitRequest)[];
}

export class LocalFallback implements Here {
  readonly #options: FallbackOptions;
  readonly #queue: WaiterQueue;
  readonly #limiter: ShareLimiter;
  readonly #visitors = new Map<Visitor & PermitRequest, VisitorInLine>();
  #fraction: number;
  #askedAgainAt: number;
  #pausedUntil = 0;
  #sentWasRun = false;

  constructor(options: FallbackOptions) {
    const { clock, names, policies, name, meter } = options;
    this.#options = options;
    this.#fraction = options.fraction();
    this.#queue = WaiterQueue.over(clock, (now, epoch) => options.open(this.#fraction, now, epoch));
    this.#limiter = new ShareLimiter(this.#queue, { names, list: policies }, name, meter);
    this.#askedAgainAt = this.#queue.now() + SHARE_HOLDS;
  }

  /** How many permits callers wait for here. */
  get waiting(): number {
    return this.#queue.permits;
  }

  /** Whether no caller waits, no permits are missing and no pause holds. */
  get isIdle(): boolean {
    const now = this.#queue.now();
    return this.#queue.isIdle && this.#queue.cell.owed(now).every((permits) => permits === 0);
  }

  admit(visitor: Visitor & PermitRequest): void {
    const { amount, left } = visitor;
    const queue = this.#queue;
    const excess = this.#options.limits.refusal(amount) ?? this.#excess(amount);
    if (excess !== undefined) {
      visitor.never(excess);
      return;
    }
    const now = this.#now();
    if (queue.grant(now, amount)) {
      this.#options.granted(amount);
      visitor.letIn();
    } else if (this.#hasRoom(now, amount) && queue.instant(now, amount) <= now + left) {
      const waiter = new VisitorInLine(now, visitor, now + left, (isLetIn) =>
        this.#answer(visitor, isLetIn),
      );
      this.#visitors.set(visitor, waiter);
      visitor.leaveHere = () => {
        if (this.#visitors.delete(visitor)) queue.remove(waiter);
      };
      queue.add(waiter);
    } else {
      visitor.refuse(() => this.#full(amount));
    }
  }

  #answer(visitor: Visitor & PermitRequest, isLetIn: boolean): void {
    this.#visitors.delete(visitor);
    if (!isLetIn) {
      visitor.refuse(() => this.#full(visitor.amount));
      return;
    }
    this.#options.granted(visitor.amount);
    visitor.letIn();
  }

  /** Returns the error for a request that the store would never let through. */
  #excess(amount: Amount): PermitsExceedCapacityError | undefined {
    const { whole } = this.#options;
    return whole.earliest(0, amount) < Infinity ? undefined : whole.excess(0, amount);
  }

  #check(excess: PermitsExceedCapacityError | undefined): void {
    if (excess !== undefined) throw excess;
  }

  reserve(permits: Permits, amount: Amount): LocalReservation {
    // a limit that was 0 when the store last answered stays 0
    this.#check(this.#options.limits.refusal(amount) ?? this.#excess(amount));
    const now = this.#now();
    const isFull = this.#limiter.peek(permits).waitMs > 0 && !this.#hasRoom(now, amount);
    if (isFull) throw this.#full(amount);
    const reservation = this.#limiter.reserve(permits);
    this.#options.granted(amount);
    return reservation;
  }

  decide(permits: Permits, amount: Amount): Decision {
    this.#check(this.#excess(amount));
    this.#now();
    const decision = this.#limiter.decide(permits);
    if (decision.allowed) this.#options.granted(amount);
    return this.#unlessFull(decision, amount);
  }

  peek(permits: Permits, amount: Amount): Decision {
    this.#check(this.#excess(amount));
    this.#now();
    return this.#unlessFull(this.#limiter.peek(permits), amount);
  }

  /** Sets `waitMs` to `Infinity` if the caller could not wait because `maxWaiting` is reached. */
  #unlessFull(decision: Decision, amount: Amount): Decision {
    const isFull = decision.waitMs > 0 && !this.#options.hasRoom(amount);
    return isFull ? { ...decision, waitMs: Infinity } : decision;
  }

  change(verb: ChangeVerb, amount: Amount, isSent: boolean): void {
    this.#queue.change((cell, now) => {
      const deed = (one: Cell) => apply(one, verb, now, amount);
      if (isSent) (cell as OutageCell).changeSent(deed, verb === "refund");
      else deed(cell);
    });
  }

  /** Called on a late reply: the store has run the requests that were sent before the outage. */
  sentWasRun(): void {
    this.#sentWasRun = true;
  }

  /** Delays all callers by that many microseconds; the store has this pause already. */
  holdFor(micros: number): void {
    this.#queue.pause(micros);
  }

  pause(micros: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#queue.now() + micros);
    this.#queue.pause(micros);
  }

  /**
   * Ends the fallback: the store is back. Reservations keep their instants and are part of `used`.
   *
   * @param successor receives later corrections of reservations that were made here
   */
  retire(successor: Account): Settlement {
    this.#queue.catchUp();
    const visitors = [...this.#visitors.keys()];
    for (const visitor of visitors) visitor.leaveHere?.();
    const now = this.#queue.now();
    const used = (this.#queue.outcome as OutageCell).used(now, this.#sentWasRun);
    this.#limiter.retire(successor);
    return { used, pause: Math.max(0, this.#pausedUntil - now), visitors };
  }

  /** Returns the time, and updates the share if it was read too long ago. */
  #now(): number {
    const now = this.#queue.now();
    if (now < this.#askedAgainAt) return now;
    this.#askedAgainAt = now + SHARE_HOLDS;
    const { policies, fraction } = this.#options;
    const before = this.#fraction;
    this.#fraction = fraction();
    if (this.#fraction !== before) {
      this.#queue.change((cell, at, epoch) =>
        (cell as OutageCell).reshare(at, policies, this.#fraction, epoch),
      );
    }
    return now;
  }

  #hasRoom(now: number, amount: Amount): boolean {
    return this.#options.hasRoom(amount) && !this.#queue.overflows(now, amount);
  }

  #full(amount: Amount): Error {
    const { policies, full } = this.#options;
    return full(
      amount,
      policies.map((policy) => share(policy, this.#fraction)),
    );
  }
}

function apply(cell: Cell, verb: ChangeVerb, now: number, amount: Amount): void {
  if (verb === "charge") cell.take(now, amount);
  else if (verb === "refund") cell.giveBack(now, amount);
  else cell.settle(now, amount);
}

/** The in-process limiter, with reservations that stay valid after the outage. */
class ShareLimiter extends QueueingLimiter {
  readonly #queue: WaiterQueue;
  readonly #meter: Meter;
  readonly #account: SucceededAccount;

  constructor(queue: WaiterQueue, policies: PolicyList, name: string, meter: Meter) {
    const account = new SucceededAccount(queue);
    const quiet = new CancellationMeter(meter);
    super(queue, policies, { name, maxWaiting: Infinity, onFull: "reject" }, account, quiet);
    this.#queue = queue;
    this.#meter = quiet;
    this.#account = account;
  }

  /** @param successor receives later corrections of reservations that were made here */
  retire(successor: Account): void {
    this.#account.successor = successor;
  }

  protected override reservation(...reserved: Reserved): LocalReservation {
    return new OutageReservation(this.#account, this.#queue, this.#meter, reserved);
  }
}

/** Sends corrections to the queue during the outage, and to the store afterwards. */
class SucceededAccount implements Account {
  readonly #queue: WaiterQueue;
  successor: Account | undefined;

  constructor(queue: WaiterQueue) {
    this.#queue = queue;
  }

  charge(amount: Amount): void {
    (this.successor ?? this.#queue).charge(amount);
  }

  refund(amount: Amount): void {
    (this.successor ?? this.#queue).refund(amount);
  }
}

/** Counts cancellations only: the limiter on the store counts the calls, but not these. */
class CancellationMeter extends Meter {
  readonly #meter: Meter;

  constructor(meter: Meter) {
    super({ limiter: "" }, []);
    this.#meter = meter;
  }

  override granted(): void {}

  override refused(): void {}

  override cancelled(amount: Amount, waited: number, reason: unknown): void {
    this.#meter.cancelled(amount, waited, reason);
  }
}

/** A reservation that was made during the outage. When the store is back, it is charged to it at once. */
class OutageReservation extends QueuedReservation {
  readonly #account: SucceededAccount;

  constructor(account: SucceededAccount, queue: WaiterQueue, meter: Meter, reserved: Reserved) {
    super(queue, account, meter, ...reserved);
    this.#account = account;
  }

  override settle(actual: Permits): void {
    const isCharged = this.#account.successor !== undefined && this.isWaiting();
    const before = this.taken;
    super.settle(actual);
    if (isCharged) correct(this.#account, before, this.taken);
  }

  override abort(reason: unknown, now: number): void {
    const { taken } = this;
    super.abort(reason, now);
    this.#account.successor?.refund(taken);
  }
}

/** A caller that waits in the fallback's queue. */
class VisitorInLine extends Waiter {
  readonly #deadline: number;
  readonly #answer: (isLetIn: boolean) => void;

  constructor(
    asked: number,
    { amount }: Visitor,
    deadline: number,
    answer: (isLetIn: boolean) => void,
  ) {
    super(asked, amount);
    this.#deadline = deadline;
    this.#answer = answer;
  }

  override get deadline(): number {
    return this.#deadline;
  }

  override release(): void {
    this.#answer(true);
  }

  override refuse(): void {
    this.#answer(false);
  }

  /** Does nothing: the caller handles its signal itself. */
  override abort(): void {}
}
