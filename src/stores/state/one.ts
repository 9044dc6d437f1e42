/** The state of one key in memory, under one policy. For several policies see `several.ts`. */
import type { Policy, Quota } from "../../algorithms/algorithm.ts";
import type { Bound } from "../../ground/check.ts";
import { PermitsExceedCapacityError } from "../../ground/errors.ts";
import { type Amount, listPermits } from "../../ground/permits.ts";

/** The name of a policy that is passed without a name. */
export const ONLY = "default";
export const ONLY_NAMES: readonly string[] = [ONLY];

/**
 * Times are microseconds on the time scale of the owner; `amount` is the result of `policy state.amount()` for
 * the caller's permits.
 */
export interface PolicyState {
  readonly names: readonly string[];
  /** The state; a table of many keys sets each key's state in turn on one policy state. */
  state: unknown;
  /** Checks the permits of a request and returns them in the order of the policies. */
  amount(permits: unknown, bound?: Bound): Amount;
  /**
   * Returns the first instant at or after `from` on which all policies agree; `Infinity` if there is
   * none.
   */
  earliest(from: number, amount: Amount): number;
  /**
   * @param start when the caller starts, if that is later than the instant for which it was booked;
   *   strict policies charge at this instant
   */
  take(at: number, amount: Amount, start?: number): void;
  giveBack(now: number, amount: Amount): void;
  /** Charges permits that were used outside of this state. */
  settle(now: number, amount: Amount): void;
  quotas(now: number): readonly Quota[];
  /** Returns how many permits each policy lacks to be full. */
  deficit(now: number): readonly number[];
  /** Returns the error for a request for which `earliest` is `Infinity`, or was in the store under earlier numbers. */
  excess(now: number, amount: Amount): PermitsExceedCapacityError;
  /** Whether a policy charges its waiters at the instants at which they start. */
  readonly isStrict: boolean;
  /** Whether a policy bounds how many permits may wait. */
  readonly isBounded: boolean;
  /**
   * Returns the index of a policy that rejects the permits, which are not available at `now`, instead of
   * letting them wait; -1 if there is none.
   */
  overflowing(now: number, amount: Amount): number;
  /** Returns `earliest` of each policy alone; `-Infinity` for those that get no permits. */
  instants(from: number, amount: Amount): readonly number[];
  resize(now: number, policies: readonly Policy[], epoch: number): void;
  /** Resets the state in place, because other policy states may share it. */
  restart(now: number, epoch: number): void;
  /** Returns for how many microseconds the state must be kept; after that a new one is equivalent. */
  lifetime(now: number): number;
  /** Adds `by` to all instants. */
  shift(by: number): void;
  copy(): PolicyState;
}

/**
 * Returns the state of a new key.
 *
 * @param epoch Unix time at 0 of the owner's time scale, whole microseconds
 */
export function startOf(policy: Policy, now: number, epoch: number): unknown {
  const state = policy.algorithm.start(policy, now);
  policy.algorithm.align?.(policy, state, epoch);
  return state;
}

/** Opens the state of a limiter with one policy, which has no name. */
export function openOne(
  { list }: { readonly list: readonly Policy[] },
  now: number,
  epoch: number,
): PolicyState {
  const [policy] = list as readonly [Policy];
  return new SinglePolicyState(policy, startOf(policy, now, epoch));
}

export class SinglePolicyState implements PolicyState {
  #policy: Policy;
  state: unknown;

  constructor(policy: Policy, state: unknown) {
    this.#policy = policy;
    this.state = state;
  }

  get names(): readonly string[] {
    return ONLY_NAMES;
  }

  amount(permits: unknown, bound?: Bound): number {
    if (typeof permits === "number" && permits > 0 && permits < Infinity) return permits;
    return listPermits(permits, ONLY_NAMES, bound)[0] as number;
  }

  earliest(from: number, permits: number): number {
    return this.#policy.algorithm.earliest(this.#policy, this.state, from, permits);
  }

  /** @returns the receipt */
  take(at: number, permits: number, start = at): number {
    const policy = this.#policy;
    return policy.algorithm.take(policy, this.state, policy.strict === true ? start : at, permits);
  }

  giveBack(now: number, permits: number): void {
    this.#policy.algorithm.giveBack(this.#policy, this.state, now, permits);
  }

  settle(now: number, permits: number): void {
    const { algorithm } = this.#policy;
    if (algorithm.settle) algorithm.settle(this.#policy, this.state, now, permits);
    else this.take(now, permits);
  }

  quota(now: number): Quota {
    return this.#policy.algorithm.quota(this.#policy, this.state, now);
  }

  quotas(now: number): readonly Quota[] {
    return [this.quota(now)];
  }

  deficit(now: number): readonly [number] {
    return [this.#policy.algorithm.deficit(this.#policy, this.state, now)];
  }

  instants(from: number, permits: number): readonly number[] {
    return [this.earliest(from, permits)];
  }

  /** Returns the largest request that it can ever grant. */
  capacity(now: number): number {
    return this.#policy.largest ?? this.quota(now).limit;
  }

  excess(now: number, permits: number, name = ONLY): PermitsExceedCapacityError {
    return new PermitsExceedCapacityError(name, permits, this.capacity(now));
  }

  get isStrict(): boolean {
    return this.#policy.strict === true;
  }

  get isBounded(): boolean {
    return this.#policy.maxWaiting !== undefined;
  }

  overflowing(now: number, permits: number): number {
    const { algorithm } = this.#policy;
    return algorithm.overflows?.(this.#policy, this.state, now, permits) ? 0 : -1;
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    for (const policy of policies) {
      policy.algorithm.resize(policy, this.state, now, this.#policy);
      policy.algorithm.align?.(policy, this.state, epoch);
      this.#policy = policy;
    }
  }

  restart(now: number, epoch: number): void {
    Object.assign(this.state as object, startOf(this.#policy, now, epoch));
  }

  lifetime(now: number): number {
    return this.#policy.algorithm.lifetime(this.#policy, this.state, now);
  }

  shift(by: number): void {
    this.#policy.algorithm.shift(this.state, by);
  }

  /** Returns a copy of the same class. */
  copy(): SinglePolicyState {
    const Same = this.constructor as typeof SinglePolicyState;
    return new Same(this.#policy, this.#policy.algorithm.copy(this.state));
  }
}
