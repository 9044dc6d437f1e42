/** Handles lease requests while the store is away: one class for each `whenUnavailable`. */
import type { StoreUnavailableError } from "../../ground/errors.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { WhenUnavailable } from "../remote/store-link.ts";
import type { LeaseAnswer, LeaseCall } from "./lease-call.ts";

/** The part of the limiter that its strategy uses. */
export interface LeaseHost {
  /** How many callers of this process wait for a lease, and how many wait for one or hold one. */
  readonly waitingHere: number;
  readonly claims: number;
  /** Called for each reply that arrives in time. */
  replied(reply: LeaseReply): void;
  /** Called on a late reply to a request that has failed: the store has a lease or ticket of the claim. */
  late(id: string, answer: LeaseAnswer): void;
  lost(): void;
  recovered(): void;
}

/** Fails all calls; a lease that could not be renewed in time is lost. */
export class ThrowWhenUnavailable implements WhenUnavailable<LeaseCall, LeaseAnswer> {
  readonly awayOnError: boolean = false;
  readonly awayOnDisconnect: boolean = false;
  readonly acceptsLate: boolean = false;
  /** Whether calls are answered here and leases stay valid, however long the store is away. */
  readonly answersHere: boolean = false;
  /** How many leases this process may hold while the store is away. */
  readonly places: (limit: number) => number = () => 0;
  /** Whether a call for a lease during an outage fails: it is neither granted nor kept waiting. */
  get failsCallers(): boolean {
    return !this.answersHere && !this.acceptsLate;
  }
  /** Whether other processes may hold leases after an outage that the store does not know yet. */
  get isShared(): boolean {
    return false;
  }
  protected readonly host: LeaseHost;

  constructor(host: LeaseHost) {
    this.host = host;
  }

  get isAwaited(): boolean {
    return false;
  }

  get holdsRequests(): boolean {
    return false;
  }

  get isIdle(): boolean {
    return this.host.claims === 0;
  }

  replied(reply: LeaseReply): void {
    this.host.replied(reply);
  }

  failed(call: LeaseCall, error: StoreUnavailableError, _isSent: boolean): void {
    call.fail(error);
  }

  late(call: LeaseCall, answer: LeaseAnswer): void {
    if (answer.standing !== "none") this.host.late(call.what, answer);
  }

  lost(): void {
    this.host.lost();
  }

  recovered(_send: (call: LeaseCall) => void): void {
    this.host.recovered();
  }

  abandon(): Iterable<LeaseCall> {
    return [];
  }
}

/** Lets callers wait in this process, without a lease; `look` and `limit` requests wait for the store. */
export class WaitWhenUnavailable extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  override readonly acceptsLate = true;
  readonly #waiting = new Set<LeaseCall>();

  override get isAwaited(): boolean {
    return this.#waiting.size > 0 || this.host.waitingHere > 0;
  }

  override get isIdle(): boolean {
    return !this.isAwaited && super.isIdle;
  }

  override failed(call: LeaseCall, error: StoreUnavailableError, isSent: boolean): void {
    if (call.verb === "look" || call.verb === "limit") this.#waiting.add(call);
    else super.failed(call, error, isSent);
  }

  override late(call: LeaseCall, answer: LeaseAnswer): void {
    if (this.#waiting.delete(call)) call.answer(answer);
    else super.late(call, answer);
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
export class AllowWhenUnavailable extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  override readonly awayOnDisconnect = true;
  override readonly answersHere = true;
  override readonly places: (limit: number) => number = () => Infinity;
}

/** Grants leases in this process, up to its share of the limit. */
export class LocalWhenUnavailable extends AllowWhenUnavailable {
  readonly #instances: () => number;
  override readonly places = (limit: number) => Math.max(1, Math.floor(limit / this.#instances()));

  constructor(host: LeaseHost, instances: () => number) {
    super(host);
    this.#instances = instances;
  }

  override get isShared(): boolean {
    return this.#instances() > 1;
  }
}

export function whenUnavailable(
  kind: "throw" | "wait" | "local" | "allow",
  host: LeaseHost,
  instances: () => number,
): ThrowWhenUnavailable {
  if (kind === "throw") return new ThrowWhenUnavailable(host);
  if (kind === "wait") return new WaitWhenUnavailable(host);
  if (kind === "allow") return new AllowWhenUnavailable(host);
  return new LocalWhenUnavailable(host, instances);
}
