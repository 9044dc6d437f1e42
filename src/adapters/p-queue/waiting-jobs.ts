import type { Permits } from "../../ground/permits.ts";
import { restoresScope } from "./async-scope.ts";
import {
  BareJob,
  type Job,
  type JobOptions,
  JobRank,
  type PacedAddOptions,
  type PacedJob,
  type Run,
  ScopedJob,
} from "./job.ts";

/**
 * Holds the waiting jobs, ordered by priority and then by arrival; it is the `queueClass` of the PQueue.
 * Unlike PQueue's own queue it can list the next jobs. Jobs of one priority form a list, and the lists are
 * sorted by priority. So operations take log n steps for n priorities, however many jobs wait; the first job of a
 * priority and the last one move the pointers to the higher ones, too, as each job does in PQueue's own queue.
 *
 * An index by id is built on the first lookup of a job by its id, and kept until no job waits. Most jobs
 * are never looked up, and an index entry takes more memory than the job.
 */
export class WaitingJobs {
  /** By ascending priority. No rank is empty unless it is the only one. */
  readonly #ranks: JobRank[] = [];
  /** The jobs by id; ids need not be unique. */
  #byId: Map<string, Job | Set<Job>> | undefined;
  #size = 0;
  /** Whether a job with permits other than 1 was added since no job waited. */
  #isMixed = false;
  /** The job that was enqueued last, if its async context must still be saved in case it waits. */
  bare: BareJob | undefined;
  /** The user's function of the job that is added: the PQueue does not pass it on. */
  work: PacedJob<unknown> | undefined;
  /** The job that is starting, or started last. */
  taken: Job | undefined;
  readonly #onTake: () => void;
  readonly #Rank: typeof JobRank;

  /**
   * @param onTake called before the PQueue receives a job
   * @param ofRank the order of the jobs of one priority; default first in, first out
   */
  constructor(onTake = () => {}, ofRank: typeof JobRank = JobRank) {
    this.#onTake = onTake;
    this.#Rank = ofRank;
  }

  get size(): number {
    return this.#size;
  }

  /** The permits of the next job; `undefined` if no job waits. */
  get nextPermits(): Permits | undefined {
    const head = this.#ranks.at(-1)?.first;
    return head && permitsOf(head);
  }

  /** Returns the permits of the next jobs, at most `most` of them, in the order in which they will start. */
  firstPermits(most: number): readonly Permits[] {
    const count = Math.min(most, this.#size);
    return this.#isMixed ? this.#first(count).map(permitsOf) : new Array(count).fill(1);
  }

  #first(count: number): Job[] {
    const found: Job[] = [];
    for (let i = this.#ranks.length - 1; found.length < count; i--) {
      for (const job of this.#ranks[i] ?? []) {
        if (found.push(job) === count) break;
      }
    }
    return found;
  }

  /** The job of the lowest priority that has waited longest. */
  get leastUrgent(): Job | undefined {
    return this.#ranks[0]?.oldest;
  }

  /**
   * Adds a job. If no other job waits it may start at once, and then need not save its async context. If
   * it has to wait, the caller makes it do so through `bare`.
   */
  enqueue(run: Run, options: Partial<JobOptions> = {}): void {
    const { priority = 0, permits = 1 } = options;
    this.#isMixed = permits !== 1 || (this.#isMixed && this.#size > 0);
    if (restoresScope && this.#size > 0) {
      this.#add(new ScopedJob(run, options, this.work), priority);
    } else {
      const job = new BareJob(run, options, this.work);
      this.#add(job, priority);
      if (restoresScope) this.bare = job;
    }
  }

  #add(job: Job, priority: number): void {
    if (this.#byId !== undefined) addTo(this.#byId, job);
    const rank = this.#rankOf(priority) ?? this.#addRank(priority);
    rank.append(job);
    this.#size += 1;
  }

  /** Removes the next job and returns it. */
  take(): Job | undefined {
    const job = this.#ranks.at(-1)?.first;
    if (job !== undefined) this.#delete(job, true);
    return job;
  }

  dequeue(): Run | undefined {
    this.#onTake();
    this.taken = this.take();
    return this.taken && this.#start;
  }

  /** Starts the job that was taken last: one function for all jobs, since the PQueue calls it at once. */
  readonly #start = () => (this.taken as Job).start();

  /** Removes an aborted job with that id; called by the PQueue. */
  remove(id: string): void {
    for (const job of this.#jobsOf(id)) {
      if (job.options.signal?.aborted) {
        this.#delete(job);
        return;
      }
    }
  }

  /** Changes a job's priority; the job goes behind those that already have it. */
  setPriority(id: string, priority: number): void {
    const [first, ...others] = this.#jobsOf(id);
    if (first === undefined) {
      // in the words of PQueue
      throw new ReferenceError(`No promise function with the id "${id}" exists in the queue.`);
    }
    const job = others.reduce((a, b) => (priorityOf(b) > priorityOf(a) ? b : a), first);
    if (priorityOf(job) === priority) return;
    this.#delete(job);
    this.#add(new BareJob(() => job.start(), job.options, job.work), priority);
  }

  filter({ priority }: Readonly<Partial<PacedAddOptions>>): Run[] {
    return Array.from(this.#rankOf(priority ?? Number.NaN) ?? [], ({ run }) => run);
  }

  #jobsOf(id: string): Iterable<Job> {
    if (this.#byId === undefined) {
      this.#byId = new Map();
      for (const job of this.#ranks.flatMap((rank) => [...rank])) addTo(this.#byId, job);
    }
    const found = this.#byId.get(id) ?? [];
    return Symbol.iterator in found ? found : [found];
  }

  #delete(job: Job, isTaken = false): void {
    const { rank } = job;
    if (rank === undefined) return;
    if (isTaken) rank.take(job);
    else rank.remove(job);
    this.#size -= 1;
    // the only rank stays even if empty: most queues have one priority, and are often empty
    if (rank.first === undefined && this.#ranks.length > 1) {
      this.#ranks.splice(this.#indexOf(rank.priority), 1);
    }
    if (this.#size === 0) this.#byId = undefined;
    if (this.#byId !== undefined) deleteFrom(this.#byId, job);
  }

  #addRank(priority: number): JobRank {
    if (this.#size === 0) this.#ranks.length = 0;
    const rank = new this.#Rank(priority);
    this.#ranks.splice(this.#indexOf(priority), 0, rank);
    return rank;
  }

  #rankOf(priority: number): JobRank | undefined {
    const rank = this.#ranks[this.#indexOf(priority)];
    return rank?.priority === priority ? rank : undefined;
  }

  /** Returns the index of the first rank that has no lower priority. */
  #indexOf(priority: number): number {
    let from = 0;
    let to = this.#ranks.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#ranks[middle] as JobRank).priority < priority) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

function priorityOf({ rank }: Job): number {
  return rank?.priority ?? 0;
}

function permitsOf({ options }: Job): Permits {
  return options.permits ?? 1;
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
