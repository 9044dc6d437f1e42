/**
 * A request for permits of a store, from the call until its permits can be used. A reservation is a
 * waiter, too, though no caller awaits it before `ready()`.
 *
 *     requested ── granted, to be used later ──> promised ── its instant ──> done
 *         │                                         │
 *         └── granted at once, refused, failed ─────┴── it leaves ─────────> done
 *
 * While the store is away a caller may wait in this process instead. Its request is sent again when the
 * store is back.
 */
import type { RefusedMessage } from "../../ground/diagnostics.ts";
import type { PermitsExceedCapacityError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../../stores/store.ts";
import type { Meter } from "../meter.ts";
import { type Here, isGranted, type PermitRequest, reserving } from "./permit-request.ts";
import type { Promised, WaitLine } from "./wait-line.ts";

/** The part of the limiter that its waiters use. */
export interface WaiterHost {
  readonly meter: Meter;
  readonly line: WaitLine;
  /** Returns when the wait of an answer is over, by the limiter's clock. */
  dueAt(wait: number, sentAt: number): number;
  /** Returns whether `maxWaiting` leaves room for that many more permits. */
  hasRoom(amount: Amount): boolean;
  /** Lets `close()` and the signal end the waiter, until `untrack`. */
  track(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  untrack(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  returnToStore(amount: Amount, answer: Answer): Promise<void>;
  full(amount: Amount): Error;
  excess(amount: Amount): PermitsExceedCapacityError;
  /** Counts an error with which a call fails, and returns it. */
  failure(error: unknown): unknown;
}

/** The checked arguments of a call. */
export interface Wanted {
  readonly permits: Permits;
  readonly amount: Amount;
  /** The longest wait, microseconds. */
  readonly longest: number;
  readonly signal: AbortSignal | undefined;
}

/** An instant promised by the store, with the answer that is needed to give the permits back. */
export interface Grant extends Promised {
  readonly answer: Answer;
}

export abstract class RemoteWaiter implements PermitRequest {
  readonly isRepeatable = true;
  readonly amount: Amount;
  readonly longest: number;
  readonly signal: AbortSignal | undefined;
  /** When the call was made, by the limiter's clock, microseconds. */
  protected readonly asked: number;
  gone = false;
  /** Called once, when the request has ended: answered, failed or cancelled. */
  onAnswered: (() => void) | undefined;
  protected grant: Grant | undefined;
  protected readonly host: WaiterHost;

  constructor(host: WaiterHost, { amount, longest, signal }: Wanted) {
    this.host = host;
    this.amount = amount;
    this.longest = longest;
    this.signal = signal;
    this.asked = host.line.now();
    host.track(this, signal);
  }

  /** Called when the store has granted the permits, to be used after `wait` microseconds. */
  protected abstract granted(wait: number, grant: Grant): void;
  abstract refuse(full: () => Error, reason?: RefusedMessage["reason"]): void;
  protected abstract reject(reason: unknown): void;
  /** Cancels the request or gives back its permits: the signal was aborted, or the limiter closed. */
  abstract leave(reason: unknown): void;
  abstract runHere(here: Here): void;
  abstract delayed(): void;

  /** The longest wait that the request accepts now, microseconds. */
  get patience(): number {
    return this.longest;
  }

  toStore(late: number, last?: StoreRequest): StoreRequest {
    return reserving(this.amount, this.patience, late, last);
  }

  taken(answer: Answer): Amount {
    return isGranted(answer) ? this.amount : 0;
  }

  answer(answer: Answer, sentAt: number): void {
    const { wait } = answer;
    if (isGranted(answer)) {
      if (wait === 0 || this.host.hasRoom(this.amount)) {
        this.accept(answer, sentAt);
      } else {
        this.returnToStore(answer);
        this.refuse(() => this.host.full(this.amount), "queue-full");
      }
    } else if (wait === REFUSED) {
      this.refuse(() => this.host.full(this.amount));
    } else {
      this.never(this.host.excess(this.amount));
    }
    this.answered();
  }

  accept(answer: Answer, sentAt: number): void {
    this.grant = { instant: this.host.dueAt(answer.wait, sentAt), answer };
    this.granted(answer.wait, this.grant);
  }

  /** Rejects the call: it asks for more permits than a policy can ever hold. */
  never(excess: PermitsExceedCapacityError): void {
    this.untrack();
    this.reject(excess);
  }

  fail(error: unknown): void {
    this.untrack();
    this.answered();
    this.reject(this.host.failure(error));
  }

  returnToStore(answer: Answer): void {
    // no caller waits for this request: if it fails, the permits are lost
    if (isGranted(answer)) this.host.returnToStore(this.amount, answer).catch(() => {});
  }

  protected answered(): void {
    const { onAnswered } = this;
    this.onAnswered = undefined;
    onAnswered?.();
  }

  protected untrack(): void {
    this.host.untrack(this, this.signal);
  }
}
