import type { QueueAddOptions } from "p-queue";
import type { Permits } from "../../permits.ts";
import { AsyncScope, SCOPE } from "./async-scope.ts";

/** The options of `add`. */
export interface PacedAddOptions extends QueueAddOptions {
  /**
   * What the job costs: a finite number above 0, or one for each policy by name. Taken when the job
   * starts. Default 1.
   */
  readonly permits?: Permits | undefined;
}

/** What `add` runs; it is given the signal of its options. */
export type PacedJob<Result> = (options: {
  readonly signal?: AbortSignal | undefined;
}) => Result | PromiseLike<Result>;

/** The options as the PQueue hands them on. */
export interface JobOptions extends PacedAddOptions {
  /** What the user wants to be run: here, for a field of each job or a closure would cost memory. */
  readonly work?: PacedJob<unknown>;
  /** How a full queue drops the job, and its place among those that it can drop, oldest first. */
  readonly drop?: ((reason: Error) => void) | undefined;
  readonly order?: number;
}

export type Run = () => Promise<unknown>;

/** A job that waits, or waited. Thousands may wait: each field costs 8 bytes a job. */
export interface Job {
  /** What the PQueue made of it. */
  readonly run: Run;
  readonly options: Partial<JobOptions>;
  /** The jobs of its priority; `undefined` once it has left. */
  rank: Rank | undefined;
  next: Job | undefined;
  /** Runs it, in its own async context if it has one. */
  start(): Promise<unknown>;
}

/** A job that starts in the context of the code that starts it. */
export class BareJob implements Job {
  readonly options: Partial<JobOptions>;
  rank: Rank | undefined = undefined;
  next: Job | undefined = undefined;
  run: Run;

  constructor(run: Run, options: Partial<JobOptions>) {
    this.run = run;
    this.options = options;
  }

  start(): Promise<unknown> {
    return this.run();
  }

  /** Will start in the context of the caller. */
  keepScope(): void {
    const scope = new AsyncScope(...SCOPE);
    const run = this.run;
    this.run = () => scope.runInAsyncScope(run);
  }
}

/** A job that starts in the async context in which it was made. One object, to save memory. */
export class ScopedJob extends AsyncScope implements Job {
  readonly options: Partial<JobOptions>;
  rank: Rank | undefined = undefined;
  next: Job | undefined = undefined;
  readonly run: Run;

  constructor(run: Run, options: Partial<JobOptions>) {
    super(...SCOPE);
    this.run = run;
    this.options = options;
  }

  start(): Promise<unknown> {
    return this.runInAsyncScope(this.run);
  }
}

/**
 * The jobs of one priority: first in, first out. A job that leaves from the midst stays linked, and
 * is let go of when it comes to the front, or when as many have left as wait: so each step is one on
 * average, and a job needs one link.
 */
export class Rank {
  readonly priority: number;
  /** Its place in the heap of ranks. */
  index: number;
  /** It waits, or no job does. */
  first: Job | undefined;
  #last: Job | undefined;
  #size = 0;
  #gone = 0;

  constructor(priority: number, index: number) {
    this.priority = priority;
    this.index = index;
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

  /** The first job from here on that waits. Those before it may be held for long: they hold no other. */
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

  *[Symbol.iterator](): Generator<Job> {
    for (let job = this.first; job !== undefined; job = job.next) {
      if (job.rank !== undefined) yield job;
    }
  }
}
