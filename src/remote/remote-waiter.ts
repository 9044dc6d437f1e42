/**
 * A request for permits of a store, from the call until its permits can be used. A reservation is a
 * waiter, too, though no caller awaits it before `ready()`.
 *
 *     requested ── granted, to be used later ──> promised ── its instant ──> done
 *         │                                         │
 *         └── granted at once, refused, failed ─────┴── it leaves ─────────> done
 *
 * While the store is away the fallback in this process may answer instead. A caller that still waits there
 * when the store is back is sent again.
 */
import { LONGEST_TIMEOUT_MS, type Timer, toMillis } from "../ground/clock.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Linked } from "../ground/linked-list.ts";
import { type Amount, type Permits, sameAmount, sizeOf } from "../ground/permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../stores/store.ts";
import {
  type ChangeVerb,
  type Here,
  isGranted,
  reserving,
  type Visitor,
} from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";
import type { PromisedPermits, Sleeper } from "./wait-line.ts";

/** The part of the queue that its waiters use. */
export interface WaiterHost {
  readonly parts: Parts;
  /** Returns whether `maxWaiting` leaves room for that many more permits; `full` is the error if not. */
  hasRoom(amount: Amount): boolean;
  full(amount: Amount): Error;
  /** Lets `close()` and the signal end the waiter, until `untrack`. */
  track(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  untrack(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  /** Counts the reservation as waiting as long as it is pending. */
  reserved(reservation: { readonly isPending: boolean; readonly amount: Amount }): void;
  returnToStore(amount: Amount, answer: Answer, instant?: number): Promise<void>;
  change(verb: ChangeVerb, amount: Amount): Promise<void>;
  /** Charges or refunds the difference: see `correct`. `done` resolves when the store has it. */
  correct(
    before: Amount,
    used: Amount,
  ): { readonly after: Amount; readonly done: Promise<unknown> };
  checkOpen(): void;
}

/** The checked arguments of a call. */
export interface Wanted {
  readonly permits: Permits;
  readonly amount: Amount;
  /** The longest wait, microseconds; absent: none. */
  readonly longest: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** The result of a call: of `acquire` how long it has waited, ms; of `tryAcquire` whether it was granted. */
export type Outcome = number | boolean | Promise<never>;

/** An instant promised by the store, with the answer that is needed to give the permits back. */
export interface Grant extends PromisedPermits {
  readonly answer: Answer;
}

export abstract class RemoteWaiter implements Visitor, Linked<RemoteWaiter> {
  before: RemoteWaiter | undefined;
  after: RemoteWaiter | undefined;
  readonly amount: Amount;
  gone = false;
  /** Called once, when the request has ended: answered, failed or cancelled. */
  onAnswered: (() => void) | undefined;
  leaveHere: (() => void) | undefined;
  promised: Grant | undefined;
  protected readonly host: WaiterHost;
  /** The longest wait, and when the call was made by the limiter's clock, microseconds. */
  protected readonly longest: number | undefined;
  protected readonly asked: number;
  /** It was requested before: only the rest of its longest wait is left. */
  protected isAgain = false;
  readonly #signal: AbortSignal | undefined;

  constructor(host: WaiterHost, { amount, longest, signal }: Wanted) {
    this.host = host;
    this.amount = amount;
    this.longest = longest;
    this.#signal = signal;
    this.asked = host.parts.line.now();
    host.track(this, signal);
  }

  abstract get isAwaited(): boolean;
  /** Called when the permits can be used, now or after `wait` microseconds. */
  abstract granted(wait: number): void;
  abstract refuse(full: () => Error, reason?: RefusedMessage["reason"]): void;
  /** Cancels the request or gives back its permits: the signal was aborted, or the limiter closed. */
  abstract leave(reason: unknown): void;
  protected abstract reject(reason: unknown): void;

  delayed(): void {}

  protected get waited(): number {
    return this.host.parts.line.now() - this.asked;
  }

  get left(): number {
    return this.longest === undefined ? Infinity : Math.max(0, this.longest - this.waited);
  }

  /** When its longest wait is over, microseconds. */
  get deadline(): number {
    return this.asked + (this.longest ?? Infinity);
  }

  /** The longest wait that the request accepts now, microseconds. */
  get accepts(): number {
    return this.isAgain ? this.left : (this.longest ?? Infinity);
  }

  toStore(late: number, last?: StoreRequest): StoreRequest {
    return reserving(this.amount, this.accepts, late, last);
  }

  taken(answer: Answer): Amount {
    return isGranted(answer) ? this.amount : 0;
  }

  answer(answer: Answer, sentAt: number): void {
    const { wait } = answer;
    if (wait === 0 || (isGranted(answer) && this.host.hasRoom(this.amount))) {
      this.accept(answer, sentAt);
    } else if (isGranted(answer)) {
      this.returnToStore(answer);
      this.refuse(() => this.host.full(this.amount), "queue-full");
    } else if (wait === REFUSED) {
      this.refuse(() => this.host.full(this.amount));
    } else {
      this.never(this.host.parts.inForce.excess(this.amount));
    }
    this.answered();
  }

  accept(answer: Answer, sentAt: number): void {
    this.promised = { instant: this.host.parts.line.dueAt(answer.wait, sentAt), answer };
    this.granted(answer.wait);
  }

  /** Rejects the call: it asks for more permits than a policy can ever hold. */
  never(excess: PermitsExceedCapacityError): void {
    this.untrack();
    this.reject(excess);
  }

  fail(error: unknown): void {
    this.untrack();
    this.answered();
    this.reject(this.host.parts.stats.failed(error));
  }

  runHere(here: Here): void {
    this.isAgain = true;
    this.answered();
    here.admit(this);
  }

  returnToStore(answer: Answer, instant?: number): void {
    // no caller waits for this request: if it fails, the permits are lost
    if (isGranted(answer)) this.host.returnToStore(this.amount, answer, instant).catch(() => {});
  }

  protected answered(): void {
    const { onAnswered } = this;
    this.onAnswered = undefined;
    onAnswered?.();
  }

  protected untrack(): void {
    this.host.untrack(this, this.#signal);
  }
}

/** A caller of `acquire` or `tryAcquire`, which sleeps in the line until its permits can be used. */
export class Caller extends RemoteWaiter implements Sleeper {
  due = 0;
  alarm: Timer | undefined;
  /**
   * Whether it calls `tryAcquire`: a rejection is then no error, and the longest wait covers the wait for
   * the store, too.
   */
  readonly #tries: boolean;
  readonly #resolve: (outcome: Outcome) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(host: WaiterHost, wanted: Wanted, tries: boolean, resolve: (outcome: never) => void) {
    super(host, wanted);
    this.#tries = tries;
    this.#resolve = resolve as (outcome: unknown) => void;
    host.parts.meter.enqueued();
  }

  override get isAwaited(): boolean {
    return true;
  }

  get size(): number {
    return sizeOf(this.amount);
  }

  override granted(wait: number): void {
    if (wait > 0) this.host.parts.line.add(this, this.deadline);
    // after an outage the wait for the store counts, too
    else this.#release(this.isAgain ? this.waited : 0);
  }

  wake(now: number): void {
    this.#release(now - this.asked);
  }

  #release(waited: number): void {
    this.untrack();
    this.host.parts.meter.released(this.amount, waited);
    this.settle(this.#tries || toMillis(waited));
  }

  override refuse(
    full: () => Error,
    reason: RefusedMessage["reason"] = this.#tries ? "too-long" : "queue-full",
  ): void {
    this.untrack();
    this.host.parts.meter.expired(this.amount, this.waited, reason);
    this.settle(this.#tries ? false : Promise.reject(full()));
  }

  protected settle(outcome: Outcome): void {
    this.#resolve(outcome);
  }

  /** With a limit of 0, which operators have set, `tryAcquire` returns false rather than throw. */
  override never(excess: PermitsExceedCapacityError): void {
    if (this.#tries && excess.facts.capacity === 0) this.refuse(() => excess);
    else super.never(excess);
  }

  protected override reject(reason: unknown): void {
    this.host.parts.meter.ended();
    this.settle(Promise.reject(reason));
  }

  override leave(reason: unknown): void {
    this.#depart();
    this.host.parts.meter.cancelled(this.amount, this.waited, reason);
    this.reject(reason);
  }

  #depart(): void {
    this.gone = true;
    this.untrack();
    this.leaveHere?.();
    if (this.promised === undefined) this.answered();
    else this.host.parts.line.leave(this);
  }

  // -- while the store is away --

  override delayed(): void {
    this.isAgain = true;
    const ms = this.left / 1000;
    const isTimed = this.#tries && ms <= LONGEST_TIMEOUT_MS;
    if (!isTimed || this.gone || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#depart();
      this.refuse(() => this.host.full(this.amount));
    }, ms);
  }

  protected override answered(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    super.answered();
  }

  // -- in the line --

  isLike(other: Sleeper): boolean {
    return sameAmount(this.amount, (other as this).amount);
  }

  /** Permits of one that has left go to callers behind it, like those that were promised before. */
  override returnToStore(answer: Answer, sentAt?: number): void {
    if (sentAt === undefined || !isGranted(answer)) {
      super.returnToStore(answer);
      return;
    }
    const { line } = this.host.parts;
    this.promised = { instant: line.dueAt(answer.wait, sentAt), answer };
    line.addSpare(this);
  }

  /** Returns the promised permits; the caller can then be requested again. */
  returnPromised(): void {
    if (this.promised !== undefined)
      super.returnToStore(this.promised.answer, this.promised.instant);
    this.promised = undefined;
    this.isAgain = true;
  }
}
