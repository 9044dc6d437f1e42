/**
 * The callers of one process that wait for leases of a fair concurrency limiter on a store. They wait in fair
 * order, and only a few of them have requested a lease from the store.
 *
 * The store serves the processes first in, first out: the tickets that a process has there keep all other
 * processes waiting, and no new share of its own can go before them. So the next call is sent only while
 *
 *     the slots that calls with the store ask for without a lease  <  1 + free + released
 *
 * where `free` is how many slots were free by the last reply, and `released` is how many slots this process
 * is giving back: the request for the next one travels in the same batch, so they are taken again at once.
 * Both are at most the limit. While nothing is free, each process has one ticket, and gets slots in its turn.
 */

import type { FairEntry } from "../../fair/fair-entry.ts";
import { heirOf } from "../../fair/heir-of.ts";
import type { Ranks } from "../../fair/ranks.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { StoreLease } from "./store-lease.ts";
import type { StoreLeases } from "./store-leases.ts";

/** The part of the limiter behind these callers that they use. */
export interface FairLeasesHost extends StoreLeases {
  /** Requests a lease. */
  send(lease: StoreLease): void;
  /** Asks the store for its status. */
  status(): Promise<unknown>;
}

export class FairLeases {
  readonly ranks: Ranks<StoreLease>;
  readonly #maxWaiting: number;
  readonly #host: FairLeasesHost;
  /** The calls that are with the store without a lease. */
  readonly #asked = new Set<StoreLease>();
  #slotsAsked = 0;
  #free = 0;
  #released = 0;
  /** Whether the store has replied since the first of the callers came. */
  #hasReplied = false;
  #isLooking = false;

  constructor(ranks: Ranks<StoreLease>, maxWaiting: number, host: FairLeasesHost) {
    this.ranks = ranks;
    this.#maxWaiting = maxWaiting;
    this.#host = host;
  }

  enter(lease: StoreLease): void {
    if (this.ranks.size === 0 && this.#asked.size === 0) {
      // no caller waits: no share owes anything
      this.ranks.reset();
      this.#hasReplied = false;
    }
    if (!lease.waits) {
      if (this.ranks.isNext(lease.fairEntry as FairEntry<StoreLease>)) this.#host.send(lease);
      else this.#host.refuse(lease);
      return;
    }
    lease.state = "queued";
    this.ranks.append(lease, now());
    if (this.#isTaken && this.#excess > 0) {
      this.#host.refuse(lease);
      return;
    }
    this.fill();
    lease.hasWaited = lease.state === "queued";
    if (lease.hasWaited && this.#isTaken) void this.#look();
  }

  /** Sends the next calls, as long as the store may have leases for them. */
  fill(): void {
    while (this.ranks.size > 0 && this.#slotsAsked < 1 + this.#free + this.#released) {
      const lease = this.ranks.shift(now()) as StoreLease;
      this.#asked.add(lease);
      this.#slotsAsked += lease.slots;
      this.#host.send(lease);
    }
  }

  /** Called when a call has a ticket or has ended: the others of its batch may have, too. */
  fillSoon(): void {
    queueMicrotask(() => {
      this.#refuseExcess();
      this.fill();
    });
  }

  replied({ limit, active }: LeaseReply): void {
    this.#hasReplied = true;
    this.#free = Math.max(0, limit - active);
  }

  /** The next caller of its share takes the ticket of one that has left. */
  heirOf(lease: StoreLease): StoreLease | undefined {
    const heir = heirOf(lease.fairEntry as FairEntry<StoreLease>, this.ranks, this.#asked);
    // the ticket is for as many slots
    if (heir?.slots !== lease.slots) return undefined;
    // its share has been charged for the ticket already
    this.ranks.remove(heir);
    this.#asked.delete(lease);
    this.#asked.add(heir);
    return heir;
  }

  waitEnded(lease: StoreLease, isGranted: boolean): void {
    const fairEntry = lease.fairEntry as FairEntry<StoreLease>;
    if (fairEntry.item === undefined) {
      // it was not let wait
      if (isGranted) this.ranks.charge(fairEntry, now());
    } else if (!this.ranks.remove(lease)) {
      if (this.#asked.delete(lease)) this.#slotsAsked -= lease.slots;
      if (!isGranted) this.ranks.refund(fairEntry);
      this.fillSoon();
    }
  }

  /** A lease is given back: the next call is sent with the release, and takes the slot that it frees. */
  async freed(released: Promise<void>, slots: number): Promise<void> {
    this.#released += slots;
    this.fill();
    await released;
    this.#released -= slots;
  }

  /** The store is away: all callers fail, as if they had been sent, too. */
  fail(error: unknown): void {
    for (const lease of [...this.ranks]) this.#host.fail(lease, error);
  }

  /** Whether it is known that no lease is free: no reply is under way. */
  get #isTaken(): boolean {
    const areWaiting = this.#asked.size === this.#host.queue.size;
    return this.#hasReplied && areWaiting && this.#free + this.#released === 0;
  }

  /** For how many slots more than `maxWaiting` callers wait. */
  get #excess(): number {
    return this.ranks.permits + this.#slotsAsked - this.#maxWaiting;
  }

  /** Refuses the callers beyond `maxWaiting`, the latest first. */
  #refuseExcess(): void {
    if (!this.#isTaken || this.#excess <= 0) return;
    for (const lease of [...this.ranks].sort((a, b) => b.number - a.number)) {
      if (this.#excess <= 0) return;
      this.#host.refuse(lease);
    }
  }

  /** Asks the store, so that an outage is noticed although no new call is sent. */
  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      await this.#host.status();
    } catch (error) {
      this.fail(error);
    }
    this.#isLooking = false;
    this.fill();
  }
}

/** Microseconds. */
function now(): number {
  return performance.now() * 1000;
}
