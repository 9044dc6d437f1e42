/**
 * A PQueue whose jobs start at the pace of a limiter.
 *
 * PQueue asks its queue for a job as soon as a place is free, and takes no "not yet" for an answer;
 * but a paused PQueue asks for nothing. So underneath it is always paused. Where a place is free and
 * somebody waits, permits are reserved for "whoever is next"; when they can be used, the PQueue is
 * started, takes one job, and is paused again while it takes it. Who that is, is decided at that
 * moment: a job of high priority that came late goes first. A job that waits holds neither a place
 * nor permits.
 *
 * Permits are requested for the jobs that are next, and given up when other jobs are next, which cost
 * something else, and when no job is to start any more: paused, cleared, aborted, no place. How many
 * requests there are at a time: see `PermitRequests`.
 *
 * Worked example, one permit a second, `concurrency` 1: A starts at 0 and runs for 300 ms, B and C
 * wait. Until 300 ms nothing is reserved, for there is no place. Then B's permit is, for 1000 ms. At
 * 500 ms D comes, of a higher priority: at 1000 ms D starts.
 */
import PQueue from "p-queue";
import {
  type Bound,
  checkBoolean,
  checkFunction,
  checkNumber,
  checkOneOf,
  checkOptions,
} from "../../check.ts";
import type { Limiter } from "../../limiter/face.ts";
import { listPermits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { FullQueue, ON_FULL, type OnFullQueue } from "./full-queue.ts";
import type { BareJob, JobOptions, PacedAddOptions, PacedJob } from "./job.ts";
import { JobHeap } from "./job-heap.ts";
import { giveBack, type Pass, PermitRequests, Refusal } from "./permit-requests.ts";

export interface PacedQueueOptions {
  /** At whose pace the jobs start; it may be shared with others. */
  readonly limiter: Limiter;
  /** How many jobs may run at once: 1 or more. Default `Infinity`. */
  readonly concurrency?: number | undefined;
  /** Whether jobs start without a call of `start()`. Default `true`. */
  readonly autoStart?: boolean | undefined;
  /** How long a job may run, ms, from its start; above 0. Default: as long as it likes. */
  readonly timeout?: number | undefined;
  /** How many jobs may wait: a whole number, 1 or more, or `Infinity`. Default `Infinity`. */
  readonly maxWaiting?: number | undefined;
  /**
   * What happens when a job is added and `maxWaiting` jobs wait. Default `"reject"`.
   *
   * - `"reject"`: the new job is refused.
   * - `"drop-oldest"`: the job that was added first of those that wait is dropped, whatever its
   *   priority. `setPriority` counts as adding it again.
   * - `"drop-lowest-priority"`: of the waiting jobs of the lowest priority the one that was added
   *   first is dropped; but the new job is refused unless its own priority is higher.
   * - `"wait"`: the new job waits outside the queue, first in first out, until there is room.
   *
   * Jobs that are refused or dropped are not called; their promises reject with a QueueFullError,
   * whose `facts.dropped` tells the two apart.
   */
  readonly onFull?: OnFullQueue | undefined;
}

const OPTIONS = ["limiter", "concurrency", "autoStart", "timeout", "maxWaiting", "onFull"] as const;
const ADD_OPTIONS = ["permits", "priority", "id", "signal", "timeout"] as const;

const jobsAtLeastOne: Bound = {
  words: "a whole number, 1 or more, or Infinity",
  holds: (value) => value >= 1 && (value === Infinity || Number.isSafeInteger(value)),
};
const anyPriority: Bound = { words: "a number", holds: (value) => !Number.isNaN(value) };

/** The heap that the PQueue made last, and what it calls before it hands a job out. */
interface Line {
  jobs: JobHeap;
  onTake(): void;
}

/**
 * Everything that a PQueue is, and its jobs start at the pace of a limiter.
 *
 * @example
 * const limiter = RateLimiter.create(200);
 * const queue = new PacedQueue({ limiter, concurrency: 20 });
 * await queue.add(() => fetch(url), { permits: 2, priority: 1 });
 */
export class PacedQueue extends PQueue<JobHeap, PacedAddOptions> {
  readonly #requests: PermitRequests;
  readonly #line: Line;
  readonly #full: FullQueue | undefined;
  #isPaused: boolean;
  /** Of the job that the PQueue is about to start, or started last. */
  #pass: Pass | undefined;
  /** The PQueue is about to start a job. */
  #isOpening = false;
  /** What the last event said: `rateLimit` or `rateLimitCleared`. */
  #saidRateLimited = false;
  #isSaying = false;

  /**
   * @param options `limiter`; PQueue's `concurrency` (default `Infinity`), `autoStart` (default
   *   `true`) and `timeout` (ms, default none); `maxWaiting` (jobs, default `Infinity`) and `onFull`
   *   (default `"reject"`)
   * @throws TypeError or RangeError on a bad option. `interval` and `intervalCap` are refused, for the
   *   limiter sets the pace, and so is `queueClass`
   */
  constructor(options: PacedQueueOptions) {
    checkOptions("options", options, OPTIONS);
    const { limiter, concurrency = Infinity, autoStart = true, timeout } = options;
    const { maxWaiting = Infinity, onFull = "reject" } = options;
    checkLimiter(limiter);
    checkBoolean("autoStart", autoStart);
    checkNumber("maxWaiting", maxWaiting, jobsAtLeastOne);
    checkOneOf("onFull", onFull, ON_FULL);
    const line: Line = { jobs: new JobHeap(), onTake() {} };
    super({
      concurrency,
      autoStart: false,
      queueClass: heapOf(line),
      ...(timeout === undefined ? {} : { timeout }),
    });
    this.#requests = new PermitRequests(limiter, () => this.#pump());
    this.#isPaused = !autoStart;
    this.#line = line;
    this.#full = maxWaiting === Infinity ? undefined : new FullQueue(maxWaiting, onFull);
    line.onTake = () => super.pause();
  }

  /**
   * Adds a job. It starts when a place is free, its permits can be used, and nobody of a higher
   * priority, or of the same one and added earlier, waits.
   *
   * @param job what to run
   * @param options PQueue's `priority`, `id`, `signal` and `timeout`; and `permits`, what the job
   *   costs (default 1)
   * @returns what the job returns
   * @throws (as a rejection) what the job throws, PQueue's TimeoutError or the signal's own reason;
   *   RangeError or TypeError on bad options; QueueFullError, see `onFull`; and when the job is next
   *   and the limiter refuses it, the limiter's error: the job has not been called then
   * @example
   * const page = await queue.add(({ signal }) => fetch(url, { signal }), { priority: 1, signal });
   */
  override add<Result>(
    job: PacedJob<Result>,
    options?: Partial<PacedAddOptions>,
  ): Promise<Result & Awaited<Result>> {
    try {
      checkFunction("job", job);
      if (options !== undefined) checkAddOptions(options);
    } catch (error) {
      return Promise.reject(error);
    }
    const full = this.#full;
    if (full === undefined) return this.#enqueue(job, options);
    return full.add(this.#line.jobs, job, options, (...args) => this.#enqueue(...args));
  }

  #enqueue<Result>(
    work: PacedJob<Result>,
    options: Partial<JobOptions> | undefined,
  ): Promise<Result & Awaited<Result>> {
    const { jobs } = this.#line;
    // of an `add` around this one: a job or a listener may call it
    const outer = jobs.bare;
    jobs.bare = undefined;
    // the casts: in PQueue 9 a job answers a value or a promise, and `add` answers a promise of a
    // Result; in PQueue 10 a job may answer either, and `add` answers one of what was awaited
    const own: object = options === undefined ? { work } : { ...options, work };
    const result = super.add<Result>(this.#start as Start<Result>, own);
    this.#pump();
    const job = jobs.bare as BareJob | undefined;
    if (job?.rank !== undefined) job.keepScope();
    jobs.bare = outer;
    return result as Promise<Result & Awaited<Result>>;
  }

  /** Starts jobs from now on, after `pause()` or with `autoStart: false`. */
  override start(): this {
    this.#isPaused = false;
    this.#pump();
    return this;
  }

  /** Starts no job from now on; those that run go on. No permits are taken while paused. */
  override pause(): void {
    this.#isPaused = true;
    this.#pump();
  }

  /** Whether `pause()` was called last, and not `start()`. */
  override get isPaused(): boolean {
    return this.#isPaused;
  }

  /**
   * Removes all jobs that wait. Their promises stay pending in p-queue 9, and reject with an
   * AbortError in p-queue 10. Jobs that wait for room (`onFull: "wait"`) reject with an AbortError.
   */
  override clear(): void {
    this.#full?.clear();
    super.clear();
    this.#say();
  }

  /**
   * Gives a job that waits another priority; it goes behind those that have it already.
   *
   * @param id of the job's options
   * @param priority the higher, the earlier
   * @throws ReferenceError if no such job waits, TypeError if `priority` is not a finite number
   */
  override setPriority(id: string, priority: number): void {
    super.setPriority(id, priority);
    this.#pump();
  }

  /**
   * Whether the next job waits for permits. On a shared limiter it is `false` until the limiter has
   * replied; and no permits are requested while the queue is paused, or all places are taken.
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
    // PQueue's constructor sets it, when there is nothing of us yet
    if (#line in this) this.#pump();
  }

  /** Requests permits for the next jobs, starts those that have them, gives up the rest. */
  #pump(): void {
    // the caller that opened the PQueue goes on afterwards
    while (!this.#isOpening) {
      const places = this.#isPaused ? 0 : this.concurrency - this.pending;
      const pass = this.#requests.next(this.#line.jobs, places);
      if (pass === undefined) break;
      this.#open(pass);
    }
    this.#full?.admit(this.#line.jobs);
    if (this.#saidRateLimited !== this.isRateLimited && !this.#isSaying) this.#saySoon();
  }

  /** Once for all changes of a turn, as the PQueue does. */
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

  /** What the PQueue calls for every job: one function, for a closure a job would cost memory. */
  readonly #start = (task: Parameters<PacedJob<unknown>>[0]): unknown => {
    this.#isOpening = false;
    if (this.#pass instanceof Refusal) throw this.#pass.error;
    return this.#line.jobs.taken?.options.work?.(task);
  };

  static {
    // PQueue 9 is an EventEmitter, PQueue 10 an EventTarget
    const verb = PQueue.prototype instanceof EventTarget ? "dispatchEvent" : "emit";
    const tell: (...args: unknown[]) => boolean = Reflect.get(PQueue.prototype, verb);
    Object.defineProperty(PacedQueue.prototype, verb, {
      value(this: PacedQueue, ...args: [string | Event, ...unknown[]]) {
        const [event] = args;
        // a place is free, or a job has left
        if (event === "next" || (event as Event).type === "next") this.#pump();
        return tell.apply(this, args);
      },
    });
  }
}

type Start<Result> = (task: Parameters<PacedJob<unknown>>[0]) => Result;

function checkAddOptions(options: Partial<PacedAddOptions>): void {
  checkOptions("options", options, ADD_OPTIONS);
  const { permits, priority } = options;
  if (priority !== undefined) checkNumber("priority", priority, anyPriority);
  if (permits !== undefined) listPermits(permits, Object.keys(Object(permits)));
}

/** What the PQueue calls with `new`. A class for each queue would be compiled for each anew. */
function heapOf(line: Line): new () => JobHeap {
  function Heap(): JobHeap {
    line.jobs = new JobHeap(() => line.onTake());
    return line.jobs;
  }
  return Heap as unknown as new () => JobHeap;
}

/** PQueue 9 is an EventEmitter, PQueue 10 an EventTarget. */
function emit(queue: object, event: "rateLimit" | "rateLimitCleared"): void {
  if (queue instanceof EventTarget) queue.dispatchEvent(new CustomEvent(event));
  else (queue as { emit(event: string): void }).emit(event);
}
