/**
 * A limiter in this process that replaces the store during an outage: an ordinary queue on this process'
 * fraction of the policies. When the store is back, the requests of callers that still wait are sent to it,
 * and the permits that were used here are charged to it. Reservations keep their instants.
 */
import type { Policy } from "../algorithms/algorithm.ts";
import { passing } from "../api/decision.ts";
import type { Decision } from "../api/limiter-api.ts";
import type { Amount } from "../ground/permits.ts";
import { type HasInstants, MonotonicTime } from "../queue/monotonic-time.ts";
import { PermitQueue } from "../queue/permit-queue.ts";
import { Waiter } from "../queue/waiter.ts";
import type { PolicyList } from "../stores/policies.ts";
import { fractionsOf, lackedMore } from "../stores/state/fraction.ts";
import type { PolicyState } from "../stores/state/one.ts";
import type { ChangeVerb, Fallback, FallbackRequest, PermitRequest } from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";

/** How long the number of processes that share the limit is used before it is read again, microseconds. */
const FRACTION_HOLDS = 1_000_000;

/** The part of `RemoteCalls` that the strategies "local" and "allow" use. */
export interface FallbackHost {
  readonly link: { readonly isUnavailable: boolean; send(request: PermitRequest): void };
  send(request: PermitRequest): void;
  /** Returns whether `maxWaiting` allows that many more permits; `full` is the error if not. */
  hasRoom(amount: Amount): boolean;
  full(amount: Amount, policies: readonly Policy[]): Error;
}

/** This process' fraction of the policies, at most 1, and how the state for a fraction is opened. */
export interface LocalFraction {
  fraction(): number;
  open(policies: PolicyList, fraction: number, now: number, epoch: number): PolicyState;
}

export class FallbackLimiter implements Fallback, HasInstants {
  readonly #parts: Parts;
  readonly #host: FallbackHost;
  readonly #localFraction: LocalFraction;
  readonly #time: MonotonicTime;
  readonly #queue: PermitQueue;
  /** The state as if no request had been granted in this process. */
  readonly #idle: PolicyState;
  /** The same, as if the store had run the changes that were sent before the outage. */
  #idleIfRun: PolicyState | undefined;
  readonly #requests = new Set<FallbackRequest>();
  readonly #policies: readonly Policy[];
  #fraction: number;
  #askedAgainAt: number;
  #pausedUntil = 0;
  #sentWasRun = false;

  constructor(parts: Parts, host: FallbackHost, localFraction: LocalFraction) {
    this.#parts = parts;
    this.#host = host;
    this.#localFraction = localFraction;
    this.#policies = parts.activePolicies.policies;
    this.#fraction = localFraction.fraction();
    this.#time = new MonotonicTime(parts.clock, this);
    const { last, epoch } = this.#time;
    const policies = { ...parts.declared, list: this.#policies };
    const policyState = localFraction.open(policies, this.#fraction, last, epoch);
    this.#idle = policyState.copy();
    this.#queue = new PermitQueue(this.#time, policyState);
    this.#askedAgainAt = this.#queue.now() + FRACTION_HOLDS;
  }

  /** How many permits callers wait for here. */
  get waiting(): number {
    return this.#queue.permits;
  }

  /** Whether no caller waits, no permits are missing and no pause holds. */
  get isIdle(): boolean {
    const now = this.#queue.now();
    return this.#queue.isIdle && this.#queue.supply.deficit(now).every((permits) => permits === 0);
  }

  admit(request: FallbackRequest): void {
    const { amount, left } = request;
    const { activePolicies } = this.#parts;
    if (activePolicies.closed(amount) >= 0 || activePolicies.isImpossible(amount)) {
      request.never(activePolicies.excess(amount));
      return;
    }
    const queue = this.#queue;
    const now = this.#now();
    if (queue.grant(amount)) {
      this.#letIn(request);
      return;
    }
    const mayWait = this.#host.hasRoom(amount) && queue.overflowing(amount) < 0;
    if (!mayWait || queue.estimate(amount).instant > now + left) {
      request.decline(() => this.#full(amount));
      return;
    }
    const waiter = new FallbackWaiter(now, request, (isLetIn) => {
      this.#requests.delete(request);
      request.leaveFallback = undefined;
      if (!isLetIn) request.decline(() => this.#full(amount));
      else if (request.isAwaited) this.#letIn(request);
    });
    this.#requests.add(request);
    request.leaveFallback = () => {
      if (this.#requests.delete(request)) queue.remove(waiter);
    };
    const wait = queue.estimate(amount).instant - now;
    queue.add(waiter);
    if (request.isAwaited) return;
    this.#parts.stats.granted(amount);
    request.granted(wait);
  }

  #letIn(request: FallbackRequest): void {
    this.#parts.stats.granted(request.amount);
    request.granted(0);
  }

  /** `waitMs` is `Infinity` if the caller could not wait because `maxWaiting` is reached. */
  decide(verb: "decide" | "peek", amount: Amount): Decision {
    const { activePolicies } = this.#parts;
    const rejection = activePolicies.rejection(amount);
    if (rejection !== undefined) return rejection;
    if (activePolicies.isImpossible(amount)) throw activePolicies.excess(amount);
    const queue = this.#queue;
    const now = this.#now();
    if (verb === "decide" && queue.grant(amount)) {
      this.#parts.stats.granted(amount);
      return passing(queue.supply.names, queue.supply.quotas(now), amount);
    }
    return queue.look(amount, this.#host.hasRoom(amount) ? Infinity : 0);
  }

  change(verb: ChangeVerb, amount: Amount, isSent: boolean): void {
    this.#queue.change((policyState, now) => apply(policyState, verb, now, amount));
    if (!isSent) return;
    const now = this.#time.last;
    this.#idleIfRun ??= this.#idle.copy();
    apply(this.#idleIfRun, verb, now, amount);
    // it must not happen twice, so the store never gets it again
    if (verb === "refund") apply(this.#idle, verb, now, amount);
  }

  /** Called on a late reply: the store has run the requests that were sent before the outage. */
  sentWasRun(): void {
    this.#sentWasRun = true;
  }

  /** Delays all callers by that many microseconds; the store has this pause already. */
  holdFor(micros: number): void {
    this.#queue.pause(micros);
  }

  pause(micros: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#queue.now() + micros);
    this.#queue.pause(micros);
  }

  /**
   * Ends the fallback: the store is back. Reservations keep their instants and are part of `used`.
   *
   * @returns what was used; how much longer a pause lasts, microseconds; the callers that still wait, in order
   */
  retire() {
    this.#queue.catchUp();
    const requests = [...this.#requests];
    const callers = requests.filter(({ isAwaited }) => isAwaited);
    for (const caller of callers) caller.leaveFallback?.();
    for (const request of requests) request.leaveFallback = undefined;
    const now = this.#queue.now();
    const idle = (this.#sentWasRun ? this.#idleIfRun : undefined) ?? this.#idle;
    const used = lackedMore(this.#queue.outcome, idle, now);
    return { used, pause: Math.max(0, this.#pausedUntil - now), callers };
  }

  /** Returns the time, and updates the fraction if it was read too long ago. */
  #now(): number {
    this.#queue.catchUp();
    const now = this.#queue.last;
    if (now < this.#askedAgainAt) return now;
    this.#askedAgainAt = now + FRACTION_HOLDS;
    const before = this.#fraction;
    this.#fraction = this.#localFraction.fraction();
    if (this.#fraction !== before) {
      const fractions = this.#fractions;
      this.#queue.resize(fractions);
      for (const idle of this.#idles) idle.resize(this.#time.last, fractions, this.#time.epoch);
    }
    return now;
  }

  get #fractions(): readonly Policy[] {
    return fractionsOf(this.#policies, this.#fraction);
  }

  get #idles(): readonly PolicyState[] {
    return this.#idleIfRun === undefined ? [this.#idle] : [this.#idle, this.#idleIfRun];
  }

  rearm(): void {
    this.#queue.rearm();
  }

  rebase(by: number): boolean {
    if (!this.#queue.rebase(by)) return false;
    for (const idle of this.#idles) idle.shift(-by);
    return true;
  }

  #full(amount: Amount): Error {
    return this.#host.full(amount, this.#fractions);
  }
}

function apply(policyState: PolicyState, verb: ChangeVerb, now: number, amount: Amount): void {
  if (verb === "charge") policyState.take(now, amount);
  else if (verb === "refund") policyState.giveBack(now, amount);
  else policyState.settle(now, amount);
}

/** The place of a visitor in the queue. A reservation sets a timer of its own if a caller awaits it. */
class FallbackWaiter extends Waiter {
  readonly #isAwaited: boolean;
  readonly #deadline: number;
  readonly #answer: (isLetIn: boolean) => void;

  constructor(
    now: number,
    { amount, left, isAwaited }: FallbackRequest,
    answer: (isLetIn: boolean) => void,
  ) {
    super(now, amount);
    this.#isAwaited = isAwaited;
    this.#deadline = now + left;
    this.#answer = answer;
  }

  override get awaited(): boolean {
    return this.#isAwaited;
  }

  override get deadline(): number {
    return this.#deadline;
  }

  override release(): void {
    this.#answer(true);
  }

  override refuse(): void {
    this.#answer(false);
  }

  /** Does nothing: the visitor handles its signal itself. */
  override abort(): void {}
}
