/**
 * Keeps what a process has at a store of leases, and delivers releases that could not be delivered
 * when they should have been. One timer does both; it keeps no process alive.
 */
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { LeaseLink } from "./lease-link.ts";
import type { Claim } from "./remote-lease.ts";

/** A store that refuses is asked again after this, ms, or a tenth of the lease. */
const LONGEST_RETRY_MS = 1000;
/** Processes that look at the same instant do so a little apart, ms. */
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
  readonly #link: LeaseLink;
  readonly #options: KeeperOptions;
  readonly #kept: Kept;
  /** Releases that could not be delivered, and when each lease will have lapsed by itself, ms. */
  readonly #debts = new Map<string, number>();
  readonly #releases = new Set<Promise<void>>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #closed = false;

  constructor(link: LeaseLink, options: KeeperOptions, kept: Kept) {
    this.#link = link;
    this.#options = options;
    this.#kept = kept;
  }

  /** Nothing is kept any more; a release is delivered once. */
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

  /** When the first lease lapses, a process has to look. */
  wakeAtLapse({ lapseMs }: LeaseReply): void {
    if (lapseMs >= 0) this.wakeIn(lapseMs + Math.random() * SPREAD_MS);
  }

  /** The store releases it, or will. */
  giveBack(id: string): Promise<void> {
    return this.#giveBack(id, performance.now() + this.#options.leaseMs);
  }

  /** When no release is under way. */
  async released(): Promise<void> {
    while (this.#releases.size > 0) await Promise.all(this.#releases);
  }

  /** The store does not know of it, and learns of it, or will: it is held whatever the limit. */
  adopt(claim: Claim): void {
    claim.verb = "adopt";
    claim.deadline = performance.now() + this.#options.leaseMs;
    this.#keep(claim);
  }

  /** The store has answered about it. */
  extend(claim: Claim, sentAt: number): void {
    claim.deadline = Math.max(claim.deadline, sentAt + this.#options.leaseMs);
  }

  /** Looks after all: leases first, since what is released lets others in. */
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
    if (this.#link.isAway) return;
    const { verb } = claim;
    claim.isKnown = true;
    this.#link.ask(verb, claim.id).then(
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

  #giveBack(id: string, lapsed: number): Promise<void> {
    const release = this.#release(id, lapsed).finally(() => this.#releases.delete(release));
    this.#releases.add(release);
    return release;
  }

  async #release(id: string, lapsed: number): Promise<void> {
    try {
      await this.#link.ask("release", id);
    } catch {
      // one that is asked for again has it, or a ticket, by right
      if (this.claims.has(id)) return;
      this.#debts.set(id, lapsed);
      this.#retry();
    }
  }

  #payDebts(now: number): void {
    for (const [id, lapsed] of this.#debts) {
      if (this.#link.isAway && now < lapsed) continue;
      this.#debts.delete(id);
      if (now < lapsed) void this.#giveBack(id, lapsed);
    }
  }

  /** While the store is away, its return is the next occasion. */
  #retry(): void {
    if (!this.#link.isAway) this.wakeIn(Math.min(LONGEST_RETRY_MS, this.#options.leaseMs / 10));
  }
}
