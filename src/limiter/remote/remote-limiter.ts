/**
 * A limiter that keeps its state in a remote store. `acquire`, `tryAcquire` and `reserve` make a waiter,
 * which is sent to the store and then waits for the instant of its permits. All other methods send their
 * request with `#call`.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../../algorithms/index.ts";
import { atLeastZero, checkNumber } from "../../ground/check.ts";
import { asyncDispose } from "../../ground/dispose.ts";
import { LimiterClosedError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { Cell } from "../../stores/cell.ts";
import { openCell } from "../../stores/joint-cell.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../../stores/policies.ts";
import type { ProcessCounter } from "../../stores/process-counter.ts";
import type { Answer, Store, StoreRequest } from "../../stores/store.ts";
import type {
  Decision,
  RemoteLimiter as Face,
  Reservation,
  TryOptions,
  WaitOptions,
} from "../face.ts";
import { AT_ONCE } from "../limiter.ts";
import { asMember, ForeignMember, type RateMember } from "../member.ts";
import type { Counted, Meter } from "../meter.ts";
import { checkTryOptions, checkWaitOptions, isTryOptions } from "../options.ts";
import { ACQUIRED, Caller, TRIED } from "./caller.ts";
import { Combinable } from "./combinable.ts";
import { remoteMember } from "./combined-call.ts";
import { counterOf, instancesOf } from "./instances.ts";
import { KeptLimits } from "./kept-limits.ts";
import { OutageStats, type RemoteStats, type StoreState } from "./outage-stats.ts";
import { PermitLink, type PermitSource } from "./permit-link.ts";
import { type CallOptions, type ChangeVerb, changeOf, StoreCall } from "./permit-request.ts";
import { Prefetcher } from "./prefetcher.ts";
import { RemoteDecisions } from "./remote-decisions.ts";
import { type RemoteOptions, refuseStrict } from "./remote-options.ts";
import { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import type { Wanted } from "./remote-waiter.ts";
import { WaitLine } from "./wait-line.ts";
import { whenUnavailable } from "./when-unavailable/index.ts";
import type { PermitStrategy } from "./when-unavailable/throw.ts";

const GRANTED = Promise.resolve(true);

export class RemoteLimiter implements Face, Counted, AsyncDisposable {
  readonly #declared: PolicyList;
  readonly #options: RemoteOptions;
  /** The policies' names and bounds; the state itself is in the store. */
  readonly #cell: Cell;
  readonly #line: WaitLine;
  readonly #limits: KeptLimits;
  readonly #meter: Meter;
  readonly #strategy: PermitStrategy;
  readonly #link: PermitLink;
  readonly #prefetcher: Prefetcher | undefined;
  readonly #queue: RemoteQueue;
  readonly #decisions: RemoteDecisions;
  readonly #combinable: Combinable;
  /** Shared with the limiters of its keys. */
  protected readonly outageStats: OutageStats;
  /** Counts the processes; shared with the limiters of its keys. */
  protected readonly processes: ProcessCounter | undefined;
  #closing: Promise<void> | undefined;

  constructor(store: Store, key: string, declared: PolicyList, options: RemoteOptions) {
    refuseStrict(declared);
    const { name, clock, epoch, maxWaiting, prefetch } = options;
    const processes = options.processes ?? counterOf(options, store, key);
    const instances = instancesOf(options.instances, processes);
    const cell = openCell(declared, 0, 0);
    const line = new WaitLine(clock);
    const stats = options.outageStats ?? new OutageStats(name, processes);
    const meter = stats.meter(declared.names, options.key);
    const dueAt = (wait: number, sentAt: number) =>
      wait + (epoch === undefined ? line.now() : sentAt);
    const limits = new KeptLimits({ limiter: name }, declared.names);
    const strategy = whenUnavailable(options.whenUnavailable, cell.amount(1), {
      ...{ name, clock, line, meter, limits, instances, names: declared.names },
      policies: () => this.policies,
      hasRoom: (amount) => this.#queue.hasRoom(amount),
      full: (amount, policies) => this.#queue.full(amount, policies),
      granted: (amount) => stats.granted(amount),
      send: (request) => this.#source.send(request),
      pause: (micros) => void this.#pause(micros).catch(() => {}),
    });
    this.#declared = declared;
    this.#options = options;
    this.#cell = cell;
    this.#line = line;
    this.#limits = limits;
    this.#strategy = strategy;
    this.#meter = meter;
    this.outageStats = stats;
    this.processes = processes;
    this.#link = new PermitLink(store, key, declared, {
      ...{ line, limits, strategy, stats },
      options: { ...options, processes },
    });
    const amountOf = (permits: number) => cell.amount(permits);
    const context = { clock, line, link: this.#link, policies: declared, amountOf, dueAt };
    this.#prefetcher = prefetch && new Prefetcher(context, prefetch);
    this.#queue = new RemoteQueue({
      ...{ name, maxWaiting, cell, line, limits, meter, stats, dueAt },
      source: this.#prefetcher ?? this.#link,
      policies: () => this.policies,
      waitingHere: () => strategy.waiting,
      change: (verb, amount) => this.#change(verb, amount),
      checkOpen: () => this.checkOpen(),
    });
    this.#decisions = new RemoteDecisions(
      cell,
      this.#queue,
      limits,
      this.#prefetcher,
      () => this.policies,
    );
    this.#combinable = new Combinable(options, cell, this.#link, this.#queue, strategy);
  }

  acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    if (options === undefined && this.#isPrefetched(permits)) return AT_ONCE;
    return new Promise((resolve) => {
      const wanted = this.#wanted(permits, Infinity, checkWaitOptions(options));
      this.#source.send(new Caller(this.#queue, wanted, ACQUIRED, resolve));
    });
  }

  tryAcquire(permits?: Permits | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | TryOptions = 1, wait?: number | TryOptions): Promise<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    return this.#tryWithin(permits, 0);
  }

  #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    if (wait === 0 && this.#isPrefetched(permits)) return GRANTED;
    return new Promise((resolve) => {
      const { micros, signal } = checkTryOptions(wait);
      const wanted = this.#wanted(permits, micros, signal);
      this.#source.send(new Caller(this.#queue, wanted, TRIED, resolve));
    });
  }

  reserve(permits: Permits = 1): Promise<Reservation> {
    return new Promise((resolve) => {
      const wanted = this.#wanted(permits, Infinity, undefined);
      this.#source.send(new RemoteReservation(this.#queue, wanted, resolve));
    });
  }

  /** Checks the arguments of a call for permits that can be used within `longest`, microseconds. */
  #wanted(permits: Permits, longest: number, signal: AbortSignal | undefined): Wanted {
    signal?.throwIfAborted();
    const amount = this.#cell.amount(permits);
    this.checkOpen();
    return { permits, amount, longest: this.#queue.hasRoom(amount) ? longest : 0, signal };
  }

  /** Takes prefetched permits, if there are enough and no caller waits; returns whether it has. */
  #isPrefetched(permits: Permits): boolean {
    if (!this.#prefetcher?.take(permits)) return false;
    this.#meter.counts.granted += 1;
    return true;
  }

  async decide(permits: Permits = 1): Promise<Decision> {
    const amount = this.#cell.amount(permits);
    const decided = await this.#call(this.#decisions.of("decide", permits, amount));
    if (decided.allowed) this.#meter.granted(amount, 0);
    else this.#meter.refused(amount, "too-long", () => decided);
    return decided;
  }

  async peek(permits: Permits = 1): Promise<Decision> {
    return this.#call(this.#decisions.of("peek", permits, this.#cell.amount(permits)));
  }

  async charge(permits: Permits): Promise<void> {
    await this.#change("charge", this.#possible(permits));
  }

  async refund(permits: Permits): Promise<void> {
    await this.#change("refund", this.#possible(permits));
  }

  #change(verb: ChangeVerb, amount: Amount): Promise<void> {
    return this.#call(changeOf(verb, amount));
  }

  /** Returns the amount. @throws PermitsExceedCapacityError if the policies could never let it through */
  #possible(permits: Permits): Amount {
    const amount = this.#cell.amount(permits);
    if (this.#cell.earliest(0, amount) === Infinity) throw this.#queue.excess(amount);
    return amount;
  }

  /**
   * Pauses all later calls in every process, and the callers that wait in this process. Callers that wait
   * in other processes keep the instants that they were promised before.
   */
  async pause(ms: number): Promise<void> {
    const micros = Math.ceil(checkNumber("ms", ms, atLeastZero) * 1000);
    this.checkOpen();
    this.#line.holdUntil(this.#line.now() + micros);
    await this.#pause(micros);
  }

  async #pause(micros: number): Promise<void> {
    const paused = this.#call({
      request: () => ({ verb: "pause", micros }),
      result: () => {},
      here: (here) => here.pause(micros),
    });
    this.#retime();
    await paused;
  }

  /** Sends the requests of all sleeping callers again, in the same batch. */
  #retime(): void {
    const callers = this.#queue.recall();
    this.#prefetcher?.release();
    for (const caller of callers) this.#source.send(caller);
  }

  /** Changes the policies for all processes, so it needs the store, whatever `whenUnavailable` is. */
  async update(policies: Policies): Promise<void> {
    await this.setPolicies(policies);
  }

  /** @returns the numbers in force at the previous write: see `Answer.writtenUnder` */
  protected async setPolicies(policies: Policies): Promise<string> {
    const { names, list } = renumber(this.#declared, listPolicies(policies));
    refuseStrict({ names, list });
    const numbers = writePolicies(list);
    const { writtenUnder = "" } = await this.#renumber({ verb: "set", numbers });
    return writtenUnder;
  }

  async reset(): Promise<void> {
    this.checkOpen();
    // permits that return belong to the old state: they come before the reset in the same batch
    const isRefused = this.#link.refusesNow;
    const reset = this.#call({ request: () => ({ verb: "reset" }), result: () => {} });
    this.#strategy.outdated();
    if (!isRefused) this.#retime();
    await reset;
  }

  async resetPolicies(): Promise<void> {
    await this.#renumber({ verb: "unset" });
  }

  #renumber(request: StoreRequest): Promise<Answer> {
    this.checkOpen();
    // prefetched permits were reserved under the old numbers
    this.#prefetcher?.release();
    return this.#call({ request: () => request, result: (answer) => answer });
  }

  /** Sends a request, and counts its error if it fails. */
  #call<T>(options: CallOptions<T>): Promise<T> {
    this.checkOpen();
    const failed = (error: unknown) => {
      this.outageStats.failed(error);
      options.failed?.(error);
    };
    const call = new StoreCall({ ...options, failed });
    this.#link.send(call);
    return call.promise;
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
    this.#closing ??= this.#close(new LimiterClosedError(this.#options.name));
    return this.#closing;
  }

  async #close(error: Error): Promise<void> {
    this.#queue.close(error);
    this.#prefetcher?.close();
    // the line redistributes its instants first, and returns the permits that are left over
    await Promise.resolve();
    await this.#link.close(error);
    // the limiter of a key shares its statistics with the other keys, which go on
    if (this.#options.outageStats === undefined) this.outageStats.end();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  [asMember](): RateMember {
    return remoteMember(this.#combinable) ?? new ForeignMember(this);
  }

  /** Whether the store answered the last request; or `"closed"`. */
  get state(): StoreState {
    return this.#closing === undefined ? this.outageStats.state : "closed";
  }

  /** The present counters; a limiter of a key counts together with all other keys. */
  get stats(): RemoteStats {
    return this.outageStats.stats;
  }

  /** The policies in force, by the last reply. */
  get policies(): readonly Policy[] {
    return readPolicies(this.#link.inForce);
  }

  /** Whether operators have set the limit of a policy to 0, by the last reply. */
  protected get isShut(): boolean {
    return this.#limits.closed(1) >= 0;
  }

  /** @throws LimiterClosedError */
  protected checkOpen(): void {
    if (this.#closing !== undefined) throw new LimiterClosedError(this.#options.name);
  }

  get #source(): PermitSource {
    return this.#prefetcher ?? this.#link;
  }
}
