/** What calls about leases do while the store is away: one class for each `whenUnavailable`. */
import type { StoreUnavailableError } from "../../errors.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { WhenUnavailable } from "../remote/store-link.ts";
import type { LeaseAnswer, LeaseCall } from "./lease-call.ts";

/** The limiter, as its strategy sees it. */
export interface LeaseHost {
  /** How many wait for a lease here, and how many wait for one or hold one. */
  readonly waitingHere: number;
  readonly claims: number;
  /** A reply in time. */
  replied(reply: LeaseReply): void;
  /** What a claim has at the store, after its request had failed. */
  late(id: string, answer: LeaseAnswer): void;
  lost(): void;
  recovered(): void;
}

/** Calls fail; a lease that could not be kept in time is lost. */
export class ThrowWhenUnavailable implements WhenUnavailable<LeaseCall, LeaseAnswer> {
  readonly awayOnError: boolean = false;
  readonly awayOnDisconnect: boolean = false;
  readonly acceptsLate: boolean = false;
  /** Calls are answered here, and leases stay valid, however long the store is away. */
  readonly answersHere: boolean = false;
  /** How many leases this process may hold while the store is away. */
  readonly places: (limit: number) => number = () => 0;
  /** Callers that ask for a lease while the store is away fail: they are not let in, nor do they wait. */
  get failsCallers(): boolean {
    return !this.answersHere && !this.acceptsLate;
  }
  /** After an outage other processes may hold leases that the store does not know yet. */
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

/** Callers wait here without a place; what only the store can answer waits for it. */
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

/** Callers get leases here, without a bound. */
export class AllowWhenUnavailable extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  override readonly awayOnDisconnect = true;
  override readonly answersHere = true;
  override readonly places: (limit: number) => number = () => Infinity;
}

/** Callers get leases here, as many as the share of this process. */
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
