import { QueueFullError } from "../../ground/errors.ts";
import { Fifo } from "../../queue/fifo.ts";
import { onAbort } from "../on-abort.ts";
import type { JobOptions, PacedAddOptions, PacedJob } from "./job.ts";
import type { WaitingJobs } from "./waiting-jobs.ts";

export const ON_FULL = ["reject", "drop-oldest", "drop-lowest-priority", "wait"] as const;

/** How a full PacedQueue handles a new job: see `PacedQueueOptions.onFull`. */
export type OnFullQueue = (typeof ON_FULL)[number];

type Add = <Result>(
  job: PacedJob<Result>,
  options: Partial<JobOptions> | undefined,
) => Promise<Result & Awaited<Result>>;

type Drop = (reason: unknown) => void;

/** A job that waits for room outside the queue. */
interface Entrant {
  enter(): void;
  fail(reason: unknown): void;
  /** The promise that `add` returned. */
  result?: Promise<unknown>;
}

/** Keeps a PacedQueue from growing beyond `maxWaiting` jobs. */
export class FullQueue {
  readonly #maxWaiting: number;
  readonly #onFull: OnFullQueue;
  readonly #outside = new Fifo<Entrant>();
  /** Drops one waiting job each, in the order in which the jobs were added. */
  readonly #drops = new Set<Drop>();
  /** A job from outside has been admitted, and is not yet in the queue. */
  #isEntering = false;

  constructor(maxWaiting: number, onFull: OnFullQueue) {
    this.#maxWaiting = maxWaiting;
    this.#onFull = onFull;
  }

  /** Adds a job, or handles it as `onFull` demands. @param add adds the job to the queue */
  add<Result>(
    jobs: WaitingJobs,
    job: PacedJob<Result>,
    options: Partial<PacedAddOptions> | undefined,
    add: Add,
  ): Promise<Result & Awaited<Result>> {
    const isFull = jobs.size >= this.#maxWaiting;
    if (this.#onFull === "wait") {
      const waits = isFull || this.#isEntering || this.#outside.size > 0;
      return waits ? this.#addWhenRoom(job, options, add) : add(job, options);
    }
    if (isFull && !this.#makeRoom(jobs, options?.priority ?? 0)) {
      return Promise.reject(this.#error(false));
    }
    return this.#onFull === "reject" ? add(job, options) : this.#addDroppable(job, options, add);
  }

  /** Admits the next job that waits outside, if there is room. */
  admit(jobs: WaitingJobs): void {
    if (this.#isEntering || jobs.size >= this.#maxWaiting) return;
    const entrant = this.#outside.shift();
    if (entrant === undefined) return;
    this.#isEntering = true;
    entrant.enter();
  }

  /** Rejects all jobs that wait outside; the caller clears the queue. */
  clear(): void {
    this.#drops.clear();
    for (let entrant = this.#outside.shift(); entrant; entrant = this.#outside.shift()) {
      // as in p-queue 10: no unhandled rejection if the caller ignores the promise
      entrant.result?.catch(() => {});
      entrant.fail(new DOMException("The queue was cleared", "AbortError"));
    }
  }

  /** Drops a job if `onFull` allows it. @returns whether a job was dropped */
  #makeRoom(jobs: WaitingJobs, priority: number): boolean {
    const drop = this.#victim(jobs, priority);
    drop?.(this.#error(true));
    return drop !== undefined;
  }

  /** Returns what drops the victim; undefined if no job may be dropped. */
  #victim(jobs: WaitingJobs, priority: number): Drop | undefined {
    if (this.#onFull === "reject") return undefined;
    if (this.#onFull === "drop-oldest") return this.#drops.values().next().value;
    const { leastUrgent } = jobs;
    return (leastUrgent?.rank?.priority ?? Infinity) < priority
      ? leastUrgent?.options.drop
      : undefined;
  }

  #error(dropped: boolean): QueueFullError {
    return new QueueFullError("PacedQueue", 1, this.#maxWaiting, this.#maxWaiting, dropped);
  }

  #addWhenRoom<Result>(
    job: PacedJob<Result>,
    options: Partial<PacedAddOptions> | undefined,
    add: Add,
  ): Promise<Result & Awaited<Result>> {
    const { entrant, entered } = this.#append(options?.signal);
    const result = entered.then(() => {
      this.#isEntering = false;
      return add(job, options);
    });
    entrant.result = result;
    return result as Promise<Result & Awaited<Result>>;
  }

  #append(signal: AbortSignal | undefined): { entrant: Entrant; entered: Promise<void> } {
    let settle: Pick<Entrant, "enter" | "fail"> = { enter() {}, fail() {} };
    const entered = new Promise<void>((enter, fail) => {
      settle = { enter, fail };
    });
    const entrant: Entrant = settle;
    this.#outside.append(entrant);
    const unlisten = onAbort(signal, (reason) => {
      this.#outside.remove(entrant);
      entrant.fail(reason);
    });
    if (signal !== undefined) entered.then(unlisten, unlisten);
    return { entrant, entered };
  }

  /** Gives the job a signal of its own: the PQueue drops a job when its signal is aborted. */
  #addDroppable<Result>(
    job: PacedJob<Result>,
    options: Partial<PacedAddOptions> = {},
    add: Add,
  ): Promise<Result & Awaited<Result>> {
    const controller = new AbortController();
    const drop = (reason: unknown) => {
      this.#drops.delete(drop);
      controller.abort(reason);
    };
    const unlisten = onAbort(options.signal, drop);
    const own = controller.signal;
    this.#drops.add(drop);
    const result = add<Result>(
      ({ signal }) => {
        this.#drops.delete(drop);
        return job({ signal: signal === own ? options.signal : signal });
      },
      { ...options, signal: own, drop },
    );
    const end = () => {
      this.#drops.delete(drop);
      unlisten();
    };
    result.then(end, end);
    return result;
  }
}
