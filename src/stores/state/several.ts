/**
 * The state of one key in memory, under several policies. They are asked in turn, each from the instant
 * that the previous one returned, until all agree; then permits are taken from all of them or from none.
 */
import type { Policy, Quota } from "../../algorithms/algorithm.ts";
import type { Bound } from "../../ground/check.ts";
import type { PermitsExceedCapacityError } from "../../ground/errors.ts";
import { listPermits } from "../../ground/permits.ts";
import type { PolicyList } from "../policies.ts";
import { ONLY, type PolicyState, SinglePolicyState, startOf } from "./one.ts";

/**
 * @param epoch Unix time at 0 of the owner's time scale, whole microseconds
 * @param One the class of the state of each policy
 */
export function openPolicyState(
  policies: PolicyList,
  now: number,
  epoch: number,
  One = SinglePolicyState,
): PolicyState {
  return policyStateOn(policies, freshState(policies, now, epoch), One);
}

/** Returns the state of a new key. */
export function freshState(policies: PolicyList, now: number, epoch: number): unknown {
  const states = policies.list.map((policy) => startOf(policy, now, epoch));
  return isLone(policies) ? states[0] : states;
}

/** Returns a policy state on an existing state. */
export function policyStateOn(
  policies: PolicyList,
  state: unknown,
  One = SinglePolicyState,
): PolicyState {
  const { names, list } = policies;
  if (isLone(policies)) return new One(list[0] as Policy, state);
  const states = state as readonly unknown[];
  return new JointPolicyState(
    names,
    list.map((policy, i) => new One(policy, states[i])),
  );
}

/** Whether the list is one policy that was passed without a name. */
function isLone({ names }: PolicyList): boolean {
  return names.length === 1 && names[0] === ONLY;
}

/**
 * Each amount is a list in the order of the policies; a policy that gets no permits (undefined, 0) does
 * not affect the result.
 */
export class JointPolicyState implements PolicyState {
  readonly names: readonly string[];
  readonly #policyStates: readonly SinglePolicyState[];

  constructor(names: readonly string[], policyStates: readonly SinglePolicyState[]) {
    this.names = names;
    this.#policyStates = policyStates;
  }

  get state(): unknown {
    return this.#policyStates.map(({ state }) => state);
  }

  set state(states: unknown) {
    this.#policyStates.forEach((policyState, i) => {
      policyState.state = (states as readonly unknown[])[i];
    });
  }

  amount(permits: unknown, bound?: Bound): readonly (number | undefined)[] {
    return listPermits(permits, this.names, bound);
  }

  earliest(from: number, amounts: readonly (number | undefined)[]): number {
    let at = from;
    for (;;) {
      let agreed = at;
      this.#each(amounts, (policyState, permits) => {
        agreed = policyState.earliest(agreed, permits);
      });
      if (!(agreed > at)) return agreed;
      at = agreed;
    }
  }

  take(at: number, amounts: readonly (number | undefined)[], start = at): void {
    this.#each(amounts, (policyState, permits) => policyState.take(at, permits, start));
  }

  giveBack(now: number, amounts: readonly (number | undefined)[]): void {
    this.#each(amounts, (policyState, permits) => policyState.giveBack(now, permits));
  }

  settle(now: number, amounts: readonly (number | undefined)[]): void {
    this.#each(amounts, (policyState, permits) => policyState.settle(now, permits));
  }

  quotas(now: number): readonly Quota[] {
    return this.#policyStates.map((policyState) => policyState.quota(now));
  }

  deficit(now: number): readonly number[] {
    return this.#policyStates.map((policyState) => policyState.deficit(now)[0]);
  }

  instants(from: number, amounts: readonly (number | undefined)[]): readonly number[] {
    return this.#policyStates.map((policyState, i) => {
      const permits = amounts[i];
      return permits ? policyState.earliest(from, permits) : -Infinity;
    });
  }

  excess(now: number, amounts: readonly (number | undefined)[]): PermitsExceedCapacityError {
    const instants = this.instants(now, amounts);
    // where a store has refused the permits under earlier numbers, no instant may be Infinity now
    const index = instants.indexOf(Math.max(...instants));
    const policyState = this.#policyStates[index] as SinglePolicyState;
    return policyState.excess(now, amounts[index] as number, this.names[index]);
  }

  get isStrict(): boolean {
    return this.#policyStates.some((policyState) => policyState.isStrict);
  }

  get isBounded(): boolean {
    return this.#policyStates.some((policyState) => policyState.isBounded);
  }

  overflowing(now: number, amounts: readonly (number | undefined)[]): number {
    let first = -1;
    this.#each(amounts, (policyState, permits, index) => {
      if (first < 0 && policyState.overflowing(now, permits) === 0) first = index;
    });
    return first;
  }

  resize(now: number, policies: readonly Policy[], epoch: number): void {
    this.#policyStates.forEach((policyState, i) => {
      policyState.resize(now, policies.slice(i, i + 1), epoch);
    });
  }

  restart(now: number, epoch: number): void {
    for (const policyState of this.#policyStates) policyState.restart(now, epoch);
  }

  lifetime(now: number): number {
    return Math.max(...this.#policyStates.map((policyState) => policyState.lifetime(now)));
  }

  shift(by: number): void {
    for (const policyState of this.#policyStates) policyState.shift(by);
  }

  copy(): JointPolicyState {
    return new JointPolicyState(
      this.names,
      this.#policyStates.map((policyState) => policyState.copy()),
    );
  }

  #each(
    amounts: readonly (number | undefined)[],
    callback: (policyState: SinglePolicyState, permits: number, index: number) => void,
  ): void {
    this.#policyStates.forEach((policyState, index) => {
      const permits = amounts[index];
      if (permits) callback(policyState, permits, index);
    });
  }
}
