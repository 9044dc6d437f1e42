/**
 * Sends lease requests to their store in batches, in order of arrival: the release of a lease never
 * overtakes the request for it.
 */
import type { LeaseRequest, LeaseStore, LeaseVerb } from "../../stores/lease-store.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { OutageStats } from "../remote/outage-stats.ts";
import { StoreLink } from "../remote/store-link.ts";
import { type LeaseAnswer, LeaseCall } from "./lease-call.ts";
import type { ThrowWhenUnavailable } from "./when-unavailable.ts";

/** Most requests in a batch: a script blocks the other clients of the store while it runs. */
const MOST_REQUESTS = 1024;

export interface LeaseLinkOptions {
  readonly name: string;
  readonly timeoutMs: number;
  readonly processes: ProcessCounter | undefined;
}

export class LeaseLink extends StoreLink<LeaseCall, LeaseAnswer> {
  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    strategy: ThrowWhenUnavailable,
    stats: OutageStats,
    { name, timeoutMs, processes }: LeaseLinkOptions,
  ) {
    const run = async (requests: readonly LeaseRequest[], sentAt: number) => {
      const reply = await store.run(key, declared, requests);
      return reply.standings.map((standing): LeaseAnswer => ({ standing, sentAt, reply }));
    };
    super({
      ...{ name, timeoutMs, strategy, stats, run, mostRequests: MOST_REQUESTS },
      now: () => performance.now(),
      prepare: (requests) => requests,
      probe: () => run([{ verb: "probe", what: "" }], performance.now()),
      breaker: () => store.breakerOf?.(key),
      isPermanent: (cause) => store.isPermanent?.(cause) ?? cause instanceof TypeError,
      answered: (_request, { reply }) => {
        strategy.replied(reply);
        processes?.used();
      },
    });
  }

  ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    const call = new LeaseCall(verb, what);
    this.send(call);
    return call.promise;
  }
}
