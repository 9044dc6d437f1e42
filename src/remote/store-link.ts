/**
 * Sends requests to a store in batches while the store answers, and hands them to a strategy while it
 * does not. No batch is sent during an outage: the store might run it after its callers have given up,
 * and the permits would be lost.
 */

import type { OutageStats } from "../api/outage-stats.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { readable, StoreUnavailableError } from "../ground/errors.ts";
import { LostReplyError } from "../stores/batch-id.ts";
import { Breaker, type BreakerListener } from "../stores/breaker.ts";
import type { Store } from "../stores/store.ts";
import {
  Batcher,
  type BatchHandler,
  type BatchLimits,
  type PendingRequest,
  type SentBatch,
} from "./batcher.ts";
import type { Strategy } from "./strategy.ts";

export abstract class StoreLink<Request extends PendingRequest<Answer>, Answer>
  implements BreakerListener, BatchHandler<Request, Answer | undefined>
{
  readonly timeoutMs: number;
  readonly #name: string;
  protected readonly stats: OutageStats;
  readonly #strategy: Strategy<Request, Answer>;
  readonly #batcher: Batcher<Request, Answer | undefined>;
  readonly #findBreaker: () => Breaker;
  readonly isPermanent: (cause: unknown) => boolean;
  /** The breaker that this link has joined; set while the store is away. */
  #joined: Breaker | undefined;
  /** One error for all calls of an outage: an error is expensive to create. */
  #error: StoreUnavailableError | undefined;
  #closed: Error | undefined;
  #isDetached = false;
  #onDrained: (() => void) | undefined;

  constructor(
    store: Pick<Store, "breakerOf" | "isPermanent">,
    key: string,
    { name, timeoutMs, stats }: { name: string; timeoutMs: number; stats: OutageStats },
    strategy: Strategy<Request, Answer>,
    limits: Omit<BatchLimits, "timeoutMs">,
  ) {
    const own = new Breaker();
    this.timeoutMs = timeoutMs;
    this.#name = name;
    this.stats = stats;
    this.#strategy = strategy;
    this.#batcher = new Batcher(this, { ...limits, timeoutMs });
    this.#findBreaker = () => strategy.breaker(store.breakerOf?.(key) ?? own);
    this.isPermanent = (cause) => store.isPermanent?.(cause) ?? cause instanceof TypeError;
  }

  abstract now(): number;
  abstract run(
    requests: readonly Request[],
    sentAt: number,
    deadlineMs: number,
  ): Promise<readonly (Answer | undefined)[]>;
  /** Sends the smallest request that writes. */
  protected abstract test(): Promise<unknown>;

  get isUnavailable(): boolean {
    return this.#joined !== undefined;
  }

  /** How long the store may take to answer, ms; 0 while it is away. */
  get answerMs(): number {
    return this.isUnavailable ? 0 : this.timeoutMs;
  }

  send(request: Request): void {
    this.#send(request);
  }

  /** Makes the requests that are sent meanwhile go before those that are queued. */
  sendAhead(send: () => void): void {
    const queued = this.#batcher.take();
    this.#strategy.keepAhead(send);
    for (const request of queued) if (!request.gone) this.#send(request);
  }

  #send(request: Request): void {
    if (this.#closed !== undefined) {
      request.fail(this.#closed);
      return;
    }
    const error = this.refusal();
    if (error === undefined) this.#batcher.add(request);
    else this.#unsent(request, error);
  }

  /** Returns the error with which a request would fail now without being sent; undefined: it is sent. */
  refusal(): StoreUnavailableError | undefined {
    if (this.#joined === undefined) {
      if (this.#isDetached) return undefined;
      // another link of the same connection may have detected an outage
      const { isOpen, isDisconnected, cause } = this.#findBreaker();
      if (!isOpen && !(isDisconnected && this.#strategy.unavailableOnDisconnect)) return undefined;
      this.#becomeUnavailable(cause);
    }
    this.#error ??= this.#unavailable(this.#joined?.cause);
    return this.#error;
  }

  /** Handles a request that depends on a call that has failed, as if it had failed itself. */
  refuse(request: Request, error: unknown): void {
    if (this.#closed !== undefined) {
      request.fail(this.#closed);
    } else if (!(error instanceof StoreUnavailableError) || this.isPermanent(error.cause)) {
      request.fail(error);
    } else if (this.isUnavailable || !this.#strategy.unavailableOnError) {
      this.#unsent(request, error);
    } else {
      // the store is back already
      this.#batcher.add(request);
    }
  }

  /**
   * Ends the link when no request is queued or under way any more, or after `timeoutMs`. Requests that
   * are left then fail, and so does every later one.
   */
  close(error: Error): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(last);
        this.#onDrained = undefined;
        this.#closed = error;
        this.#joined?.leave(this);
        const requests = [...this.#strategy.abandon(), ...this.#batcher.abandon()];
        for (const request of requests) if (!request.gone) request.fail(error);
        resolve();
      };
      const last = setTimeout(end, Math.min(LONGEST_TIMEOUT_MS, this.timeoutMs));
      // the reply to this batch may still cause permits to return to the store
      this.#onDrained = () => {
        setTimeout(() => {
          if (this.#onDrained !== undefined && this.#isDrained) end();
        }, 0);
      };
      this.drained();
    });
  }

  /**
   * Leaves the breaker for good: from now on each request detects by itself whether the store answers.
   *
   * @param error the error for requests that wait for the store
   */
  detach(error: Error): void {
    this.#isDetached = true;
    this.#joined?.leave(this);
    this.forgotten();
    for (const request of this.#strategy.abandon()) request.fail(error);
  }

  get #isDrained(): boolean {
    return this.#batcher.isDrained && !this.#strategy.holdsRequests;
  }

  #unsent(request: Request, error: StoreUnavailableError): void {
    this.#strategy.failed(request, error, false);
    if (this.#strategy.isAwaited) this.#joined?.awaited();
  }

  #becomeUnavailable(cause: unknown): void {
    if (this.#joined !== undefined || this.#isDetached || this.#closed !== undefined) return;
    this.#joined = this.#findBreaker();
    const requests = this.#batcher.hold();
    this.stats.lost(cause);
    this.#joined.join(this, cause);
    this.#strategy.lost();
    const error = requests.length > 0 ? this.refusal() : undefined;
    if (error === undefined) return;
    for (const request of requests) if (!request.gone) this.#unsent(request, error);
  }

  #unavailable(cause: unknown): StoreUnavailableError {
    return new StoreUnavailableError(this.#name, this.timeoutMs, cause);
  }

  // -- for the batcher --

  prepare(requests: readonly Request[]): readonly Request[] {
    const last = this.#strategy.piggyback();
    return last === undefined ? requests : [...requests, last];
  }

  answered(
    { requests, sentAt }: SentBatch<Request>,
    answers: readonly (Answer | undefined)[],
  ): void {
    const lost: Request[] = [];
    settleEach(requests, (request, i) => {
      const answer = answers[i];
      if (request.gone) {
        if (answer !== undefined) request.returnToStore?.(answer, sentAt);
      } else if (answer === undefined) {
        lost.push(request);
      } else {
        this.#strategy.answered(request, answer);
        request.answer(answer, sentAt);
      }
    });
    // two limiters that never get their replies must not send for each other again and again
    if (lost.length > 0) {
      this.failed(lost, new LostReplyError(), false);
      return;
    }
    this.stats.answered();
    // a reply in time shows that the store is not away
    const breaker = this.#joined ?? this.#findBreaker();
    if (breaker.isOpen) breaker.close();
  }

  answeredLate(
    { requests, sentAt }: SentBatch<Request>,
    answers: readonly (Answer | undefined)[],
    isLatest: boolean,
  ): void {
    settleEach(requests, (request, i) => {
      const answer = answers[i];
      if (answer !== undefined) this.#strategy.late(request, answer, sentAt);
    });
    if (isLatest) this.#joined?.answeredLate();
  }

  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void {
    const error = this.#unavailable(cause);
    const isPermanent = this.isPermanent(cause);
    const isUnavailable = !isPermanent && (isOverdue || this.#strategy.unavailableOnError);
    if (!isPermanent) this.stats.lost(cause);
    const settle = (request: Request) => {
      if (request.gone) return;
      if (isPermanent || this.#isDetached) request.fail(error);
      else this.#strategy.failed(request, error, true);
    };
    // another link may have detected the outage before: the requests that are kept since then were made later
    if (requests.length > 0) this.#strategy.keepAhead(() => settleEach(requests, settle));
    if (isUnavailable) this.#becomeUnavailable(cause);
  }

  drained(): void {
    if (this.#isDrained) this.#onDrained?.();
  }

  // -- for the breaker --

  get isAwaited(): boolean {
    return this.#strategy.isAwaited;
  }

  get isIdle(): boolean {
    return this.#strategy.isIdle;
  }

  probe(): Promise<unknown> {
    const afterThat = () => {};
    const probe = new Promise((resolve) => resolve(this.test()));
    // if an overdue reply and the probe's reply arrive together, the overdue one is processed first
    const failed = (reason: unknown) => Promise.reject(readable(reason));
    return probe.catch(failed).finally(afterThat);
  }

  found(): void {
    this.#joined = undefined;
    this.#error = undefined;
    this.stats.answered();
    this.#strategy.recovered((request) => this.#batcher.add(request));
    this.#batcher.resume();
  }

  /** Called when the breaker removes this link because it is idle: the next call joins again. */
  forgotten(): void {
    this.#joined = undefined;
    this.#error = undefined;
    this.#batcher.resume();
  }
}

/**
 * Settles the requests of a batch in order. An error fails its own request: no caller would get it from a reply or a
 * timer, and the others are settled nevertheless.
 */
function settleEach<Request extends PendingRequest<never>>(
  requests: readonly Request[],
  settle: (request: Request, index: number) => void,
): void {
  requests.forEach((request, i) => {
    try {
      settle(request, i);
    } catch (error) {
      if (!request.gone) request.fail(error);
    }
  });
}
