import type { QueueAddOptions } from "p-queue";
import type { Permits } from "../../permits.ts";

/** What `add` takes beside the job. */
export interface PacedAddOptions extends QueueAddOptions {
  /**
   * What the job costs: a finite number above 0, or one for each policy by name. Taken when the job
   * starts. Default 1.
   */
  readonly permits?: Permits | undefined;
}

type Run = () => Promise<unknown>;

/** A job that waits. */
interface Job {
  readonly run: Run;
  readonly id: string;
  readonly permits: Permits;
  readonly signal: AbortSignal | undefined;
  priority: number;
  /** Of two jobs of one priority the lower one goes first. */
  order: number;
  /** Where it stands in the heap. */
  index: number;
}

/**
 * The jobs that wait, by priority and then by the order in which they came: what PQueue takes as its
 * `queueClass`. Unlike PQueue's own it shows who is next, and nothing that it does takes more than
 * log n steps.
 */
export class JobHeap {
  readonly #heap: Job[] = [];
  /** Nobody checks that ids differ. */
  readonly #byId = new Map<string, Set<Job>>();
  #orders = 0;

  get size(): number {
    return this.#heap.length;
  }

  /** Who is next. */
  get head(): { readonly permits: Permits } | undefined {
    return this.#heap[0];
  }

  enqueue(run: Run, options: Partial<PacedAddOptions> = {}): void {
    const { id = "", priority = 0, permits = 1, signal } = options;
    const order = this.#orders++;
    const job: Job = { run, id, permits, signal, priority, order, index: this.#heap.length };
    const namesakes = this.#byId.get(id);
    if (namesakes === undefined) this.#byId.set(id, new Set([job]));
    else namesakes.add(job);
    this.#rise(job);
  }

  dequeue(): Run | undefined {
    const [job] = this.#heap;
    if (job !== undefined) this.#delete(job);
    return job?.run;
  }

  /** PQueue calls it for a job whose signal was aborted. */
  remove(id: string): void {
    for (const job of this.#byId.get(id) ?? []) {
      if (job.signal?.aborted) {
        this.#delete(job);
        return;
      }
    }
  }

  /** The job goes behind those that have the priority already. */
  setPriority(id: string, priority: number): void {
    const [job] = this.#byId.get(id) ?? [];
    if (job === undefined) throw new ReferenceError(`no job with the id "${id}" waits`);
    if (job.priority === priority) return;
    job.priority = priority;
    job.order = this.#orders++;
    this.#settle(job);
  }

  filter({ priority }: Readonly<Partial<PacedAddOptions>>): Run[] {
    return this.#heap.filter((job) => job.priority === priority).map(({ run }) => run);
  }

  #delete(job: Job): void {
    const namesakes = this.#byId.get(job.id);
    namesakes?.delete(job);
    if (namesakes?.size === 0) this.#byId.delete(job.id);
    const last = this.#heap.pop();
    if (last === undefined || last === job) return;
    last.index = job.index;
    this.#settle(last);
  }

  /** Puts a job right that may have to go up or down. */
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

function isBefore(a: Job, b: Job): boolean {
  return a.priority === b.priority ? a.order < b.order : a.priority > b.priority;
}
