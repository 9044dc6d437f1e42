import { type Amount, combine, sizeOf } from "../../../ground/permits.ts";
import {
  type OutagePolicyState,
  SharePolicyState,
  type Snapshot,
} from "../../../stores/outage-policy-state.ts";
import type { Answer } from "../../../stores/store.ts";
import type { Parts } from "../parts.ts";
import { type PermitRequest, StoreCall } from "../permit-request.ts";
import { AnswerHere, type HereHost } from "./answer-here.ts";

/** How often the state of a store in use is requested, ms. */
const EVERY_MS = 50;

/**
 * Grants this process' share of the limit, starting from the last known state of the store. Therefore it
 * requests that state now and then, with other requests, and counts what this process was granted since.
 */
export class LocalWhenUnavailable extends AnswerHere {
  readonly #instances: () => number;
  readonly #nothing: Amount;
  /** How many permits each policy lacked; undefined: the store has never answered. */
  #deficit: readonly number[] | undefined;
  #knownAt = 0;
  #heldUntil = 0;
  #since: Amount;
  #nextMs = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param instances returns how many processes share the limit */
  constructor(parts: Parts, host: HereHost, instances: () => number) {
    super(parts, host);
    const shape = parts.policyState.amount(1);
    this.#instances = instances;
    this.#nothing = combine(shape, shape, () => 0);
    this.#since = this.#nothing;
  }

  override fraction(): number {
    return 1 / this.#instances();
  }

  override open(fraction: number, now: number, epoch: number): OutagePolicyState {
    const { declared, inForce } = this.parts;
    const policies = { ...declared, list: inForce.policies };
    return SharePolicyState.open(policies, fraction, this.#snapshot, now, epoch);
  }

  get #snapshot(): Snapshot | undefined {
    if (this.#deficit === undefined) return undefined;
    const ago = Math.max(0, this.parts.line.now() - this.#knownAt);
    return { deficit: this.#deficit, ago, since: this.#since };
  }

  protected override get heldFor(): number {
    return Math.max(0, this.#heldUntil - this.parts.line.now());
  }

  override piggyback(): PermitRequest | undefined {
    return performance.now() < this.#nextMs ? undefined : this.#inquire();
  }

  /** Makes the next batch request the state: the last known one is outdated. */
  override outdated(): void {
    this.#nextMs = -Infinity;
  }

  override answered(request: PermitRequest, answer: Answer): void {
    const amount = request.taken(answer);
    if (sizeOf(amount) === 0) return;
    this.#since = combine(this.#since, amount, (sum, permits = 0) => sum + permits);
    // a timer requests the state after the last grant, when no other batch follows
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.host.send(this.#inquire()), EVERY_MS);
    this.#timer.unref?.();
  }

  override recovered(send: (request: PermitRequest) => void): void {
    this.outdated();
    super.recovered(send);
  }

  override abandon(): Iterable<PermitRequest> {
    this.#cancelTimer();
    return super.abandon();
  }

  #inquire(): PermitRequest {
    this.#cancelTimer();
    this.#nextMs = performance.now() + EVERY_MS;
    const call = new StoreCall<void>({
      request: () => ({ verb: "deficit" }),
      result: ({ wait, deficit }) => {
        this.#knownAt = this.parts.line.now();
        this.#deficit = deficit;
        this.#heldUntil = this.#knownAt + wait;
        this.#since = this.#nothing;
        this.#cancelTimer();
      },
    });
    call.promise.catch(() => {});
    return call;
  }

  #cancelTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
