import { writePolicies } from "../../algorithms/index.ts";
import type { Amount } from "../../ground/permits.ts";
import type { PolicyList } from "../../stores/memory.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedPart,
  type Place,
  REFUSED,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "../../stores/store.ts";
import { LostReplyError, type Trip, TripCounter } from "../../stores/trip.ts";
import type { KeptLimits } from "./kept-limits.ts";
import type { OutageStats } from "./outage-stats.ts";
import { inOrder, type PermitRequest, pack, StoreCall } from "./permit-request.ts";
import { StoreLink } from "./store-link.ts";
import type { WaitLine } from "./wait-line.ts";
import type { PermitStrategy } from "./when-unavailable/throw.ts";

/** Most requests in a batch: a script blocks the other clients of the store while it runs. */
const MOST_REQUESTS = 4096;

export interface PermitLinkOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /** The limiter's clock plus this is Unix time, microseconds; absent: the store uses its own clock. */
  readonly epoch: number | undefined;
  /** For each policy: the number of the store's key that holds its limit; undefined: no key does. */
  readonly limitsKeptAt?: readonly (number | undefined)[];
  readonly prefetch?: unknown;
  /** Numbers the batches; absent: the link has a counter of its own. */
  readonly trips?: TripCounter | undefined;
  readonly processes?: ProcessCounter | undefined;
}

/** The source of permits: the store, or a prefetcher in front of it. */
export interface PermitSource {
  send(request: PermitRequest): void;
  /**
   * Resolves when the store has the permits again. During an outage it may resolve earlier: the request
   * is then kept and sent when the store is back.
   */
  returnToStore(amount: Amount, answer: Answer): Promise<void>;
}

/** The parts of the limiter that its link uses. */
export interface LinkParts {
  readonly line: WaitLine;
  readonly limits: KeptLimits;
  readonly strategy: PermitStrategy;
  readonly stats: OutageStats;
  readonly options: PermitLinkOptions;
}

/** The link of one limiter to its store. */
export class PermitLink extends StoreLink<PermitRequest, Answer> implements PermitSource {
  readonly #store: Store;
  readonly #key: string;
  readonly #line: WaitLine;
  readonly #limits: KeptLimits;
  readonly #declared: string;
  readonly #stats: OutageStats;
  readonly #epoch: number | undefined;
  readonly #processes: ProcessCounter | undefined;
  readonly #trips: TripCounter;
  readonly #name: string;
  #inForce: string;

  constructor(
    store: Store,
    key: string,
    { list }: PolicyList,
    { line, limits, strategy, stats, options }: LinkParts,
  ) {
    const { name, timeoutMs, epoch, limitsKeptAt, processes, prefetch } = options;
    const { trips = new TripCounter() } = options;
    // a refill has to stay in one batch, and an ordered batcher splits large ones in two
    const isOrdered = store.isOrdered === true && prefetch === undefined;
    super({
      ...{ name, timeoutMs, strategy, stats, isOrdered, mostRequests: MOST_REQUESTS },
      now: () => line.now(),
      prepare: (requests) => {
        const last = strategy.piggyback();
        return inOrder(last === undefined ? requests : [...requests, last]);
      },
      run: (requests, sentAt, deadlineMs) =>
        this.#run(pack(requests, line.lateBy()), sentAt, deadlineMs, trips.next()),
      // a pause of length 0 is a write that changes nothing: it shows that the store accepts writes
      probe: () =>
        this.#run([{ verb: "pause", micros: 0 }], line.now(), performance.now() + timeoutMs),
      breaker: () => store.breakerOf?.(key),
      isPermanent: (cause) => store.isPermanent?.(cause) ?? cause instanceof TypeError,
      answered: (request, answer) => strategy.answered(request, answer),
    });
    this.#store = store;
    this.#key = key;
    this.#line = line;
    this.#limits = limits;
    this.#stats = stats;
    this.#epoch = epoch;
    this.#processes = processes;
    this.#trips = trips;
    this.#name = name;
    this.#declared = writePolicies(list, limitsKeptAt);
    this.#inForce = writePolicies(list);
  }

  #run(
    requests: readonly StoreRequest[],
    sentAt: number,
    deadlineMs: number,
    trip?: Trip,
  ): Promise<readonly (Answer | undefined)[]> {
    const now = this.#storeTime(sentAt);
    return this.#store.run(this.#key, this.#declared, requests, now, trip, deadlineMs).then(
      (reply) => {
        this.#noted(reply);
        if (trip !== undefined) this.#confirm(trip, requests, reply);
        return reply.answers;
      },
      (error: unknown) => {
        if (error instanceof LostReplyError) return requests.flatMap(withoutReply);
        throw error;
      },
    );
  }

  /** Processes the number of a trip that has its reply. */
  #confirm(trip: Trip, requests: readonly StoreRequest[], reply: StoreReply): void {
    const hasChanged = changesState(requests, reply.answers);
    const lost = this.#trips.replied(trip, hasChanged, reply.remembered);
    if (lost > 0) this.#stats.rolledBack(this.#name, lost);
  }

  #noted({ inForce, notes }: Pick<StoreReply, "inForce" | "notes">): void {
    this.#inForce = inForce;
    this.#limits.noted(notes);
    this.#processes?.used();
  }

  /** Converts an instant of the limiter's clock to the time that is sent to the store. */
  #storeTime(instant: number): number | undefined {
    return this.#epoch === undefined ? undefined : instant + this.#epoch;
  }

  /** The policies' numbers in force, by the last reply. */
  get inForce(): string {
    return this.#inForce;
  }

  /** The location of the state, for requests to several limiters at once. */
  get place(): Place | undefined {
    return this.#store.place?.(this.#key);
  }

  /** This limiter's part of a request to several limiters. */
  combinedPart(): Pick<CombinedPart, "declared" | "now" | "late"> {
    const now = this.#storeTime(this.#line.now());
    return { declared: this.#declared, now, late: this.#line.lateBy() };
  }

  /** Processes the reply to a request to several limiters. */
  replied(reply: Pick<StoreReply, "inForce" | "notes">): void {
    this.#noted(reply);
    if (!this.isAway) this.#stats.answered();
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

/** Returns whether the requests have changed the state, which then remembers their trip. */
function changesState(requests: readonly StoreRequest[], answers: readonly Answer[]): boolean {
  let at = 0;
  return requests.some((request) => {
    const { verb } = request;
    // if the first of several equal requests is refused, so are the others
    const wait = answers[at]?.wait ?? REFUSED;
    at += verb === "reserve" ? request.count : 1;
    if (verb === "reserve") return wait >= 0 && wait < Infinity;
    if (verb === "decide") return wait === 0;
    return verb !== "peek" && verb !== "owed";
  });
}

/**
 * Returns the answers to a request if the store has run it but the reply is lost. A change needs no
 * reply: it is done. A request that needs one gets undefined.
 */
function withoutReply(request: StoreRequest): readonly (Answer | undefined)[] {
  switch (request.verb) {
    case "reserve":
      return Array.from({ length: request.count }, () => undefined);
    case "decide":
    case "peek":
    case "owed":
      return [undefined];
    default:
      return [{ ...AT_ONCE, writtenUnder: "" }];
  }
}
