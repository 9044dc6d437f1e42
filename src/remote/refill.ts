import type { Amount } from "../ground/permits.ts";
import type { Answer, StoreRequest } from "../stores/store.ts";
import type { Receipts } from "./grants.ts";
import { isGranted, type PermitRequest, reserving } from "./permit-request.ts";

/** The part of the prefetcher that its refills use. */
export interface RefillHost {
  /** Called for each chunk that the store has granted. */
  arrived(refill: Refill, answer: Answer, sentAt: number): void;
  /** Called when no chunk is without an answer any more, or the refill is given up. */
  ended(refill: Refill): void;
  returnToStore(amount: Amount, granted: Receipts): Promise<void>;
}

/** What a refill asks for. */
export interface RefillPlan {
  readonly chunks: number;
  /** The permits of a chunk, and what they are of each policy. */
  readonly permits: number;
  readonly amount: Amount;
  /** The longest wait, and the latest instant that it may reserve, microseconds. */
  readonly longest: number;
  readonly reach: number;
}

/** The request for permits that no caller has asked for yet. In its batch it stands once for each chunk. */
export class Refill implements PermitRequest {
  // a chunk that was sent may have been granted already: a second request would grant it twice
  readonly isRepeatable = false;
  readonly plan: RefillPlan;
  /** The store has not granted all its chunks. */
  isCut = false;
  /** Given up: permits that its replies still grant return to the store. */
  gone = false;
  readonly #host: RefillHost;
  /** How many chunks have no answer yet. */
  #open: number;

  constructor(host: RefillHost, plan: RefillPlan) {
    this.#host = host;
    this.plan = plan;
    this.#open = plan.chunks;
  }

  toStore(_late: number, last: StoreRequest | undefined): StoreRequest {
    return reserving(this.plan.amount, this.plan.longest, 0, last);
  }

  takenBy(answer: Answer): Amount {
    return isGranted(answer) ? this.plan.amount : 0;
  }

  answer(answer: Answer, sentAt: number): void {
    if (isGranted(answer)) this.#host.arrived(this, answer, sentAt);
    else this.isCut = true;
    this.#open -= 1;
    if (this.#open === 0) this.#host.ended(this);
  }

  returnToStore(answer: Answer): void {
    // no caller waits for this request: if it fails, the permits are lost
    if (isGranted(answer)) this.#host.returnToStore(this.plan.amount, answer).catch(() => {});
  }

  fail(): void {
    this.isCut = true;
    this.gone = true;
    this.#host.ended(this);
  }

  delayed(): void {
    this.fail();
  }
}
