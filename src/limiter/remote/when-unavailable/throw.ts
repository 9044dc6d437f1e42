import type { StoreUnavailableError } from "../../../ground/errors.ts";
import type { Answer } from "../../../stores/store.ts";
import type { PermitRequest } from "../permit-request.ts";
import { Strategy } from "../strategy.ts";

/**
 * Fails requests while the store is away. Requests that return permits are kept until it is back: no
 * caller waits for those.
 */
export class ThrowWhenUnavailable extends Strategy<PermitRequest, Answer> {
  /** How many permits callers wait for in the fallback. */
  get waiting(): number {
    return 0;
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    if (isSent || request.promisedUntil === undefined) request.fail(error);
    else this.keep(request);
  }

  /** @param error the error when the store is back, if the request must not be sent again */
  protected keep(request: PermitRequest, error?: StoreUnavailableError): void {
    this.kept.set(request, error);
    request.delayed();
  }

  /** Called when the last known state of the store is outdated. */
  outdated(): void {}
}
