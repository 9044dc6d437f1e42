/** What happens to requests while the store is away, where no fallback in this process answers them. */
import type { StoreUnavailableError } from "../ground/errors.ts";
import type { Breaker } from "../stores/breaker.ts";
import type { Answer as PermitAnswer } from "../stores/store.ts";
import type { PendingRequest } from "./batcher.ts";
import type { PermitRequest } from "./permit-request.ts";

/**
 * Handles requests while the store is away: a subclass for each value of `whenUnavailable`. This class
 * fails them. Subclasses may keep requests, which are sent when the store is back.
 */
export class Strategy<Request extends PendingRequest<Answer>, Answer> {
  /** Whether an error reply means that the store is away; a time-out always does. */
  readonly unavailableOnError: boolean = false;
  /** Whether the store counts as away when the client reports that it has no connection. */
  readonly unavailableOnDisconnect: boolean = false;
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

  /** Puts the requests that are kept meanwhile before those that are kept already. */
  keepAhead(keep: () => void): void {
    const later = [...this.kept];
    this.kept.clear();
    keep();
    for (const [request, error] of later) this.kept.set(request, error);
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

/**
 * Fails requests while the store is away. Requests that return permits are kept until it is back: no
 * caller waits for those.
 */
export class ThrowWhenUnavailable extends Strategy<PermitRequest, PermitAnswer> {
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

/**
 * Keeps requests until the store is back. A late reply still counts. A request without a reply by then
 * is sent again, unless it must not run twice.
 */
export class WaitWhenUnavailable extends ThrowWhenUnavailable {
  override readonly unavailableOnError = true;

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
