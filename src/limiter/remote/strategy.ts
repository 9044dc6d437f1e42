import type { StoreUnavailableError } from "../../ground/errors.ts";
import type { Breaker } from "../../stores/breaker.ts";
import type { Batchable } from "./batcher.ts";

/** A request to a store, with a method for each outcome. */
export interface PendingRequest<Answer> extends Batchable {
  answer(answer: Answer, sentAt: number): void;
  fail(error: unknown): void;
  /** Returns the granted permits: the caller has left before the reply. */
  returnToStore?(answer: Answer): void;
}

/**
 * Handles requests while the store is away: a subclass for each value of `whenUnavailable`. This class
 * fails them.
 */
export abstract class Strategy<Request extends PendingRequest<Answer>, Answer> {
  /** Whether an error reply means that the store is away; a time-out always does. */
  readonly awayOnError: boolean = false;
  /** Whether the store counts as away when the client reports that it has no connection. */
  readonly awayOnDisconnect: boolean = false;

  /** Whether a caller waits for the store. */
  get isAwaited(): boolean {
    return false;
  }

  /** Whether the strategy holds requests that it sends when the store is back. */
  get holdsRequests(): boolean {
    return false;
  }

  /** Whether the outage leaves nothing to do when the store is back. */
  get isIdle(): boolean {
    return !this.holdsRequests;
  }

  /** Returns the breaker to use, of those of a connection. */
  breaker(breaker: Breaker): Breaker {
    return breaker;
  }

  /** Called for each answer that arrives in time. */
  answered(_request: Request, _answer: Answer): void {}

  /**
   * Handles a request that the store did not answer.
   *
   * @param _isSent the request was sent: the store may have run it, or may still run it
   */
  failed(request: Request, error: StoreUnavailableError, _isSent: boolean): void {
    request.fail(error);
  }

  /** Handles the late reply to a request that has failed. */
  abstract late(request: Request, answer: Answer, sentAt: number): void;

  /** Called when an outage begins. */
  lost(): void {}

  /** Called when the store is back. @param send sends a request ahead of all later ones */
  recovered(send: (request: Request) => void): void {
    for (const request of this.abandon()) send(request);
  }

  /** Called when the limiter is closed, too. @returns the requests that the strategy holds */
  abandon(): Iterable<Request> {
    return [];
  }
}
