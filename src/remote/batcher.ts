/**
 * Packs requests into batches. A batch holds the requests of one tick of the event loop, or those that
 * arrive while another batch is under way, in order of arrival: one batch is under way at a time. A batch
 * without a reply within `timeoutMs` of its first request is reported as failed. A later reply to it is
 * reported as late.
 */

import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { atEndOfTick } from "../ground/end-of-tick.ts";
import { noAnswer, readable } from "../ground/errors.ts";

/** A request that need not be sent once its caller has left (`gone`). */
export interface Batchable {
  readonly gone: boolean;
}

/** A request to a store, with a method for each outcome. */
export interface PendingRequest<Answer> extends Batchable {
  answer(answer: Answer, sentAt: number): void;
  fail(error: unknown): void;
  /**
   * Returns what the store has granted: the caller has left, or the request has failed, before the reply.
   *
   * @param sentAt absent if the reply is late
   */
  returnToStore?(answer: Answer, sentAt?: number): void;
}

export interface SentBatch<Request> {
  readonly requests: readonly Request[];
  /** When the batch was sent, by the handler's clock. */
  readonly sentAt: number;
}

/** Sends the batches and handles their outcomes. */
export interface BatchHandler<Request, Answer> {
  now(): number;
  /**
   * Returns the requests in the order to send them, with any request that is added to the batch, and without those
   * that were answered meanwhile; none: no batch is sent.
   */
  prepare(requests: readonly Request[]): readonly Request[];
  /**
   * Sends a batch. The promise resolves to one answer for each request, in order.
   *
   * @param deadlineMs when the batch is overdue, by `performance.now()`
   */
  run(requests: readonly Request[], sentAt: number, deadlineMs: number): Promise<readonly Answer[]>;
  answered(sent: SentBatch<Request>, answers: readonly Answer[]): void;
  /** @param isLatest since this batch was overdue, no other one has been, and no outage has ended */
  answeredLate(sent: SentBatch<Request>, answers: readonly Answer[], isLatest: boolean): void;
  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void;
  /** Called when no request is queued or under way. */
  drained(): void;
}

export interface BatchLimits {
  /** How long the store may take for an answer, ms. */
  readonly timeoutMs: number;
  /** Most requests in a batch: a script blocks the other clients of the store while it runs. */
  readonly mostRequests: number;
}

interface Queued<Request> {
  readonly requests: Request[];
  /** When the first request was added, by `performance.now()`, ms. */
  readonly addedMs: number;
}

interface UnderWay<Request> extends SentBatch<Request> {
  readonly deadlineMs: number;
}

export class Batcher<Request extends Batchable, Answer> {
  readonly #handler: BatchHandler<Request, Answer>;
  readonly #timeoutMs: number;
  readonly #mostRequests: number;
  #queue: Queued<Request>[] = [];
  #isHeld = false;
  /** The next batch will be sent at the end of this tick. */
  #isLeaving = false;
  #underWay: UnderWay<Request> | undefined;
  /** The last overdue batch: its reply may still arrive. */
  #overdue: UnderWay<Request> | undefined;
  /** Set at the ends of ticks while a batch is under way, for its deadline or an earlier time. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The deadline timer fired late: perhaps this process was busy, and the reply has arrived. */
  #isGraced = false;

  constructor(handler: BatchHandler<Request, Answer>, { timeoutMs, mostRequests }: BatchLimits) {
    this.#handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#mostRequests = mostRequests;
  }

  /** Whether a batch was sent whose reply may still come in time. */
  get isUnderWay(): boolean {
    return this.#underWay !== undefined;
  }

  get isDrained(): boolean {
    return !this.isUnderWay && this.#overdue === undefined && this.#queue.length === 0;
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

  /** Sends nothing until `resume`. @returns the requests that were queued, in order */
  hold(): Request[] {
    this.#isHeld = true;
    return this.take();
  }

  /** @returns the requests that were queued, in order */
  take(): Request[] {
    const requests = this.#queue.flatMap((queued) => queued.requests);
    this.#queue = [];
    return requests;
  }

  /** Sends batches again. Requests that were queued meanwhile get their full time-out from now. */
  resume(): void {
    this.#isHeld = false;
    this.#overdue = undefined;
    this.#restartTime();
    this.#continue();
  }

  /** Ends all batches. @returns the requests without an answer, those under way first */
  abandon(): Request[] {
    this.#cancelTimer();
    const requests = [...(this.#underWay?.requests ?? []), ...this.hold()];
    this.#underWay = undefined;
    this.#overdue = undefined;
    return requests;
  }

  #restartTime(): void {
    const requests = this.take();
    const addedMs = performance.now();
    for (let from = 0; from < requests.length; from += this.#mostRequests) {
      this.#queue.push({ requests: requests.slice(from, from + this.#mostRequests), addedMs });
    }
  }

  // -- sending --

  #continue(): void {
    if (this.isDrained) this.#handler.drained();
    this.#leaveSoon();
    const isTimed = this.#timer !== undefined;
    if (isTimed !== this.isUnderWay) atEndOfTick(this.#keepTime);
  }

  /** Sends at the end of this tick: all its requests are queued by then, and a single one is not delayed. */
  #leaveSoon(): void {
    if (this.#isLeaving || !this.#canLeave) return;
    this.#isLeaving = true;
    atEndOfTick(this.#leave);
  }

  get #canLeave(): boolean {
    return !this.#isHeld && !this.isUnderWay && this.#queue.length > 0;
  }

  readonly #leave = (): void => {
    this.#isLeaving = false;
    const queued = this.#canLeave ? this.#queue.shift() : undefined;
    if (queued !== undefined) this.#send(queued);
    // stores also send at the end of the tick: the next batch follows in a separate step
    this.#continue();
  };

  #send({ requests: queued, addedMs }: Queued<Request>): void {
    const wanted = queued.some(isGone) ? queued.filter((request) => !request.gone) : queued;
    if (wanted.length === 0) return;
    const deadlineMs = addedMs + this.#timeoutMs;
    const started = this.#start(wanted, deadlineMs);
    if (started === undefined) return;
    const { requests, sentAt, reply } = started;
    const batch: UnderWay<Request> = { requests, sentAt, deadlineMs };
    this.#underWay = batch;
    reply.then(
      (answers) => {
        if (answers?.length === requests.length) this.#answered(batch, answers);
        else this.#failed(batch, wrongCount(answers?.length, requests.length));
      },
      (error) => this.#failed(batch, error),
    );
  }

  /** An exception, of the client or of the clock, counts as a failure. */
  #start(wanted: readonly Request[], deadlineMs: number) {
    let requests = wanted;
    let sentAt = 0;
    try {
      requests = this.#handler.prepare(wanted);
      if (requests.length === 0) return undefined;
      sentAt = this.#handler.now();
      const reply = Promise.resolve(this.#handler.run(requests, sentAt, deadlineMs));
      return { requests, sentAt, reply };
    } catch (error) {
      return { requests, sentAt, reply: Promise.reject<readonly Answer[]>(error) };
    }
  }

  // -- deadlines --

  /** Sets or cancels the timer, after the next batch was sent: with one call after another it stays set. */
  readonly #keepTime = (): void => {
    if (this.#underWay !== undefined) {
      const leftMs = this.#underWay.deadlineMs - performance.now();
      if (this.#timer === undefined) this.#setTimer(leftMs);
    } else if (!this.#isLeaving) {
      this.#cancelTimer();
    }
  };

  #cancelTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #setTimer(leftMs: number): void {
    this.#timer = setTimeout(this.#check, Math.max(0, Math.min(LONGEST_TIMEOUT_MS, leftMs)));
  }

  readonly #check = (): void => {
    this.#timer = undefined;
    const { deadlineMs } = this.#underWay as UnderWay<Request>;
    const leftMs = deadlineMs - performance.now();
    // timers may fire up to a millisecond early
    if (leftMs > 1) {
      this.#setTimer(leftMs);
    } else if (leftMs < 0 && !this.#isGraced) {
      // the event loop was busy: it reads a reply that has arrived before it runs the next timer
      this.#isGraced = true;
      this.#setTimer(0);
    } else {
      this.#expire();
    }
  };

  #expire(): void {
    this.#isGraced = false;
    const overdue = this.#underWay as UnderWay<Request>;
    this.#underWay = undefined;
    this.#overdue = overdue;
    this.#handler.failed(overdue.requests, noAnswer(this.#timeoutMs), true);
    this.#continue();
  }

  // -- replies --

  #answered(batch: UnderWay<Request>, answers: readonly Answer[]): void {
    try {
      if (this.#ends(batch)) {
        this.#handler.answered(batch, answers);
      } else {
        const isLatest = this.#overdue === batch;
        if (isLatest) this.#overdue = undefined;
        this.#handler.answeredLate(batch, answers, isLatest);
      }
    } finally {
      this.#continue();
    }
  }

  #failed(batch: UnderWay<Request>, cause: unknown): void {
    if (this.#ends(batch)) this.#handler.failed(batch.requests, readable(cause), false);
    else if (this.#overdue === batch) this.#overdue = undefined;
    this.#continue();
  }

  /** @returns whether it was under way */
  #ends(batch: UnderWay<Request>): boolean {
    if (this.#underWay !== batch) return false;
    this.#underWay = undefined;
    if (this.#isGraced) this.#restartTime();
    this.#isGraced = false;
    return true;
  }
}

function isGone({ gone }: Batchable): boolean {
  return gone;
}

function wrongCount(answers: number | undefined, requests: number): TypeError {
  return new TypeError(`the store gave ${answers} answers to ${requests} requests`);
}
