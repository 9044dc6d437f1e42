/**
 * What concurrency limiters do while the store is away. With "throw" they fail. The other strategies keep
 * the callers. A process may then hold a number of leases by itself, including those that it holds already:
 * none with "wait", all with "allow", its share of the limit with "local". The other callers wait in one
 * first-in-first-out line. They ask the store when it is back.
 */
import type { StoreUnavailableError } from "../../ground/errors.ts";
import { type Breaker, LONGEST_PAUSE_MS } from "../../stores/breaker.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import { Fifo } from "../fifo.ts";
import { Strategy } from "../remote/store-link.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { LeaseAnswer, LeaseCall } from "./lease-link.ts";
import type { Claim } from "./remote-lease.ts";

/** How long the number of processes that share the limit is used before it is read again, ms. */
const SHARE_HOLDS_MS = 1000;

/** The part of the queue that its strategy uses. */
export interface LeaseHost {
  readonly keeper: LeaseKeeper;
  readonly limit: number;
  /** How many leases this process holds. */
  readonly active: number;
  readonly isAway: boolean;
  mayWait(claim: Claim): boolean;
  /** Counts the claim as waiting. */
  wait(claim: Claim, state: "parked"): void;
  refuse(claim: Claim): void;
  /** Grants a lease that the store does not know. */
  grant(claim: Claim): void;
  /** Sends the claim's request to the store, for the first time or again. */
  ask(claim: Claim): void;
  /** Called for each reply that arrives in time. */
  replied(reply: LeaseReply): void;
}

/** Fails all calls; a lease that could not be renewed in time is lost. */
export class LeaseStrategy extends Strategy<LeaseCall, LeaseAnswer> {
  /** Whether a lease that was not renewed in time is lost; if false, only one unknown to the store is. */
  readonly losesLeases: boolean = true;
  protected readonly host: LeaseHost;

  constructor(host: LeaseHost) {
    super();
    this.host = host;
  }

  // -- for the queue --

  /**
   * How many leases this process may hold, while the store does not count those granted here; undefined:
   * the store decides.
   */
  get places(): number | undefined {
    return undefined;
  }

  /** Whether callers wait in this process, though the store may answer again. */
  get isActive(): boolean {
    return false;
  }

  /** Handles a claim of a new caller. */
  claim(claim: Claim): void {
    this.host.ask(claim);
  }

  /** Handles a claim that the store cannot answer. @param fail rejects the caller */
  unanswered(_claim: Claim, fail: () => void): void {
    fail();
  }

  /** Handles a claim for which the store has a lease, but this process has no place. */
  admit(_claim: Claim): void {}

  /** Removes a claim that does not wait any more. */
  remove(_claim: Claim): void {}

  /** Grants leases to waiting callers: a place may be free. */
  look(): void {}

  close(): void {}

  // -- for the link --

  override get isIdle(): boolean {
    return this.host.keeper.claims.size === 0;
  }

  override answered(_call: LeaseCall, { reply }: LeaseAnswer): void {
    this.host.replied(reply);
  }

  override recovered(_send: (call: LeaseCall) => void): void {
    this.host.keeper.wake();
  }
}

abstract class KeepsCallers extends LeaseStrategy {
  override readonly awayOnError = true;
  readonly #line = new Fifo<Claim>();
  /** The store is away, or other processes may not have noticed its return yet. */
  #isActive = false;

  override get isActive(): boolean {
    return this.#isActive;
  }

  /** How many leases this process may hold. */
  protected abstract get share(): number;

  override unanswered(claim: Claim, _fail: () => void): void {
    if (this.#isActive) this.admit(claim);
    // the store is back already
    else this.host.ask(claim);
  }

  /** Grants or parks a claim for which the store cannot be asked, or rejects it. */
  override admit(claim: Claim): void {
    const { host } = this;
    this.#grant();
    if (host.active < this.share) {
      this.#grantOne(claim);
    } else if (host.mayWait(claim)) {
      host.wait(claim, "parked");
      this.#line.append(claim);
      host.keeper.wakeIn(SHARE_HOLDS_MS);
    } else {
      host.refuse(claim);
    }
  }

  override remove(claim: Claim): void {
    this.#line.remove(claim);
  }

  override look(): void {
    if (this.#line.size === 0) return;
    this.#grant();
    this.host.keeper.wakeIn(SHARE_HOLDS_MS);
  }

  #grant(): void {
    while (this.#line.size > 0 && this.host.active < this.share) {
      const claim = this.#line.shift();
      if (claim !== undefined) this.#grantOne(claim);
    }
  }

  #grantOne(claim: Claim): void {
    this.host.grant(claim);
    this.host.keeper.adopt(claim);
  }

  /** An outage begins: callers with tickets now wait in this process. */
  override lost(): void {
    this.#isActive = true;
    for (const claim of this.host.keeper.claims.values()) {
      if (claim.state === "waiting") {
        claim.state = "parked";
        this.#line.append(claim);
      }
    }
    this.look();
  }

  override recovered(_send: (call: LeaseCall) => void): void {
    this.end();
  }

  /** Releases the tickets of waiting callers. */
  protected releaseTickets(): void {
    for (const claim of this.#line) {
      if (claim.isKnown) void this.host.keeper.giveBack(claim.id);
    }
  }

  /** Ends the fallback: the waiting callers ask the store, in order. */
  protected end(): void {
    const claims = [...this.#line];
    for (const claim of claims) this.#line.remove(claim);
    this.#isActive = false;
    for (const claim of claims) claim.state = "asked";
    this.host.keeper.wake();
    for (const claim of claims) this.host.ask(claim);
  }
}

/** Lets callers wait in this process, without a lease; `look` and `limit` requests wait for the store. */
class WaitWhenUnavailable extends KeepsCallers {
  protected override readonly share = 0;
  readonly #waiting = new Set<LeaseCall>();

  override get isAwaited(): boolean {
    return this.#waiting.size > 0 || this.host.keeper.claims.size > this.host.active;
  }

  override get isIdle(): boolean {
    return !this.isAwaited && super.isIdle;
  }

  override breaker(breaker: Breaker): Breaker {
    return breaker.forWaiting();
  }

  override failed(call: LeaseCall, error: StoreUnavailableError, isSent: boolean): void {
    if (call.verb === "look" || call.verb === "limit") this.#waiting.add(call);
    else super.failed(call, error, isSent);
  }

  override late(call: LeaseCall, answer: LeaseAnswer): void {
    if (this.#waiting.delete(call)) call.answer(answer);
    else call.returnToStore(answer);
  }

  override recovered(send: (call: LeaseCall) => void): void {
    for (const call of this.abandon()) send(call);
    super.recovered(send);
  }

  override abandon(): Iterable<LeaseCall> {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    return waiting;
  }
}

/** Grants leases in this process, without a bound. */
class AllowWhenUnavailable extends KeepsCallers {
  override readonly awayOnDisconnect = true;
  override readonly losesLeases = false;

  protected override get share(): number {
    return Infinity;
  }

  override get places(): number | undefined {
    return this.isActive ? this.share : undefined;
  }

  override lost(): void {
    for (const claim of this.host.keeper.claims.values()) {
      if (claim.state === "held") claim.verb = "adopt";
    }
    super.lost();
  }
}

/** Grants leases in this process, up to its share of the limit. */
class LocalWhenUnavailable extends AllowWhenUnavailable {
  readonly #instances: () => number;
  #share = 0;
  #countedUntil = -Infinity;
  #settled: ReturnType<typeof setTimeout> | undefined;

  constructor(host: LeaseHost, instances: () => number) {
    super(host);
    this.#instances = instances;
  }

  protected override get share(): number {
    const now = performance.now();
    if (now >= this.#countedUntil) {
      this.#countedUntil = now + SHARE_HOLDS_MS;
      this.#share = Math.max(1, Math.floor(this.host.limit / this.#instances()));
    }
    return this.#share;
  }

  /** Keeps new callers in this process until other processes have noticed the return of the store. */
  override claim(claim: Claim): void {
    if (this.isActive && !this.host.isAway) this.admit(claim);
    else super.claim(claim);
  }

  override close(): void {
    clearTimeout(this.#settled);
  }

  override lost(): void {
    clearTimeout(this.#settled);
    if (!this.isActive) this.#countedUntil = -Infinity;
    super.lost();
  }

  /**
   * Sends the leases that are held to the store, then the tickets to release. Other processes may notice
   * its return later, by up to one probe interval. Until they have sent their leases, each process keeps to
   * its share and uses no tickets.
   */
  override recovered(send: (call: LeaseCall) => void): void {
    if (!this.isActive || this.#instances() <= 1) {
      super.recovered(send);
      return;
    }
    this.host.keeper.wake();
    this.releaseTickets();
    this.#settled = setTimeout(() => this.end(), LONGEST_PAUSE_MS);
    this.#settled.unref?.();
  }
}

export function whenUnavailable(
  kind: "throw" | "wait" | "local" | "allow",
  host: LeaseHost,
  instances: () => number,
): LeaseStrategy {
  if (kind === "throw") return new LeaseStrategy(host);
  if (kind === "wait") return new WaitWhenUnavailable(host);
  if (kind === "allow") return new AllowWhenUnavailable(host);
  return new LocalWhenUnavailable(host, instances);
}
