import type { StoreUnavailableError } from "../../../ground/errors.ts";
import type { Breaker } from "../../../stores/breaker.ts";
import type { PermitRequest } from "../permit-request.ts";
import { ThrowWhenUnavailable } from "./throw.ts";

/**
 * Keeps requests until the store is back. A late reply still counts. A request without a reply by then
 * is sent again, unless it must not run twice.
 */
export class WaitWhenUnavailable extends ThrowWhenUnavailable {
  override readonly awayOnError = true;

  override get isAwaited(): boolean {
    return this.holdsRequests;
  }

  override breaker(breaker: Breaker): Breaker {
    return breaker.forWaiting();
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    const isLost = isSent && request.isRepeatable === false;
    if (isLost && !isSilence(error)) request.fail(error);
    else this.keep(request, isLost ? error : undefined);
  }
}

/** Returns whether the error is a time-out, after which the reply may still arrive. */
function isSilence({ cause }: StoreUnavailableError): boolean {
  return cause instanceof DOMException && cause.name === "TimeoutError";
}
