import type { Permits } from "../../permits.ts";
import { restoresScope } from "./async-scope.ts";
import {
  BareJob,
  type Job,
  type JobOptions,
  type PacedAddOptions,
  Rank,
  type Run,
  ScopedJob,
} from "./job.ts";

/**
 * The jobs that wait, by priority and then in the order in which they came: what the `queueClass` of
 * the PQueue is made of. It shows which jobs are next. Jobs of one priority form a list, and the priorities form a
 * heap: every operation except `oldest` and `leastUrgent` takes at most log n steps for n priorities,
 * however many jobs wait.
 *
 * An index by id is built only when a job is looked up by its id, and kept until no job waits: most
 * jobs are never looked up, and an entry for each job would take more memory than the job.
 */
export class JobHeap {
  /** A heap. None is empty, except one that is alone. */
  readonly #ranks: Rank[] = [];
  readonly #byPriority = new Map<number, Rank>();
  /** Ids need not be unique. */
  #byId: Map<string, Job | Set<Job>> | undefined;
  #size = 0;
  /** Whether a job with other permits than 1 came since no job waited. */
  #isMixed = false;
  /** The job that was enqueued last, if its context is still to be kept in case it waits. */
  bare: BareJob | undefined;
  /** The job that starts, or started last. */
  taken: Job | undefined;
  readonly #onTake: () => void;

  /** @param onTake called before the PQueue is handed a job */
  constructor(onTake = () => {}) {
    this.#onTake = onTake;
  }

  get size(): number {
    return this.#size;
  }

  /** What the next job costs; `undefined` where no job waits. */
  get nextPermits(): Permits | undefined {
    const head = this.#ranks[0]?.first;
    return head && permitsOf(head);
  }

  /** What the first jobs cost, in the order in which they will start: at most `most` of them. */
  firstPermits(most: number): readonly Permits[] {
    const count = Math.min(most, this.#size);
    return this.#isMixed ? this.#first(count).map(permitsOf) : new Array(count).fill(1);
  }

  /** The ranks after which a rank comes next are those above it in the heap. */
  #first(count: number): Job[] {
    const found: Job[] = [];
    const candidates = this.#ranks.slice(0, 1);
    while (found.length < count) {
      const next = candidates.reduce((a, b) => (b.priority > a.priority ? b : a));
      const { index } = next;
      const children = this.#ranks.slice(2 * index + 1, 2 * index + 3);
      candidates.splice(candidates.indexOf(next), 1, ...children);
      for (let job = next.first; job !== undefined && found.length < count; job = job.next) {
        found.push(job);
      }
    }
    return found;
  }

  /** The droppable job that has waited longest, whatever its priority. */
  get oldest(): Job | undefined {
    return this.#best((a, b) => orderOf(a) < orderOf(b));
  }

  /** Of the jobs of the lowest priority the one that has waited longest. */
  get leastUrgent(): Job | undefined {
    return this.#best((a, b) => a.priority < b.priority);
  }

  #best(isBetter: (a: Rank, b: Rank) => boolean): Job | undefined {
    let [best] = this.#ranks;
    for (const rank of this.#ranks) {
      if (best !== undefined && isBetter(rank, best)) best = rank;
    }
    return best?.first;
  }

  /**
   * A job that is alone may start at once, and need not remember its async context: where it then
   * waits, the caller asks `bare` to do so.
   */
  enqueue(run: Run, options: Partial<JobOptions> = {}): void {
    const { priority = 0, permits = 1 } = options;
    this.#isMixed = permits !== 1 || (this.#isMixed && this.#size > 0);
    if (restoresScope && this.#size > 0) {
      this.#add(new ScopedJob(run, options), priority);
    } else {
      const job = new BareJob(run, options);
      this.#add(job, priority);
      if (restoresScope) this.bare = job;
    }
  }

  #add(job: Job, priority: number): void {
    if (this.#byId !== undefined) addTo(this.#byId, job);
    const rank = this.#byPriority.get(priority) ?? this.#addRank(priority);
    rank.append(job);
    this.#size += 1;
  }

  /** The next job, which waits no longer. */
  take(): Job | undefined {
    const job = this.#ranks[0]?.first;
    if (job !== undefined) this.#delete(job);
    return job;
  }

  dequeue(): Run | undefined {
    this.#onTake();
    this.taken = this.take();
    return this.taken && this.#start;
  }

  /** One function for all jobs: the PQueue calls it at once. */
  readonly #start = () => (this.taken as Job).start();

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
    const [first, ...others] = this.#jobsOf(id);
    if (first === undefined) throw new ReferenceError(`no job with the id "${id}" waits`);
    const job = others.reduce((a, b) => (priorityOf(b) > priorityOf(a) ? b : a), first);
    if (priorityOf(job) === priority) return;
    this.#delete(job);
    this.#add(new BareJob(() => job.start(), job.options), priority);
  }

  filter({ priority }: Readonly<Partial<PacedAddOptions>>): Run[] {
    return Array.from(this.#byPriority.get(priority ?? Number.NaN) ?? [], ({ run }) => run);
  }

  #jobsOf(id: string): Iterable<Job> {
    if (this.#byId === undefined) {
      this.#byId = new Map();
      for (const job of this.#ranks.flatMap((rank) => [...rank])) addTo(this.#byId, job);
    }
    const found = this.#byId.get(id) ?? [];
    return Symbol.iterator in found ? found : [found];
  }

  #delete(job: Job): void {
    const { rank } = job;
    if (rank === undefined) return;
    rank.remove(job);
    this.#size -= 1;
    // the last one stays: most queues have one priority, and are often empty
    if (rank.first === undefined && this.#ranks.length > 1) this.#removeRank(rank);
    if (this.#size === 0) this.#byId = undefined;
    if (this.#byId !== undefined) deleteFrom(this.#byId, job);
  }

  #addRank(priority: number): Rank {
    if (this.#size === 0) {
      this.#ranks.length = 0;
      this.#byPriority.clear();
    }
    const rank = new Rank(priority, this.#ranks.length);
    this.#byPriority.set(priority, rank);
    this.#rise(rank);
    return rank;
  }

  #removeRank(rank: Rank): void {
    this.#byPriority.delete(rank.priority);
    const last = this.#ranks.pop();
    if (last === undefined || last === rank) return;
    last.index = rank.index;
    this.#rise(last);
    this.#sink(last);
  }

  #rise(rank: Rank): void {
    for (;;) {
      const parent = this.#ranks[(rank.index - 1) >> 1];
      if (parent === undefined || rank.index === 0 || parent.priority > rank.priority) break;
      this.#swap(parent, rank);
    }
    this.#ranks[rank.index] = rank;
  }

  #sink(rank: Rank): void {
    for (;;) {
      const left = this.#ranks[2 * rank.index + 1];
      const right = this.#ranks[2 * rank.index + 2];
      const child =
        right !== undefined && left !== undefined && right.priority > left.priority ? right : left;
      if (child === undefined || rank.priority > child.priority) return;
      this.#swap(rank, child);
    }
  }

  /** `upper` comes down, `lower` goes up. */
  #swap(upper: Rank, lower: Rank): void {
    const { index } = upper;
    upper.index = lower.index;
    lower.index = index;
    this.#ranks[upper.index] = upper;
    this.#ranks[lower.index] = lower;
  }
}

function orderOf({ first }: Rank): number {
  return first?.options.order ?? 0;
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
