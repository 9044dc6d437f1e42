import type { StoreUnavailableError } from "../../../ground/errors.ts";
import type { Breaker } from "../../../stores/breaker.ts";
import type { Answer } from "../../../stores/store.ts";
import type { Here, PermitRequest } from "../permit-request.ts";
import type { WhenUnavailable } from "../store-link.ts";

/** The strategy of a limiter of permits: adds what the limiter needs to what its link needs. */
export interface PermitStrategy extends WhenUnavailable<PermitRequest, Answer> {
  /** How many permits callers wait for in the fallback. */
  readonly waiting: number;
  /** The fallback that answers while the store is away; undefined: requests fail or wait. */
  readonly here: Here | undefined;
  /** Returns a request to add to the batch that is about to be sent, if any. */
  piggyback(): PermitRequest | undefined;
  /** Called when the last known state of the store is outdated. */
  outdated(): void;
}

/**
 * Fails requests while the store is away. Requests that return permits are kept until it is back: no
 * caller waits for those.
 */
export class ThrowWhenUnavailable implements PermitStrategy {
  readonly awayOnError: boolean = false;
  readonly awayOnDisconnect: boolean = false;
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

  breaker(breaker: Breaker): Breaker {
    return breaker;
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
