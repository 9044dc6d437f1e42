/**
 * Renews the leases and tickets of a process, and retries releases that have failed. One timer does both;
 * it does not keep the process alive.
 */
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { LeaseLink } from "./lease-link.ts";
import type { Claim } from "./remote-lease.ts";

/** A failed request is retried after this, ms, or after a tenth of `leaseMs` if that is less. */
const LONGEST_RETRY_MS = 1000;
/** Random spread, ms, so that all processes do not ask the store at the same instant. */
const SPREAD_MS = 20;

/** The outcomes of a renewal. */
export interface KeeperHost {
  /** The claim's ticket has become a lease, and no message has said so. */
  grantedUnnoticed(claim: Claim): void;
  /** The claim's lease has lapsed, or may have. */
  lose(claim: Claim): void;
  /** Requests a lease again: the claim's ticket has lapsed, or may have. */
  ask(claim: Claim): void;
  /** Called after each renewal of all claims. */
  looked(): void;
}

export class LeaseKeeper {
  readonly claims = new Map<string, Claim>();
  readonly #link: LeaseLink;
  readonly #leaseMs: number;
  readonly #isStrict: boolean;
  readonly #host: KeeperHost;
  /** Releases that have failed, each with the time at which the lease lapses by itself, ms. */
  readonly #debts = new Map<string, number>();
  readonly #releases = new Set<Promise<void>>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #closed = false;

  /**
   * @param isStrict whether a lease that was not renewed in time is lost; if false, only one unknown to the
   *   store is
   */
  constructor(link: LeaseLink, leaseMs: number, isStrict: boolean, host: KeeperHost) {
    this.#link = link;
    this.#leaseMs = leaseMs;
    this.#isStrict = isStrict;
    this.#host = host;
  }

  /** Ends all renewals; a later release is sent once, without retries. */
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

  /** Asks the store again when the first lease of all processes lapses. */
  wakeAtLapse({ lapseMs }: LeaseReply): void {
    if (lapseMs >= 0) this.wakeIn(lapseMs + Math.random() * SPREAD_MS);
  }

  /**
   * Releases the lease or ticket; resolves after the first attempt, which is retried if it fails.
   *
   * @param lapsed when the lease lapses by itself
   */
  giveBack(id: string, lapsed = performance.now() + this.#leaseMs): Promise<void> {
    const release = this.#release(id, lapsed).finally(() => this.#releases.delete(release));
    this.#releases.add(release);
    return release;
  }

  /** Resolves when no release is under way. */
  async released(): Promise<void> {
    while (this.#releases.size > 0) await Promise.all(this.#releases);
  }

  /** Registers a lease granted here with the store, now or when it is back, whatever the limit. */
  adopt(claim: Claim): void {
    claim.verb = "adopt";
    claim.deadline = performance.now() + this.#leaseMs;
    this.#keep(claim);
  }

  /** Extends the deadline: the store has answered a request that was sent at `sentAt`. */
  extend(claim: Claim, sentAt: number): void {
    claim.deadline = Math.max(claim.deadline, sentAt + this.#leaseMs);
  }

  /** Renews all claims, then retries releases: a release lets the store grant a lease to another caller. */
  wake(): void {
    clearTimeout(this.#timer);
    this.#timerAt = Infinity;
    const now = performance.now();
    let firstDeadline = Infinity;
    for (const claim of this.claims.values()) {
      const isDue = now >= claim.deadline;
      if (claim.state === "asked" || claim.state === "parked") continue;
      if (!isDue) firstDeadline = Math.min(firstDeadline, claim.deadline);
      if (claim.state === "waiting" && isDue) this.#host.ask(claim);
      else if (isDue && this.#isStrict) this.#host.lose(claim);
      else this.#keep(claim);
    }
    this.#payDebts(now);
    this.#host.looked();
    if (this.claims.size === 0) return;
    this.wakeIn(Math.min(this.#leaseMs / 3, firstDeadline - now));
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
          if (standing === "held" && claim.state === "waiting") this.#host.grantedUnnoticed(claim);
        } else if (claim.state === "held") {
          this.#host.lose(claim);
        } else {
          this.#host.ask(claim);
        }
      },
      () => this.#retry(),
    );
  }

  async #release(id: string, lapsed: number): Promise<void> {
    try {
      await this.#link.ask("release", id);
    } catch {
      // the claim has been requested again: it may keep its lease or ticket
      if (this.claims.has(id)) return;
      this.#debts.set(id, lapsed);
      this.#retry();
    }
  }

  #payDebts(now: number): void {
    for (const [id, lapsed] of this.#debts) {
      if (this.#link.isAway && now < lapsed) continue;
      this.#debts.delete(id);
      if (now < lapsed) void this.giveBack(id, lapsed);
    }
  }

  /** Schedules a retry; during an outage, the return of the store triggers it. */
  #retry(): void {
    if (!this.#link.isAway) this.wakeIn(Math.min(LONGEST_RETRY_MS, this.#leaseMs / 10));
  }
}
