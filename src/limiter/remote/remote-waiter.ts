/**
 * What waits for permits of a store. A reservation is a waiter that nobody awaits yet.
 *
 *     requested ── granted, to be used later ──> promised ── its instant ──> done
 *         │                                         │
 *         └── granted at once, refused, failed ─────┴── it leaves ─────────> done
 *
 * While the store is away a caller may wait in this process instead, and is requested again
 * afterwards.
 */
import type { RefusedMessage } from "../../diagnostics.ts";
import type { PermitsExceedCapacityError } from "../../errors.ts";
import type { Amount, Permits } from "../../permits.ts";
import { type Answer, REFUSED, type StoreRequest } from "../../stores/store.ts";
import type { Meter } from "../meter.ts";
import { type Here, isGranted, type PermitRequest, reserving } from "./permit-request.ts";
import type { Promised, WaitLine } from "./wait-line.ts";

/** The limiter, as its waiters see it. */
export interface WaiterHost {
  readonly meter: Meter;
  readonly line: WaitLine;
  /** By the limiter's clock: when the wait of an answer is over. */
  dueAt(wait: number, sentAt: number): number;
  /** Whether so many permits more may be waited for. */
  hasRoom(amount: Amount): boolean;
  /** From now on `close()` and the signal end it; and no longer. */
  track(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  untrack(waiter: RemoteWaiter, signal: AbortSignal | undefined): void;
  returnToStore(amount: Amount, answer: Answer): Promise<void>;
  full(amount: Amount): Error;
  excess(amount: Amount): PermitsExceedCapacityError;
  /** Counts an error that a caller gets, and hands it back. */
  failure(error: unknown): unknown;
}

/** What a call asks for. */
export interface Wanted {
  readonly permits: Permits;
  readonly amount: Amount;
  /** The longest wait, microseconds. */
  readonly longest: number;
  readonly signal: AbortSignal | undefined;
}

/** What the store has promised, and what it needs to take that back. */
export interface Grant extends Promised {
  readonly answer: Answer;
}

export abstract class RemoteWaiter implements PermitRequest {
  readonly isRepeatable = true;
  readonly amount: Amount;
  readonly longest: number;
  readonly signal: AbortSignal | undefined;
  /** When it asked, by the limiter's clock, microseconds. */
  protected readonly asked: number;
  gone = false;
  /** Called once, when it is not requested any more. */
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

  /** The permits are its own, to be used after that many microseconds. */
  protected abstract granted(wait: number, grant: Grant): void;
  abstract refuse(full: () => Error, reason?: RefusedMessage["reason"]): void;
  protected abstract reject(reason: unknown): void;
  /** It does not want its permits any more. */
  abstract leave(reason: unknown): void;
  abstract runHere(here: Here): void;
  abstract delayed(): void;

  /** The longest wait that it accepts now, microseconds. */
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

  /** The permits exceed what a policy can ever hold. */
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
    // no caller waits for that: at worst the permits are lost
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
