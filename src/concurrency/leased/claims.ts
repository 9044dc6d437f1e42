/** The claims of one process: those that hold a lease, and those that wait for one, in order. */

import type { OutageStats } from "../../api/outage-stats.ts";
import type { Meter } from "../../api/stats.ts";
import { AbortGroups } from "../../ground/abort-groups.ts";
import { systemClock } from "../../ground/clock.ts";
import { LeaseLostError, QueueFullError } from "../../ground/errors.ts";
import { Fifo } from "../../queue/fifo.ts";
import { type LeaseVerb, leaseId } from "../../stores/lease-store.ts";
import { Claim, type WantedLease } from "./remote-lease.ts";

export interface ClaimsOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly leaseMs: number;
}

export abstract class Claims {
  readonly stats: OutageStats;
  /** Those that count as waiting: with a ticket, before a new ticket, or in this process. */
  readonly line = new Fifo<Claim>();
  /** The limit in force, by the last reply; before the first, the declared limit. */
  limit: number;
  /** How many slots this process holds, and by how many leases. */
  active = 0;
  #held = 0;
  /** How many slots the callers in the line ask for. */
  #slotsWaiting = 0;
  protected readonly declared: number;
  protected readonly processId = crypto.randomUUID();
  /** Those that were sent to the store, in that order. */
  protected readonly claims = new Map<string, Claim>();
  readonly #options: ClaimsOptions;
  readonly #meter: Meter;
  readonly #signals = new AbortGroups<Claim>((claim, reason) => this.reject(claim, reason));
  readonly #giveBack = (claim: Claim) => this.release(claim);
  /** Releases that have failed, each with the time at which the lease lapses by itself, ms. */
  readonly #unreleased = new Map<string, number>();
  readonly #releases = new Set<Promise<void>>();
  #lastId = 0;

  constructor(declared: number, options: ClaimsOptions, stats: OutageStats) {
    this.limit = declared;
    this.declared = declared;
    this.stats = stats;
    this.#options = options;
    this.#meter = stats.meter([], undefined);
  }

  abstract get isAway(): boolean;
  /** Sends a request to the store. */
  protected abstract ask(verb: LeaseVerb, what: string): Promise<unknown>;
  protected abstract retrySoon(): void;
  /** Called when a claim waits no longer. */
  protected abstract waitEnded(claim: Claim, isGranted: boolean): void;
  /** Removes the caller that takes the ticket of one that has left from those that have none. */
  protected abstract heirOf(claim: Claim): Claim | undefined;
  /** Called when a lease of that many slots is released, with the end of that release. */
  protected abstract freed(released: Promise<void>, slots: number): void;

  [Symbol.iterator](): Iterator<Claim> {
    return this.claims.values();
  }

  /** How many callers wait. */
  get waiting(): number {
    return this.line.size;
  }

  /** How many slots they ask for. */
  get slotsWaiting(): number {
    return this.#slotsWaiting;
  }

  /** Whether no caller waits for a lease or holds one. */
  get isEmpty(): boolean {
    return this.claims.size === 0;
  }

  /** Whether a caller wants a lease that it does not hold. */
  get isWanted(): boolean {
    return this.claims.size > this.#held;
  }

  /** Adds the claim of a new caller. */
  protected add(wanted: WantedLease): Claim {
    this.#lastId += 1;
    const claim = new Claim(this.#lastId, wanted, this.#giveBack);
    const { longestMs, waitSignal } = wanted;
    this.#meter.enqueued();
    if (waitSignal !== undefined) this.#signals.add(waitSignal, claim);
    if (longestMs > 0 && longestMs < Infinity) {
      const end = systemClock.now() + longestMs;
      claim.timer = systemClock.wakeAt(end, () => this.#expire(claim));
    }
    return claim;
  }

  /** Gives a claim the id under which it is sent. */
  protected register(claim: Claim): void {
    const { leaseMs } = this.#options;
    claim.id = leaseId(leaseMs, this.declared, this.processId, claim.number, claim.slots);
    this.claims.set(claim.id, claim);
  }

  protected mayWait(claim: Claim): boolean {
    const hasRoom = this.#slotsWaiting + claim.slots <= this.#options.maxWaiting;
    return claim.waits && (hasRoom || this.line.has(claim));
  }

  protected wait(claim: Claim): void {
    claim.state = "waiting";
    claim.hasWaited = true;
    if (!this.line.has(claim)) this.#slotsWaiting += claim.slots;
    this.line.append(claim);
  }

  protected grant(claim: Claim): void {
    this.#meter.released(claim.slots, claim.hasWaited ? claim.waited : 0);
    claim.state = "held";
    this.active += claim.slots;
    this.#held += 1;
    this.#endWait(claim);
    claim.resolve(claim);
  }

  /** Ends a claim without a lease: none is free, and it may not wait. */
  refuse(claim: Claim): void {
    const { name, maxWaiting } = this.#options;
    const { insists } = claim;
    void this.release(claim);
    this.#meter.expired(claim.slots, claim.waited, insists ? "queue-full" : "too-long");
    const full = () => new QueueFullError(name, claim.slots, this.slotsWaiting, maxWaiting);
    claim.resolve(insists ? Promise.reject(full()) : undefined);
  }

  /** Ends a claim that the store cannot answer. */
  fail(claim: Claim, error: unknown): void {
    void this.release(claim);
    this.#meter.ended();
    claim.resolve(Promise.reject(this.stats.failed(error)));
  }

  /** Ends a claim: its signal was aborted, or the limiter closed. */
  protected reject(claim: Claim, reason: unknown): void {
    void this.release(claim);
    this.#meter.left(claim.slots, claim.waited, reason);
    claim.resolve(Promise.reject(reason));
  }

  /** Ends a claim: its lease has lapsed, or may have. */
  protected lose(claim: Claim): void {
    const { name, leaseMs } = this.#options;
    void this.release(claim);
    claim.lose(new LeaseLostError(name, leaseMs));
  }

  /**
   * Removes a claim, and releases the lease or ticket that it has or may get by a request under way, unless
   * another caller takes its ticket.
   */
  protected release(claim: Claim): Promise<void> {
    const { state, isKnown, id } = claim;
    if (state === "gone") return Promise.resolve();
    claim.state = "gone";
    const heir = state === "waiting" ? this.heirOf(claim) : undefined;
    if (heir !== undefined) {
      this.#leaveLine(claim);
      heir.inherit(claim);
      this.claims.set(id, heir);
      this.wait(heir);
      return Promise.resolve();
    }
    this.claims.delete(id);
    const released = isKnown ? this.giveBack(id) : Promise.resolve();
    if (state === "held") {
      this.active -= claim.slots;
      this.#held -= 1;
      this.freed(released, claim.slots);
    } else {
      this.#endWait(claim);
    }
    return released;
  }

  /**
   * Releases the lease or ticket of a claim that has left; resolves after the first attempt, which is
   * retried if it fails.
   *
   * @param lapsed when the lease lapses by itself
   */
  giveBack(id: string, lapsed = performance.now() + this.#options.leaseMs): Promise<void> {
    const failed = () => {
      // the claim has been requested again
      if (this.claims.has(id)) return;
      this.#unreleased.set(id, lapsed);
      this.retrySoon();
    };
    const release = this.ask("release", id)
      .then(() => {}, failed)
      .finally(() => this.#releases.delete(release));
    this.#releases.add(release);
    return release;
  }

  /** Retries the releases that have failed, as long as they are needed. */
  protected retryReleases(now: number): void {
    for (const [id, lapsed] of this.#unreleased) {
      if (this.isAway && now < lapsed) continue;
      this.#unreleased.delete(id);
      if (now < lapsed) void this.giveBack(id, lapsed);
    }
  }

  /** Resolves when no release is under way. */
  protected async released(): Promise<void> {
    while (this.#releases.size > 0) await Promise.all(this.#releases);
  }

  #expire(claim: Claim): void {
    if (claim.state === "asked" && !this.line.has(claim)) {
      // the reply decides
      claim.waits = false;
    } else {
      void this.release(claim);
      this.#meter.expired(claim.slots, claim.waited);
      claim.resolve(undefined);
    }
  }

  #endWait(claim: Claim): void {
    this.#leaveLine(claim);
    this.waitEnded(claim, claim.state === "held");
  }

  #leaveLine(claim: Claim): void {
    const { waitSignal } = claim;
    claim.timer?.cancel();
    if (waitSignal !== undefined) this.#signals.delete(waitSignal, claim);
    if (this.line.remove(claim)) this.#slotsWaiting -= claim.slots;
  }
}
