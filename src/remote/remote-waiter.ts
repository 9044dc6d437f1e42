/**
 * A request for permits of a store, from the call until its permits can be used. A reservation is a
 * waiter, too, though no caller awaits it before `ready()`.
 *
 *     requested ── granted, to be used later ──> promised ── its instant ──> done
 *         │                                         │
 *         └── granted at once, refused, failed ─────┴── it leaves ─────────> done
 *
 * A pause or a reset may take the promise back, and the caller is requested again.
 * While the store is away the fallback in this process may answer instead. A caller that still waits there
 * when the store is back is sent again.
 */
import type { FairEntry } from "../fair/fair-entry.ts";
import type { RefusedMessage } from "../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import type { Exclusive } from "../ground/in-turn.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { Waiter } from "../queue/waiter.ts";
import { type Answer, REFUSED, type StoreRequest } from "../stores/store.ts";
import { type Grant, grantOf, type Receipts } from "./grants.ts";
import { type Fallback, type FallbackRequest, isGranted, reserving } from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";

/** The part of `RemoteCalls` that its waiters use. */
export interface WaiterHost {
  readonly parts: Parts;
  /** Returns whether `maxWaiting` leaves room for that many more permits; `full` is the error if not. */
  hasRoom(amount: Amount): boolean;
  full(amount: Amount): Error;
  /** Lets `close()` and the signal end the waiter, until `untrack`. */
  track(waiter: RemoteWaiter, signals: readonly AbortSignal[]): void;
  untrack(waiter: RemoteWaiter, signals: readonly AbortSignal[]): void;
  /** Counts the reservation as waiting as long as it is pending. */
  reserved(reservation: { readonly isPending: boolean; readonly amount: Amount }): void;
  returnToStore(amount: Amount, granted: Receipts, instant?: number): Promise<void>;
  /** As `pay`, after the settlements before it. */
  settle(reservation: Charged, actual: Permits): Promise<void>;
  /** Charges or refunds the difference to what was charged. Resolves when the store has it. */
  pay(reservation: Charged, used: Amount): Promise<void>;
  checkOpen(): void;
}

/** What a reservation has been charged: the estimate, the amount given to `settle`, or 0 once returned. */
export interface Charged extends Exclusive {
  charged: Amount;
  /** What is left of the store's grant: more than that was charged later. Absent: there is none, or it is not known. */
  grant?: Grant | undefined;
}

/** The checked arguments of a call. */
export interface Wanted {
  readonly permits: Permits;
  readonly amount: Amount;
  /** The longest wait, microseconds; absent: none. */
  readonly longest: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** On a limiter in fair order. */
  readonly fairEntry?: FairEntry<Waiter> | undefined;
}

/** The result of a call: of `acquire` how long it has waited, ms; of `tryAcquire` whether it was granted. */
export type Outcome = number | boolean | Promise<never>;

export abstract class RemoteWaiter extends Waiter implements FallbackRequest {
  gone = false;
  /** The store has promised its permits: it is, or was, in the queue. */
  isPromised = false;
  /** Called once, when it has ended: answered, failed or cancelled. */
  onAnswered: (() => void) | undefined;
  leaveFallback: (() => void) | undefined;
  protected readonly host: WaiterHost;
  /** The longest wait, microseconds. */
  protected readonly longest: number | undefined;
  /** It was requested before: only the rest of its longest wait is left. */
  protected isAgain = false;

  constructor(host: WaiterHost, { amount, longest, signal, fairEntry }: Wanted) {
    super(host.parts.queue.now(), amount, signal, fairEntry);
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
    return this.host.parts.queue.now() - this.asked;
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
      this.never(this.host.parts.activePolicies.excess(this.amount));
    }
    this.answered();
  }

  accept(answer: Answer, sentAt: number): void {
    this.granted(answer.wait, this.grantOf(answer, sentAt));
  }

  protected grantOf(answer: Answer, sentAt: number): Grant {
    return grantOf(this.amount, this.host.parts.queue.dueAt(answer.wait, sentAt), answer);
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

  runInFallback(here: Fallback): void {
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
