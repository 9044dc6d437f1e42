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

/** The options as the PQueue hands them on, and how a full queue drops the job. */
export interface JobOptions extends PacedAddOptions {
  readonly drop?: ((reason: Error) => void) | undefined;
}

export type Run = () => Promise<unknown>;

/** A job that waits, or waited. */
export interface Job {
  /** What the user wants to be run. */
  readonly work: PacedJob<unknown> | undefined;
  /** What the PQueue made of it. */
  run: Run;
  readonly options: Partial<JobOptions>;
  /** Of two jobs the one with the lower number was added, or given its priority, earlier. */
  order: number;
  /** The jobs of its priority; `undefined` once it has left. */
  rank: Rank | undefined;
  previous: Job | undefined;
  next: Job | undefined;
  /** Runs it, in its own async context if it has one. */
  start(): Promise<unknown>;
}

/** A job that starts in the context of the code that starts it. */
export class BareJob implements Job {
  readonly work: PacedJob<unknown> | undefined;
  run: Run;
  readonly options: Partial<JobOptions>;
  order: number;
  rank: Rank | undefined = undefined;
  previous: Job | undefined = undefined;
  next: Job | undefined = undefined;

  constructor(
    work: PacedJob<unknown> | undefined,
    run: Run,
    options: Partial<JobOptions>,
    order: number,
  ) {
    this.work = work;
    this.run = run;
    this.options = options;
    this.order = order;
  }

  start(): Promise<unknown> {
    return this.run();
  }
}

/** A job that starts in the async context in which it was made. One object: thousands may wait. */
export class ScopedJob extends AsyncScope implements Job {
  readonly work: PacedJob<unknown> | undefined;
  run: Run;
  readonly options: Partial<JobOptions>;
  order: number;
  rank: Rank | undefined = undefined;
  previous: Job | undefined = undefined;
  next: Job | undefined = undefined;

  constructor(
    work: PacedJob<unknown> | undefined,
    run: Run,
    options: Partial<JobOptions>,
    order: number,
  ) {
    super(...SCOPE);
    this.work = work;
    this.run = run;
    this.options = options;
    this.order = order;
  }

  start(): Promise<unknown> {
    return this.runInAsyncScope(this.run);
  }
}

/** The jobs of one priority: first in, first out, and any job may leave. One step each. */
export class Rank {
  readonly priority: number;
  /** Its place in the heap of ranks. */
  index: number;
  first: Job | undefined;
  #last: Job | undefined;

  constructor(priority: number, index: number) {
    this.priority = priority;
    this.index = index;
  }

  append(job: Job): void {
    const last = this.#last;
    if (last === undefined) this.first = job;
    else last.next = job;
    job.previous = last;
    job.rank = this;
    this.#last = job;
  }

  remove(job: Job): void {
    const { previous, next } = job;
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    job.previous = undefined;
    job.next = undefined;
    job.rank = undefined;
  }

  *[Symbol.iterator](): Generator<Job> {
    for (let job = this.first; job !== undefined; job = job.next) yield job;
  }
}
