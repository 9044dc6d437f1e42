/**
 * The state that a process uses while its store is unavailable: the same policies with a share of the
 * permits, starting from the last known state of the store; or no limit at all.
 */
import type { Policy, Quota } from "../algorithms/algorithm.ts";
import { share } from "../algorithms/index.ts";
import type { Bound } from "../ground/check.ts";
import type { PermitsExceedCapacityError } from "../ground/errors.ts";
import { type Amount, combine, sizeOf } from "../ground/permits.ts";
import { openPolicyState } from "./joint-policy-state.ts";
import type { PolicyList } from "./policies.ts";
import type { PolicyState } from "./policy-state.ts";

/** A year, microseconds: a state that has been idle for so long is as full as it can be. */
const FOR_EVER = 2 ** 45;

export interface OutagePolicyState extends PolicyState {
  /**
   * Returns the permits to charge to the store when it is back.
   *
   * @param sentWasRun whether the store has run the changes that were sent before the outage
   */
  used(now: number, sentWasRun: boolean): Amount;
  /**
   * Applies a change that was sent before the outage.
   *
   * @param countsAsRun whether the change must not happen twice, so that it is never sent again
   */
  changeSent(deed: (policyState: PolicyState) => void, countsAsRun: boolean): void;
  /** Applies other numbers, or another share of them. */
  reshare(now: number, policies: readonly Policy[], fraction: number, epoch: number): void;
}

/** The state of the store in its last reply about it. */
export interface Snapshot {
  /** How many permits each policy lacked. */
  readonly deficit: readonly number[];
  /** The age of that reply, microseconds. */
  readonly ago: number;
  /** The permits that this process has taken since: charged in full to its share. */
  readonly since: Amount;
}

abstract class DelegatingPolicyState implements PolicyState {
  protected readonly policyState: PolicyState;

  constructor(policyState: PolicyState) {
    this.policyState = policyState;
  }

  get names(): readonly string[] {
    return this.policyState.names;
  }

  get state(): unknown {
    return this.policyState.state;
  }

  set state(state: unknown) {
    this.policyState.state = state;
  }

  get isStrict(): boolean {
    return this.policyState.isStrict;
  }

  get isBounded(): boolean {
    return this.policyState.isBounded;
  }

  amount(permits: unknown, bound?: Bound): Amount {
    return this.policyState.amount(permits, bound);
  }

  abstract earliest(from: number, amount: Amount): number;

  take(at: number, amount: Amount): void {
    this.policyState.take(at, amount);
  }

  giveBack(now: number, amount: Amount): void {
    this.policyState.giveBack(now, amount);
  }

  settle(now: number, amount: Amount): void {
    this.policyState.settle(now, amount);
  }

  quotas(now: number): readonly Quota[] {
    return this.policyState.quotas(now);
  }

  deficit(now: number): readonly number[] {
    return this.policyState.deficit(now);
  }

  excess(now: number, amount: Amount): PermitsExceedCapacityError {
    return this.policyState.excess(now, amount);
  }

  overflowing(now: number, amount: Amount): number {
    return this.policyState.overflowing(now, amount);
  }

  allows(from: number, now: number, amount: Amount): readonly boolean[] {
    return this.policyState.allows(from, now, amount);
  }

  slowest(from: number, amount: Amount): number {
    return this.policyState.slowest(from, amount);
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.policyState.resize(now, policies, epoch);
  }

  restart(now: number, epoch: number): void {
    this.policyState.restart(now, epoch);
  }

  lifetime(now: number): number {
    return this.policyState.lifetime(now);
  }

  shift(by: number): void {
    this.policyState.shift(by);
  }

  abstract copy(): PolicyState;
}

/**
 * A share of the permits. A request that is larger than the share can hold is lent permits: it is granted
 * when the share is full, and the next requests wait for the debt. So each request that could be granted
 * before still can, and the mean rate is that of the share.
 */
export class SharePolicyState extends DelegatingPolicyState implements OutagePolicyState {
  /** The state as if no request had been granted in this process. */
  readonly #idle: PolicyState;
  /** The same, as if the store had run the changes that were sent before the outage. */
  #idleIfRun: PolicyState | undefined;
  #most: Amount;

  /**
   * @param snapshot undefined if the state of the store is unknown: the policy state then begins like a new limiter
   * @param epoch Unix time at 0, whole microseconds
   */
  static open(
    policies: PolicyList,
    fraction: number,
    snapshot: Snapshot | undefined,
    now: number,
    epoch: number,
  ): SharePolicyState {
    const list = policies.list.map((policy) => share(policy, fraction));
    const begin = snapshot === undefined ? now : now - FOR_EVER;
    const policyState = openPolicyState({ names: policies.names, list }, begin, epoch);
    if (snapshot !== undefined) {
      const { deficit, ago, since } = snapshot;
      const shape = policyState.amount(1);
      const part = combine(
        shape,
        amountLike(shape, deficit),
        (_, permits = 0) => permits * fraction,
      );
      if (sizeOf(part) > 0) policyState.settle(now - ago, part);
      if (sizeOf(since) > 0) policyState.settle(now, since);
    }
    return new SharePolicyState(policyState, policyState.copy(), mostOf(policyState, list, now));
  }

  private constructor(policyState: PolicyState, idle: PolicyState, most: Amount) {
    super(policyState);
    this.#idle = idle;
    this.#most = most;
  }

  earliest(from: number, amount: Amount): number {
    const at = this.policyState.earliest(from, amount);
    return at < Infinity ? at : this.policyState.earliest(from, this.#atMost(amount));
  }

  override allows(from: number, now: number, amount: Amount): readonly boolean[] {
    return this.policyState.allows(from, now, this.#atMost(amount));
  }

  override slowest(from: number, amount: Amount): number {
    return this.policyState.slowest(from, this.#atMost(amount));
  }

  override shift(by: number): void {
    this.policyState.shift(by);
    this.#idle.shift(by);
    this.#idleIfRun?.shift(by);
  }

  override copy(): SharePolicyState {
    const copy = new SharePolicyState(this.policyState.copy(), this.#idle.copy(), this.#most);
    copy.#idleIfRun = this.#idleIfRun?.copy();
    return copy;
  }

  used(now: number, sentWasRun: boolean): Amount {
    const deficit = amountLike(this.#most, this.policyState.deficit(now));
    const idle = (sentWasRun ? this.#idleIfRun : undefined) ?? this.#idle;
    return combine(
      deficit,
      amountLike(deficit, idle.deficit(now)),
      (more, less = 0) => more - less,
    );
  }

  changeSent(deed: (policyState: PolicyState) => void, countsAsRun: boolean): void {
    this.#idleIfRun ??= this.#idle.copy();
    deed(this.policyState);
    deed(this.#idleIfRun);
    if (countsAsRun) deed(this.#idle);
  }

  reshare(now: number, policies: readonly Policy[], fraction: number, epoch: number): void {
    const list = policies.map((policy) => share(policy, fraction));
    this.policyState.resize(now, list, epoch);
    this.#idle.resize(now, list, epoch);
    this.#idleIfRun?.resize(now, list, epoch);
    this.#most = mostOf(this.policyState, list, now);
  }

  #atMost(amount: Amount): Amount {
    return combine(amount, this.#most, (permits, most = Infinity) => Math.min(permits, most));
  }
}

/** Grants every request. */
export class OpenPolicyState extends DelegatingPolicyState implements OutagePolicyState {
  earliest(from: number): number {
    return from;
  }

  override allows(): readonly boolean[] {
    return this.names.map(() => true);
  }

  override take(): void {}

  override giveBack(): void {}

  override settle(): void {}

  override get isBounded(): boolean {
    return false;
  }

  override copy(): OpenPolicyState {
    return this;
  }

  override deficit(): readonly number[] {
    return [];
  }

  used(): Amount {
    return 0;
  }

  changeSent(): void {}

  reshare(): void {}
}

/** Returns the largest request that each policy can ever grant. */
function mostOf(policyState: PolicyState, policies: readonly Policy[], now: number): Amount {
  const limits = policyState.quotas(now).map(({ limit }, i) => policies[i]?.largest ?? limit);
  return amountLike(policyState.amount(1), limits);
}

function amountLike(shape: Amount, numbers: readonly number[]): Amount {
  return typeof shape === "number" ? (numbers[0] ?? 0) : numbers;
}
