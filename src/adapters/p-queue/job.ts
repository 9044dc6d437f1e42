import type { QueueAddOptions } from "p-queue";
import type { Permits } from "../../ground/permits.ts";
import { AsyncScope, NO_TRIGGER, SCOPE } from "./async-scope.ts";

/** The options of `add`. */
export interface PacedAddOptions extends QueueAddOptions {
  /**
   * The permits of the job: a finite number above 0, or one for each policy by name. They are taken when
   * the job starts. Default 1.
   */
  readonly permits?: Permits | undefined;
  /**
   * The share of the job, such as the id of a tenant; only in a queue with `order: fairShares()`. Jobs of one share
   * are first in, first out. Default "".
   */
  readonly share?: string | undefined;
  /** The weight of its share, above 0; only in a queue with `order: fairShares()`. Default 1. */
  readonly weight?: number | undefined;
}

/** The function that `add` runs; it receives the signal of its options. */
export type PacedJob<Result> = (options: {
  readonly signal?: AbortSignal | undefined;
}) => Result | PromiseLike<Result>;

/** The options as the PQueue passes them on. */
export interface JobOptions extends PacedAddOptions {
  /** Lets a full queue drop the job. */
  readonly drop?: ((reason: unknown) => void) | undefined;
}

export type Run = () => Promise<unknown>;

/** A job that waits or has waited. Thousands may wait, and each field costs 8 bytes for each job. */
export interface Job {
  /** The function that the PQueue made of the job. */
  readonly run: Run;
  /** The user's function. The PQueue gets one function for all jobs: a closure for each would cost memory. */
  readonly work: PacedJob<unknown> | undefined;
  readonly options: Partial<JobOptions>;
  /** The list of its priority; `undefined` once the job has left. */
  rank: JobRank | undefined;
  next: Job | undefined;
  /** Runs the job, in its own async context if it has one. */
  start(): Promise<unknown>;
}

/** A job that starts in the context of the code that starts it. */
export class BareJob implements Job {
  readonly options: Partial<JobOptions>;
  rank: JobRank | undefined = undefined;
  next: Job | undefined = undefined;
  run: Run;
  readonly work: PacedJob<unknown> | undefined;

  constructor(run: Run, options: Partial<JobOptions>, work: PacedJob<unknown> | undefined) {
    this.run = run;
    this.options = options;
    this.work = work;
  }

  start(): Promise<unknown> {
    return this.run();
  }

  /** Saves the async context of the caller, in which the job then starts. */
  keepScope(): void {
    const scope = new AsyncScope(SCOPE, NO_TRIGGER);
    const run = this.run;
    this.run = () => scope.runInAsyncScope(run);
  }
}

/** A job that starts in the async context in which it was created. It extends the scope to save memory. */
export class ScopedJob extends AsyncScope implements Job {
  readonly options: Partial<JobOptions>;
  rank: JobRank | undefined = undefined;
  next: Job | undefined = undefined;
  readonly run: Run;
  readonly work: PacedJob<unknown> | undefined;

  constructor(run: Run, options: Partial<JobOptions>, work: PacedJob<unknown> | undefined) {
    super(SCOPE, NO_TRIGGER);
    this.run = run;
    this.options = options;
    this.work = work;
  }

  start(): Promise<unknown> {
    return this.runInAsyncScope(this.run);
  }
}

/**
 * The jobs of one priority: first in, first out. A job that leaves from the middle stays linked. It is
 * unlinked when it reaches the front, or when as many jobs have left as still wait. So each operation
 * takes constant time on average, and a job needs only one link.
 */
export class JobRank {
  readonly priority: number;
  /** The first waiting job; undefined if no job waits. */
  first: Job | undefined;
  #last: Job | undefined;
  #size = 0;
  #gone = 0;

  constructor(priority: number) {
    this.priority = priority;
  }

  append(job: Job): void {
    if (this.#last === undefined) this.first = job;
    else this.#last.next = job;
    this.#last = job;
    job.rank = this;
    this.#size += 1;
  }

  remove(job: Job): void {
    job.rank = undefined;
    this.#size -= 1;
    this.#gone += 1;
    this.first = this.#skipGone(this.first);
    if (this.#gone >= this.#size) this.#unlinkGone();
  }

  /** Returns the first waiting job from here on; unlinks jobs before it, so that they retain no others. */
  #skipGone(from: Job | undefined): Job | undefined {
    let job = from;
    while (job !== undefined && job.rank === undefined) {
      const { next }: Job = job;
      job.next = undefined;
      job = next;
      this.#gone -= 1;
    }
    return job;
  }

  #unlinkGone(): void {
    this.#last = undefined;
    for (let job = this.first; job !== undefined; job = job.next) {
      job.next = this.#skipGone(job.next);
      this.#last = job;
    }
  }

  /** Called when the first job starts. */
  take(job: Job): void {
    this.remove(job);
  }

  /** The job that is dropped first. */
  get oldest(): Job | undefined {
    return this.first;
  }

  *[Symbol.iterator](): Generator<Job> {
    for (let job = this.first; job !== undefined; job = job.next) {
      if (job.rank !== undefined) yield job;
    }
  }
}
