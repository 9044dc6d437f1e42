/**
 * A limiter that keeps its state in a remote store. `acquire`, `tryAcquire` and `reserve` make a waiter,
 * which is sent to the store and then waits for the instant of its permits. All other methods send their
 * request with `RemoteQueue.call`.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { writePolicies } from "../../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../../ground/check.ts";
import { asyncDispose } from "../../ground/dispose.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import { openPolicyState } from "../../stores/joint-policy-state.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../../stores/policies.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { Answer, Store, StoreRequest } from "../../stores/store.ts";
import type {
  Decision,
  RemoteLimiter as Face,
  Reservation,
  ShareOptions,
  TryOptions,
  WaitOptions,
} from "../limiter-api.ts";
import { asMember, ForeignMember, type RateMember } from "../member.ts";
import type { Counted } from "../meter.ts";
import {
  checkShareOptions,
  checkSignalOptions,
  checkTryOptions,
  isTryOptions,
  refuseShares,
  shareIn,
} from "../options.ts";
import { remoteMember } from "./combined-call.ts";
import { InForce } from "./in-force.ts";
import { OutageStats, type RemoteStats, type StoreState } from "./outage-stats.ts";
import type { Parts } from "./remote-options.ts";
import { counterOf, type RemoteOptions, refuseStrict } from "./remote-options.ts";
import { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import { Caller, type Wanted } from "./remote-waiter.ts";
import { WaitLine } from "./wait-line.ts";

const AT_ONCE = Promise.resolve(0);
const GRANTED = Promise.resolve(true);

/** Takes permits that can be used now, as `decide` does, but neither counts nor publishes a refusal. */
export const takeQuietly: unique symbol = Symbol("take quietly");

export class RemoteLimiter implements Face, Counted, AsyncDisposable {
  readonly #parts: Parts;
  readonly #queue: RemoteQueue;
  /** Counts the processes; shared with the limiters of its keys. */
  protected readonly processes: ProcessCounter | undefined;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    refuseStrict(declared);
    const processes = options.processes ?? counterOf(options, store, key);
    const stats = options.outageStats ?? new OutageStats(options.name, processes);
    this.processes = processes;
    this.#parts = {
      ...{ ...options, declared, processes, stats },
      policyState: openPolicyState(declared, 0, 0),
      line: new WaitLine(options.clock, options.epoch !== undefined),
      inForce: new InForce(options.name, declared),
      meter: stats.meter(declared.names, options.key),
    };
    this.#queue = new RemoteQueue(store, key, this.#parts);
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    if (options === undefined && this.#isPrefetched(permits)) return AT_ONCE;
    return new Promise((resolve) => {
      const wanted = this.#wanted(permits, Infinity, checkSignalOptions(options));
      this.#queue.send(new Caller(this.#queue, wanted, false, resolve));
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(first: Permits | TryOptions = 1, second?: number | TryOptions): Promise<boolean> {
    if (second === undefined && isTryOptions(first)) return this.tryAcquire(1, first);
    const permits = first as Permits;
    const wait = second === undefined ? 0 : second;
    if (wait === 0 && this.#isPrefetched(permits)) return GRANTED;
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      refuseShares(shareIn(wait));
      const wanted = this.#wanted(permits, micros, signal);
      this.#queue.send(new Caller(this.#queue, wanted, true, resolve));
    });
  }

  reserve(permits: Permits = 1, options?: ShareOptions): Promise<Reservation> {
    return new Promise((resolve) => {
      checkShareOptions(options);
      refuseShares(options);
      const wanted = this.#wanted(permits, Infinity, undefined);
      this.#queue.send(new RemoteReservation(this.#queue, wanted, resolve));
    });
  }

  /** Checks the arguments of a call for permits that can be used within `longest`, microseconds. */
  #wanted(permits: Permits, longest: number, signal: AbortSignal | undefined): Wanted {
    signal?.throwIfAborted();
    const amount = this.#parts.policyState.amount(permits);
    this.#queue.checkOpen();
    return { permits, amount, longest: this.#queue.hasRoom(amount) ? longest : 0, signal };
  }

  /** Takes prefetched permits, if there are enough and no caller waits; returns whether it has. */
  #isPrefetched(permits: Permits): boolean {
    if (!this.#queue.prefetcher?.take(permits)) return false;
    this.#parts.meter.counts.granted += 1;
    return true;
  }

  async decide(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    const amount = this.#amount(permits, options);
    const decided = await this.#decide(amount);
    if (!decided.allowed) this.#parts.meter.refused(amount, "too-long", () => decided);
    return decided;
  }

  async [takeQuietly](permits: Permits): Promise<boolean> {
    const { allowed } = await this.#decide(this.#parts.policyState.amount(permits));
    return allowed;
  }

  async #decide(amount: Amount): Promise<Decision> {
    const decided = await this.#queue.decide("decide", amount);
    if (decided.allowed) this.#parts.meter.granted(amount, 0);
    return decided;
  }

  async peek(permits: Permits = 1, options?: ShareOptions): Promise<Decision> {
    return this.#queue.decide("peek", this.#amount(permits, options));
  }

  #amount(permits: Permits, options: ShareOptions | undefined): Amount {
    checkShareOptions(options);
    refuseShares(options);
    return this.#parts.policyState.amount(permits);
  }

  async charge(permits: Permits): Promise<void> {
    await this.#queue.change("charge", this.#possible(permits));
  }

  async refund(permits: Permits): Promise<void> {
    await this.#queue.change("refund", this.#possible(permits));
  }

  /** Returns the amount. @throws PermitsExceedCapacityError if the policies could never let it through */
  #possible(permits: Permits): Amount {
    const amount = this.#parts.policyState.amount(permits);
    const { policyState, inForce } = this.#parts;
    if (policyState.earliest(0, amount) === Infinity) throw inForce.excess(amount);
    return amount;
  }

  /**
   * Pauses all later calls in every process, and the callers that wait in this process. Callers that wait
   * in other processes keep the instants that they were promised before.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.#queue.checkOpen();
    this.#parts.line.holdUntil(this.#parts.line.now() + micros);
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

  /**
   * Ends the limiter in this process. Waiting callers, in `ready()` too, are rejected with a
   * LimiterClosedError, and so is every later call. Their promised permits and all prefetched ones return
   * to the store. Reservations that no caller awaits stay valid.
   *
   * @returns a promise that resolves when no request is under way any more, or after `timeoutMs`
   * @example
   * await limiter.close();
   * redis.disconnect();
   */
  close(): Promise<void> {
    return this.#queue.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @param enter of a fair limiter in front of this one */
  [asMember](enter?: RateMember["enter"]): RateMember {
    return remoteMember(this.#queue, enter) ?? new ForeignMember(this, enter);
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
