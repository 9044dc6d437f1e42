/** What is counted and published about a limiter whose store is elsewhere. */
import { diagnostics, type Teller } from "../../diagnostics.ts";
import { StoreUnavailableError } from "../../errors.ts";
import { type Amount, sizeOf } from "../../permits.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import { Counts, type LimiterStats, Meter } from "../meter.ts";

/** Whether the store answered when it was last asked; or the limiter was closed. */
export type StoreState = "ready" | "unavailable" | "closed";

/** How many calls came to what, and what outages there were, since the limiter was made. */
export interface RemoteStats extends LimiterStats {
  /** Calls that ended in a StoreUnavailableError. */
  readonly failed: number;
  /** How often the store went away, and for how long in all, ms; an outage that lasts included. */
  readonly outages: number;
  readonly unavailableMs: number;
  /** How many permits were granted while the store was away, without it. */
  readonly grantedInOutages: number;
  /**
   * With `instances: "auto"` and `whenUnavailable: "local"`: how many live processes share the limit, as
   * last counted; 1 before that.
   */
  readonly instances?: number;
}

export class RemoteCounts extends Counts {
  failed = 0;
  outages = 0;
  unavailableMs = 0;
  grantedInOutages = 0;
}

interface Outage {
  readonly cause: unknown;
  readonly startedAt: number;
  /** The counters when it began. */
  readonly before: RemoteStats;
}

/** For a limiter and all of its keys, which have one store. */
export class OutageStats {
  readonly counts = new RemoteCounts();
  readonly #teller: Teller;
  readonly #processes: ProcessCounter | undefined;
  #outage: Outage | undefined;
  #ended = false;

  constructor(limiter: string, processes?: ProcessCounter) {
    this.#teller = { limiter };
    this.#processes = processes;
  }

  /** For the limiter, or for one of its keys: its policies have these names. */
  meter(names: readonly string[], key: string | undefined): Meter {
    const meter = new Meter(this.#teller, names, this.counts);
    return key === undefined ? meter : meter.of(key);
  }

  get state(): StoreState {
    return this.#outage === undefined ? "ready" : "unavailable";
  }

  get stats(): RemoteStats {
    const unavailableMs = this.counts.unavailableMs + this.#lasted();
    const counted = this.#processes && { instances: this.#processes.count };
    return { ...this.counts, unavailableMs, ...counted };
  }

  /** A call could not be answered: the store is away. */
  lost(cause: unknown): void {
    if (this.#outage !== undefined || this.#ended) return;
    this.counts.outages += 1;
    this.#outage = { cause, startedAt: performance.now(), before: { ...this.counts } };
    if (!diagnostics.unavailable.hasSubscribers) return;
    const message = { ...this.#teller, cause };
    queueMicrotask(() => diagnostics.unavailable.publish(message));
  }

  /** The store has answered. */
  answered(): void {
    if (this.#outage === undefined) return;
    const { cause, before } = this.#outage;
    const durationMs = this.#lasted();
    this.counts.unavailableMs += durationMs;
    this.#outage = undefined;
    if (!diagnostics.recovered.hasSubscribers) return;
    // after the callers that are let in at this moment without the store
    queueMicrotask(() => {
      const { grantedInOutages, refused, failed } = this.counts;
      diagnostics.recovered.publish({
        ...this.#teller,
        cause,
        durationMs,
        granted: grantedInOutages - before.grantedInOutages,
        refused: refused - before.refused,
        failed: failed - before.failed,
      });
    });
  }

  /** The limiter is closed, and will not learn when the store is back. */
  end(): void {
    this.#ended = true;
    this.counts.unavailableMs += this.#lasted();
    this.#outage = undefined;
  }

  /** Let in while the store could not be asked. */
  granted(amount: Amount): void {
    this.counts.grantedInOutages += sizeOf(amount);
  }

  /** Counts an error that a caller gets, and hands it back. */
  failed(error: unknown): unknown {
    if (error instanceof StoreUnavailableError) this.counts.failed += 1;
    return error;
  }

  #lasted(): number {
    return this.#outage === undefined ? 0 : performance.now() - this.#outage.startedAt;
  }
}
