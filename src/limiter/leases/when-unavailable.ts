import type { LeaseReply } from "../../stores/lease-store.ts";
import { Strategy } from "../remote/store-link.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { LeaseAnswer, LeaseCall } from "./lease-link.ts";
import type { Claim } from "./remote-lease.ts";

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
  /** Called on a late reply to a request that has failed: the store has a lease or ticket of the claim. */
  late(id: string, answer: LeaseAnswer): void;
}

/** Fails all calls; a lease that could not be renewed in time is lost. */
export class ThrowWhenUnavailable extends Strategy<LeaseCall, LeaseAnswer> {
  /** Whether a lease that was not renewed in time is lost; if false, only one unknown to the store is. */
  readonly losesLeases: boolean = true;
  protected readonly host: LeaseHost;

  constructor(host: LeaseHost) {
    super();
    this.host = host;
  }

  // -- for the queue --

  /** How many leases this process may hold by itself; undefined: the store decides. */
  get places(): number | undefined {
    return undefined;
  }

  /** Whether a lease granted by the store may be used: the store does not count the leases granted here. */
  get hasPlace(): boolean {
    return true;
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

  override late(call: LeaseCall, answer: LeaseAnswer): void {
    if (answer.standing !== "none") this.host.late(call.what, answer);
  }

  override recovered(_send: (call: LeaseCall) => void): void {
    this.host.keeper.wake();
  }
}
