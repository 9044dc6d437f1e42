/**
 * A PQueue that starts its jobs at the pace of a limiter.
 *
 * A PQueue takes a job as soon as a slot is free, and its queue cannot postpone this. But a paused PQueue
 * takes none. So the underlying PQueue is always paused. If a slot is free and a job waits, permits are
 * reserved for the next job, whichever it will be. When they can be used, the PQueue is started, takes one
 * job, and is paused again while it takes it. The job is chosen at that moment: a job of high priority
 * that was added late goes first. A waiting job holds neither a slot nor permits.
 *
 * Permits are requested for the next jobs. They are given up when other jobs with other costs become the
 * next ones, and when no job can start: after a pause, a clear or an abort, or without a free slot. For
 * the number of requests at a time see `PermitRequests`.
 *
 * Worked example with one permit a second and `concurrency` 1: A starts at 0 and runs for 300 ms, while B
 * and C wait. Until 300 ms no permit is reserved, because no slot is free. Then one is reserved for B,
 * for 1000 ms. At 500 ms D is added with a higher priority. At 1000 ms D starts.
 */
import PQueue from "p-queue";
import type { Limiter, ShareOptions } from "../../api/limiter-api.ts";
import { type CallOrder, SHARE_OPTIONS } from "../../api/options.ts";
import {
  aboveZero,
  type Bound,
  checkBoolean,
  checkFunction,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkText,
} from "../../ground/check.ts";
import { listPermits } from "../../ground/permits.ts";
import { FIFO, orderIn } from "../../queue/order.ts";
import { checkLimiter } from "../check-limiter.ts";
import { shareOf } from "../shares.ts";
import { FairRank } from "./fair-rank.ts";
import { FullQueue, ON_FULL, type OnFullQueue } from "./full-queue.ts";
import {
  type BareJob,
  type JobOptions,
  JobRank,
  type PacedAddOptions,
  type PacedJob,
} from "./job.ts";
import { giveBack, type Pass, PermitRequests, Refusal } from "./permit-requests.ts";
import { WaitingJobs } from "./waiting-jobs.ts";

/** The options of `PacedQueue`: those of `PQueue` that it supports, a limiter, and the queue's share of a fair one. */
export interface PacedQueueOptions extends ShareOptions {
  /** The limiter that sets the pace of the jobs; other code may share it. */
  readonly limiter: Limiter;
  /** How many jobs may run at once: 1 or more. Default `Infinity`; p-queue 9 throws for `undefined`. */
  readonly concurrency?: number;
  /** Whether jobs start without a call of `start()`. Default `true`. */
  readonly autoStart?: boolean | undefined;
  /** How long a job may run from its start, ms, above 0. Default: no time-out. */
  readonly timeout?: number | undefined;
  /** How many jobs may wait: a whole number, 1 or more, or `Infinity`. Default `Infinity`. */
  readonly maxWaiting?: number | undefined;
  /**
   * What happens when a job is added and `maxWaiting` jobs wait. Default `"reject"`.
   *
   * - `"reject"`: the new job is rejected.
   * - `"drop-oldest"`: the waiting job that was added first is dropped, whatever its priority and
   *   wherever `setPriority` has moved it.
   * - `"drop-lowest-priority"`: among the waiting jobs of the lowest priority, the one that has had it
   *   longest is dropped; but the new job is rejected unless its own priority is higher.
   * - `"wait"`: the new job waits outside the queue, first in first out, until there is room.
   *
   * Rejected and dropped jobs are not called. Their promises reject with a QueueFullError;
   * `facts.dropped` is true for a dropped job.
   */
  readonly onFull?: OnFullQueue | undefined;
  /**
   * The order of the jobs of one priority: `fairShares()`; default: first in, first out. With fair shares a full
   * queue drops jobs of the lowest priority from the share that waits for most permits (`"drop-lowest-priority"`).
   */
  readonly order?: CallOrder | undefined;
}

const OPTIONS = [
  "limiter",
  "concurrency",
  "autoStart",
  "timeout",
  "maxWaiting",
  "onFull",
  "order",
  ...SHARE_OPTIONS,
] as const;
const ADD_OPTIONS = ["permits", "priority", "id", "signal", "timeout", "share", "weight"] as const;

const jobsAtLeastOne: Bound = {
  words: "a whole number, 1 or more, or Infinity",
  holds: (value) => value >= 1 && (value === Infinity || Number.isSafeInteger(value)),
};
const anyPriority: Bound = { words: "a number", holds: (value) => !Number.isNaN(value) };

/** The queue that the PQueue created last, and the function it calls before it returns a job. */
interface CreatedQueue {
  jobs: WaitingJobs;
  onTake(): void;
}

/**
 * A PQueue that starts its jobs at the pace of a limiter.
 *
 * @example
 * const limiter = RateLimiter.create(200);
 * const queue = new PacedQueue({ limiter, concurrency: 20 });
 * await queue.add(() => fetch(url), { permits: 2, priority: 1 });
 */
export class PacedQueue extends PQueue<WaitingJobs, PacedAddOptions> {
  readonly #requests: PermitRequests;
  readonly #created: CreatedQueue;
  readonly #full: FullQueue | undefined;
  readonly #isFair: boolean;
  #isPaused: boolean;
  /** The pass of the job that the PQueue is about to start, or started last. */
  #pass: Pass | undefined;
  /** The PQueue is about to start a job. */
  #isOpening = false;
  /** Whether the last event was `rateLimit`, not `rateLimitCleared`. */
  #saidRateLimited = false;
  #isSaying = false;

  /**
   * @param options `limiter`; PQueue's `concurrency` (default `Infinity`), `autoStart` (default
   *   `true`) and `timeout` (ms, default none); `maxWaiting` (jobs, default `Infinity`) and `onFull`
   *   (default `"reject"`); `order` of the jobs; `share`, `weight` and `priority` of the whole queue in
   *   a fair limiter
   * @throws TypeError or RangeError on a bad option. `interval` and `intervalCap` are not allowed, because
   *   the limiter sets the pace, and neither is `queueClass`
   */
  constructor(options: PacedQueueOptions) {
    checkOptions("options", options, OPTIONS);
    const { limiter, autoStart = true, timeout, ...others } = options;
    const { maxWaiting = Infinity, onFull = "reject" } = options;
    const isFair = orderIn(options) !== FIFO;
    checkLimiter(limiter);
    checkBoolean("autoStart", autoStart);
    checkNumber("maxWaiting", maxWaiting, jobsAtLeastOne);
    checkOneOf("onFull", onFull, ON_FULL);
    const created: CreatedQueue = { jobs: new WaitingJobs(), onTake() {} };
    super({
      // `concurrency` as it is, since the versions differ on `undefined`; PQueue ignores our own options
      ...others,
      autoStart: false,
      queueClass: queueClassOf(created, isFair ? FairRank : JobRank),
      ...(timeout === undefined ? {} : { timeout }),
    });
    this.#requests = new PermitRequests(limiter, shareOf(options), () => this.#pump());
    this.#isFair = isFair;
    this.#isPaused = !autoStart;
    this.#created = created;
    this.#full = maxWaiting === Infinity ? undefined : new FullQueue(maxWaiting, onFull);
    created.onTake = () => super.pause();
  }

  /**
   * Adds a job. It starts when a slot is free, its permits can be used, and no job waits that has a
   * higher priority, or the same priority and was added earlier.
   *
   * @param job the function to run
   * @param options PQueue's `priority`, `id`, `signal` and `timeout`; `permits`, the cost of the job
   *   (default 1); in a fair queue `share` and `weight`
   * @returns what the job returns
   * @throws (rejects) what the job throws, PQueue's TimeoutError or the signal's own reason;
   *   RangeError or TypeError on bad options; QueueFullError, see `onFull`; the limiter's error if the
   *   limiter rejects the job when it is next: then the job was not called
   * @example
   * const page = await queue.add(({ signal }) => fetch(url, { signal }), { priority: 1, signal });
   */
  override add<Result>(
    job: PacedJob<Result>,
    options?: Partial<PacedAddOptions>,
  ): Promise<Result & Awaited<Result>> {
    try {
      checkFunction("job", job);
      if (options !== undefined) checkAddOptions(options, this.#isFair);
    } catch (error) {
      return Promise.reject(error);
    }
    const full = this.#full;
    if (full === undefined) return this.#enqueue(job, options);
    return full.add(this.#created.jobs, job, options, (...args) => this.#enqueue(...args));
  }

  #enqueue<Result>(
    work: PacedJob<Result>,
    options: Partial<JobOptions> | undefined,
  ): Promise<Result & Awaited<Result>> {
    const { jobs } = this.#created;
    // those of an outer `add`: a job or a listener may call `add` inside it
    const { bare, work: outer } = jobs;
    jobs.bare = undefined;
    jobs.work = work;
    // the casts cover both versions: in PQueue 9 `add` returns a promise of `Result`, and in PQueue 10 one
    // of the awaited `Result`
    const result = super.add<Result>(this.#start as Start<Result>, options);
    this.#pump();
    const job = jobs.bare as BareJob | undefined;
    if (job?.rank !== undefined) job.keepScope();
    jobs.bare = bare;
    jobs.work = outer;
    return result as Promise<Result & Awaited<Result>>;
  }

  /** Starts jobs again after `pause()`, or for the first time with `autoStart: false`. */
  override start(): this {
    this.#isPaused = false;
    this.#pump();
    return this;
  }

  /** Stops starting jobs; running jobs go on. No permits are taken while the queue is paused. */
  override pause(): void {
    this.#isPaused = true;
    this.#pump();
  }

  /** Whether the queue is paused: by `pause()`, or by `autoStart: false` before the first `start()`. */
  override get isPaused(): boolean {
    return this.#isPaused;
  }

  /**
   * Removes all waiting jobs. Their promises stay pending in p-queue 9, and reject with an AbortError in
   * p-queue 10. Those of jobs that wait for room (`onFull: "wait"`) always reject with an AbortError.
   */
  override clear(): void {
    this.#full?.clear();
    super.clear();
    this.#say();
  }

  /**
   * Changes the priority of a waiting job; the job goes behind those that already have that priority.
   *
   * @param id the `id` of the job's options
   * @param priority a job with a higher priority starts earlier
   * @throws ReferenceError if no such job waits, TypeError if `priority` is not a finite number
   */
  override setPriority(id: string, priority: number): void {
    super.setPriority(id, priority);
    this.#pump();
  }

  /**
   * Whether the next job waits for permits. On a remote limiter it is `false` until the limiter has
   * replied. No permits are requested while the queue is paused or no slot is free; it is `false` then.
   */
  override get isRateLimited(): boolean {
    return this.#requests.isWaiting;
  }

  /** How many jobs may run at once: 1 or more. A lower number does not interrupt jobs that run. */
  override get concurrency(): number {
    return super.concurrency;
  }

  override set concurrency(concurrency: number) {
    super.concurrency = concurrency;
    // PQueue's constructor sets it before our own fields exist
    if (#created in this) this.#pump();
  }

  /** Requests permits for the next jobs, starts jobs that have them, and gives up unneeded requests. */
  #pump(): void {
    // while the PQueue takes a job, the outer `#pump` continues afterwards
    while (!this.#isOpening) {
      const slots = this.#isPaused ? 0 : this.concurrency - this.pending;
      const pass = this.#requests.next(this.#created.jobs, slots);
      if (pass === undefined) break;
      this.#open(pass);
    }
    this.#full?.admit(this.#created.jobs);
    if (this.#saidRateLimited !== this.isRateLimited && !this.#isSaying) this.#saySoon();
  }

  /** Emits the event once for all changes of a turn, as the PQueue does. */
  #saySoon(): void {
    this.#isSaying = true;
    queueMicrotask(() => {
      this.#isSaying = false;
      this.#say();
    });
  }

  #say(): void {
    if (this.#saidRateLimited === this.isRateLimited) return;
    this.#saidRateLimited = this.isRateLimited;
    emit(this, this.isRateLimited ? "rateLimit" : "rateLimitCleared");
  }

  /** Lets the PQueue take one job; `onTake` pauses it again. */
  #open(pass: Pass): void {
    this.#pass = pass;
    this.#isOpening = true;
    super.start();
    super.pause();
    if (this.#isOpening) giveBack(pass);
    this.#isOpening = false;
  }

  /** Runs the job that was taken: one function for all jobs, because closures would cost memory. */
  readonly #start = (task: Parameters<PacedJob<unknown>>[0]): unknown => {
    this.#isOpening = false;
    if (this.#pass instanceof Refusal) throw this.#pass.error;
    return this.#created.jobs.taken?.work?.(task);
  };

  static {
    // PQueue 9 is an EventEmitter, PQueue 10 an EventTarget
    const isTarget = PQueue.prototype instanceof EventTarget;
    const verb = isTarget ? "dispatchEvent" : "emit";
    const tell: (...args: unknown[]) => boolean = Reflect.get(PQueue.prototype, verb);
    Object.defineProperty(PacedQueue.prototype, verb, {
      value(this: PacedQueue, event: string | Event, ...rest: unknown[]) {
        // a slot is free, or a job has left
        if ((isTarget ? (event as Event).type : event) === "next") this.#pump();
        return tell.call(this, event, ...rest);
      },
    });
  }
}

type Start<Result> = (task: Parameters<PacedJob<unknown>>[0]) => Result;

function checkAddOptions(options: Partial<PacedAddOptions>, isFair: boolean): void {
  checkOptions("options", options, ADD_OPTIONS);
  const { permits, priority, share, weight } = options;
  if (share !== undefined) checkText("share", share);
  if (weight !== undefined) checkNumber("weight", weight, aboveZero);
  if (!isFair && (share !== undefined || weight !== undefined)) {
    throw new TypeError(
      "share and weight need a queue that was created with { order: fairShares() }",
    );
  }
  if (priority !== undefined) checkNumber("priority", priority, anyPriority);
  if (permits !== undefined) listPermits(permits, Object.keys(Object(permits)));
}

/** Returns the constructor that the PQueue calls. A class here would be compiled again for each queue. */
function queueClassOf(created: CreatedQueue, ofRank: typeof JobRank): new () => WaitingJobs {
  function Queue(): WaitingJobs {
    created.jobs = new WaitingJobs(() => created.onTake(), ofRank);
    return created.jobs;
  }
  return Queue as unknown as new () => WaitingJobs;
}

/** PQueue 9 is an EventEmitter, PQueue 10 an EventTarget. */
function emit(queue: object, event: "rateLimit" | "rateLimitCleared"): void {
  if (queue instanceof EventTarget) queue.dispatchEvent(new CustomEvent(event));
  else (queue as { emit(event: string): void }).emit(event);
}
