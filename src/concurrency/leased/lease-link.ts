import type { OutageStats } from "../../api/outage-stats.ts";
import { type StepOptions, until } from "../../api/timeout.ts";
import type { PendingRequest } from "../../remote/batcher.ts";
import { StoreLink } from "../../remote/store-link.ts";
import type { Strategy } from "../../remote/strategy.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  TicketState,
} from "../../stores/lease-store.ts";

export interface LeaseAnswer {
  readonly standing: TicketState;
  /** When the batch was sent, ms: the store cannot have acted earlier. */
  readonly sentAt: number;
  readonly reply: LeaseReply;
}

/** A request about a lease; the answer resolves its promise. */
export class LeaseCall implements LeaseRequest, PendingRequest<LeaseAnswer> {
  /** Set if no caller waits for it any more. */
  gone = false;
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

/**
 * Sends lease requests to their store in batches, in order of arrival: the release of a lease never
 * overtakes the request for it.
 */
export class LeaseLink extends StoreLink<LeaseCall, LeaseAnswer> {
  readonly #run: (requests: readonly LeaseRequest[]) => Promise<LeaseReply>;

  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    strategy: Strategy<LeaseCall, LeaseAnswer>,
    options: { name: string; timeoutMs: number; stats: OutageStats },
  ) {
    super(store, key, options, strategy, { mostRequests: 1024 });
    this.#run = (requests) => store.run(key, declared, requests);
  }

  override now(): number {
    return performance.now();
  }

  override run(requests: readonly LeaseCall[], sentAt: number): Promise<readonly LeaseAnswer[]> {
    return this.#run(requests).then((reply) => {
      this.stats.processes?.used();
      return reply.standings.map((standing) => ({ standing, sentAt, reply }));
    });
  }

  protected override test(): Promise<unknown> {
    return this.#run([{ verb: "probe", what: "" }]);
  }

  ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    return this.#ask(verb, what).promise;
  }

  /** Asks for the state of the limit. */
  async look(options: StepOptions): Promise<LeaseReply> {
    const call = this.#ask("look", "");
    try {
      return (await until(call.promise, options, undefined, () => this.answerMs)).reply;
    } finally {
      call.gone = true;
    }
  }

  #ask(verb: LeaseVerb, what: string): LeaseCall {
    const call = new LeaseCall(verb, what);
    this.send(call);
    return call;
  }
}
