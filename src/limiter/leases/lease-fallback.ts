/**
 * Decides which callers get leases while the store is away: as many as this process may hold by itself,
 * including those that it holds already. The other callers wait in one first-in-first-out line. They ask
 * the store when it is back.
 */
import { LONGEST_PAUSE_MS } from "../../stores/breaker.ts";
import { Fifo } from "../fifo.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { Claim } from "./remote-lease.ts";
import type { ThrowWhenUnavailable } from "./when-unavailable.ts";

/** How long the number of processes that share the limit is used before it is read again, ms. */
const SHARE_HOLDS_MS = 1000;

/** The part of the queue that its fallback uses. */
export interface FallbackHost {
  readonly limit: number;
  /** How many leases this process holds. */
  readonly active: number;
  readonly isAway: boolean;
  mayWait(claim: Claim): boolean;
  park(claim: Claim): void;
  refuse(claim: Claim): void;
  /** Grants a lease that the store does not know. */
  grant(claim: Claim): void;
  /** Sends the claim's request to the store, for the first time or again. */
  ask(claim: Claim): void;
}

export class LeaseFallback {
  readonly #host: FallbackHost;
  readonly #keeper: LeaseKeeper;
  readonly #strategy: ThrowWhenUnavailable;
  readonly #line = new Fifo<Claim>();
  /** The store is away, or other processes may not have noticed its return yet. */
  #isActive = false;
  #places = 0;
  #countedUntil = -Infinity;
  #settled: ReturnType<typeof setTimeout> | undefined;

  constructor(host: FallbackHost, keeper: LeaseKeeper, strategy: ThrowWhenUnavailable) {
    this.#host = host;
    this.#keeper = keeper;
    this.#strategy = strategy;
  }

  get isActive(): boolean {
    return this.#isActive;
  }

  /** Whether the store is back, but other processes may not have noticed its return yet. */
  get isSettling(): boolean {
    return this.#isActive && !this.#host.isAway;
  }

  /** How many leases this process may hold. */
  get places(): number {
    const now = performance.now();
    if (now >= this.#countedUntil) {
      this.#countedUntil = now + SHARE_HOLDS_MS;
      this.#places = this.#strategy.places(this.#host.limit);
    }
    return this.#places;
  }

  /** Whether a lease granted by the store may be used: the store does not count the leases granted here. */
  get hasPlace(): boolean {
    const isBound = this.#isActive && this.#strategy.answersHere;
    return !isBound || this.#host.active < this.places;
  }

  close(): void {
    clearTimeout(this.#settled);
  }

  /** Called when an outage begins: callers with tickets now wait in this process. */
  begin(): void {
    if (this.#strategy.failsCallers) return;
    clearTimeout(this.#settled);
    if (!this.#isActive) this.#countedUntil = -Infinity;
    this.#isActive = true;
    for (const claim of this.#keeper.claims.values()) {
      if (claim.state === "waiting") {
        claim.state = "parked";
        this.#line.append(claim);
      } else if (claim.state === "held" && this.#strategy.answersHere) {
        claim.verb = "adopt";
      }
    }
    this.look();
  }

  /** Grants or parks a claim for which the store cannot be asked, or rejects it. */
  admit(claim: Claim): void {
    this.grant();
    if (this.#host.active < this.places) {
      this.#grantOne(claim);
    } else if (this.#host.mayWait(claim)) {
      this.#host.park(claim);
      this.#line.append(claim);
      this.#keeper.wakeIn(SHARE_HOLDS_MS);
    } else {
      this.#host.refuse(claim);
    }
  }

  remove(claim: Claim): void {
    this.#line.remove(claim);
  }

  /** Grants leases to waiting callers, up to the number of places. */
  grant(): void {
    while (this.#line.size > 0 && this.#host.active < this.places) {
      const claim = this.#line.shift();
      if (claim !== undefined) this.#grantOne(claim);
    }
  }

  /** Grants leases again: this process' share may have changed. */
  look(): void {
    if (this.#line.size === 0) return;
    this.grant();
    this.#keeper.wakeIn(SHARE_HOLDS_MS);
  }

  #grantOne(claim: Claim): void {
    this.#host.grant(claim);
    this.#keeper.adopt(claim);
  }

  /**
   * Called when the store is back: sends it the leases that are held, then the tickets to release. Other
   * processes may notice its return later, by up to one probe interval. Until they have sent their leases,
   * each process keeps to its share and uses no tickets.
   */
  recovered(): void {
    if (!this.#isActive || !this.#strategy.isShared) {
      this.#end();
      return;
    }
    this.#keeper.wake();
    for (const claim of this.#line) {
      if (claim.isKnown) void this.#keeper.giveBack(claim.id);
    }
    this.#settled = setTimeout(() => this.#end(), LONGEST_PAUSE_MS);
    this.#settled.unref?.();
  }

  /** Ends the fallback: the waiting callers ask the store, in order. */
  #end(): void {
    const claims = [...this.#line];
    for (const claim of claims) this.#line.remove(claim);
    this.#isActive = false;
    for (const claim of claims) claim.state = "asked";
    this.#keeper.wake();
    for (const claim of claims) this.#host.ask(claim);
  }
}
