/** The claims of one process: those that hold a lease, and those that wait for one, in order. */
import { AbortGroups } from "../../ground/abort-groups.ts";
import { systemClock } from "../../ground/clock.ts";
import { LeaseLostError, QueueFullError } from "../../ground/errors.ts";
import { leaseId } from "../../stores/lease-store.ts";
import { Fifo } from "../fifo.ts";
import type { Meter } from "../meter.ts";
import type { OutageStats } from "../remote/outage-stats.ts";
import { Claim } from "./remote-lease.ts";

export interface ClaimsOptions {
  readonly name: string;
  readonly maxWaiting: number;
  readonly leaseMs: number;
  readonly stats: OutageStats;
  /** Releases the lease or ticket of a claim that has left. */
  readonly giveBack: (id: string) => Promise<void>;
  /** Called when a lease is released, with the end of that release. */
  readonly freed: (released: Promise<void>) => void;
}

export class Claims {
  readonly processId = crypto.randomUUID();
  /** Those that count as waiting: with a ticket, before a new ticket, or in this process. */
  readonly line = new Fifo<Claim>();
  /** The limit in force, by the last reply; before the first, the declared limit. */
  limit: number;
  /** How many leases this process holds. */
  active = 0;
  readonly #declared: number;
  readonly #options: ClaimsOptions;
  readonly #meter: Meter;
  /** In order of arrival. */
  readonly #all = new Map<string, Claim>();
  readonly #signals = new AbortGroups<Claim>((claim, reason) => this.reject(claim, reason));
  #lastId = 0;

  constructor(declared: number, options: ClaimsOptions) {
    this.limit = declared;
    this.#declared = declared;
    this.#options = options;
    this.#meter = options.stats.meter([], undefined);
  }

  [Symbol.iterator](): Iterator<Claim> {
    return this.#all.values();
  }

  get size(): number {
    return this.#all.size;
  }

  get waiting(): number {
    return this.line.size;
  }

  get(id: string): Claim | undefined {
    return this.#all.get(id);
  }

  /**
   * Adds the claim of a new caller.
   *
   * @param insists whether a rejection is an error (`acquire`) or `undefined` (`tryAcquire`)
   * @param longestMs the longest wait, ms
   */
  add(
    insists: boolean,
    longestMs: number,
    signal: AbortSignal | undefined,
    resolve: Claim["resolve"],
  ): Claim {
    const waits = longestMs > 0 && this.#hasRoom;
    this.#lastId += 1;
    const id = leaseId(this.#options.leaseMs, this.#declared, this.processId, this.#lastId);
    const claim = new Claim(id, insists, waits, signal, resolve, (one) => this.release(one));
    this.#all.set(id, claim);
    this.#meter.enqueued();
    if (signal !== undefined) this.#signals.add(signal, claim);
    if (waits && longestMs < Infinity) {
      const end = systemClock.now() + longestMs;
      claim.timer = systemClock.wakeAt(end, () => this.#expire(claim));
    }
    return claim;
  }

  mayWait(claim: Claim): boolean {
    return claim.waits && (this.line.has(claim) || this.#hasRoom);
  }

  wait(claim: Claim): void {
    claim.state = "waiting";
    this.line.append(claim);
  }

  grant(claim: Claim): void {
    this.#meter.released(1, this.line.has(claim) ? claim.waited : 0);
    this.#endWait(claim);
    this.active += 1;
    claim.grant();
  }

  /** Ends a claim without a lease: none is free, and it may not wait. */
  refuse(claim: Claim): void {
    const { name, maxWaiting } = this.#options;
    void this.release(claim);
    this.#meter.expired(1, claim.waited, claim.refusal);
    claim.refuse(() => new QueueFullError(name, 1, this.waiting, maxWaiting));
  }

  /** Ends a claim that the store cannot answer. */
  fail(claim: Claim, error: unknown): void {
    void this.release(claim);
    this.#meter.ended();
    claim.reject(this.#options.stats.failed(error));
  }

  /** Ends a claim: its signal was aborted, or the limiter closed. */
  reject(claim: Claim, reason: unknown): void {
    void this.release(claim);
    this.#meter.left(1, claim.waited, reason);
    claim.reject(reason);
  }

  /** Ends a claim: its lease has lapsed, or may have. */
  lose(claim: Claim): void {
    const { name, leaseMs } = this.#options;
    void this.release(claim);
    claim.lose(new LeaseLostError(name, leaseMs));
  }

  /** Removes a claim, and releases the lease or ticket that it has or may get by a request under way. */
  release(claim: Claim): Promise<void> {
    const { state, isKnown, id } = claim;
    if (state === "gone") return Promise.resolve();
    claim.state = "gone";
    this.#all.delete(id);
    const released = isKnown ? this.#options.giveBack(id) : Promise.resolve();
    if (state === "held") {
      this.active -= 1;
      this.#options.freed(released);
    } else {
      this.#endWait(claim);
    }
    return released;
  }

  get #hasRoom(): boolean {
    return this.waiting < this.#options.maxWaiting;
  }

  #expire(claim: Claim): void {
    if (claim.state === "asked" && !this.line.has(claim)) {
      // the reply decides
      claim.waits = false;
    } else {
      void this.release(claim);
      this.#meter.expired(1, claim.waited);
      claim.expire();
    }
  }

  #endWait(claim: Claim): void {
    claim.timer?.cancel();
    if (claim.waitSignal !== undefined) this.#signals.delete(claim.waitSignal, claim);
    this.line.remove(claim);
  }
}
