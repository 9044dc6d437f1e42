/** Requests to a store of permits: their kinds, their outcomes, and how they are packed into a batch. */

import type { Decision } from "../api/limiter-api.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import { type Amount, sameAmount } from "../ground/permits.ts";
import { type Answer, AT_ONCE, REFUSED, type StoreRequest } from "../stores/store.ts";
import type { PendingRequest } from "./batcher.ts";

export interface PermitRequest extends PendingRequest<Answer> {
  returnToStore(answer: Answer, sentAt?: number): void;
  /**
   * Converts the request to the store's format.
   *
   * @param late how late our own timer was, microseconds
   * @param last the previous request of the batch
   * @returns the store's request; or `last` with its count increased, if both reserve the same
   */
  toStore(late: number, last: StoreRequest | undefined): StoreRequest;
  /** Returns the amount that the store has taken, by its answer; 0: nothing. */
  takenBy(answer: Answer): Amount;
  /** Whether it may be sent again if it is unknown whether the store has run it; absent: it may. */
  readonly isRepeatable?: boolean;
  /** Set if the request returns permits: the latest instant that was promised with them. */
  readonly promisedUntil?: number | undefined;
  /** Called when the store is away and the request is kept until it is back. */
  delayed(): void;
  /**
   * Answers the request in this process while the store is away; undefined: only the store can answer.
   *
   * @param isSent the request was sent: the store may have run it, or may still run it
   */
  readonly runInFallback?: ((here: Fallback, isSent: boolean) => void) | undefined;
}

/** A request for permits that the fallback in this process answers while the store is away. */
export interface FallbackRequest extends PermitRequest {
  readonly amount: Amount;
  /** How much longer it can wait, microseconds. */
  readonly left: number;
  /** Whether a caller waits for its permits, and asks the store if it is back before. */
  readonly isAwaited: boolean;
  /**
   * Called when its permits can be used: `wait` is then 0. If no caller waits for them, called at once with
   * the microseconds until then.
   */
  granted(wait: number): void;
  decline(full: () => Error): void;
  never(excess: PermitsExceedCapacityError): void;
  /** Set while it waits here; gives up its place. */
  leaveFallback: (() => void) | undefined;
}

export type ChangeVerb = "charge" | "refund" | "settle";

/** Answers in this process while the store is away. */
export interface Fallback {
  admit(visitor: FallbackRequest): void;
  decide(verb: "decide" | "peek", amount: Amount): Decision;
  /** @param isSent the change was sent: the store may have made it */
  change(verb: ChangeVerb, amount: Amount, isSent: boolean): void;
  pause(micros: number): void;
}

/** The answer to a request that would have to wait too long. */
export const NO: Answer = { ...AT_ONCE, wait: REFUSED };

export function isGranted({ wait }: Pick<Answer, "wait">): boolean {
  return wait >= 0 && wait < Infinity;
}

export interface CallOptions<T> {
  readonly request: (late: number) => StoreRequest;
  readonly result: (answer: Answer) => T;
  /** The amount that the store takes if it answers that the permits can be used at once. */
  readonly takes?: Amount;
  /** Default: true. */
  readonly isRepeatable?: boolean;
  readonly promisedUntil?: number;
  readonly returnToStore?: (answer: Answer) => void;
  readonly here?: (here: Fallback, isSent: boolean) => T;
  /** Called with the error if the call fails. */
  readonly failed?: (error: unknown) => void;
}

/** A request that resolves a promise with its answer: the caller waits only for the reply. */
export class StoreCall<T> implements PermitRequest {
  /** Set if no caller waits for it any more. */
  gone = false;
  readonly toStore: (late: number) => StoreRequest;
  readonly isRepeatable: boolean;
  readonly promisedUntil: number | undefined;
  readonly runInFallback: PermitRequest["runInFallback"];
  readonly promise: Promise<T>;
  readonly #options: CallOptions<T>;
  #resolve!: (result: T) => void;
  #reject!: (reason: unknown) => void;

  constructor(options: CallOptions<T>) {
    const { here } = options;
    this.#options = options;
    this.toStore = options.request;
    this.isRepeatable = options.isRepeatable !== false;
    this.promisedUntil = options.promisedUntil;
    this.runInFallback = here && ((...args) => this.#settle(() => here(...args)));
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  takenBy({ wait }: Answer): Amount {
    return wait === 0 ? (this.#options.takes ?? 0) : 0;
  }

  answer(answer: Answer): void {
    this.#settle(() => this.#options.result(answer));
  }

  fail(error: unknown): void {
    this.#options.failed?.(error);
    this.#reject(error);
  }

  /** No caller waits for a request that returns permits. */
  delayed(): void {
    if (this.promisedUntil !== undefined) this.answer(AT_ONCE);
  }

  returnToStore(answer: Answer): void {
    if (answer.wait === 0) this.#options.returnToStore?.(answer);
  }

  #settle(result: () => T): void {
    try {
      this.#resolve(result());
    } catch (error) {
      this.#reject(error);
    }
  }
}

/**
 * Returns the call of a charge, refund or settlement, for the store or the fallback in this process.
 *
 * @param receipts of the grant that the permits of a refund belong to; absent: that is not known
 */
export function changeOf(
  verb: ChangeVerb,
  amount: Amount,
  receipts: readonly number[] = [],
): CallOptions<void> {
  return {
    request: () => (verb === "refund" ? { verb, amount, receipts } : { verb, amount }),
    takes: verb === "refund" ? 0 : amount,
    isRepeatable: verb !== "refund",
    result: () => {},
    here: (here, isSent) => here.change(verb, amount, isSent),
  };
}

/** Returns the call of a pause, for the store or the fallback in this process. */
export function pauseOf(micros: number): CallOptions<void> {
  return {
    request: () => ({ verb: "pause", micros }),
    result: () => {},
    here: (here) => here.pause(micros),
  };
}

/**
 * Sorts a batch: requests that return permits come first, the latest promised instant in front. Only a
 * return of the latest promised permits leaves no gap in the schedule.
 */
export function inOrder(requests: readonly PermitRequest[]): readonly PermitRequest[] {
  if (!requests.some(returnsPermits)) return requests;
  const back = requests.filter(returnsPermits);
  back.sort((a, b) => Number(b.promisedUntil) - Number(a.promisedUntil));
  return [...back, ...requests.filter((request) => !returnsPermits(request))];
}

function returnsPermits({ promisedUntil }: PermitRequest): boolean {
  return promisedUntil !== undefined;
}

/** Converts requests to the store's format; neighbours that reserve the same become one with a count. */
export function pack(requests: readonly PermitRequest[], late: number): StoreRequest[] {
  const packed: StoreRequest[] = [];
  let last: StoreRequest | undefined;
  for (const each of requests) {
    const request = each.toStore(late, last);
    if (request !== last) packed.push(request);
    last = request;
  }
  return packed;
}

/** Implements `PermitRequest.toStore` for a request to reserve an amount within `longest`. */
export function reserving(
  amount: Amount,
  longest: number,
  late: number,
  last: StoreRequest | undefined,
): StoreRequest {
  const isLike =
    last?.verb === "reserve" && last.longest === longest && sameAmount(last.amount, amount);
  if (!isLike) return { verb: "reserve", amount, longest, late, count: 1 };
  last.count += 1;
  return last;
}
