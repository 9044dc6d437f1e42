/**
 * The callers of one process that want leases. Each asks the store, and waits there with a ticket or,
 * during an outage, in this process.
 */

import { OutageStats, type StoreState } from "../../api/outage-stats.ts";
import type { StepOptions } from "../../api/timeout.ts";
import { systemClock, type Timer } from "../../ground/clock.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../ground/errors.ts";
import type { Order } from "../../queue/order.ts";
import { counterOf, instancesOf, type RemoteOptions } from "../../remote/remote-options.ts";
import type { LeaseReply, LeaseStore, LeaseVerb } from "../../stores/lease-store.ts";
import { FairLeases } from "./fair-leases.ts";
import { GrantListener } from "./grant-listener.ts";
import { type LeaseAnswer, LeaseLink } from "./lease-link.ts";
import type { ConcurrencyStatus, StoreLease, WantedLease } from "./store-lease.ts";
import { StoreLeases } from "./store-leases.ts";
import {
  type LeaseHost,
  type LeaseStrategy,
  PART_HOLDS_MS,
  whenUnavailable,
} from "./when-unavailable.ts";

/** A failed request is retried after this, ms, or after a tenth of `leaseMs` if that is less. */
const LONGEST_RETRY_MS = 1000;
/** Random spread, ms, so that all processes do not ask the store at the same instant. */
const SPREAD_MS = 20;

export interface RemoteConcurrencyOptions
  extends Pick<
    RemoteOptions,
    "name" | "maxWaiting" | "timeoutMs" | "whenUnavailable" | "instances"
  > {
  readonly leaseMs: number;
}

export class LeaseQueue extends StoreLeases implements LeaseHost {
  readonly #options: RemoteConcurrencyOptions;
  readonly #strategy: LeaseStrategy;
  readonly #link: LeaseLink;
  readonly #listener: GrantListener;
  /** The callers that have not been sent to the store, on a fair limiter. */
  readonly #fair: FairLeases | undefined;
  #timer: Timer | undefined;
  #wakesAt = Infinity;
  #closed = false;

  constructor(
    store: LeaseStore,
    key: string,
    declared: number,
    options: RemoteConcurrencyOptions,
    order: Order,
  ) {
    const { name, timeoutMs } = options;
    const processes = counterOf(options, store, key);
    super(declared, options, new OutageStats(name, processes));
    this.#options = options;
    const instances = instancesOf(options.instances, processes);
    this.#strategy = whenUnavailable(options.whenUnavailable, this, instances);
    const { stats } = this;
    this.#link = new LeaseLink(store, key, declared, this.#strategy, { name, timeoutMs, stats });
    // leases that were granted before the subscription are not published again
    const ready = () => this.wakeIn(0);
    const granted = (ids: readonly string[]) => this.#notified(ids);
    this.#listener = new GrantListener({
      listen: () => store.listen(key, this.processId, granted, ready),
      ready,
      ask: () => this.#askForFirst(),
      renewalMs: options.leaseMs / 3,
      isNeeded: () => this.queue.size > 0,
      timeoutMs,
    });
    const ranks = order.ranks<StoreLease>();
    this.#fair = ranks && new FairLeases(ranks, options.maxWaiting, this);
  }

  /** Requests a lease for a caller. */
  lease(wanted: WantedLease): void {
    this.#checkOpen();
    const lease = this.add(wanted);
    if (this.#fair === undefined) this.send(lease);
    else this.#fair.enter(lease);
  }

  /** Requests a lease from the store, or in this process if that decides. */
  send(lease: StoreLease): void {
    this.register(lease);
    if (this.#strategy.decidesHere && !this.isUnavailable) this.#admit(lease);
    else this.#ask(lease);
  }

  /** Changes the limit; default: the declared limit. */
  async setLimit(limit = this.declared): Promise<void> {
    this.#checkOpen();
    await this.ask("limit", String(limit));
    this.#fair?.fill();
  }

  async status(options: StepOptions = {}): Promise<ConcurrencyStatus> {
    this.#checkOpen();
    try {
      const { limit, active, waiting } = await this.#link.look(options);
      return { limit, active, waiting: waiting + this.#queued };
    } catch (error) {
      options.signal?.throwIfAborted();
      const { part } = this.#strategy;
      if (part === 0) throw error;
      return { limit: part, active: this.active, waiting: this.waiting };
    }
  }

  get answerMs(): number {
    return this.#link.answerMs;
  }

  override get waiting(): number {
    return super.waiting + this.#queued;
  }

  override get slotsWaiting(): number {
    return super.slotsWaiting + (this.#fair?.ranks.permits ?? 0);
  }

  get #queued(): number {
    return this.#fair?.ranks.size ?? 0;
  }

  get state(): StoreState {
    return this.#closed ? "closed" : this.stats.state;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new LimiterClosedError(this.#options.name);
    for (const lease of [...this, ...(this.#fair?.ranks ?? [])]) {
      if (lease.state === "held") lease.lose(error);
      else this.reject(lease, error);
    }
    this.#strategy.close();
    this.#timer?.cancel();
    this.#link.detach(error);
    this.#listener.close();
    // the user may disconnect the client next: the tickets have to be released before that
    await this.released();
    this.stats.end();
  }

  #checkOpen(): void {
    if (this.#closed) throw new LimiterClosedError(this.#options.name);
  }

  /** Requests a lease from the store, or again: a caller that has a lease or ticket there keeps it. */
  #ask(lease: StoreLease): void {
    const { leaseMs } = this.#options;
    lease.state = "asked";
    lease.waits = this.mayWait(lease);
    lease.deadline = performance.now() + leaseMs;
    this.wakeIn(leaseMs / 3);
    this.#send(lease, lease.waits ? "acquire" : "try", (error) => {
      if (lease.state === "asked") this.#failed(lease, error);
    });
  }

  /** Keeps a lease or ticket. */
  #renew(lease: StoreLease): void {
    this.#send(lease, lease.verb, () => this.retrySoon());
  }

  #send(lease: StoreLease, verb: LeaseVerb, failed: (error: unknown) => void): void {
    const { id } = lease;
    const answer = this.ask(verb, id);
    if (!this.isUnavailable) lease.isKnown = true;
    // another caller may have the ticket by then
    answer.then((reply) => this.#answered(this.leases.get(id) ?? lease, verb, reply), failed);
  }

  #answered(lease: StoreLease, verb: LeaseVerb, { standing, sentAt, reply }: LeaseAnswer): void {
    const { state } = lease;
    const isRenewal = verb === "keep" || verb === "adopt";
    if (standing !== "none") this.#extend(lease, sentAt);
    // the caller has given up meanwhile, or a message or a new request has changed it
    if (state === "gone" || (state === "asked") === isRenewal) return;
    if (verb === "adopt" && standing !== "none") lease.verb = "keep";
    if (standing === "held") {
      if (state === "waiting") this.#listener.missed();
      if (state !== "held") this.#letIn(lease);
    } else if (standing === "waiting" && state === "asked" && this.mayWait(lease)) {
      this.wait(lease);
      this.#fair?.fillSoon();
      this.#listener.listen();
      this.#wakeAtLapse(reply);
    } else if (state === "asked") {
      lease.isKnown = standing !== "none";
      this.refuse(lease);
    } else if (standing === "none") {
      if (state === "held") this.lose(lease);
      else this.#ask(lease);
    }
  }

  #failed(lease: StoreLease, error: unknown): void {
    const isUnavailable =
      error instanceof StoreUnavailableError && !this.#link.isPermanent(error.cause);
    if (isUnavailable && this.#strategy.decidesHere) {
      this.#admit(lease);
    } else if (isUnavailable && this.#strategy.unavailableOnError) {
      // the store is back already
      this.#ask(lease);
    } else {
      this.fail(lease, error);
      if (error instanceof StoreUnavailableError) this.#fair?.fail(error);
    }
  }

  /** Extends the deadline: the store has answered a request that was sent at `sentAt`. */
  #extend(lease: StoreLease, sentAt: number): void {
    lease.deadline = Math.max(lease.deadline, sentAt + this.#options.leaseMs);
  }

  /** Asks for the first tickets: no more of them than the limit can have become leases. */
  #askForFirst(): void {
    if (this.#strategy.decidesHere || this.isUnavailable) return;
    let left = this.limit;
    for (const lease of this) {
      if (left === 0) return;
      if (lease.state !== "waiting") continue;
      left -= 1;
      this.#renew(lease);
    }
  }

  #notified(ids: readonly string[]): void {
    this.#listener.heard();
    const now = performance.now();
    for (const id of ids) {
      const lease = this.leases.get(id);
      if (lease === undefined || lease.state === "held" || !lease.waits) continue;
      // a lease in a message this late may have lapsed: the reply to the next request shows its state
      const isAskedAgain = lease.state === "asked" && this.queue.has(lease);
      if (now < lease.deadline && !isAskedAgain) this.#letIn(lease);
    }
  }

  protected override ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    return this.#link.ask(verb, what);
  }

  protected override freed(released: Promise<void>, slots: number): void {
    this.grantPart();
    void this.#fair?.freed(released, slots);
  }

  protected override heirOf(lease: StoreLease): StoreLease | undefined {
    return this.#fair?.heirOf(lease);
  }

  protected override waitEnded(lease: StoreLease, isGranted: boolean): void {
    this.#fair?.waitEnded(lease, isGranted);
  }

  /** Handles a lease granted by the store; gives it back if the part of this process is used up. */
  #letIn(lease: StoreLease): void {
    if (this.#strategy.part === 0 || this.#fits(lease)) {
      this.grant(lease);
    } else {
      void this.giveBack(lease.id);
      if (lease.state === "asked") this.#admit(lease);
    }
  }

  /** Grants a caller a lease without the store, lets it wait in this process, or refuses it. */
  #admit(lease: StoreLease): void {
    this.grantPart();
    if (this.#fits(lease)) {
      this.#grantHere(lease);
    } else if (this.mayWait(lease)) {
      this.wait(lease);
      this.wakeIn(PART_HOLDS_MS);
    } else {
      this.refuse(lease);
    }
  }

  /** Whether the part of this process has room; a caller for more than the whole part is let in alone. */
  #fits({ slots }: StoreLease): boolean {
    const { part } = this.#strategy;
    return this.active + slots <= part || (part > 0 && this.active === 0);
  }

  /** Grants leases to waiting callers, as long as this process has not used up its part. */
  grantPart(): void {
    const { queue } = this;
    for (let { head } = queue; head !== undefined && this.#fits(head); head = queue.head) {
      this.#grantHere(head);
    }
    if (queue.size > 0 && this.#strategy.decidesHere) this.wakeIn(PART_HOLDS_MS);
  }

  /** Grants a lease that the store does not know: it is registered there now, or when the store is back. */
  #grantHere(lease: StoreLease): void {
    if (this.isUnavailable) this.stats.granted(lease.slots);
    this.grant(lease);
    lease.verb = "adopt";
    lease.deadline = performance.now() + this.#options.leaseMs;
    this.#renew(lease);
  }

  /**
   * Renews all leases, then retries releases: a release lets the store grant a lease to another caller.
   * The timer does not keep the process alive.
   */
  wake(): void {
    this.#timer?.cancel();
    this.#wakesAt = Infinity;
    const { decidesHere, losesLeases } = this.#strategy;
    const now = performance.now();
    let firstDeadline = Infinity;
    for (const lease of this) {
      if (lease.state === "asked") continue;
      if (lease.state === "waiting" && decidesHere) continue;
      const isDue = now >= lease.deadline;
      if (!isDue) firstDeadline = Math.min(firstDeadline, lease.deadline);
      if (lease.state === "waiting" && isDue) this.#ask(lease);
      else if (isDue && losesLeases) this.lose(lease);
      else this.#renew(lease);
    }
    this.retryReleases(now);
    if (decidesHere) this.grantPart();
    else if (this.queue.size > 0) this.#listener.listen();
    if (!this.isEmpty) this.wakeIn(Math.min(this.#options.leaseMs / 3, firstDeadline - now));
  }

  wakeIn(ms: number): void {
    const at = systemClock.now() + ms;
    if (this.#closed || at >= this.#wakesAt) return;
    this.#timer?.cancel();
    this.#wakesAt = at;
    this.#timer = systemClock.wakeAt(at, () => this.wake());
    this.#timer.unref?.();
  }

  /** Asks the store again when the first lease of all processes lapses. */
  #wakeAtLapse({ lapseMs }: LeaseReply): void {
    if (lapseMs >= 0) this.wakeIn(lapseMs + Math.random() * SPREAD_MS);
  }

  /** Schedules a retry; during an outage, the return of the store triggers it. */
  protected override retrySoon(): void {
    if (!this.isUnavailable) this.wakeIn(Math.min(LONGEST_RETRY_MS, this.#options.leaseMs / 10));
  }

  override get isUnavailable(): boolean {
    return this.#link.isUnavailable;
  }

  replied(reply: LeaseReply): void {
    this.limit = reply.limit;
    this.#fair?.replied(reply);
    if (this.queue.size > 0) this.#wakeAtLapse(reply);
  }

  answeredLate(id: string, { standing, sentAt }: LeaseAnswer): void {
    const lease = this.leases.get(id);
    if (lease === undefined) {
      void this.giveBack(id);
      return;
    }
    this.#extend(lease, sentAt);
    const isValid = standing === "held" && performance.now() < sentAt + this.#options.leaseMs;
    if (isValid && lease.state !== "held") this.#letIn(lease);
  }

  /** Ends the decisions in this process: the callers that wait ask the store, in order. */
  resume(): void {
    const waiting = [...this.queue];
    for (const lease of waiting) lease.state = "asked";
    this.wake();
    for (const lease of waiting) this.#ask(lease);
  }
}
