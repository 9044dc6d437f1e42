/** The counters and outage events of a limiter on a remote store. */
import { type DiagnosticsSource, diagnostics } from "../ground/diagnostics.ts";
import { StoreUnavailableError } from "../ground/errors.ts";
import { type Amount, sizeOf } from "../ground/permits.ts";
import type { ProcessCounter } from "../stores/process-counter.ts";
import { CallStats, Counts, type LimiterStats } from "./stats.ts";

/** Whether the store answered the last request; or the limiter is closed. */
export type StoreState = "ready" | "unavailable" | "closed";

/** The outcomes of calls, and the outages, counted since the limiter was created. */
export interface RemoteStats extends LimiterStats {
  /** Calls that ended in a StoreUnavailableError. */
  readonly failed: number;
  /** The number of outages, with the one in progress. */
  readonly outages: number;
  /** How long all outages lasted together, ms; with the one in progress. */
  readonly unavailableMs: number;
  /** How many permits this process granted without the store, during outages. */
  readonly grantedInOutages: number;
  /**
   * With `instances: "auto"` and `whenUnavailable: "local"`: how many live processes share the limit, as
   * last counted; 1 before that.
   */
  readonly instances?: number;
}

class RemoteCounts extends Counts {
  failed = 0;
  outages = 0;
  unavailableMs = 0;
  grantedInOutages = 0;
}

interface Outage {
  readonly cause: unknown;
  readonly startedAt: number;
  /** The counters at the start of the outage. */
  readonly before: RemoteStats;
}

/** Shared by a limiter and the limiters of its keys, which use one store. */
export class OutageStats {
  readonly counts = new RemoteCounts();
  readonly #source: DiagnosticsSource;
  /** Counts the processes, if their number is needed. */
  readonly processes: ProcessCounter | undefined;
  #outage: Outage | undefined;
  #ended = false;
  #hasPublishedOthers = false;

  constructor(limiter: string, processes?: ProcessCounter) {
    this.#source = { limiter };
    this.processes = processes;
  }

  /** Returns the stats of the limiter, or of one of its keys. @param names the names of the policies */
  callStats(names: readonly string[], key: string | undefined): CallStats {
    const callStats = new CallStats(this.#source, names, this.counts);
    return key === undefined ? callStats : callStats.of(key);
  }

  get state(): StoreState {
    return this.#outage === undefined ? "ready" : "unavailable";
  }

  get stats(): RemoteStats {
    const unavailableMs = this.counts.unavailableMs + this.#lasted();
    const counted = this.processes && { instances: this.processes.count };
    return { ...this.counts, unavailableMs, ...counted };
  }

  /** Called when a request got no answer: starts an outage, unless one is in progress. */
  lost(cause: unknown): void {
    if (this.#outage !== undefined || this.#ended) return;
    this.counts.outages += 1;
    this.#outage = { cause, startedAt: performance.now(), before: { ...this.counts } };
    if (!diagnostics.unavailable.hasSubscribers) return;
    const message = { ...this.#source, cause };
    queueMicrotask(() => diagnostics.unavailable.publish(message));
  }

  /** Called when the store has answered, or those that it did not answer ask no more: ends the outage. */
  answered(): void {
    if (this.#outage === undefined) return;
    const { cause, before } = this.#outage;
    const durationMs = this.#lasted();
    this.counts.unavailableMs += durationMs;
    this.#outage = undefined;
    if (!diagnostics.recovered.hasSubscribers) return;
    // after the callers that are granted without the store in this turn, so that they are counted
    queueMicrotask(() => {
      const { grantedInOutages, refused, failed } = this.counts;
      diagnostics.recovered.publish({
        ...this.#source,
        cause,
        durationMs,
        granted: grantedInOutages - before.grantedInOutages,
        refused: refused - before.refused,
        failed: failed - before.failed,
      });
    });
  }

  /** Called when the limiter is closed: ends the outage, since no later reply will. */
  end(): void {
    this.#ended = true;
    this.counts.unavailableMs += this.#lasted();
    this.#outage = undefined;
  }

  /** Counts permits that were granted without the store. */
  granted(amount: Amount): void {
    this.counts.grantedInOutages += sizeOf(amount);
  }

  /** Called when the state in the store has been used with other algorithms too. */
  shared(others: readonly string[]): void {
    const { otherAlgorithms } = diagnostics;
    if (this.#hasPublishedOthers || !otherAlgorithms.hasSubscribers) return;
    this.#hasPublishedOthers = true;
    otherAlgorithms.publish({ ...this.#source, others });
  }

  /** Counts an error with which a call fails, and returns it. */
  failed(error: unknown): unknown {
    if (error instanceof StoreUnavailableError) this.counts.failed += 1;
    return error;
  }

  #lasted(): number {
    return this.#outage === undefined ? 0 : performance.now() - this.#outage.startedAt;
  }
}
