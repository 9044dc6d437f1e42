/**
 * Sends requests to a store in batches while the store answers, and hands them to a strategy while it
 * does not. No batch leaves while the store is away: what it takes for callers who have given up would
 * be missing when the store is back.
 */
import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { StoreUnavailableError } from "../../errors.ts";
import { Breaker, type BreakerListener } from "../../stores/breaker.ts";
import { LostReplyError } from "../../stores/trip.ts";
import {
  type Batchable,
  Batcher,
  type BatchHandler,
  type BatchLimits,
  type Sent,
} from "./batcher.ts";
import type { OutageStats } from "./outage-stats.ts";

/** A request to a store, and what becomes of it. */
export interface PendingRequest<Answer> extends Batchable {
  answer(answer: Answer, sentAt: number): void;
  fail(error: unknown): void;
  /** It is gone, and no caller wants what was granted. */
  returnToStore?(answer: Answer): void;
}

/** What requests do while the store is away: one strategy for each value of `whenUnavailable`. */
export interface WhenUnavailable<Request, Answer> {
  /** An error, not only silence, means that the store is away. */
  readonly awayOnError: boolean;
  /** The client's word that it has no connection does, too. */
  readonly awayOnDisconnect: boolean;
  /** A reply that is late counts as one in time: the store that gave it is there. */
  readonly acceptsLate: boolean;
  /** A caller waits for the store. */
  readonly isAwaited: boolean;
  /** It holds requests that will be sent when the store is back. */
  readonly holdsRequests: boolean;
  /** Nothing would be lost if the outage were forgotten. */
  readonly isIdle: boolean;
  /**
   * The store did not answer the request.
   *
   * @param isSent the request has left: the store may run it or have run it
   */
  failed(request: Request, error: StoreUnavailableError, isSent: boolean): void;
  /** A reply to a request that has failed. */
  late(request: Request, answer: Answer, sentAt: number): void;
  /** An outage begins. */
  lost(): void;
  /** The store is back. @param send sends a request before those that come from now on */
  recovered(send: (request: Request) => void): void;
  /** The limiter is closed. @returns the requests that it holds */
  abandon(): Iterable<Request>;
}

export interface LinkOptions<Request, Answer>
  extends BatchLimits,
    Pick<BatchHandler<Request, Answer | undefined>, "now" | "prepare" | "run"> {
  readonly name: string;
  readonly strategy: WhenUnavailable<Request, Answer>;
  readonly stats: OutageStats;
  /** The breaker of all whose stores go away together; absent: this link has its own. */
  breaker(): Breaker | undefined;
  probe(): Promise<unknown>;
  isPermanent(cause: unknown): boolean;
  /** A reply has come in time. */
  answered?(request: Request, answer: Answer): void;
}

export class StoreLink<Request extends PendingRequest<Answer>, Answer>
  implements BreakerListener, BatchHandler<Request, Answer | undefined>
{
  readonly #options: LinkOptions<Request, Answer>;
  readonly #strategy: WhenUnavailable<Request, Answer>;
  readonly #batcher: Batcher<Request, Answer | undefined>;
  readonly #own = new Breaker();
  /** The breaker that it has joined, while the store is away. */
  #joined: Breaker | undefined;
  /** For all who ask meanwhile: an error takes longer to make than an answer. */
  #error: StoreUnavailableError | undefined;
  #closed: Error | undefined;
  #isDetached = false;
  #onDrained: (() => void) | undefined;

  constructor(options: LinkOptions<Request, Answer>) {
    this.#options = options;
    this.#strategy = options.strategy;
    this.#batcher = new Batcher(this, options);
  }

  get isAway(): boolean {
    return this.#joined !== undefined;
  }

  send(request: Request): void {
    if (this.#closed !== undefined) {
      request.fail(this.#closed);
      return;
    }
    const error = this.refusal();
    if (error === undefined) this.#batcher.add(request);
    else this.#unsent(request, error);
  }

  /** With what a request fails now without being sent; undefined: it is sent. */
  refusal(): StoreUnavailableError | undefined {
    if (!this.#isAway()) return undefined;
    this.#error ??= this.#unavailable(this.#joined?.cause);
    return this.#error;
  }

  /** Requests would fail without being sent, and are not kept until the store is back. */
  get refusesNow(): boolean {
    return this.#isAway() && !this.#strategy.acceptsLate;
  }

  /** The request would have depended on another one, which has failed. */
  refuse(request: Request, error: unknown): void {
    if (error instanceof StoreUnavailableError && !this.isPermanent(error.cause)) {
      this.#strategy.failed(request, error, false);
    } else {
      request.fail(error);
    }
  }

  /**
   * Ends the link when nothing is queued or under way any more, or after `timeoutMs`: what is left
   * then fails, and so does what is sent later.
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
      const last = setTimeout(end, Math.min(LONGEST_TIMEOUT_MS, this.#options.timeoutMs));
      // what is answered now may still lead to something that returns to the store
      this.#onDrained = () => {
        setTimeout(() => {
          if (this.#onDrained !== undefined && this.#isDrained) end();
        }, 0);
      };
      this.drained();
    });
  }

  /**
   * From now on each request finds out by itself whether the store is there.
   *
   * @param error what those get that wait for it
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

  get #breaker(): Breaker {
    const breaker = this.#options.breaker() ?? this.#own;
    return this.#strategy.acceptsLate ? breaker.forWaiting() : breaker;
  }

  /** Whether the store is away, as far as this link or another one of the connection knows. */
  #isAway(): boolean {
    if (this.#joined !== undefined) return true;
    if (this.#isDetached) return false;
    const { isOpen, isDisconnected, cause } = this.#breaker;
    if (!isOpen && !(isDisconnected && this.#strategy.awayOnDisconnect)) return false;
    this.#goAway(cause);
    return true;
  }

  #unsent(request: Request, error: StoreUnavailableError): void {
    this.#strategy.failed(request, error, false);
    if (this.#strategy.acceptsLate) this.#joined?.awaited();
  }

  #goAway(cause: unknown): void {
    if (this.#joined !== undefined || this.#isDetached) return;
    this.#joined = this.#breaker;
    const requests = this.#batcher.hold();
    this.#options.stats.lost(cause);
    this.#joined.join(this, cause);
    this.#strategy.lost();
    const error = requests.length > 0 ? this.refusal() : undefined;
    if (error === undefined) return;
    for (const request of requests) if (!request.gone) this.#unsent(request, error);
  }

  #unavailable(cause: unknown): StoreUnavailableError {
    const { name, timeoutMs } = this.#options;
    return new StoreUnavailableError(name, timeoutMs, cause);
  }

  // -- what the batcher asks, and reports --

  now(): number {
    return this.#options.now();
  }

  prepare(requests: readonly Request[]): readonly Request[] {
    return this.#options.prepare(requests);
  }

  /** An answer is undefined where the store has run the request and the reply to that is lost. */
  run(requests: readonly Request[], sentAt: number): Promise<readonly (Answer | undefined)[]> {
    return this.#options.run(requests, sentAt);
  }

  answered({ requests, sentAt }: Sent<Request>, answers: readonly (Answer | undefined)[]): void {
    const { stats, answered } = this.#options;
    const lost: Request[] = [];
    for (let i = 0; i < requests.length; i++) {
      const request = requests[i] as Request;
      const answer = answers[i];
      if (request.gone) {
        if (answer !== undefined) request.returnToStore?.(answer);
      } else if (answer === undefined) {
        lost.push(request);
      } else {
        answered?.(request, answer);
        request.answer(answer, sentAt);
      }
    }
    stats.answered();
    // in time: the store was not away after all
    const breaker = this.#joined ?? this.#breaker;
    if (breaker.isOpen) breaker.close();
    if (lost.length > 0) this.failed(lost, new LostReplyError(), false);
  }

  answeredLate(
    { requests, sentAt }: Sent<Request>,
    answers: readonly (Answer | undefined)[],
    isLatest: boolean,
  ): void {
    requests.forEach((request, i) => {
      const answer = answers[i];
      if (answer !== undefined) this.#strategy.late(request, answer, sentAt);
    });
    if (isLatest && this.#strategy.acceptsLate) this.#joined?.close();
  }

  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void {
    const error = this.#unavailable(cause);
    const isPermanent = this.isPermanent(cause);
    const isAway = !isPermanent && (isOverdue || this.#strategy.awayOnError);
    if (!isPermanent) this.#options.stats.lost(cause);
    for (const request of requests) {
      if (request.gone) continue;
      if (isPermanent) request.fail(error);
      else this.#strategy.failed(request, error, true);
    }
    if (isAway) this.#goAway(cause);
  }

  drained(): void {
    if (this.#isDrained) this.#onDrained?.();
  }

  // -- what the breaker asks, and reports --

  get timeoutMs(): number {
    return this.#options.timeoutMs;
  }

  get isAwaited(): boolean {
    return this.#strategy.isAwaited;
  }

  get isIdle(): boolean {
    return this.#strategy.isIdle;
  }

  isPermanent(cause: unknown): boolean {
    return cause instanceof TypeError || this.#options.isPermanent(cause);
  }

  probe(): Promise<unknown> {
    const afterThat = () => {};
    const probe = new Promise((resolve) => resolve(this.#options.probe()));
    // where an overdue reply and that of the probe come together, the overdue one goes first
    return probe.finally(afterThat);
  }

  found(): void {
    this.#joined = undefined;
    this.#error = undefined;
    this.#options.stats.answered();
    this.#strategy.recovered((request) => this.#batcher.add(request));
    this.#batcher.resume();
  }

  /** The next call will see that the store is away. */
  forgotten(): void {
    this.#joined = undefined;
    this.#error = undefined;
    this.#batcher.resume();
  }
}
