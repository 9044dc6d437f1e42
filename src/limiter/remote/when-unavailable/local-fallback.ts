/**
 * A limiter in this process for the time in which the store is away: the ordinary one, on this
 * process' share of the policies. When the store is back, callers that still wait ask the store, and
 * what was used here is charged to it. Reservations keep their instants.
 */
import type { Policy } from "../../../algorithms/algorithm.ts";
import { share } from "../../../algorithms/index.ts";
import type { Clock } from "../../../clock.ts";
import type { PermitsExceedCapacityError } from "../../../errors.ts";
import type { Amount, Permits } from "../../../permits.ts";
import type { Cell, PolicyList } from "../../../stores/memory.ts";
import type { OutageCell } from "../../../stores/outage-cell.ts";
import type { Decision, LocalReservation } from "../../face.ts";
import { QueueingLimiter, type Reserved } from "../../limiter.ts";
import { Meter } from "../../meter.ts";
import { type Account, correct, QueuedReservation } from "../../reservation.ts";
import { Waiter } from "../../waiter.ts";
import { WaiterQueue } from "../../waiter-queue.ts";
import type { KeptLimits } from "../kept-limits.ts";
import type { ChangeVerb, Here, PermitRequest, Visitor } from "../permit-request.ts";

/** How often it is asked how many processes share the limit, microseconds. */
const SHARE_HOLDS = 1_000_000;

export interface FallbackOptions {
  readonly name: string;
  readonly clock: Clock;
  /** Knows what the store would never let through. */
  readonly whole: Cell;
  /** The policies in force, and their names. */
  readonly names: readonly string[];
  /** Limits that operators keep in keys. */
  readonly limits: KeptLimits;
  readonly policies: readonly Policy[];
  /** Which part of them is this process' own. */
  readonly fraction: () => number;
  readonly open: (fraction: number, now: number, epoch: number) => OutageCell;
  /** Whether so much more may wait beside what waits already; if not, what to throw. */
  readonly hasRoom: (amount: Amount) => boolean;
  readonly full: (amount: Amount, policies: readonly Policy[]) => Error;
  /** Counts what is let in. */
  readonly granted: (amount: Amount) => void;
  /** Counts reservations that are cancelled. */
  readonly meter: Meter;
}

/** What the store has to learn when it is back. */
export interface Settlement {
  readonly used: Amount;
  /** No caller goes before that many microseconds have passed. */
  readonly pause: number;
  /** Those that wait, in order. */
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

  /** How many permits are waited for. */
  get waiting(): number {
    return this.#queue.permits;
  }

  /** No caller waits, nothing is missing and nothing is paused. */
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

  /** What the store would never let through, neither do we. */
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

  /** Waiting does not help where as many wait as may. */
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

  /** A late reply: the store has run what was sent before it went away. */
  sentWasRun(): void {
    this.#sentWasRun = true;
  }

  /** No caller goes before that many microseconds have passed, as the store knows. */
  holdFor(micros: number): void {
    this.#queue.pause(micros);
  }

  pause(micros: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#queue.now() + micros);
    this.#queue.pause(micros);
  }

  /**
   * The store is back. Reservations keep their instants, and are charged with the rest.
   *
   * @param successor settles from now on what is reserved here
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

  /** The time; now and then the share is looked at anew. */
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

/** The ordinary limiter, whose reservations outlive the outage. */
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

  /** @param successor settles from now on what is reserved here */
  retire(successor: Account): void {
    this.#account.successor = successor;
  }

  protected override reservation(...reserved: Reserved): LocalReservation {
    return new OutageReservation(this.#account, this.#queue, this.#meter, reserved);
  }
}

/** Corrections go to the queue during the outage, and to the store afterwards. */
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

/** The limiter on the store counts its calls itself, but not what becomes of reservations here. */
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

/** Reserved while the store was away; when it is back it is charged to the store at once. */
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

/** A caller, waiting here instead of at the store. */
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

  /** Signals are the caller's own affair. */
  override abort(): void {}
}
