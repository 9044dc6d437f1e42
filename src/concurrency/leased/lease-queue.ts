/**
 * The callers of one process that want leases. Each asks the store, and waits there with a ticket or,
 * during an outage, in this process.
 */

import { OutageStats, type StoreState } from "../../api/outage-stats.ts";
import { systemClock, type Timer } from "../../ground/clock.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../ground/errors.ts";
import type { Order } from "../../queue/order.ts";
import { counterOf, instancesOf, type RemoteOptions } from "../../remote/remote-options.ts";
import type { LeaseReply, LeaseStore, LeaseVerb } from "../../stores/lease-store.ts";
import { Claims } from "./claims.ts";
import { FairClaims } from "./fair-claims.ts";
import { GrantListener } from "./grant-listener.ts";
import { type LeaseAnswer, LeaseLink } from "./lease-link.ts";
import type { Claim, ConcurrencyStatus, WantedLease } from "./remote-lease.ts";
import {
  type LeaseHost,
  type LeaseStrategy,
  SHARE_HOLDS_MS,
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

export class LeaseQueue extends Claims implements LeaseHost {
  readonly #options: RemoteConcurrencyOptions;
  readonly #strategy: LeaseStrategy;
  readonly #link: LeaseLink;
  readonly #listener: GrantListener;
  /** The callers that have not been sent to the store, on a fair limiter. */
  readonly #fair: FairClaims | undefined;
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
      isNeeded: () => this.line.size > 0,
      timeoutMs,
    });
    const ranks = order.ranks<Claim>();
    this.#fair = ranks && new FairClaims(ranks, options.maxWaiting, this);
  }

  /** Requests a lease for a caller. */
  claim(wanted: WantedLease): void {
    this.#checkOpen();
    const claim = this.add(wanted);
    if (this.#fair === undefined) this.send(claim);
    else this.#fair.enter(claim);
  }

  /** Requests a lease from the store, or in this process if that decides. */
  send(claim: Claim): void {
    this.register(claim);
    if (this.#strategy.decidesHere && !this.isAway) this.#admit(claim);
    else this.#ask(claim);
  }

  /** Changes the limit; default: the declared limit. */
  async setLimit(limit = this.declared): Promise<void> {
    this.#checkOpen();
    await this.ask("limit", String(limit));
    this.#fair?.fill();
  }

  async status(): Promise<ConcurrencyStatus> {
    this.#checkOpen();
    try {
      const { limit, active, waiting } = (await this.ask("look", "")).reply;
      return { limit, active, waiting: waiting + this.#queued };
    } catch (error) {
      const { share } = this.#strategy;
      if (share === 0) throw error;
      return { limit: share, active: this.active, waiting: this.waiting };
    }
  }

  override get waiting(): number {
    return super.waiting + this.#queued;
  }

  override get slotsWaiting(): number {
    return super.slotsWaiting + (this.#fair?.line.permits ?? 0);
  }

  get #queued(): number {
    return this.#fair?.line.size ?? 0;
  }

  get state(): StoreState {
    return this.#closed ? "closed" : this.stats.state;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new LimiterClosedError(this.#options.name);
    for (const claim of [...this, ...(this.#fair?.line ?? [])]) {
      if (claim.state === "held") claim.lose(error);
      else this.reject(claim, error);
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

  /** Requests a lease from the store, or again: a claim that has a lease or ticket there keeps it. */
  #ask(claim: Claim): void {
    const { leaseMs } = this.#options;
    claim.state = "asked";
    claim.waits = this.mayWait(claim);
    claim.deadline = performance.now() + leaseMs;
    this.wakeIn(leaseMs / 3);
    this.#send(claim, claim.waits ? "acquire" : "try", (error) => {
      if (claim.state === "asked") this.#failed(claim, error);
    });
  }

  /** Keeps a lease or ticket. */
  #renew(claim: Claim): void {
    this.#send(claim, claim.verb, () => this.retrySoon());
  }

  #send(claim: Claim, verb: LeaseVerb, failed: (error: unknown) => void): void {
    const { id } = claim;
    const answer = this.ask(verb, id);
    if (!this.isAway) claim.isKnown = true;
    // another caller may have the ticket by then
    answer.then((reply) => this.#answered(this.claims.get(id) ?? claim, verb, reply), failed);
  }

  #answered(claim: Claim, verb: LeaseVerb, { standing, sentAt, reply }: LeaseAnswer): void {
    const { state } = claim;
    const isRenewal = verb === "keep" || verb === "adopt";
    if (standing !== "none") this.#extend(claim, sentAt);
    // the caller has given up meanwhile, or a message or a new request has changed the claim
    if (state === "gone" || (state === "asked") === isRenewal) return;
    if (verb === "adopt" && standing !== "none") claim.verb = "keep";
    if (standing === "held") {
      if (state === "waiting") this.#listener.missed();
      if (state !== "held") this.#letIn(claim);
    } else if (standing === "waiting" && state === "asked" && this.mayWait(claim)) {
      this.wait(claim);
      this.#fair?.fillSoon();
      this.#listener.listen();
      this.#wakeAtLapse(reply);
    } else if (state === "asked") {
      claim.isKnown = standing !== "none";
      this.refuse(claim);
    } else if (standing === "none") {
      if (state === "held") this.lose(claim);
      else this.#ask(claim);
    }
  }

  #failed(claim: Claim, error: unknown): void {
    const isAway = error instanceof StoreUnavailableError && !this.#link.isPermanent(error.cause);
    if (isAway && this.#strategy.decidesHere) {
      this.#admit(claim);
    } else if (isAway && this.#strategy.awayOnError) {
      // the store is back already
      this.#ask(claim);
    } else {
      this.fail(claim, error);
      if (error instanceof StoreUnavailableError) this.#fair?.fail(error);
    }
  }

  /** Extends the deadline: the store has answered a request that was sent at `sentAt`. */
  #extend(claim: Claim, sentAt: number): void {
    claim.deadline = Math.max(claim.deadline, sentAt + this.#options.leaseMs);
  }

  /** Asks for the first tickets: no more of them than the limit can have become leases. */
  #askForFirst(): void {
    if (this.#strategy.decidesHere || this.isAway) return;
    let left = this.limit;
    for (const claim of this) {
      if (left === 0) return;
      if (claim.state !== "waiting") continue;
      left -= 1;
      this.#renew(claim);
    }
  }

  #notified(ids: readonly string[]): void {
    this.#listener.heard();
    const now = performance.now();
    for (const id of ids) {
      const claim = this.claims.get(id);
      if (claim === undefined || claim.state === "held" || !claim.waits) continue;
      // a lease in a message this late may have lapsed: the reply to the next request shows its state
      const isAskedAgain = claim.state === "asked" && this.line.has(claim);
      if (now < claim.deadline && !isAskedAgain) this.#letIn(claim);
    }
  }

  protected override ask(verb: LeaseVerb, what: string): Promise<LeaseAnswer> {
    return this.#link.ask(verb, what);
  }

  protected override freed(released: Promise<void>, slots: number): void {
    this.grantShare();
    void this.#fair?.freed(released, slots);
  }

  protected override heirOf(claim: Claim): Claim | undefined {
    return this.#fair?.heirOf(claim);
  }

  protected override waitEnded(claim: Claim, isGranted: boolean): void {
    this.#fair?.waitEnded(claim, isGranted);
  }

  /** Handles a lease granted by the store; gives it back if the share of this process is used up. */
  #letIn(claim: Claim): void {
    if (this.#strategy.share === 0 || this.#fits(claim)) {
      this.grant(claim);
    } else {
      void this.giveBack(claim.id);
      if (claim.state === "asked") this.#admit(claim);
    }
  }

  /** Grants a claim a lease without the store, lets it wait in this process, or refuses it. */
  #admit(claim: Claim): void {
    this.grantShare();
    if (this.#fits(claim)) {
      this.#grantHere(claim);
    } else if (this.mayWait(claim)) {
      this.wait(claim);
      this.wakeIn(SHARE_HOLDS_MS);
    } else {
      this.refuse(claim);
    }
  }

  /** Whether the share of this process has room; a claim for more than the whole share is let in alone. */
  #fits({ slots }: Claim): boolean {
    const { share } = this.#strategy;
    return this.active + slots <= share || (share > 0 && this.active === 0);
  }

  /** Grants leases to waiting callers, as long as this process has not used up its share. */
  grantShare(): void {
    const { line } = this;
    for (let { head } = line; head !== undefined && this.#fits(head); head = line.head) {
      this.#grantHere(head);
    }
    if (line.size > 0 && this.#strategy.decidesHere) this.wakeIn(SHARE_HOLDS_MS);
  }

  /** Grants a lease that the store does not know: it is registered there now, or when the store is back. */
  #grantHere(claim: Claim): void {
    if (this.isAway) this.stats.granted(claim.slots);
    this.grant(claim);
    claim.verb = "adopt";
    claim.deadline = performance.now() + this.#options.leaseMs;
    this.#renew(claim);
  }

  /**
   * Renews all claims, then retries releases: a release lets the store grant a lease to another caller.
   * The timer does not keep the process alive.
   */
  wake(): void {
    this.#timer?.cancel();
    this.#wakesAt = Infinity;
    const { decidesHere, losesLeases } = this.#strategy;
    const now = performance.now();
    let firstDeadline = Infinity;
    for (const claim of this) {
      if (claim.state === "asked") continue;
      if (claim.state === "waiting" && decidesHere) continue;
      const isDue = now >= claim.deadline;
      if (!isDue) firstDeadline = Math.min(firstDeadline, claim.deadline);
      if (claim.state === "waiting" && isDue) this.#ask(claim);
      else if (isDue && losesLeases) this.lose(claim);
      else this.#renew(claim);
    }
    this.retryReleases(now);
    if (decidesHere) this.grantShare();
    else if (this.line.size > 0) this.#listener.listen();
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
    if (!this.isAway) this.wakeIn(Math.min(LONGEST_RETRY_MS, this.#options.leaseMs / 10));
  }

  override get isAway(): boolean {
    return this.#link.isAway;
  }

  replied(reply: LeaseReply): void {
    this.limit = reply.limit;
    this.#fair?.replied(reply);
    if (this.line.size > 0) this.#wakeAtLapse(reply);
  }

  answeredLate(id: string, { standing, sentAt }: LeaseAnswer): void {
    const claim = this.claims.get(id);
    if (claim === undefined) {
      void this.giveBack(id);
      return;
    }
    this.#extend(claim, sentAt);
    const isValid = standing === "held" && performance.now() < sentAt + this.#options.leaseMs;
    if (isValid && claim.state !== "held") this.#letIn(claim);
  }

  /** Ends the decisions in this process: the callers that wait ask the store, in order. */
  resume(): void {
    const waiting = [...this.line];
    for (const claim of waiting) claim.state = "asked";
    this.wake();
    for (const claim of waiting) this.#ask(claim);
  }
}
