/** What is asked of a store of permits, for whom, and how it is packed into a batch. */
import type { PermitsExceedCapacityError } from "../../errors.ts";
import { type Amount, type Permits, sameAmount } from "../../permits.ts";
import type { Answer, StoreRequest } from "../../stores/store.ts";
import type { Decision, LocalReservation } from "../face.ts";
import type { PendingRequest } from "./store-link.ts";

export interface PermitRequest extends PendingRequest<Answer> {
  returnToStore(answer: Answer): void;
  /**
   * @param late how late our own timer was, microseconds
   * @param last the request before it in the batch
   * @returns what the store is asked; or `last`, counted once more, where it reserves the same
   */
  toStore(late: number, last: StoreRequest | undefined): StoreRequest;
  /** What the store has taken, by its answer; 0: nothing. */
  taken(answer: Answer): Amount;
  /** It may be sent again where it is not known whether it was run. */
  readonly isRepeatable: boolean;
  /** Of permits that return to the store: up to which instant permits were promised with them. */
  readonly promisedUntil?: number | undefined;
  /** The store is away; the request will be sent when it is back. */
  delayed(): void;
  /**
   * Is answered in this process while the store is away; absent: only the store can.
   *
   * @param isSent the store may have run it, or may still do so
   */
  readonly runHere?: ((here: Here, isSent: boolean) => void) | undefined;
}

/** A caller that waits in this process while the store is away. */
export interface Visitor {
  readonly amount: Amount;
  /** How much longer it can wait, microseconds. */
  readonly left: number;
  letIn(): void;
  refuse(full: () => Error): void;
  never(excess: PermitsExceedCapacityError): void;
  /** Set while it waits here: called when it leaves. */
  leaveHere: (() => void) | undefined;
}

export type ChangeVerb = "charge" | "refund" | "settle";

/** Answers in this process while the store is away. */
export interface Here {
  admit(visitor: Visitor & PermitRequest): void;
  reserve(permits: Permits, amount: Amount): LocalReservation;
  decide(permits: Permits, amount: Amount): Decision;
  peek(permits: Permits, amount: Amount): Decision;
  /** @param isSent the store may have done it */
  change(verb: ChangeVerb, amount: Amount, isSent: boolean): void;
  pause(micros: number): void;
}

export function isGranted({ wait }: Answer): boolean {
  return wait >= 0 && wait < Infinity;
}

export interface CallOptions<T> {
  readonly request: (late: number) => StoreRequest;
  readonly result: (answer: Answer) => T;
  /** What is taken where the answer is that it can be used at once. */
  readonly takes?: Amount;
  /** Default: yes. */
  readonly isRepeatable?: boolean;
  readonly promisedUntil?: number;
  /** The result of a request that returns permits, where that has to wait for the store. */
  readonly whenKept?: () => T;
  readonly returnToStore?: (answer: Answer) => void;
  readonly here?: (here: Here, isSent: boolean) => T;
  /** Sees the error with which the call fails. */
  readonly failed?: (error: unknown) => void;
}

/** A request whose answer is a promise's: its caller waits for no longer than the answer takes. */
export class StoreCall<T> implements PermitRequest {
  readonly gone = false;
  readonly toStore: (late: number) => StoreRequest;
  readonly isRepeatable: boolean;
  readonly promisedUntil: number | undefined;
  readonly runHere: PermitRequest["runHere"];
  readonly promise: Promise<T>;
  readonly #options: CallOptions<T>;
  #resolve!: (result: T) => void;
  #reject!: (reason: unknown) => void;

  constructor(options: CallOptions<T>) {
    const { here } = options;
    this.#options = options;
    this.toStore = options.request;
    this.isRepeatable = options.isRepeatable ?? true;
    this.promisedUntil = options.promisedUntil;
    this.runHere = here && ((...args) => this.#settle(() => here(...args)));
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  taken({ wait }: Answer): Amount {
    return wait === 0 ? (this.#options.takes ?? 0) : 0;
  }

  answer(answer: Answer): void {
    this.#settle(() => this.#options.result(answer));
  }

  fail(error: unknown): void {
    this.#options.failed?.(error);
    this.#reject(error);
  }

  delayed(): void {
    const { whenKept } = this.#options;
    if (whenKept !== undefined) this.#settle(whenKept);
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

/** What is charged or refunded, whoever keeps the state. */
export function changeOf(verb: ChangeVerb, amount: Amount): CallOptions<void> {
  return {
    request: () => ({ verb, amount }),
    takes: verb === "refund" ? 0 : amount,
    isRepeatable: verb !== "refund",
    result: () => {},
    here: (here, isSent) => here.change(verb, amount, isSent),
  };
}

/**
 * What returns to the store goes before the other requests, the last one promised first: only the
 * last of those that were promised leaves no gap.
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

/** What the store is asked; neighbours that reserve the same become one request with a count. */
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

/** What `PermitRequest.toStore` returns for a request to reserve an amount within `longest`. */
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
