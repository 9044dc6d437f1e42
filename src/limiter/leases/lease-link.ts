import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  TicketState,
} from "../../stores/lease-store.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { PendingRequest } from "../remote/batcher.ts";
import type { OutageStats } from "../remote/outage-stats.ts";
import { StoreLink } from "../remote/store-link.ts";
import type { Strategy } from "../remote/strategy.ts";

export interface LeaseAnswer {
  readonly standing: TicketState;
  /** When the batch was sent, ms: the store cannot have acted earlier. */
  readonly sentAt: number;
  readonly reply: LeaseReply;
}

/** A request about a lease; the answer resolves its promise. */
export class LeaseCall implements LeaseRequest, PendingRequest<LeaseAnswer> {
  readonly gone = false;
  readonly verb: LeaseVerb;
  readonly what: string;
  answer!: (answer: LeaseAnswer) => void;
  fail!: (error: unknown) => void;
  readonly promise: Promise<LeaseAnswer>;

  constructor(verb: LeaseVerb, what: string) {
    this.verb = verb;
    this.what = what;
    this.promise = new Promise((resolve, reject) => {
      this.answer = resolve;
      this.fail = reject;
    });
  }
}

export interface LeaseLinkOptions {
  readonly name: string;
  readonly timeoutMs: number;
  readonly leaseMs: number;
  readonly processes: ProcessCounter | undefined;
  readonly stats: OutageStats;
  /** Whether the claim is in use: it may keep its lease or ticket. */
  readonly isClaimed: (id: string) => boolean;
  /** Calls `retry` soon. */
  readonly retrySoon: () => void;
}

/**
 * Sends lease requests to their store in batches, in order of arrival: the release of a lease never
 * overtakes the request for it. A failed release is retried as long as it is needed.
 */
export class LeaseLink extends StoreLink<LeaseCall, LeaseAnswer> {
  readonly #run: (requests: readonly LeaseRequest[]) => Promise<LeaseReply>;
  readonly #options: LeaseLinkOptions;
  /** Releases that have failed, each with the time at which the lease lapses by itself, ms. */
  readonly #failed = new Map<string, number>();
  readonly #releases = new Set<Promise<void>>();

  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    strategy: Strategy<LeaseCall, LeaseAnswer>,
    options: LeaseLinkOptions,
  ) {
    super(store, key, options, strategy, { mostRequests: 1024 });
    this.#run = (requests) => store.run(key, declared, requests);
    this.#options = options;
  }

  override now(): number {
    return performance.now();
  }

  override run(requests: readonly LeaseCall[], sentAt: number): Promise<readonly LeaseAnswer[]> {
    return this.#run(requests).then((reply) => {
      this.#options.processes?.used();
      return reply.standings.map((standing) => ({ standing, sentAt, reply }));
    });
  }

  protected override test(): Promise<unknown> {
    return this.#run([{ verb: "probe", what: "" }]);
  }

  ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    const call = new LeaseCall(verb, what);
    this.send(call);
    return call.promise;
  }

  /**
   * Releases the lease or ticket; resolves after the first attempt, which is retried if it fails.
   *
   * @param lapsed when the lease lapses by itself
   */
  giveBack(id: string, lapsed = performance.now() + this.#options.leaseMs): Promise<void> {
    const release = this.ask("release", id)
      .then(
        () => {},
        () => {
          // the claim has been requested again
          if (this.#options.isClaimed(id)) return;
          this.#failed.set(id, lapsed);
          this.#options.retrySoon();
        },
      )
      .finally(() => this.#releases.delete(release));
    this.#releases.add(release);
    return release;
  }

  /** Retries the releases that have failed. */
  retry(now: number): void {
    for (const [id, lapsed] of this.#failed) {
      if (this.isAway && now < lapsed) continue;
      this.#failed.delete(id);
      if (now < lapsed) void this.giveBack(id, lapsed);
    }
  }

  /** Resolves when no release is under way. */
  async released(): Promise<void> {
    while (this.#releases.size > 0) await Promise.all(this.#releases);
  }
}
