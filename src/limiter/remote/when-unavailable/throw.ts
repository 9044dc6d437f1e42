import type { StoreUnavailableError } from "../../../errors.ts";
import type { Answer } from "../../../stores/store.ts";
import type { Here, PermitRequest } from "../permit-request.ts";
import type { WhenUnavailable } from "../store-link.ts";

/** What a limiter needs of its strategy beyond what its link needs. */
export interface PermitStrategy extends WhenUnavailable<PermitRequest, Answer> {
  /** How many permits are waited for here. */
  readonly waiting: number;
  /** Answers in place of a store that is away; undefined: requests fail or wait. */
  readonly here: Here | undefined;
  /** A request that is to leave with a batch. */
  piggyback(): PermitRequest | undefined;
  /** What the store has answered before is of no use any more. */
  outdated(): void;
  /** The store has answered in time. */
  answered(request: PermitRequest, answer: Answer): void;
}

/**
 * Requests fail while the store is away. Permits that return to the store are kept until it is back:
 * no caller waits for that.
 */
export class ThrowWhenUnavailable implements PermitStrategy {
  readonly awayOnError: boolean = false;
  readonly awayOnDisconnect: boolean = false;
  readonly acceptsLate: boolean = false;
  readonly #kept: PermitRequest[] = [];

  get isAwaited(): boolean {
    return false;
  }

  get holdsRequests(): boolean {
    return this.#kept.length > 0;
  }

  get isIdle(): boolean {
    return !this.holdsRequests;
  }

  get waiting(): number {
    return 0;
  }

  get here(): Here | undefined {
    return undefined;
  }

  failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    if (isSent || request.promisedUntil === undefined) {
      request.fail(error);
    } else {
      this.#kept.push(request);
      request.delayed();
    }
  }

  late(request: PermitRequest, answer: Answer, _sentAt: number): void {
    request.returnToStore(answer);
  }

  lost(): void {}

  recovered(send: (request: PermitRequest) => void): void {
    for (const request of this.abandon()) send(request);
  }

  abandon(): Iterable<PermitRequest> {
    return this.#kept.splice(0);
  }

  piggyback(): PermitRequest | undefined {
    return undefined;
  }

  outdated(): void {}

  answered(_request: PermitRequest, _answer: Answer): void {}
}
