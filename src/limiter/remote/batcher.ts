/**
 * Requests share batches: those of one turn of the event loop, and those that come while a batch is
 * under way, leave together in the order in which they came. One batch is under way at a time. Each
 * is answered within `timeoutMs` of the first request in it, or reported as failed; a reply that
 * comes after that is reported as late.
 */
import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { noAnswer } from "../../errors.ts";

/** The caller has left meanwhile: the request need not be sent. */
export interface Batchable {
  readonly gone: boolean;
}

export interface Sent<Request> {
  readonly requests: readonly Request[];
  /** When it left, by the handler's clock. */
  readonly sentAt: number;
}

/** What becomes of the batches. */
export interface BatchHandler<Request, Answer> {
  now(): number;
  /** The requests in the order in which they leave, and what is to leave with them. */
  prepare(requests: readonly Request[]): readonly Request[];
  /**
   * Sends a batch; the promise is for one answer to each request, in order.
   *
   * @param deadlineMs when the batch is overdue, by `performance.now()`
   */
  run(requests: readonly Request[], sentAt: number, deadlineMs: number): Promise<readonly Answer[]>;
  answered(sent: Sent<Request>, answers: readonly Answer[]): void;
  /** @param isLatest no batch has failed or been answered since that one was overdue */
  answeredLate(sent: Sent<Request>, answers: readonly Answer[], isLatest: boolean): void;
  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void;
  /** Nothing is queued or under way. */
  drained(): void;
}

interface Queued<Request> {
  readonly requests: Request[];
  /** When the first of them was added, ms. */
  readonly addedMs: number;
}

interface UnderWay<Request> extends Sent<Request> {
  readonly deadlineMs: number;
  /** Its deadline was noticed late: this process, not the store, may have been busy. */
  isGraced: boolean;
}

export class Batcher<Request extends Batchable, Answer> {
  readonly #handler: BatchHandler<Request, Answer>;
  readonly #timeoutMs: number;
  readonly #mostRequests: number;
  #queue: Queued<Request>[] = [];
  #isHeld = false;
  /** A microtask will send the next batch. */
  #isLeaving = false;
  #underWay: UnderWay<Request> | undefined;
  /** The overdue batch whose reply may still come. */
  #overdue: UnderWay<Request> | undefined;
  #deadline: ReturnType<typeof setTimeout> | undefined;

  /** @param mostRequests in a batch: a script keeps others waiting while it runs */
  constructor(handler: BatchHandler<Request, Answer>, timeoutMs: number, mostRequests: number) {
    this.#handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#mostRequests = mostRequests;
  }

  get isDrained(): boolean {
    return (this.#underWay ?? this.#overdue) === undefined && this.#queue.length === 0;
  }

  add(request: Request): void {
    const last = this.#queue.at(-1);
    if (last !== undefined && last.requests.length < this.#mostRequests) {
      last.requests.push(request);
    } else {
      this.#queue.push({ requests: [request], addedMs: performance.now() });
    }
    this.#leaveSoon();
  }

  /** Nothing leaves until `resume`. @returns what has not left yet, in order: the queue is empty */
  hold(): Request[] {
    this.#isHeld = true;
    const requests = this.#queue.flatMap((queued) => queued.requests);
    this.#queue = [];
    return requests;
  }

  /** What was added meanwhile has its full time from now on. */
  resume(): void {
    this.#isHeld = false;
    this.#overdue = undefined;
    this.#restartTime();
    this.#leaveSoon();
  }

  /** Ends everything. @returns the requests without an answer, those under way first */
  abandon(): Request[] {
    clearTimeout(this.#deadline);
    const requests = [...(this.#underWay?.requests ?? []), ...this.hold()];
    this.#underWay = undefined;
    this.#overdue = undefined;
    return requests;
  }

  #restartTime(): void {
    const requests = this.#queue.flatMap((queued) => queued.requests);
    const addedMs = performance.now();
    this.#queue = [];
    for (let from = 0; from < requests.length; from += this.#mostRequests) {
      this.#queue.push({ requests: requests.slice(from, from + this.#mostRequests), addedMs });
    }
  }

  /** With the microtasks of this turn: all requests of the turn are there, a lone one is not held up. */
  #leaveSoon(): void {
    if (this.isDrained) this.#handler.drained();
    if (this.#isHeld || this.#isLeaving || this.#underWay !== undefined) return;
    if (this.#queue.length === 0) return;
    this.#isLeaving = true;
    queueMicrotask(() => {
      this.#isLeaving = false;
      if (!this.#isHeld && this.#underWay === undefined) this.#leave();
    });
  }

  #leave(): void {
    const queued = this.#queue.shift();
    // held meanwhile, and what was queued handed back
    if (queued === undefined) return;
    const wanted = queued.requests.filter((request) => !request.gone);
    if (wanted.length === 0) {
      this.#leaveSoon();
      return;
    }
    const requests = this.#handler.prepare(wanted);
    const sentAt = this.#handler.now();
    const deadlineMs = queued.addedMs + this.#timeoutMs;
    const batch: UnderWay<Request> = { requests, sentAt, deadlineMs, isGraced: false };
    this.#underWay = batch;
    this.#watch(batch, Math.min(LONGEST_TIMEOUT_MS, deadlineMs - performance.now()));
    this.#run(batch).then(
      (answers) => {
        if (answers?.length === requests.length) this.#answered(batch, answers);
        else this.#failed(batch, wrongCount(answers?.length, requests.length));
      },
      (error) => this.#failed(batch, error),
    );
  }

  /** A client that throws has failed. */
  #run({
    requests,
    sentAt,
    deadlineMs,
  }: UnderWay<Request>): Promise<readonly Answer[] | undefined> {
    try {
      return Promise.resolve(this.#handler.run(requests, sentAt, deadlineMs));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #watch(batch: UnderWay<Request>, ms: number): void {
    this.#deadline = setTimeout(() => this.#expire(batch), ms);
  }

  #expire(batch: UnderWay<Request>): void {
    if (!batch.isGraced && performance.now() > batch.deadlineMs) {
      // the event loop was busy: a reply that has arrived meanwhile is read before the next timer
      batch.isGraced = true;
      this.#watch(batch, 0);
      return;
    }
    this.#underWay = undefined;
    this.#overdue = batch;
    this.#handler.failed(batch.requests, noAnswer(this.#timeoutMs), true);
    this.#leaveSoon();
  }

  #answered(batch: UnderWay<Request>, answers: readonly Answer[]): void {
    if (this.#underWay !== batch) {
      const isLatest = this.#forget(batch);
      this.#handler.answeredLate(batch, answers, isLatest);
      this.#leaveSoon();
      return;
    }
    clearTimeout(this.#deadline);
    this.#underWay = undefined;
    if (batch.isGraced) this.#restartTime();
    this.#handler.answered(batch, answers);
    this.#leaveSoon();
  }

  #failed(batch: UnderWay<Request>, cause: unknown): void {
    if (this.#underWay === batch) {
      clearTimeout(this.#deadline);
      this.#underWay = undefined;
      this.#handler.failed(batch.requests, cause, false);
    } else {
      this.#forget(batch);
    }
    this.#leaveSoon();
  }

  #forget(batch: UnderWay<Request>): boolean {
    const isLatest = this.#overdue === batch;
    if (isLatest) this.#overdue = undefined;
    return isLatest;
  }
}

function wrongCount(answers: number | undefined, requests: number): TypeError {
  return new TypeError(`the store gave ${answers} answers to ${requests} requests`);
}
