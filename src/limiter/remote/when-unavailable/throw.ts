import type { StoreUnavailableError } from "../../../ground/errors.ts";
import type { Answer } from "../../../stores/store.ts";
import type { PermitRequest } from "../permit-request.ts";
import { Strategy } from "../store-link.ts";

/**
 * Fails requests while the store is away. Requests that return permits are kept until it is back: no
 * caller waits for those.
 */
export class ThrowWhenUnavailable extends Strategy<PermitRequest, Answer> {
  readonly #kept: PermitRequest[] = [];

  override get holdsRequests(): boolean {
    return this.#kept.length > 0;
  }

  /** How many permits callers wait for in the fallback. */
  get waiting(): number {
    return 0;
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    if (isSent || request.promisedUntil === undefined) {
      super.failed(request, error, isSent);
    } else {
      this.#kept.push(request);
      request.delayed();
    }
  }

  override abandon(): Iterable<PermitRequest> {
    return this.#kept.splice(0);
  }

  /** Called when the last known state of the store is outdated. */
  outdated(): void {}
}
