import { writePolicies } from "../../algorithms/index.ts";
import type { Amount } from "../../permits.ts";
import type { PolicyList } from "../../stores/memory.ts";
import type { Answer, Store, StoreRequest } from "../../stores/store.ts";
import type { OutageStats } from "./outage-stats.ts";
import { inOrder, type PermitRequest, pack, StoreCall } from "./permit-request.ts";
import { StoreLink } from "./store-link.ts";
import type { WaitLine } from "./wait-line.ts";
import type { PermitStrategy } from "./when-unavailable/throw.ts";

/** A script keeps others waiting while it runs: more requests take the next batch. */
const MOST_REQUESTS = 4096;

export interface PermitLinkOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /** Added to the limiter's clock it is Unix time, microseconds; absent: the store has its own clock. */
  readonly epoch: number | undefined;
  /** For a policy whose limit is kept elsewhere: where, among the keys that the store has. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
}

/** Where permits come from: a store, or what was prefetched. */
export interface PermitSource {
  send(request: PermitRequest): void;
  /** Resolves when they are there again or, while no caller is to wait for that, will be. */
  returnToStore(amount: Amount, answer: Answer): Promise<void>;
}

/** The link of one limiter to its store. */
export class PermitLink extends StoreLink<PermitRequest, Answer> implements PermitSource {
  readonly #numbers: { inForce: string };

  constructor(
    store: Store,
    key: string,
    { list }: PolicyList,
    line: WaitLine,
    strategy: PermitStrategy,
    stats: OutageStats,
    { name, timeoutMs, epoch, limitsKeptAt }: PermitLinkOptions,
  ) {
    const declared = writePolicies(list, limitsKeptAt);
    const numbers = { inForce: writePolicies(list) };
    const run = async (requests: readonly StoreRequest[], sentAt: number) => {
      const now = epoch === undefined ? undefined : sentAt + epoch;
      const reply = await store.run(key, declared, requests, now);
      numbers.inForce = reply.inForce;
      return reply.answers;
    };
    super({
      ...{ name, timeoutMs, strategy, stats, mostRequests: MOST_REQUESTS },
      now: () => line.now(),
      prepare: (requests) => {
        const last = strategy.piggyback();
        return inOrder(last === undefined ? requests : [...requests, last]);
      },
      run: (requests, sentAt) => run(pack(requests, line.lateBy()), sentAt),
      // a pause of no length changes nothing but that it is written
      probe: () => run([{ verb: "pause", micros: 0 }], line.now()),
      breaker: () => store.breakerOf?.(key),
      isPermanent: (cause) => store.isPermanent?.(cause) === true,
      answered: (request, answer) => strategy.answered(request, answer),
    });
    this.#numbers = numbers;
  }

  /** The numbers in force, as the last reply told. */
  get inForce(): string {
    return this.#numbers.inForce;
  }

  returnToStore(amount: Amount, { receipts }: Answer): Promise<void> {
    const nothing = () => {};
    const call = new StoreCall<void>({
      request: () => ({ verb: "back", amount, receipts }),
      isRepeatable: false,
      promisedUntil: Math.max(0, ...receipts),
      result: nothing,
      whenKept: nothing,
      here: nothing,
    });
    this.send(call);
    return call.promise;
  }
}
