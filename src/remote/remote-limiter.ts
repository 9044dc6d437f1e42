/**
 * A limiter that keeps its state in a remote store. The calls for permits are those of `RemoteCalls`, or of
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
import { asParticipant, type Combinable, type RateParticipant } from "../api/participant.ts";
import { type RequestSequence, reserveAwaited } from "../api/reserve-awaited.ts";
import type { Counted } from "../api/stats.ts";
import { atLeastZero, checkNumber } from "../ground/check.ts";
import { asyncDispose } from "../ground/dispose.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import type { Payment } from "../queue/reservation.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/policies.ts";
import { openPolicyState } from "../stores/state/several.ts";
import type { Answer, Store, StoreRequest } from "../stores/store.ts";
import { ActivePolicies } from "./active-policies.ts";
import { remoteParticipant } from "./combined-call.ts";
import { FairCalls } from "./fair/fair-calls.ts";
import { GrantQueue } from "./grant-queue.ts";
import { RemoteCalls } from "./remote-calls.ts";
import { counterOf, type Parts, type RemoteOptions, refuseStrict } from "./remote-options.ts";

/** The verb of what was used where nobody asked before: the capacity is no bound. */
export const change: unique symbol = Symbol("change");

export class RemoteLimiter implements Face, Counted, Combinable, AsyncDisposable {
  readonly #parts: Parts;
  readonly #storeCalls: RemoteCalls;
  readonly #fair: FairCalls | undefined;
  readonly #calls: RemoteCalls | FairCalls;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    refuseStrict(declared);
    const { name } = options;
    const stats = options.outageStats ?? new OutageStats(name, counterOf(options, store, key));
    this.#parts = {
      ...{ ...options, owner: this, declared, stats },
      policyState: openPolicyState(declared, 0, 0),
      queue: new GrantQueue(options.clock, options.sendsTime),
      activePolicies: new ActivePolicies(name, declared),
      callStats: stats.callStats(declared.names, options.key),
    };
    this.#storeCalls = new RemoteCalls(store, key, this.#parts);
    const order = orderIn(options);
    this.#fair = order === FIFO ? undefined : new FairCalls(this.#storeCalls, order);
    this.#calls = this.#fair ?? this.#storeCalls;
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

  [reserveAwaited](
    permits: Permits,
    _backlog?: RequestSequence,
    options?: ShareOptions,
  ): Promise<Reservation> {
    return this.#calls.reserveAwaited(permits, options);
  }

  decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#calls.decide(permits, options);
  }

  peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#calls.peek(permits, options);
  }

  charge(permits: Permits): Promise<void> {
    return this.#storeCalls.charge(permits);
  }

  refund(permits: Permits): Promise<void> {
    return this.#storeCalls.refund(permits);
  }

  [change](verb: Payment[0], amount: Amount): Promise<void> {
    return this.#storeCalls.change(verb, amount);
  }

  /**
   * Pauses all later calls in every process, and the callers that wait in this process. Callers that wait
   * in other processes keep the instants that they were promised before.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.#storeCalls.checkOpen();
    await this.#storeCalls.pause(micros);
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
    await this.#storeCalls.reset();
  }

  async resetPolicies(): Promise<void> {
    await this.#renumber({ verb: "unset" });
  }

  #renumber(request: StoreRequest): Promise<Answer> {
    this.#storeCalls.checkOpen();
    // prefetched permits were reserved under the old numbers
    this.#storeCalls.prefetcher?.release();
    return this.#storeCalls.call({ request: () => request, result: (answer) => answer });
  }

  close(): Promise<void> {
    return this.#storeCalls.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** In a combination all limiters on one server are asked in one step: see `combined-call.ts`. */
  [asParticipant](options?: ShareOptions): RateParticipant {
    const fair = this.#fair;
    return remoteParticipant(this.#storeCalls, fair && ((permits) => fair.enter(permits, options)));
  }

  /** Whether the store answered the last request; or `"closed"`. */
  get state(): StoreState {
    return this.#storeCalls.isClosed ? "closed" : this.#parts.stats.state;
  }

  /** The present counters; a limiter of a key counts together with all other keys. */
  get stats(): RemoteStats {
    return this.#parts.stats.stats;
  }

  /** The policies in force, by the last reply. */
  get policies(): readonly Policy[] {
    return this.#parts.activePolicies.policies;
  }

  /** Whether operators have set the limit of a policy to 0, by the last reply. */
  protected get isShut(): boolean {
    return this.#parts.activePolicies.closed(1) >= 0;
  }

  /** Shared with the limiters of its keys. */
  protected get outageStats(): OutageStats {
    return this.#parts.stats;
  }

  /** @throws LimiterClosedError */
  protected checkOpen(): void {
    this.#storeCalls.checkOpen();
  }
}
