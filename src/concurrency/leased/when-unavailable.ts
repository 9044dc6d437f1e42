/**
 * What concurrency limiters do while the store is away. With "throw" they fail. The other strategies keep
 * the callers. A process may then hold a number of leases by itself, including those that it holds already:
 * none with "wait", all with "allow", its part of the limit with "local". The other callers wait in one
 * first-in-first-out queue. They ask the store when it is back.
 */
import type { StoreUnavailableError } from "../../ground/errors.ts";
import { Strategy } from "../../remote/strategy.ts";
import { type Breaker, LONGEST_PAUSE_MS } from "../../stores/breaker.ts";
import type { LeaseReply } from "../../stores/lease-store.ts";
import type { LeaseAnswer, LeaseCall } from "./lease-link.ts";
import type { StoreLeases } from "./store-leases.ts";

/** How long the number of processes that share the limit is used before it is read again, ms. */
export const PART_HOLDS_MS = 1000;

/** The part of the queue that its strategy uses. */
export interface LeaseHost extends StoreLeases {
  /** Grants leases to waiting callers, as long as this process has not used up its part. */
  grantPart(): void;
  /** Renews all leases. */
  wake(): void;
  /** The callers that wait in this process ask the store, in order. */
  resume(): void;
  /** Called for each answer that arrives in time. */
  replied(reply: LeaseReply): void;
  /** Called when the store has a lease or ticket of a caller after its request has failed here. */
  answeredLate(id: string, answer: LeaseAnswer): void;
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

  /** Whether callers wait in this process now, though the store may answer again. */
  get decidesHere(): boolean {
    return this.unavailableOnError && this.host.isUnavailable;
  }

  /** How many leases this process may hold by its own decision; 0: only the store grants leases. */
  get part(): number {
    return 0;
  }

  close(): void {}

  override get isIdle(): boolean {
    return this.host.isEmpty;
  }

  override answered(_call: LeaseCall, { reply }: LeaseAnswer): void {
    this.host.replied(reply);
  }

  override late(call: LeaseCall, answer: LeaseAnswer): void {
    if (this.kept.delete(call)) call.answer(answer);
    else if (answer.standing !== "none") this.host.answeredLate(call.what, answer);
  }

  override recovered(send: (call: LeaseCall) => void): void {
    super.recovered(send);
    if (this.unavailableOnError) this.host.resume();
    else this.host.wake();
  }
}

/** Lets callers wait in this process, without a lease; `look` and `limit` requests wait for the store. */
class WaitWhenUnavailable extends LeaseStrategy {
  override readonly unavailableOnError = true;

  override get isAwaited(): boolean {
    return this.holdsRequests || this.host.isWanted;
  }

  override get isIdle(): boolean {
    return !this.isAwaited && super.isIdle;
  }

  override breaker(breaker: Breaker): Breaker {
    return breaker.forWaiting();
  }

  override failed(call: LeaseCall, error: StoreUnavailableError, isSent: boolean): void {
    if (call.verb === "look" || call.verb === "limit") this.kept.set(call, undefined);
    else super.failed(call, error, isSent);
  }
}

/** Grants leases in this process, without a bound. */
class AllowWhenUnavailable extends LeaseStrategy {
  override readonly unavailableOnError = true;
  override readonly unavailableOnDisconnect = true;
  override readonly losesLeases = false;

  override get part(): number {
    return this.decidesHere ? Infinity : 0;
  }

  override lost(): void {
    for (const lease of this.host) if (lease.state === "held") lease.verb = "adopt";
    this.host.grantPart();
  }
}

/** Grants leases in this process, up to its part of the limit. */
class LocalWhenUnavailable extends AllowWhenUnavailable {
  readonly #instances: () => number;
  #part = 0;
  #countedUntil = -Infinity;
  /** Set after an outage, until other processes have noticed the return of the store. */
  #settling: ReturnType<typeof setTimeout> | undefined;

  constructor(host: LeaseHost, instances: () => number) {
    super(host);
    this.#instances = instances;
  }

  override get decidesHere(): boolean {
    return super.decidesHere || this.#settling !== undefined;
  }

  override get part(): number {
    if (!this.decidesHere) return 0;
    const now = performance.now();
    if (now >= this.#countedUntil) {
      this.#countedUntil = now + PART_HOLDS_MS;
      this.#part = Math.max(1, Math.floor(this.host.limit / this.#instances()));
    }
    return this.#part;
  }

  override close(): void {
    clearTimeout(this.#settling);
    this.#settling = undefined;
  }

  override lost(): void {
    if (this.#settling === undefined) this.#countedUntil = -Infinity;
    this.close();
    super.lost();
  }

  /**
   * Sends the leases that are held to the store, then the tickets to release. Other processes may notice
   * its return later, by up to one probe interval. Until they have sent their leases, each process keeps to
   * its part and uses no tickets.
   */
  override recovered(send: (call: LeaseCall) => void): void {
    if (this.#instances() <= 1) {
      super.recovered(send);
      return;
    }
    this.#settling = setTimeout(() => {
      this.close();
      this.host.resume();
    }, LONGEST_PAUSE_MS);
    this.#settling.unref?.();
    this.host.wake();
    for (const { isKnown, id } of this.host.queue) if (isKnown) void this.host.giveBack(id);
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
