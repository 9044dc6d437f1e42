/**
 * Which callers go while the store of leases is away: as many as this process may hold by itself, with
 * those that it holds already. The others wait in one line, first in, first out; they ask the store
 * when it is back.
 */
import { LONGEST_PAUSE_MS } from "../../stores/breaker.ts";
import { Fifo } from "../fifo.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { Claim } from "./remote-lease.ts";
import type { ThrowWhenUnavailable } from "./when-unavailable.ts";

/** How often it is asked how many processes share the limit, ms. */
const SHARE_HOLDS_MS = 1000;

/** The queue of which it is the fallback. */
export interface FallbackHost {
  readonly limit: number;
  /** How many leases this process holds. */
  readonly active: number;
  readonly isAway: boolean;
  mayWait(claim: Claim): boolean;
  park(claim: Claim): void;
  refuse(claim: Claim): void;
  /** It gets a lease, of which the store does not know. */
  grant(claim: Claim): void;
  /** Asks the store for it, or again. */
  ask(claim: Claim): void;
}

export class LeaseFallback {
  readonly #host: FallbackHost;
  readonly #keeper: LeaseKeeper;
  readonly #strategy: ThrowWhenUnavailable;
  readonly #line = new Fifo<Claim>();
  /** The store is away, or other processes may not have found it yet. */
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

  /** The store is back, but not all processes that share the limit may have found it. */
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

  /** Whether one that the store lets in may go: the store does not know what was let in here. */
  get hasPlace(): boolean {
    const isBound = this.#isActive && this.#strategy.answersHere;
    return !isBound || this.#host.active < this.places;
  }

  close(): void {
    clearTimeout(this.#settled);
  }

  /** An outage begins: callers with tickets wait here from now on. */
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

  /** The store cannot be asked for it. */
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

  /** As many as there are places for. */
  grant(): void {
    while (this.#line.size > 0 && this.#host.active < this.places) {
      const claim = this.#line.shift();
      if (claim !== undefined) this.#grantOne(claim);
    }
  }

  /** The share may be another by now. */
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
   * The store learns what is held, then what was released. Other processes may find it a pause
   * later: until it has learned what they hold, each goes on with its share, and without tickets.
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

  /** Callers that wait ask the store, in order. */
  #end(): void {
    const claims = [...this.#line];
    for (const claim of claims) this.#line.remove(claim);
    this.#isActive = false;
    for (const claim of claims) claim.state = "asked";
    this.#keeper.wake();
    for (const claim of claims) this.#host.ask(claim);
  }
}
