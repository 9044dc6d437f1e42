/** The callers of one process that hold a lease, and those that wait for one, in order. */

import type { OutageStats } from "../../api/outage-stats.ts";
import type { CallStats } from "../../api/stats.ts";
import { AbortGroups } from "../../ground/abort-groups.ts";
import { systemClock } from "../../ground/clock.ts";
import { LeaseLostError, QueueFullError } from "../../ground/errors.ts";
import { Fifo } from "../../queue/fifo.ts";
import { type LeaseVerb, leaseId } from "../../stores/lease-store.ts";
import { StoreLease, type WantedLease } from "./store-lease.ts";

export interface StoreLeasesOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly leaseMs: number;
}

export abstract class StoreLeases {
  readonly stats: OutageStats;
  /** Those that count as waiting: with a ticket, before a new ticket, or in this process. */
  readonly queue = new Fifo<StoreLease>();
  /** The limit in force, by the last reply; before the first, the declared limit. */
  limit: number;
  /** How many slots this process holds, and by how many leases. */
  active = 0;
  #held = 0;
  /** How many slots the callers in the queue ask for. */
  #slotsWaiting = 0;
  protected readonly declared: number;
  protected readonly processId = crypto.randomUUID();
  /** Those that were sent to the store, in that order. */
  protected readonly leases = new Map<string, StoreLease>();
  readonly #options: StoreLeasesOptions;
  readonly #callStats: CallStats;
  readonly #signals = new AbortGroups<StoreLease>((lease, reason) => this.reject(lease, reason));
  readonly #giveBack = (lease: StoreLease) => this.release(lease);
  /** Releases that have failed, each with the time at which the lease lapses by itself, ms. */
  readonly #unreleased = new Map<string, number>();
  readonly #releases = new Set<Promise<void>>();
  #lastId = 0;

  constructor(declared: number, options: StoreLeasesOptions, stats: OutageStats) {
    this.limit = declared;
    this.declared = declared;
    this.stats = stats;
    this.#options = options;
    this.#callStats = stats.callStats([], undefined);
  }

  abstract get isUnavailable(): boolean;
  /** Sends a request to the store. */
  protected abstract ask(verb: LeaseVerb, what: string): Promise<unknown>;
  protected abstract retrySoon(): void;
  /** Called when a caller waits no longer. */
  protected abstract waitEnded(lease: StoreLease, isGranted: boolean): void;
  /** Removes the caller that takes the ticket of one that has left from those that have none. */
  protected abstract heirOf(lease: StoreLease): StoreLease | undefined;
  /** Called when a lease of that many slots is released, with the end of that release. */
  protected abstract freed(released: Promise<void>, slots: number): void;

  [Symbol.iterator](): Iterator<StoreLease> {
    return this.leases.values();
  }

  /** How many callers wait. */
  get waiting(): number {
    return this.queue.size;
  }

  /** How many slots they ask for. */
  get slotsWaiting(): number {
    return this.#slotsWaiting;
  }

  /** Whether no caller waits for a lease or holds one. */
  get isEmpty(): boolean {
    return this.leases.size === 0;
  }

  /** Whether a caller wants a lease that it does not hold. */
  get isWanted(): boolean {
    return this.leases.size > this.#held;
  }

  /** Adds a new caller. */
  protected add(wanted: WantedLease): StoreLease {
    this.#lastId += 1;
    const lease = new StoreLease(this.#lastId, wanted, this.#giveBack);
    const { longestMs, waitSignal } = wanted;
    this.#callStats.enqueued();
    if (waitSignal !== undefined) this.#signals.add(waitSignal, lease);
    if (longestMs > 0 && longestMs < Infinity) {
      const end = systemClock.now() + longestMs;
      lease.timer = systemClock.wakeAt(end, () => this.#expire(lease));
    }
    return lease;
  }

  /** Gives a caller the id under which it is sent. */
  protected register(lease: StoreLease): void {
    const { leaseMs } = this.#options;
    lease.id = leaseId(leaseMs, this.declared, this.processId, lease.number, lease.slots);
    this.leases.set(lease.id, lease);
  }

  protected mayWait(lease: StoreLease): boolean {
    const hasRoom = this.#slotsWaiting + lease.slots <= this.#options.maxWaiting;
    return lease.waits && (hasRoom || this.queue.has(lease));
  }

  protected wait(lease: StoreLease): void {
    lease.state = "waiting";
    lease.hasWaited = true;
    if (!this.queue.has(lease)) this.#slotsWaiting += lease.slots;
    this.queue.append(lease);
  }

  protected grant(lease: StoreLease): void {
    this.#callStats.released(lease.slots, lease.hasWaited ? lease.waited : 0);
    lease.state = "held";
    this.active += lease.slots;
    this.#held += 1;
    this.#endWait(lease);
    lease.resolve(lease);
  }

  /** Ends a call without a lease: none is free, and it may not wait. */
  refuse(lease: StoreLease): void {
    const { name, maxWaiting } = this.#options;
    const { insists } = lease;
    void this.release(lease);
    this.#callStats.expired(lease.slots, lease.waited, insists ? "queue-full" : "too-long");
    const full = () => new QueueFullError(name, lease.slots, this.slotsWaiting, maxWaiting);
    lease.resolve(insists ? Promise.reject(full()) : undefined);
  }

  /** Ends a call that the store cannot answer. */
  fail(lease: StoreLease, error: unknown): void {
    void this.release(lease);
    this.#callStats.ended();
    lease.resolve(Promise.reject(this.stats.failed(error)));
  }

  /** Ends a call: its signal was aborted, or the limiter closed. */
  protected reject(lease: StoreLease, reason: unknown): void {
    void this.release(lease);
    this.#callStats.ended();
    this.#callStats.cancelled(lease.slots, lease.waited, reason);
    lease.resolve(Promise.reject(reason));
  }

  /** Ends a lease that has lapsed, or may have. */
  protected lose(lease: StoreLease): void {
    const { name, leaseMs } = this.#options;
    void this.release(lease);
    lease.lose(new LeaseLostError(name, leaseMs));
  }

  /**
   * Removes a caller, and releases the lease or ticket that it has or may get by a request under way, unless
   * another caller takes its ticket.
   */
  protected release(lease: StoreLease): Promise<void> {
    const { state, isKnown, id } = lease;
    if (state === "gone") return Promise.resolve();
    lease.state = "gone";
    const heir = state === "waiting" ? this.heirOf(lease) : undefined;
    if (heir !== undefined) {
      this.#leaveQueue(lease);
      heir.inherit(lease);
      this.leases.set(id, heir);
      this.wait(heir);
      return Promise.resolve();
    }
    this.leases.delete(id);
    const released = isKnown ? this.giveBack(id) : Promise.resolve();
    if (state === "held") {
      this.active -= lease.slots;
      this.#held -= 1;
      this.freed(released, lease.slots);
    } else {
      this.#endWait(lease);
    }
    return released;
  }

  /**
   * Releases the lease or ticket of a caller that has left; resolves after the first attempt, which is
   * retried if it fails.
   *
   * @param lapsed when the lease lapses by itself
   */
  giveBack(id: string, lapsed = performance.now() + this.#options.leaseMs): Promise<void> {
    const failed = () => {
      // it has been requested again
      if (this.leases.has(id)) return;
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
      if (this.isUnavailable && now < lapsed) continue;
      this.#unreleased.delete(id);
      if (now < lapsed) void this.giveBack(id, lapsed);
    }
  }

  /** Resolves when no release is under way. */
  protected async released(): Promise<void> {
    while (this.#releases.size > 0) await Promise.all(this.#releases);
  }

  #expire(lease: StoreLease): void {
    if (lease.state === "asked" && !this.queue.has(lease)) {
      // the reply decides
      lease.waits = false;
    } else {
      void this.release(lease);
      this.#callStats.expired(lease.slots, lease.waited);
      lease.resolve(undefined);
    }
  }

  #endWait(lease: StoreLease): void {
    this.#leaveQueue(lease);
    this.waitEnded(lease, lease.state === "held");
  }

  #leaveQueue(lease: StoreLease): void {
    const { waitSignal } = lease;
    lease.timer?.cancel();
    if (waitSignal !== undefined) this.#signals.delete(waitSignal, lease);
    if (this.queue.remove(lease)) this.#slotsWaiting -= lease.slots;
  }
}
