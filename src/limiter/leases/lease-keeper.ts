/**
 * Keeps what a process has at a store of leases, and delivers what the store could not be told when
 * it should have been. One timer does both; it keeps no process alive.
 */
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { LeaseTrips } from "./lease-trips.ts";
import type { Claim } from "./remote-lease.ts";

/** A store that refuses is asked again after this, ms, or a tenth of the lease. */
const LONGEST_RETRY_MS = 1000;
/** Those who look at the same instant do so a little apart, ms. */
const SPREAD_MS = 20;

/** What comes of keeping. */
export interface Kept {
  /** Its ticket has become a lease. */
  granted(claim: Claim): void;
  /** Its lease has lapsed, or may have. */
  lost(claim: Claim): void;
  /** Its ticket has lapsed, or may have. */
  lapsed(claim: Claim): void;
  /** It has looked after all. */
  looked(): void;
}

export interface KeeperOptions {
  readonly leaseMs: number;
  /** A lease that could not be kept is lost; else only one that the store does not know. */
  readonly isStrict: boolean;
}

export class LeaseKeeper {
  readonly claims = new Map<string, Claim>();
  readonly #trips: LeaseTrips;
  readonly #options: KeeperOptions;
  readonly #kept: Kept;
  /** What the store could not be told is given back, and when it will have lapsed by itself, ms. */
  readonly #debts = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #closed = false;

  constructor(trips: LeaseTrips, options: KeeperOptions, kept: Kept) {
    this.#trips = trips;
    this.#options = options;
    this.#kept = kept;
  }

  /** Nothing is kept any more; what is given back is told once. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  wakeIn(ms: number): void {
    const at = performance.now() + ms;
    if (this.#closed || at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => this.wake(), ms);
    this.#timer.unref?.();
  }

  /** When the first lease lapses, somebody has to look. */
  wakeAtLapse({ lapseMs }: LeaseReply): void {
    if (lapseMs >= 0) this.wakeIn(lapseMs + Math.random() * SPREAD_MS);
  }

  /** The store is told, or will be. */
  giveBack(id: string): Promise<void> {
    return this.#giveBack(id, performance.now() + this.#options.leaseMs);
  }

  /** The store does not know of it, and is told, or will be: it is held whatever the limit. */
  adopt(claim: Claim): void {
    claim.verb = "adopt";
    claim.deadline = performance.now() + this.#options.leaseMs;
    this.#keep(claim);
  }

  /** The store has told of it. */
  extend(claim: Claim, sentAt: number): void {
    claim.deadline = Math.max(claim.deadline, sentAt + this.#options.leaseMs);
  }

  /** Looks after all: leases first, lest what is given back lets in somebody too many. */
  wake(): void {
    clearTimeout(this.#timer);
    this.#timerAt = Infinity;
    const now = performance.now();
    let firstDeadline = Infinity;
    for (const claim of this.claims.values()) {
      const isDue = now >= claim.deadline;
      if (claim.state === "asked" || claim.state === "parked") continue;
      if (!isDue) firstDeadline = Math.min(firstDeadline, claim.deadline);
      if (claim.state === "waiting" && isDue) this.#kept.lapsed(claim);
      else if (isDue && this.#options.isStrict) this.#kept.lost(claim);
      else this.#keep(claim);
    }
    this.#payDebts(now);
    this.#kept.looked();
    if (this.claims.size === 0) return;
    this.wakeIn(Math.min(this.#options.leaseMs / 3, firstDeadline - now));
  }

  #keep(claim: Claim): void {
    if (this.#trips.isAway) return;
    const { verb } = claim;
    claim.isKnown = true;
    this.#trips.send(verb, claim.id).then(
      ({ standing, sentAt }) => {
        if (claim.state !== "waiting" && claim.state !== "held") return;
        if (standing !== "none") {
          this.extend(claim, sentAt);
          if (verb === "adopt") claim.verb = "keep";
          if (standing === "held" && claim.state === "waiting") this.#kept.granted(claim);
        } else if (claim.state === "held") {
          this.#kept.lost(claim);
        } else {
          this.#kept.lapsed(claim);
        }
      },
      () => this.#retry(),
    );
  }

  async #giveBack(id: string, lapsed: number): Promise<void> {
    try {
      await this.#trips.send("release", id);
    } catch {
      // one that is asked for again has it, or a ticket, by right
      if (this.claims.has(id)) return;
      this.#debts.set(id, lapsed);
      this.#retry();
    }
  }

  #payDebts(now: number): void {
    for (const [id, lapsed] of this.#debts) {
      if (this.#trips.isAway && now < lapsed) continue;
      this.#debts.delete(id);
      if (now < lapsed) void this.#giveBack(id, lapsed);
    }
  }

  /** A store that is away says itself when it is back. */
  #retry(): void {
    if (!this.#trips.isAway) this.wakeIn(Math.min(LONGEST_RETRY_MS, this.#options.leaseMs / 10));
  }
}
