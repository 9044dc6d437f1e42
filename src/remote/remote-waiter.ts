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
import type { Turn } from "../fair/turn.ts";
import { LONGEST_TIMEOUT_MS, toMillis } from "../ground/clock.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { Waiter } from "../queue/waiter.ts";
import { type Answer, REFUSED, type StoreRequest } from "../stores/store.ts";
import type { PromisedCaller } from "./grant-queue.ts";
import { type Grant, grantOf, type Receipts } from "./grants.ts";
import {
  type ChangeVerb,
  type Here,
  isGranted,
  reserving,
  type Visitor,
} from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";

/** The part of the queue that its waiters use. */
export interface WaiterHost {
  readonly parts: Parts;
  /** Returns whether `maxWaiting` leaves room for that many more permits; `full` is the error if not. */
  hasRoom(amount: Amount): boolean;
  full(amount: Amount): Error;
  /** Lets `close()` and the signal end the waiter, until `untrack`. */
  track(waiter: RemoteWaiter, signals: Iterable<AbortSignal>): void;
  untrack(waiter: RemoteWaiter, signals: Iterable<AbortSignal>): void;
  /** Counts the reservation as waiting as long as it is pending. */
  reserved(reservation: { readonly isPending: boolean; readonly amount: Amount }): void;
  returnToStore(amount: Amount, granted: Receipts, instant?: number): Promise<void>;
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
  /** On a limiter in fair order. */
  readonly turn?: Turn<Waiter> | undefined;
}

/** The result of a call: of `acquire` how long it has waited, ms; of `tryAcquire` whether it was granted. */
export type Outcome = number | boolean | Promise<never>;

export abstract class RemoteWaiter extends Waiter implements Visitor {
  gone = false;
  /** It is in the queue: the store has promised its permits. */
  isPromised = false;
  /** Called once, when the request has ended: answered, failed or cancelled. */
  onAnswered: (() => void) | undefined;
  leaveHere: (() => void) | undefined;
  protected readonly host: WaiterHost;
  /** The longest wait, microseconds. */
  protected readonly longest: number | undefined;
  /** It was requested before: only the rest of its longest wait is left. */
  protected isAgain = false;

  constructor(host: WaiterHost, { amount, longest, signal, turn }: Wanted) {
    super(host.parts.line.now(), amount, signal, turn);
    this.host = host;
    this.longest = longest;
    host.track(this, this.signals);
  }

  abstract get isAwaited(): boolean;
  /** Called when the permits can be used, now or after `wait` microseconds. @param grant absent: not the store's */
  abstract granted(wait: number, grant?: Grant): void;
  abstract decline(full: () => Error, reason?: RefusedMessage["reason"]): void;
  protected abstract reject(reason: unknown): void;

  delayed(): void {}

  protected get waited(): number {
    return this.host.parts.line.now() - this.asked;
  }

  get left(): number {
    return this.longest === undefined ? Infinity : Math.max(0, this.longest - this.waited);
  }

  /** When its longest wait is over, microseconds. */
  override get deadline(): number {
    return this.asked + (this.longest ?? Infinity);
  }

  /** The longest wait that the request accepts now, microseconds. */
  get accepts(): number {
    return this.isAgain ? this.left : (this.longest ?? Infinity);
  }

  toStore(late: number, last?: StoreRequest): StoreRequest {
    return reserving(this.amount, this.accepts, late, last);
  }

  takenBy(answer: Answer): Amount {
    return isGranted(answer) ? this.amount : 0;
  }

  answer(answer: Answer, sentAt: number): void {
    const { wait } = answer;
    if (wait === 0 || (isGranted(answer) && this.host.hasRoom(this.amount))) {
      this.accept(answer, sentAt);
    } else if (isGranted(answer)) {
      this.returnToStore(answer);
      this.decline(() => this.host.full(this.amount), "queue-full");
    } else if (wait === REFUSED) {
      this.decline(() => this.host.full(this.amount));
    } else {
      this.never(this.host.parts.inForce.excess(this.amount));
    }
    this.answered();
  }

  accept(answer: Answer, sentAt: number): void {
    this.granted(answer.wait, this.grantOf(answer, sentAt));
  }

  protected grantOf(answer: Answer, sentAt: number): Grant {
    return grantOf(this.amount, this.host.parts.line.dueAt(answer.wait, sentAt), answer);
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

  returnToStore(answer: Answer, _sentAt?: number): void {
    // no caller waits for this request: if it fails, the permits are lost
    if (isGranted(answer)) this.host.returnToStore(this.amount, answer).catch(() => {});
  }

  protected answered(): void {
    const { onAnswered } = this;
    this.onAnswered = undefined;
    onAnswered?.();
  }

  protected untrack(): void {
    this.host.untrack(this, this.signals);
  }
}

/** A caller of `acquire` or `tryAcquire`, which waits in the queue until its permits can be used. */
export class Caller extends RemoteWaiter implements PromisedCaller {
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

  override granted(wait: number, grant?: Grant): void {
    const { line } = this.host.parts;
    if (wait === 0 || grant === undefined) {
      // after an outage the wait for the store counts, too
      this.#released(this.isAgain ? this.waited : 0);
    } else if (Math.max(line.end, grant.instant) > this.deadline) {
      line.addSpare(grant);
      this.decline(() => this.host.full(this.amount));
    } else {
      this.promised();
      line.enter(this, grant);
    }
  }

  /** Called before it comes into the queue, which then removes it when its signal is aborted. */
  protected promised(): void {
    this.untrack();
    this.isPromised = true;
  }

  override release(_at: number, now: number): void {
    this.#released(now - this.asked);
  }

  #released(waited: number): void {
    this.untrack();
    this.host.parts.meter.released(this.amount, waited);
    this.settle(this.#tries || toMillis(waited));
  }

  override refuse(): void {
    this.host.parts.line.returnSoon();
    this.decline(() => this.host.full(this.amount));
  }

  override decline(
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
    if (this.#tries && excess.facts.capacity === 0) this.decline(() => excess);
    else super.never(excess);
  }

  protected override reject(reason: unknown): void {
    this.host.parts.meter.ended();
    this.settle(Promise.reject(reason));
  }

  leave(reason: unknown): void {
    if (this.isPromised) this.host.parts.line.remove(this);
    this.abort(reason);
  }

  override abort(reason: unknown): void {
    this.#depart();
    this.host.parts.meter.cancelled(this.amount, this.waited, reason);
    this.reject(reason);
  }

  #depart(): void {
    this.gone = true;
    this.leaveHere?.();
    if (this.isPromised) return;
    this.untrack();
    this.answered();
  }

  protected override untrack(): void {
    if (!this.isPromised) super.untrack();
  }

  /** Called when the store has its permits again: it is requested once more. */
  again(): void {
    this.isPromised = false;
    this.isAgain = true;
    this.host.track(this, this.signals);
  }

  // -- while the store is away --

  override delayed(): void {
    this.isAgain = true;
    const ms = this.left / 1000;
    const isTimed = this.#tries && ms <= LONGEST_TIMEOUT_MS;
    if (!isTimed || this.gone || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#depart();
      this.decline(() => this.host.full(this.amount));
    }, ms);
  }

  protected override answered(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    super.answered();
  }

  /** Permits of one that has left go to callers behind it, like those that were promised before. */
  override returnToStore(answer: Answer, sentAt?: number): void {
    if (sentAt === undefined || !isGranted(answer)) super.returnToStore(answer);
    else this.host.parts.line.addSpare(this.grantOf(answer, sentAt));
  }
}
