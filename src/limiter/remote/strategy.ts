/** What happens to requests while the store is away. */
import type { StoreUnavailableError } from "../../ground/errors.ts";
import type { Breaker } from "../../stores/breaker.ts";
import type { Batchable } from "./batcher.ts";

/** A request to a store, with a method for each outcome. */
export interface PendingRequest<Answer> extends Batchable {
  answer(answer: Answer, sentAt: number): void;
  fail(error: unknown): void;
  /** Returns what the store has granted: the caller has left, or the request has failed, before the reply. */
  returnToStore?(answer: Answer): void;
}

/**
 * Handles requests while the store is away: a subclass for each value of `whenUnavailable`. This class
 * fails them. Subclasses may keep requests, which are sent when the store is back.
 */
export class Strategy<Request extends PendingRequest<Answer>, Answer> {
  /** Whether an error reply means that the store is away; a time-out always does. */
  readonly awayOnError: boolean = false;
  /** Whether the store counts as away when the client reports that it has no connection. */
  readonly awayOnDisconnect: boolean = false;
  /** The requests that are kept, in order; each with the error if it must not be sent again. */
  protected readonly kept = new Map<Request, StoreUnavailableError | undefined>();

  /** Whether a caller waits for the store. */
  get isAwaited(): boolean {
    return false;
  }

  get holdsRequests(): boolean {
    for (const request of this.kept.keys()) {
      if (!request.gone) return true;
      this.kept.delete(request);
    }
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

  /** Handles the late reply to a request that has failed, or is kept. */
  late(request: Request, answer: Answer, sentAt: number): void {
    if (this.kept.delete(request) && !request.gone) request.answer(answer, sentAt);
    else request.returnToStore?.(answer);
  }

  /** Returns a request to add to the batch that is about to be sent, if any. */
  piggyback(): Request | undefined {
    return undefined;
  }

  /** Called when an outage begins. */
  lost(): void {}

  /** Called when the store is back. @param send sends a request ahead of all later ones */
  recovered(send: (request: Request) => void): void {
    const kept = [...this.kept];
    this.kept.clear();
    for (const [request, error] of kept) {
      if (request.gone) continue;
      if (error === undefined) send(request);
      else request.fail(error);
    }
  }

  /** Called when the limiter is closed. @returns the requests that were kept */
  abandon(): readonly Request[] {
    const kept = [...this.kept.keys()];
    this.kept.clear();
    return kept;
  }
}
