import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  TicketState,
} from "../../stores/lease-store.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { SentBatch } from "../remote/batcher.ts";
import type { OutageStats } from "../remote/outage-stats.ts";
import type { PendingRequest, Strategy } from "../remote/store-link.ts";
import { StoreLink } from "../remote/store-link.ts";

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
  readonly #late: (id: string, answer: LeaseAnswer) => void;

  constructor(verb: LeaseVerb, what: string, late: (id: string, answer: LeaseAnswer) => void) {
    this.verb = verb;
    this.what = what;
    this.#late = late;
    this.promise = new Promise((resolve, reject) => {
      this.answer = resolve;
      this.fail = reject;
    });
  }

  returnToStore(answer: LeaseAnswer): void {
    if (answer.standing !== "none") this.#late(this.what, answer);
  }
}

export interface LeaseLinkOptions {
  readonly name: string;
  readonly timeoutMs: number;
  readonly processes: ProcessCounter | undefined;
  readonly stats: OutageStats;
  /** Called on a late reply to a request that has failed: the store has a lease or ticket of the claim. */
  readonly late: (id: string, answer: LeaseAnswer) => void;
  /** Called on a reply in time, after the answers of its batch. */
  readonly replied: (reply: LeaseReply) => void;
}

/**
 * Sends lease requests to their store in batches, in order of arrival: the release of a lease never
 * overtakes the request for it.
 */
export class LeaseLink extends StoreLink<LeaseCall, LeaseAnswer> {
  readonly #run: (requests: readonly LeaseRequest[]) => Promise<LeaseReply>;
  readonly #options: LeaseLinkOptions;

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

  override answered(sent: SentBatch<LeaseCall>, answers: readonly LeaseAnswer[]): void {
    super.answered(sent, answers);
    if (answers[0] !== undefined) this.#options.replied(answers[0].reply);
  }

  protected override test(): Promise<unknown> {
    return this.#run([{ verb: "probe", what: "" }]);
  }

  ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    const call = new LeaseCall(verb, what, this.#options.late);
    this.send(call);
    return call.promise;
  }
}
