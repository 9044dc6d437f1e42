/**
 * The callers of one process that want leases. Each asks the store, and waits there with a ticket or,
 * during an outage, in this process.
 */

import { AbortGroups } from "../../ground/abort-groups.ts";
import {
  LeaseLostError,
  LimiterClosedError,
  QueueFullError,
  StoreUnavailableError,
} from "../../ground/errors.ts";
import { type LeaseReply, type LeaseStore, leaseId } from "../../stores/lease-store.ts";
import type { Meter } from "../meter.ts";
import { OutageStats, type StoreState } from "../remote/outage-stats.ts";
import type { RemoteOptions } from "../remote/remote-options.ts";
import { counterOf, instancesOf } from "../remote/remote-options.ts";
import { GrantListener } from "./grant-listener.ts";
import { type KeeperHost, LeaseKeeper } from "./lease-keeper.ts";
import { type LeaseAnswer, LeaseLink } from "./lease-link.ts";
import { Claim } from "./remote-lease.ts";
import { type LeaseHost, type LeaseStrategy, whenUnavailable } from "./when-unavailable.ts";

/** The status of a limiter, for all processes together. */
export interface ConcurrencyStatus {
  /** How many leases may be held at once. */
  readonly limit: number;
  /** How many leases are held. */
  readonly active: number;
  /** How many callers wait for a lease. */
  readonly waiting: number;
}

export interface RemoteConcurrencyOptions
  extends Pick<
    RemoteOptions,
    "name" | "maxWaiting" | "timeoutMs" | "whenUnavailable" | "instances"
  > {
  readonly leaseMs: number;
}

export class LeaseQueue implements LeaseHost, KeeperHost {
  readonly stats: OutageStats;
  readonly keeper: LeaseKeeper;
  readonly #meter: Meter;
  readonly #declared: number;
  readonly #options: RemoteConcurrencyOptions;
  readonly #strategy: LeaseStrategy;
  readonly #link: LeaseLink;
  readonly #listener: GrantListener;
  readonly #processId = crypto.randomUUID();
  readonly #signals = new AbortGroups<Claim>((claim, reason) => this.#reject(claim, reason));
  /** The limit in force, by the last reply; before the first, the declared limit. */
  limit: number;
  /** How many leases all processes together could get at once, by the last reply. */
  free = 0;
  /** How many leases this process holds, and how many callers wait in it. */
  active = 0;
  waiting = 0;
  #lastId = 0;
  #closed = false;

  constructor(store: LeaseStore, key: string, declared: number, options: RemoteConcurrencyOptions) {
    const { name, leaseMs, timeoutMs } = options;
    const processes = counterOf(options, store, key);
    const instances = instancesOf(options.instances, processes);
    this.stats = new OutageStats(name, processes);
    this.#declared = declared;
    this.limit = declared;
    this.#options = options;
    this.#meter = this.stats.meter([], undefined);
    this.#strategy = whenUnavailable(options.whenUnavailable, this, instances);
    this.#link = new LeaseLink(store, key, declared, this.#strategy, {
      ...{ ...options, stats: this.stats, processes },
      late: (id, answer) => this.#late(id, answer),
    });
    this.keeper = new LeaseKeeper(this.#link, leaseMs, this.#strategy.losesLeases, this);
    this.#listener = new GrantListener({
      listen: (granted) => store.listen(key, this.#processId, granted),
      // leases that were granted before the subscription are not published again
      ready: () => this.keeper.wakeIn(0),
      granted: (ids) => this.#notified(ids),
      isNeeded: () => this.waiting > 0,
      timeoutMs,
    });
  }

  /**
   * Requests a lease for a caller.
   *
   * @param insists whether a rejection is an error (`acquire`) or `undefined` (`tryAcquire`)
   * @param longestMs the longest wait, ms
   */
  claim(
    insists: boolean,
    longestMs: number,
    signal: AbortSignal | undefined,
    resolve: Claim["resolve"],
  ): void {
    this.#checkOpen();
    const waits = longestMs > 0 && this.#hasRoom();
    this.#lastId += 1;
    const id = leaseId(this.#options.leaseMs, this.#declared, this.#processId, this.#lastId);
    const claim = new Claim(id, insists, waits, signal, resolve, (one) => this.#leave(one));
    this.keeper.claims.set(id, claim);
    this.#meter.enqueued();
    if (signal !== undefined) this.#signals.add(signal, claim);
    if (waits && longestMs < Infinity) claim.limitWait(longestMs, () => this.#onTimeOver(claim));
    this.#strategy.claim(claim);
  }

  /** Changes the limit; default: the declared limit. */
  async setLimit(limit = this.#declared): Promise<void> {
    this.#checkOpen();
    await this.#link.ask("limit", String(limit));
  }

  async status(): Promise<ConcurrencyStatus> {
    this.#checkOpen();
    try {
      const { limit, active, waiting } = (await this.#link.ask("look", "")).reply;
      return { limit, active, waiting };
    } catch (error) {
      const limit = this.#strategy.places;
      if (limit === undefined) throw error;
      return { limit, active: this.active, waiting: this.waiting };
    }
  }

  get state(): StoreState {
    return this.#closed ? "closed" : this.stats.state;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new LimiterClosedError(this.#options.name);
    for (const claim of this.keeper.claims.values()) {
      if (claim.state === "held") claim.lose(error);
      else this.#reject(claim, error);
    }
    this.#strategy.close();
    this.keeper.close();
    this.#link.detach(error);
    this.#listener.close();
    // the user may disconnect the client next: the tickets have to be released before that
    await this.keeper.released();
    this.stats.end();
  }

  #reject(claim: Claim, reason: unknown): void {
    void this.#leave(claim);
    this.#meter.left(1, claim.waited, reason);
    claim.reject(reason);
  }

  #checkOpen(): void {
    if (this.#closed) throw new LimiterClosedError(this.#options.name);
  }

  #hasRoom(): boolean {
    return this.waiting < this.#options.maxWaiting;
  }

  #onTimeOver(claim: Claim): void {
    if (claim.state === "asked" && !claim.queued) {
      claim.overdue = true;
    } else {
      void this.#leave(claim);
      this.#meter.expired(1, claim.waited);
      claim.expire();
    }
  }

  /** Requests a lease from the store, or again: a claim that has a lease or ticket there keeps it. */
  ask(claim: Claim): void {
    const { leaseMs } = this.#options;
    claim.state = "asked";
    claim.deadline = performance.now() + leaseMs;
    this.keeper.wakeIn(leaseMs / 3);
    const asked = this.#link.ask(claim.waits ? "acquire" : "try", claim.id);
    if (!this.#link.isAway) claim.isKnown = true;
    asked.then(
      (answer) => this.#answered(claim, answer),
      (error) => {
        if (claim.state === "asked") this.#failed(claim, error);
      },
    );
  }

  #answered(claim: Claim, { standing, sentAt, reply }: LeaseAnswer): void {
    this.keeper.extend(claim, sentAt);
    // the caller has given up meanwhile, or a message arrived before this reply
    if (claim.state !== "asked") return;
    if (standing === "held") {
      this.#letIn(claim);
    } else if (standing === "waiting" && this.mayWait(claim)) {
      this.wait(claim, "waiting");
      this.#listener.listen();
      this.keeper.wakeAtLapse(reply);
    } else {
      this.refuse(claim, standing !== "none");
    }
  }

  #failed(claim: Claim, error: unknown): void {
    const fail = () => {
      void this.#leave(claim);
      this.#meter.ended();
      claim.reject(this.stats.failed(error));
    };
    const isAway = error instanceof StoreUnavailableError && !this.#link.isPermanent(error.cause);
    if (isAway) this.#strategy.unanswered(claim, fail);
    else fail();
  }

  refuse(claim: Claim, hasTicket = true): void {
    const { name, maxWaiting } = this.#options;
    if (hasTicket) void this.#leave(claim);
    else this.#forget(claim);
    this.#meter.expired(1, claim.waited, claim.refusal);
    claim.refuse(() => new QueueFullError(name, 1, this.waiting, maxWaiting));
  }

  wait(claim: Claim, state: "waiting" | "parked"): void {
    claim.state = state;
    if (!claim.queued) this.waiting += 1;
    claim.queued = true;
  }

  /** Handles a lease granted by the store; gives it back if the fallback's share is used up. */
  #letIn(claim: Claim): void {
    if (this.active < (this.#strategy.places ?? Infinity)) {
      this.#granted(claim);
    } else {
      void this.keeper.giveBack(claim.id);
      if (claim.state === "asked") this.#strategy.admit(claim);
    }
  }

  #granted(claim: Claim): void {
    this.#meter.released(1, claim.queued ? claim.waited : 0);
    this.#settle(claim);
    this.active += 1;
    claim.grant();
  }

  /** Ends the wait of a claim: its timer, its signal and its count. */
  #settle(claim: Claim): void {
    clearTimeout(claim.timer);
    if (claim.waitSignal !== undefined) this.#signals.delete(claim.waitSignal, claim);
    this.#strategy.remove(claim);
    if (!claim.queued) return;
    claim.queued = false;
    this.waiting -= 1;
    if (this.waiting === 0) this.#listener.linger();
  }

  /** Removes a claim without a release: the store has no lease or ticket of it, or `#leave` releases it. */
  #forget(claim: Claim): void {
    const wasHeld = claim.state === "held";
    if (!wasHeld) this.#settle(claim);
    claim.state = "gone";
    this.keeper.claims.delete(claim.id);
    if (!wasHeld) return;
    this.active -= 1;
    this.#strategy.look();
  }

  /** Removes a claim, and releases the lease or ticket that it has or may get by a request under way. */
  #leave(claim: Claim): Promise<void> {
    if (claim.state === "gone") return Promise.resolve();
    this.#forget(claim);
    return claim.isKnown ? this.keeper.giveBack(claim.id) : Promise.resolve();
  }

  lose(claim: Claim): void {
    const { name, leaseMs } = this.#options;
    void this.#leave(claim);
    claim.lose(new LeaseLostError(name, leaseMs));
  }

  looked(): void {
    if (this.#strategy.isActive) this.#strategy.look();
    else if (this.waiting > 0) this.#listener.listen();
  }

  grantedUnnoticed(claim: Claim): void {
    this.#listener.missed();
    this.#letIn(claim);
  }

  #notified(ids: readonly string[]): void {
    const now = performance.now();
    for (const id of ids) {
      const claim = this.keeper.claims.get(id);
      if (claim === undefined || claim.state === "held" || claim.overdue) continue;
      // a lease in a message this late may have lapsed: the reply to the next request shows its state
      if (now >= claim.deadline || (claim.state === "asked" && claim.queued)) continue;
      this.#letIn(claim);
    }
  }

  // -- for the strategy --

  get isAway(): boolean {
    return this.#link.isAway;
  }

  mayWait(claim: Claim): boolean {
    return claim.waits && !claim.overdue && (claim.queued || this.#hasRoom());
  }

  grant(claim: Claim): void {
    if (this.isAway) this.stats.granted(1);
    this.#granted(claim);
  }

  replied(reply: LeaseReply): void {
    this.limit = reply.limit;
    this.free = Math.max(0, reply.limit - reply.active);
    if (this.waiting > 0) this.keeper.wakeAtLapse(reply);
  }

  /** Handles an answer that arrives after its request has failed. */
  #late(id: string, { standing, sentAt }: LeaseAnswer): void {
    const claim = this.keeper.claims.get(id);
    if (claim === undefined) {
      void this.keeper.giveBack(id);
      return;
    }
    this.keeper.extend(claim, sentAt);
    const isValid = standing === "held" && performance.now() < sentAt + this.#options.leaseMs;
    if (isValid && claim.state !== "held" && !claim.overdue) this.#letIn(claim);
  }
}
