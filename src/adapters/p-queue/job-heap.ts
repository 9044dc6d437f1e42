import type { QueueAddOptions } from "p-queue";
import type { Permits } from "../../permits.ts";

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

type Run = () => Promise<unknown>;

/** An async context to run in: `AsyncResource` has this form. */
export interface AsyncContext {
  runInAsyncScope<Result>(fn: () => Result): Result;
}

/** A job that waits, or waited. */
export interface Job {
  readonly run: Run;
  readonly options: Partial<JobOptions>;
  priority: number;
  /** Of two jobs of one priority the lower one goes first. */
  order: number;
  /** Its place in the heap; -1 once it has left. */
  index: number;
  /** The context of the `add` call; absent where the PQueue restores it. */
  context: AsyncContext | undefined;
}

/**
 * The jobs that wait, by priority and then in the order in which they came: the `queueClass` of the
 * PQueue. It shows which jobs are next, and every operation except `oldest` and `leastUrgent` takes
 * at most log n steps.
 *
 * An index by id is built only when a job is looked up by its id, and kept until the heap is empty:
 * most jobs are never looked up, and an entry for each job would take more memory than the job.
 */
export class JobHeap {
  readonly #heap: Job[] = [];
  /** Ids need not be unique. */
  #byId: Map<string, Job | Set<Job>> | undefined;
  #orders = 0;
  /** Whether a job with other permits than 1 came since the heap was last empty. */
  #isMixed = false;
  /** The job that was added last. */
  newest: Job | undefined;

  get size(): number {
    return this.#heap.length;
  }

  /** What the next job costs; `undefined` where no job waits. */
  get nextPermits(): Permits | undefined {
    const head = this.#heap[0];
    return head && permitsOf(head);
  }

  /** What the first jobs cost, in the order in which they will start: at most `most` of them. */
  firstPermits(most: number): readonly Permits[] {
    const count = Math.min(most, this.#heap.length);
    return this.#isMixed ? this.#first(count).map(permitsOf) : new Array(count).fill(1);
  }

  /** The jobs after which a job comes next are those above it in the heap. */
  #first(count: number): Job[] {
    const found: Job[] = [];
    const candidates = this.#heap.slice(0, 1);
    while (found.length < count) {
      const next = candidates.reduce((a, b) => (isBefore(b, a) ? b : a));
      const { index } = next;
      const children = this.#heap.slice(2 * index + 1, 2 * index + 3);
      candidates.splice(candidates.indexOf(next), 1, ...children);
      found.push(next);
    }
    return found;
  }

  /** The job that has waited longest, whatever its priority. */
  get oldest(): Job | undefined {
    return this.#best((a, b) => a.order < b.order);
  }

  /** Of the jobs of the lowest priority the one that has waited longest. */
  get leastUrgent(): Job | undefined {
    return this.#best((a, b) =>
      a.priority === b.priority ? a.order < b.order : a.priority < b.priority,
    );
  }

  #best(isBetter: (a: Job, b: Job) => boolean): Job | undefined {
    let [best] = this.#heap;
    for (const job of this.#heap) {
      if (best !== undefined && isBetter(job, best)) best = job;
    }
    return best;
  }

  enqueue(run: Run, options: Partial<JobOptions> = {}): void {
    const { priority = 0, permits = 1 } = options;
    const index = this.#heap.length;
    const job: Job = { run, options, priority, order: this.#orders++, index, context: undefined };
    this.#isMixed = permits !== 1 || (this.#isMixed && index > 0);
    if (this.#byId !== undefined) addTo(this.#byId, job);
    this.#rise(job);
    this.newest = job;
  }

  dequeue(): Run | undefined {
    const job = this.#heap[0];
    if (job === undefined) return undefined;
    this.#delete(job);
    const { run, context } = job;
    return context === undefined ? run : () => context.runInAsyncScope(run);
  }

  /** The PQueue calls it for a job whose signal was aborted. */
  remove(id: string): void {
    for (const job of this.#jobsOf(id)) {
      if (job.options.signal?.aborted) {
        this.#delete(job);
        return;
      }
    }
  }

  /** The job goes behind those that have the priority already. */
  setPriority(id: string, priority: number): void {
    const [job] = this.#jobsOf(id);
    if (job === undefined) throw new ReferenceError(`no job with the id "${id}" waits`);
    if (job.priority === priority) return;
    job.priority = priority;
    job.order = this.#orders++;
    this.#settle(job);
  }

  filter({ priority }: Readonly<Partial<PacedAddOptions>>): Run[] {
    return this.#heap.filter((job) => job.priority === priority).map(({ run }) => run);
  }

  #jobsOf(id: string): Iterable<Job> {
    if (this.#byId === undefined) {
      this.#byId = new Map();
      for (const job of this.#heap.toSorted((a, b) => a.order - b.order)) addTo(this.#byId, job);
    }
    const found = this.#byId.get(id) ?? [];
    return Symbol.iterator in found ? found : [found];
  }

  #delete(job: Job): void {
    const last = this.#heap.pop();
    if (last !== undefined && last !== job) {
      last.index = job.index;
      this.#settle(last);
    }
    job.index = -1;
    if (this.#heap.length === 0) this.#byId = undefined;
    if (this.#byId !== undefined) deleteFrom(this.#byId, job);
  }

  /** Puts a job in its place, above or below. */
  #settle(job: Job): void {
    this.#rise(job);
    this.#sink(job);
  }

  #rise(job: Job): void {
    for (;;) {
      const parent = this.#heap[(job.index - 1) >> 1];
      if (parent === undefined || job.index === 0 || isBefore(parent, job)) break;
      this.#swap(parent, job);
    }
    this.#heap[job.index] = job;
  }

  #sink(job: Job): void {
    for (;;) {
      const left = this.#heap[2 * job.index + 1];
      const right = this.#heap[2 * job.index + 2];
      const child =
        right !== undefined && left !== undefined && isBefore(right, left) ? right : left;
      if (child === undefined || isBefore(job, child)) return;
      this.#swap(job, child);
    }
  }

  /** `upper` comes down, `lower` goes up. */
  #swap(upper: Job, lower: Job): void {
    const { index } = upper;
    upper.index = lower.index;
    lower.index = index;
    this.#heap[upper.index] = upper;
    this.#heap[lower.index] = lower;
  }
}

function permitsOf({ options }: Job): Permits {
  return options.permits ?? 1;
}

function isBefore(a: Job, b: Job): boolean {
  return a.priority === b.priority ? a.order < b.order : a.priority > b.priority;
}

function addTo(byId: Map<string, Job | Set<Job>>, job: Job): void {
  const { id = "" } = job.options;
  const others = byId.get(id);
  if (others === undefined) byId.set(id, job);
  else if (others instanceof Set) others.add(job);
  else byId.set(id, new Set([others, job]));
}

function deleteFrom(byId: Map<string, Job | Set<Job>>, job: Job): void {
  const { id = "" } = job.options;
  const jobs = byId.get(id);
  if (jobs === job) byId.delete(id);
  else if (jobs instanceof Set && jobs.delete(job) && jobs.size === 0) byId.delete(id);
}
