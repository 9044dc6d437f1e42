import type { StoreUnavailableError } from "../../../ground/errors.ts";
import type { Breaker } from "../../../stores/breaker.ts";
import type { Answer } from "../../../stores/store.ts";
import type { PermitRequest } from "../permit-request.ts";
import { ThrowWhenUnavailable } from "./throw.ts";

/**
 * Keeps requests until the store is back. A late reply still counts. A request without a reply by then
 * is sent again, unless it must not run twice.
 */
export class WaitWhenUnavailable extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  /** The waiting requests in order; each with the error if it must not be sent again. */
  readonly #waiting = new Map<PermitRequest, StoreUnavailableError | undefined>();

  override get isAwaited(): boolean {
    for (const request of this.#waiting.keys()) {
      if (!request.gone) return true;
      this.#waiting.delete(request);
    }
    return false;
  }

  override get holdsRequests(): boolean {
    return this.isAwaited;
  }

  override breaker(breaker: Breaker): Breaker {
    return breaker.forWaiting();
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    const isLost = isSent && request.isRepeatable === false;
    if (isLost && !isSilence(error)) {
      request.fail(error);
    } else {
      this.#waiting.set(request, isLost ? error : undefined);
      request.delayed();
    }
  }

  override late(request: PermitRequest, answer: Answer, sentAt: number): void {
    if (this.#waiting.delete(request) && !request.gone) request.answer(answer, sentAt);
    else request.returnToStore(answer);
  }

  override recovered(send: (request: PermitRequest) => void): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const [request, error] of waiting) {
      if (request.gone) continue;
      if (error === undefined) send(request);
      else request.fail(error);
    }
  }

  override abandon(): Iterable<PermitRequest> {
    const waiting = [...this.#waiting.keys()];
    this.#waiting.clear();
    return waiting;
  }
}

/** Returns whether the error is a time-out, after which the reply may still arrive. */
function isSilence({ cause }: StoreUnavailableError): boolean {
  return cause instanceof DOMException && cause.name === "TimeoutError";
}
