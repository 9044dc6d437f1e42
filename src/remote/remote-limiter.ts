/**
 * A limiter that keeps its state in a remote store. The calls for permits are those of `RemoteQueue`, or of
 * `FairCalls` in front of them.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { writePolicies } from "../algorithms/index.ts";
import type {
  Decision,
  RemoteLimiter as Face,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../api/limiter-api.ts";
import { isTryOptions } from "../api/options.ts";
import { OutageStats, type RemoteStats, type StoreState } from "../api/outage-stats.ts";
import { asMember, isFair, type RateMember, type SharedLimiter } from "../api/participant.ts";
import { type Backlog, type BacklogLimiter, reserveBehind } from "../api/reserve-behind.ts";
import type { Counted } from "../api/stats.ts";
import { atLeastZero, checkNumber } from "../ground/check.ts";
import { asyncDispose } from "../ground/dispose.ts";
import type { Permits } from "../ground/permits.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { openPolicyState } from "../stores/joint-policy-state.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/policies.ts";
import type { Answer, Store, StoreRequest } from "../stores/store.ts";
import { remoteMember } from "./combined-call.ts";
import { FairCalls } from "./fair/fair-calls.ts";
import { GrantQueue } from "./grant-queue.ts";
import { InForce } from "./in-force.ts";
import { counterOf, type Parts, type RemoteOptions, refuseStrict } from "./remote-options.ts";
import { RemoteQueue } from "./remote-queue.ts";

export class RemoteLimiter
  implements Face, Counted, BacklogLimiter, SharedLimiter, AsyncDisposable
{
  readonly #parts: Parts;
  readonly #queue: RemoteQueue;
  readonly #fair: FairCalls | undefined;
  readonly #calls: RemoteQueue | FairCalls;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    refuseStrict(declared);
    const { name } = options;
    const stats = options.outageStats ?? new OutageStats(name, counterOf(options, store, key));
    this.#parts = {
      ...{ ...options, owner: this, declared, stats },
      policyState: openPolicyState(declared, 0, 0),
      line: new GrantQueue(options.clock, options.sendsTime),
      inForce: new InForce(name, declared),
      meter: stats.meter(declared.names, options.key),
    };
    this.#queue = new RemoteQueue(store, key, this.#parts);
    const order = orderIn(options);
    this.#fair = order === FIFO ? undefined : new FairCalls(this.#queue, order);
    this.#calls = this.#fair ?? this.#queue;
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    return this.#calls.acquire(permits, options);
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(first: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    if (wait !== undefined) return this.#calls.tryAcquire(first as Permits, wait);
    if (isTryOptions(first)) return this.#calls.tryAcquire(1, first);
    return this.#calls.tryAcquire(first, 0);
  }

  reserve(permits: Permits = 1, options?: ShareOptions): Promise<Reservation> {
    return this.#calls.reserve(permits, options);
  }

  [reserveBehind](
    permits: Permits,
    _backlog?: Backlog,
    options?: ShareOptions,
  ): Promise<Reservation> {
    return this.#calls.reserveBehind(permits, options);
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#calls.decide(permits, options);
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#calls.peek(permits, options);
  }

  charge(permits: Permits): Promise<void> {
    return this.#queue.charge(permits);
  }

  refund(permits: Permits): Promise<void> {
    return this.#queue.refund(permits);
  }

  /**
   * Pauses all later calls in every process, and the callers that wait in this process. Callers that wait
   * in other processes keep the instants that they were promised before.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.#queue.checkOpen();
    this.#parts.line.pause(micros);
    await this.#queue.pause(micros);
  }

  /** Changes the policies for all processes, so it needs the store, whatever `whenUnavailable` is. */
  async update(policies: Policies): Promise<void> {
    await this.setPolicies(policies);
  }

  /** @returns the numbers in force at the previous write: see `Answer.writtenUnder` */
  protected async setPolicies(policies: Policies): Promise<string> {
    const { names, list } = renumber(this.#parts.declared, listPolicies(policies));
    refuseStrict({ names, list });
    const numbers = writePolicies(list);
    const { writtenUnder = "" } = await this.#renumber({ verb: "set", numbers });
    return writtenUnder;
  }

  async reset(): Promise<void> {
    await this.#queue.reset();
  }

  async resetPolicies(): Promise<void> {
    await this.#renumber({ verb: "unset" });
  }

  #renumber(request: StoreRequest): Promise<Answer> {
    this.#queue.checkOpen();
    // prefetched permits were reserved under the old numbers
    this.#queue.prefetcher?.release();
    return this.#queue.call({ request: () => request, result: (answer) => answer });
  }

  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** In a combination all limiters on one server are asked in one step: see `in-order.ts`. */
  [asMember](options?: ShareOptions): RateMember {
    const fair = this.#fair;
    return remoteMember(this.#queue, fair && ((permits) => fair.enter(permits, options)));
  }

  get [isFair](): boolean {
    return this.#fair !== undefined;
  }

  /** Whether the store answered the last request; or `"closed"`. */
  get state(): StoreState {
    return this.#queue.isClosed ? "closed" : this.#parts.stats.state;
  }

  /** The present counters; a limiter of a key counts together with all other keys. */
  get stats(): RemoteStats {
    return this.#parts.stats.stats;
  }

  /** The policies in force, by the last reply. */
  get policies(): readonly Policy[] {
    return this.#parts.inForce.policies;
  }

  /** Whether operators have set the limit of a policy to 0, by the last reply. */
  protected get isShut(): boolean {
    return this.#parts.inForce.closed(1) >= 0;
  }

  /** Shared with the limiters of its keys. */
  protected get outageStats(): OutageStats {
    return this.#parts.stats;
  }

  /** @throws LimiterClosedError */
  protected checkOpen(): void {
    this.#queue.checkOpen();
  }
}
