/**
 * Requests share batches: those of one turn of the event loop, and those that come while a batch is
 * under way, leave together in the order in which they came. Each batch is answered within
 * `timeoutMs` of the first request in it, or reported as failed; a reply that comes after that is
 * reported as late.
 *
 * One batch is under way at a time; or two, where the store runs batches in the order in which they
 * leave: it then runs the second while this process works on the reply to the first. For that many
 * requests that could leave together leave in two halves. A second batch of a few requests would cost
 * the store more than it gains, so it stays and grows.
 */

import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { atEndOfTurn } from "../../end-of-turn.ts";
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
  /** Sends a batch; the promise is for one answer to each request, in order. */
  run(requests: readonly Request[], sentAt: number): Promise<readonly Answer[]>;
  answered(sent: Sent<Request>, answers: readonly Answer[]): void;
  /** @param isLatest no batch has failed or been answered since that one was overdue */
  answeredLate(sent: Sent<Request>, answers: readonly Answer[], isLatest: boolean): void;
  failed(requests: readonly Request[], cause: unknown, isOverdue: boolean): void;
  /** Nothing is queued or under way. */
  drained(): void;
}

export interface BatchLimits {
  /** How long the store may take for an answer, ms. */
  readonly timeoutMs: number;
  /** In a batch: a script keeps others waiting while it runs. */
  readonly mostRequests: number;
  /** The store runs batches in the order in which they leave. Default: false. */
  readonly isOrdered?: boolean | undefined;
}

/** A second batch leaves with so many requests, no fewer. */
const WORTH_OVERLAP = 32;

interface Queued<Request> {
  readonly requests: Request[];
  /** When the first of them was added, ms. */
  readonly addedMs: number;
}

interface UnderWay<Request> extends Sent<Request> {
  readonly deadlineMs: number;
}

export class Batcher<Request extends Batchable, Answer> {
  readonly #handler: BatchHandler<Request, Answer>;
  readonly #timeoutMs: number;
  readonly #mostRequests: number;
  readonly #mostUnderWay: number;
  #queue: Queued<Request>[] = [];
  #isHeld = false;
  /** The next batch will be sent at the end of the turn. */
  #isLeaving = false;
  /** In the order in which they left; their deadlines are in this order, too. */
  #underWay: UnderWay<Request>[] = [];
  /** The last overdue batch, whose reply may still come. */
  #overdue: UnderWay<Request> | undefined;
  /** Set while batches are under way, for the deadline of the oldest or an earlier one. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** A deadline was noticed late: this process, not the store, may have been busy. */
  #isGraced = false;

  constructor(
    handler: BatchHandler<Request, Answer>,
    { timeoutMs, mostRequests, isOrdered = false }: BatchLimits,
  ) {
    this.#handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#mostRequests = mostRequests;
    this.#mostUnderWay = isOrdered ? 2 : 1;
  }

  get isDrained(): boolean {
    return this.#underWay.length === 0 && this.#overdue === undefined && this.#queue.length === 0;
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
    this.#continue();
  }

  /** Ends everything. @returns the requests without an answer, those under way first */
  abandon(): Request[] {
    clearTimeout(this.#timer);
    const requests = [...this.#underWay.flatMap((batch) => batch.requests), ...this.hold()];
    this.#underWay = [];
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

  // -- leaving --

  #continue(): void {
    if (this.isDrained) this.#handler.drained();
    this.#leaveSoon();
  }

  /** At the end of this turn: all requests of the turn are there, a lone one is not held up. */
  #leaveSoon(): void {
    if (this.#isLeaving || !this.#canLeave) return;
    this.#isLeaving = true;
    atEndOfTurn(this.#leave);
  }

  get #canLeave(): boolean {
    const { length } = this.#underWay;
    if (this.#isHeld || length >= this.#mostUnderWay) return false;
    const next = this.#queue[0];
    return next !== undefined && (length === 0 || next.requests.length >= WORTH_OVERLAP);
  }

  readonly #leave = (): void => {
    this.#isLeaving = false;
    const queued = this.#canLeave ? this.#queue.shift() : undefined;
    if (queued !== undefined) this.#leaveTogether(queued);
    // stores send at the end of the turn, too: the next batch follows in a step of its own
    this.#continue();
  };

  #leaveTogether({ requests: queued, addedMs }: Queued<Request>): void {
    const wanted = queued.some(isGone) ? queued.filter((request) => !request.gone) : queued;
    if (wanted.length === 0) return;
    const requests = this.#handler.prepare(wanted);
    const half = Math.ceil(requests.length / 2);
    if (this.#underWay.length + 1 < this.#mostUnderWay && half >= WORTH_OVERLAP) {
      this.#queue.unshift({ requests: requests.slice(half), addedMs });
      this.#send(requests.slice(0, half), addedMs);
    } else {
      this.#send(requests, addedMs);
    }
  }

  #send(requests: readonly Request[], addedMs: number): void {
    const sentAt = this.#handler.now();
    const batch: UnderWay<Request> = { requests, sentAt, deadlineMs: addedMs + this.#timeoutMs };
    this.#underWay.push(batch);
    if (this.#underWay.length === 1) this.#setTimer(batch.deadlineMs - performance.now());
    this.#run(batch).then(
      (answers) => {
        if (answers?.length === requests.length) this.#answered(batch, answers);
        else this.#failed(batch, wrongCount(answers?.length, requests.length));
      },
      (error) => this.#failed(batch, error),
    );
  }

  /** A client that throws has failed. */
  #run({ requests, sentAt }: UnderWay<Request>): Promise<readonly Answer[] | undefined> {
    try {
      return Promise.resolve(this.#handler.run(requests, sentAt));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  // -- deadlines --

  #setTimer(leftMs: number): void {
    this.#timer = setTimeout(this.#check, Math.min(LONGEST_TIMEOUT_MS, leftMs));
  }

  readonly #check = (): void => {
    const { deadlineMs } = this.#underWay[0] as UnderWay<Request>;
    const leftMs = deadlineMs - performance.now();
    // timers may fire up to a millisecond early
    if (leftMs > 1) {
      this.#setTimer(leftMs);
    } else if (leftMs < 0 && !this.#isGraced) {
      // the event loop was busy: a reply that has arrived meanwhile is read before the next timer
      this.#isGraced = true;
      this.#setTimer(0);
    } else {
      this.#expire();
    }
  };

  /** The replies to all that are under way come after that of the oldest, if at all. */
  #expire(): void {
    this.#isGraced = false;
    const overdue = this.#underWay;
    this.#underWay = [];
    this.#overdue = overdue.at(-1);
    for (const { requests } of overdue) {
      this.#handler.failed(requests, noAnswer(this.#timeoutMs), true);
    }
    this.#continue();
  }

  // -- replies --

  #answered(batch: UnderWay<Request>, answers: readonly Answer[]): void {
    if (this.#ends(batch)) {
      this.#handler.answered(batch, answers);
    } else {
      const isLatest = this.#overdue === batch;
      if (isLatest) this.#overdue = undefined;
      this.#handler.answeredLate(batch, answers, isLatest);
    }
    this.#continue();
  }

  #failed(batch: UnderWay<Request>, cause: unknown): void {
    if (this.#ends(batch)) this.#handler.failed(batch.requests, cause, false);
    else if (this.#overdue === batch) this.#overdue = undefined;
    this.#continue();
  }

  /** @returns whether it was under way */
  #ends(batch: UnderWay<Request>): boolean {
    const index = this.#underWay.indexOf(batch);
    if (index < 0) return false;
    this.#underWay.splice(index, 1);
    if (this.#underWay.length === 0) clearTimeout(this.#timer);
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
