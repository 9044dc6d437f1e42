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
 * There is one reservation at a time, of as many permits as the next job costs. It is given up when
 * the next job is one that costs something else, and when nobody is to start any more: paused,
 * cleared, aborted, no place.
 *
 * Worked example, one permit a second, `concurrency` 1: A starts at 0 and runs for 300 ms, B and C
 * wait. Until 300 ms nothing is reserved, for there is no place. Then B's permit is, for 1000 ms. At
 * 500 ms D comes, of a higher priority: at 1000 ms D starts.
 */
import PQueue from "p-queue";
import { type Bound, checkBoolean, checkFunction, checkNumber, checkOptions } from "../../check.ts";
import type { Limiter, Reservation } from "../../limiter/face.ts";
import { listPermits, type Permits } from "../../permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { JobHeap, type PacedAddOptions } from "./job-heap.ts";

export interface PacedQueueOptions {
  /** At whose pace the jobs start; it may be shared with others. */
  readonly limiter: Limiter;
  /** How many jobs may run at once: 1 or more. Default `Infinity`. */
  readonly concurrency?: number | undefined;
  /** Whether jobs start without a call of `start()`. Default `true`. */
  readonly autoStart?: boolean | undefined;
  /** How long a job may run, ms, from its start; above 0. Default: as long as it likes. */
  readonly timeout?: number | undefined;
}

const OPTIONS = ["limiter", "concurrency", "autoStart", "timeout"] as const;
const ADD_OPTIONS = ["permits", "priority", "id", "signal", "timeout"] as const;

const anyPriority: Bound = { words: "a number", holds: (value) => !Number.isNaN(value) };

/** What `add` runs; it is given the signal of its options. */
export type PacedJob<Result> = (options: {
  readonly signal?: AbortSignal | undefined;
}) => Result | PromiseLike<Result>;

/** Permits that are awaited for whoever is next. */
interface Ask {
  readonly permits: Permits;
  /** Absent while the limiter has not answered yet. */
  reservation?: Reservation;
}

/** Why a job may start now, or must fail. */
type Pass = { readonly reservation: Reservation } | { readonly error: unknown };

/** The heap that the PQueue made last, and what it does to us. */
interface Line {
  jobs: JobHeap;
  onTake(): void;
  onEnd(): void;
  onRemove(): void;
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
  readonly #limiter: Limiter;
  readonly #line: Line;
  #isPaused: boolean;
  #ask: Ask | undefined;
  /** Handed to the job that the PQueue is about to start. */
  #pass: Pass | undefined;

  /**
   * @param options `limiter`; and PQueue's `concurrency` (default `Infinity`), `autoStart` (default
   *   `true`) and `timeout` (ms, default none)
   * @throws TypeError on a bad option. `interval` and `intervalCap` are refused, for the limiter sets
   *   the pace, and so is `queueClass`
   */
  constructor(options: PacedQueueOptions) {
    checkOptions("options", options, OPTIONS);
    const { limiter, concurrency = Infinity, autoStart = true, timeout } = options;
    checkLimiter(limiter);
    checkBoolean("autoStart", autoStart);
    const line: Line = { jobs: new JobHeap(), onTake: idle, onEnd: idle, onRemove: idle };
    super({
      concurrency,
      autoStart: false,
      queueClass: heapOf(line),
      ...(timeout === undefined ? {} : { timeout }),
    });
    this.#limiter = limiter;
    this.#isPaused = !autoStart;
    this.#line = line;
    line.onTake = () => super.pause();
    line.onEnd = () => this.#pump();
    // only when the PQueue has done with the abort
    line.onRemove = () => queueMicrotask(() => this.#pump());
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
   *   RangeError or TypeError on bad options; and when the job is next and the limiter refuses it,
   *   the limiter's error: the job has not been called then
   * @example
   * const page = await queue.add(({ signal }) => fetch(url, { signal }), { priority: 1, signal });
   */
  override add<Result>(
    job: PacedJob<Result>,
    options: Partial<PacedAddOptions> = {},
  ): Promise<Result & Awaited<Result>> {
    try {
      checkFunction("job", job);
      checkOptions("options", options, ADD_OPTIONS);
      const { permits = 1, priority = 0 } = options;
      checkNumber("priority", priority, anyPriority);
      listPermits(permits, Object.keys(Object(permits)));
    } catch (error) {
      return Promise.reject(error);
    }
    // the casts: in PQueue 9 a job answers a value or a promise, and `add` answers a promise of a
    // Result; in PQueue 10 a job may answer either, and `add` answers one of what was awaited
    const result = super.add<Result>((task) => this.#start(job, task) as Result, options);
    this.#pump();
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

  /** Removes all jobs that wait. What their promises do then is PQueue's affair: see there. */
  override clear(): void {
    super.clear();
    this.#pump();
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

  /** How many jobs may run at once: 1 or more. Fewer interrupts nobody. */
  override get concurrency(): number {
    return super.concurrency;
  }

  override set concurrency(concurrency: number) {
    super.concurrency = concurrency;
    // PQueue's constructor sets it, when there is nothing of us yet
    if (#line in this) this.#pump();
  }

  /** Reserves for whoever is next, starts whom it can, and gives up what is not for anybody. */
  #pump(): void {
    // the PQueue is about to start a job: whoever opened for it goes on afterwards
    while (this.#pass === undefined) {
      const permits = this.#next();
      if (this.#ask !== undefined) {
        if (permits !== undefined && samePermits(permits, this.#ask.permits)) return;
        this.#giveUp(this.#ask);
      }
      if (permits === undefined) return;
      const pass = this.#reserve(permits);
      if (pass === undefined) return;
      this.#open(pass);
    }
  }

  /** What the job costs that may start as soon as it has permits; `undefined`: none may. */
  #next(): Permits | undefined {
    const { jobs } = this.#line;
    return this.#isPaused || this.pending >= this.concurrency ? undefined : jobs.head?.permits;
  }

  /** A pass where it can be told at once; else it comes later. */
  #reserve(permits: Permits): Pass | undefined {
    try {
      const reservation = this.#limiter.reserve(permits);
      if (!isLater(reservation) && reservation.waitMs === 0) return { reservation };
      const ask: Ask = { permits };
      this.#ask = ask;
      void this.#await(ask, reservation);
      return undefined;
    } catch (error) {
      return { error };
    }
  }

  async #await(ask: Ask, asked: Reservation | Promise<Reservation>): Promise<void> {
    const pass = await this.#outcome(ask, asked);
    if (this.#ask !== ask) return;
    this.#ask = undefined;
    const permits = this.#next();
    if (permits !== undefined && samePermits(permits, ask.permits)) this.#open(pass);
    else giveBack(pass);
    this.#pump();
  }

  async #outcome(ask: Ask, asked: Reservation | Promise<Reservation>): Promise<Pass> {
    try {
      const reservation = await asked;
      ask.reservation = reservation;
      if (this.#ask === ask) await reservation.ready();
      else giveBack({ reservation });
      return { reservation };
    } catch (error) {
      return { error };
    }
  }

  /** Where the limiter has not answered yet, `#outcome` gives back what it answers. */
  #giveUp(ask: Ask): void {
    this.#ask = undefined;
    if (ask.reservation !== undefined) giveBack({ reservation: ask.reservation });
  }

  /** Lets the PQueue take one job; `onTake` shuts the door behind it. */
  #open(pass: Pass): void {
    this.#pass = pass;
    super.start();
    super.pause();
    // a job whose signal is just being aborted does not start
    if (this.#pass === pass) {
      this.#pass = undefined;
      giveBack(pass);
    }
  }

  #start<Result>(
    job: PacedJob<Result>,
    task: Parameters<PacedJob<Result>>[0],
  ): Result | PromiseLike<Result> {
    const pass = this.#pass;
    this.#pass = undefined;
    if (pass !== undefined && "error" in pass) throw pass.error;
    return job(task);
  }
}

/** A class without parameters, as PQueue wants it. */
function heapOf(line: Line): new () => JobHeap {
  return class extends JobHeap {
    constructor() {
      super();
      line.jobs = this;
    }

    override dequeue(): (() => Promise<unknown>) | undefined {
      line.onTake();
      const run = super.dequeue();
      // PQueue frees the place in a microtask that it asks for before `run` is through
      return run && (() => run().finally(() => line.onEnd()));
    }

    override remove(id: string): void {
      super.remove(id);
      line.onRemove();
    }
  };
}

function idle(): void {}

/** Nobody waits for the answer: where the store cannot be told, the permits are lost. */
function giveBack(pass: Pass): void {
  if ("reservation" in pass) undo(pass.reservation).catch(idle);
}

async function undo(reservation: Reservation): Promise<void> {
  if (!(await reservation.cancel())) await reservation.settle(0);
}

function isLater<T extends object>(answer: T | Promise<T>): answer is Promise<T> {
  return "then" in answer;
}

function samePermits(a: Permits, b: Permits): boolean {
  if (typeof a === "number" || typeof b === "number") return a === b;
  return [...Object.keys(a), ...Object.keys(b)].every((policy) => a[policy] === b[policy]);
}
