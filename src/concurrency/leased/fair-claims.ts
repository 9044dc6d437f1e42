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
 * Both are at most the limit. While nothing is free, each process has one ticket, and gets places in its turn.
 */

import { heirOf } from "../../fair/heir-of.ts";
import type { Ranks } from "../../fair/ranks.ts";
import type { Turn } from "../../fair/turn.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { Claims } from "./claims.ts";
import type { Claim } from "./remote-lease.ts";

/** The part of the limiter behind these callers that they use. */
export interface FairClaimsHost extends Claims {
  /** Requests a lease. */
  send(claim: Claim): void;
  /** Asks the store for its status. */
  status(): Promise<unknown>;
}

export class FairClaims {
  readonly line: Ranks<Claim>;
  readonly #maxWaiting: number;
  readonly #host: FairClaimsHost;
  /** The calls that are with the store without a lease. */
  readonly #asked = new Set<Claim>();
  #slotsAsked = 0;
  #free = 0;
  #released = 0;
  /** Whether the store has replied since the first of the callers came. */
  #hasReplied = false;
  #isLooking = false;

  constructor(ranks: Ranks<Claim>, maxWaiting: number, host: FairClaimsHost) {
    this.line = ranks;
    this.#maxWaiting = maxWaiting;
    this.#host = host;
  }

  enter(claim: Claim): void {
    if (this.line.size === 0 && this.#asked.size === 0) {
      // no caller waits: no share owes anything
      this.line.reset();
      this.#hasReplied = false;
    }
    if (!claim.waits) {
      if (this.line.isNext(claim.turn as Turn<Claim>)) this.#host.send(claim);
      else this.#host.refuse(claim);
      return;
    }
    claim.state = "queued";
    this.line.append(claim, now());
    if (this.#isTaken && this.#excess > 0) {
      this.#host.refuse(claim);
      return;
    }
    this.fill();
    claim.hasWaited = claim.state === "queued";
    if (claim.hasWaited && this.#isTaken) void this.#look();
  }

  /** Sends the next calls, as long as the store may have leases for them. */
  fill(): void {
    while (this.line.size > 0 && this.#slotsAsked < 1 + this.#free + this.#released) {
      const claim = this.line.shift(now()) as Claim;
      this.#asked.add(claim);
      this.#slotsAsked += claim.slots;
      this.#host.send(claim);
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
  heirOf(claim: Claim): Claim | undefined {
    const heir = heirOf(claim.turn as Turn<Claim>, this.line, this.#asked);
    // the ticket is for as many slots
    if (heir?.slots !== claim.slots) return undefined;
    // its share has been charged for the ticket already
    this.line.remove(heir);
    this.#asked.delete(claim);
    this.#asked.add(heir);
    return heir;
  }

  waitEnded(claim: Claim, isGranted: boolean): void {
    const turn = claim.turn as Turn<Claim>;
    if (turn.item === undefined) {
      // it was not let wait
      if (isGranted) this.line.charge(turn, now());
    } else if (!this.line.remove(claim)) {
      if (this.#asked.delete(claim)) this.#slotsAsked -= claim.slots;
      if (!isGranted) this.line.refund(turn);
      this.fillSoon();
    }
  }

  /** A lease is given back: the next call is sent with the release, and takes the place that it frees. */
  async freed(released: Promise<void>, slots: number): Promise<void> {
    this.#released += slots;
    this.fill();
    await released;
    this.#released -= slots;
  }

  /** The store is away: all callers fail, as if they had been sent, too. */
  fail(error: unknown): void {
    for (const claim of [...this.line]) this.#host.fail(claim, error);
  }

  /** Whether it is known that no lease is free: no reply is under way. */
  get #isTaken(): boolean {
    const areWaiting = this.#asked.size === this.#host.line.size;
    return this.#hasReplied && areWaiting && this.#free + this.#released === 0;
  }

  /** For how many slots more than `maxWaiting` callers wait. */
  get #excess(): number {
    return this.line.permits + this.#slotsAsked - this.#maxWaiting;
  }

  /** Refuses the callers beyond `maxWaiting`, the latest first. */
  #refuseExcess(): void {
    if (!this.#isTaken || this.#excess <= 0) return;
    for (const claim of [...this.line].sort((a, b) => b.number - a.number)) {
      if (this.#excess <= 0) return;
      this.#host.refuse(claim);
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
