/** One strategy for each value of `whenUnavailable`: here those that answer in this process. */
import type { StoreUnavailableError } from "../ground/errors.ts";
import { MacrotaskGate } from "../ground/macrotask-gate.ts";
import { type Amount, combine, sizeOf } from "../ground/permits.ts";
import { correct } from "../queue/reservation.ts";
import type { PolicyList } from "../stores/policies.ts";
import { openFraction, openWithoutLimit, type Snapshot } from "../stores/state/fraction.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { Answer } from "../stores/store.ts";
import { type FallbackHost, FallbackLimiter, type LocalFraction } from "./fallback-limiter.ts";
import {
  type CallOptions,
  type ChangeVerb,
  changeOf,
  type Fallback,
  type PermitRequest,
  pauseOf,
  StoreCall,
} from "./permit-request.ts";
import { instancesOf, type Parts } from "./remote-options.ts";
import { ThrowWhenUnavailable, WaitWhenUnavailable } from "./strategy.ts";

/** How often the state of a store in use is requested, ms. */
const EVERY_MS = 50;

/** Grants every request, except that a pause still holds. */
export class AllowWhenUnavailable extends ThrowWhenUnavailable implements LocalFraction {
  override readonly unavailableOnError = true;
  override readonly unavailableOnDisconnect = true;
  protected readonly parts: Parts;
  protected readonly host: FallbackHost;
  readonly #gate = new MacrotaskGate();
  #fallback: FallbackLimiter | undefined;

  constructor(parts: Parts, host: FallbackHost) {
    super();
    this.parts = parts;
    this.host = host;
  }

  fraction(): number {
    return 1;
  }

  open(policies: PolicyList, _fraction: number, now: number, epoch: number): PolicyState {
    return openWithoutLimit(policies, now, epoch);
  }

  /** How long the store grants no request because of a pause, microseconds. */
  protected get heldFor(): number {
    return 0;
  }

  override get isIdle(): boolean {
    if (!super.isIdle || this.#fallback?.isIdle === false) return false;
    this.#fallback = undefined;
    return true;
  }

  override get waiting(): number {
    return this.#fallback?.waiting ?? 0;
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    const isKept = request.promisedUntil !== undefined && !isSent;
    if (isKept || request.runInFallback === undefined) super.failed(request, error, isSent);
    else if (isSent) request.runInFallback(this.#here, true);
    else this.#gate.pass(() => this.#runLater(request));
  }

  get #here(): Fallback {
    if (this.#fallback === undefined) {
      this.#fallback = new FallbackLimiter(this.parts, this.host, this);
      // callers with permits promised by the store go first
      this.#fallback.holdFor(Math.max(this.heldFor, this.parts.queue.end - this.parts.queue.now()));
    }
    return this.#fallback;
  }

  #runLater(request: PermitRequest): void {
    if (request.gone) return;
    const { link } = this.host;
    // the store may be back by now
    if (link.isUnavailable) request.runInFallback?.(this.#here, false);
    else link.send(request);
  }

  override late(request: PermitRequest, answer: Answer, sentAt: number): void {
    this.#fallback?.sentWasRun();
    super.late(request, answer, sentAt);
  }

  /** Charges the permits used in the outage to the store, and sends the requests of waiting callers. */
  override recovered(send: (request: PermitRequest) => void): void {
    super.recovered(send);
    const settlement = this.#fallback?.retire();
    this.#fallback = undefined;
    if (settlement === undefined) return;
    const { used, pause, callers } = settlement;
    // no caller waits for these calls; they are sent even while the limiter is being closed
    const settle = (options: CallOptions<void>) => {
      const call = new StoreCall(options);
      call.promise.catch(() => {});
      send(call);
    };
    if (pause > 0) settle(pauseOf(pause));
    const change = (verb: ChangeVerb) => (amount: Amount) => settle(changeOf(verb, amount));
    const nothing = combine(used, used, () => 0);
    correct({ charge: change("settle"), refund: change("refund") }, nothing, used);
    for (const caller of callers) this.host.send(caller);
  }
}

/**
 * Grants this process' fraction of the limit, starting from the last known state of the store. Therefore it
 * requests that state now and then, with other requests, and counts what this process was granted since.
 */
export class LocalWhenUnavailable extends AllowWhenUnavailable {
  /** Returns how many processes share the limit. */
  readonly #instances: () => number;
  readonly #nothing: Amount;
  /** How many permits each policy lacked; undefined: the store has never answered. */
  #deficit: readonly number[] | undefined;
  #knownAt = 0;
  #heldUntil = 0;
  #since: Amount;
  #nextMs = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(parts: Parts, host: FallbackHost) {
    super(parts, host);
    const shape = parts.policyState.amount(1);
    this.#instances = instancesOf(parts.instances, parts.stats.processes);
    this.#nothing = combine(shape, shape, () => 0);
    this.#since = this.#nothing;
  }

  override fraction(): number {
    return 1 / this.#instances();
  }

  override open(policies: PolicyList, fraction: number, now: number, epoch: number): PolicyState {
    return openFraction(policies, fraction, this.#snapshot, now, epoch);
  }

  get #snapshot(): Snapshot | undefined {
    if (this.#deficit === undefined) return undefined;
    const ago = Math.max(0, this.parts.queue.now() - this.#knownAt);
    return { deficit: this.#deficit, ago, since: this.#since };
  }

  protected override get heldFor(): number {
    return Math.max(0, this.#heldUntil - this.parts.queue.now());
  }

  override piggyback(): PermitRequest | undefined {
    return performance.now() < this.#nextMs ? undefined : this.#inquire();
  }

  /** Makes the next batch request the state: the last known one is outdated. */
  override outdated(): void {
    this.#nextMs = -Infinity;
  }

  override answered(request: PermitRequest, answer: Answer): void {
    const amount = request.takenBy(answer);
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

  override abandon(): readonly PermitRequest[] {
    this.#cancelTimer();
    return super.abandon();
  }

  #inquire(): PermitRequest {
    this.#cancelTimer();
    this.#nextMs = performance.now() + EVERY_MS;
    const call = new StoreCall<void>({
      request: () => ({ verb: "deficit" }),
      result: ({ wait, deficit }) => {
        this.#knownAt = this.parts.queue.now();
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

const STRATEGIES = {
  throw: () => new ThrowWhenUnavailable(),
  wait: () => new WaitWhenUnavailable(),
  local: (parts: Parts, host: FallbackHost) => new LocalWhenUnavailable(parts, host),
  allow: (parts: Parts, host: FallbackHost) => new AllowWhenUnavailable(parts, host),
};

/** Returns the strategy of the limiter's `whenUnavailable`. */
export function whenUnavailable(parts: Parts, host: FallbackHost): ThrowWhenUnavailable {
  return STRATEGIES[parts.whenUnavailable](parts, host);
}
