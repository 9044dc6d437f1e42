/**
 * The state that a process uses while its store is unavailable: the same policies with a fraction of the
 * permits, starting from the last known state of the store; or no limit at all.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { share } from "../../algorithms/index.ts";
import { type Amount, combine, sizeOf } from "../../ground/permits.ts";
import type { PolicyList } from "../policies.ts";
import { type PolicyState, SinglePolicyState } from "./one.ts";
import { openPolicyState } from "./several.ts";

/** A year, microseconds: a state that has been idle for so long is as full as it can be. */
const FOR_EVER = 2 ** 45;

/** The state of the store in its last reply about it. */
export interface Snapshot {
  /** How many permits each policy lacked. */
  readonly deficit: readonly number[];
  /** The age of that reply, microseconds. */
  readonly ago: number;
  /** The permits that this process has taken since: charged in full to its fraction. */
  readonly since: Amount;
}

/**
 * Opens the state for a fraction of the permits.
 *
 * @param snapshot undefined if the state of the store is unknown: the state then begins like a new limiter
 * @param epoch Unix time at 0, whole microseconds
 */
export function openFraction(
  { names, list }: PolicyList,
  fraction: number,
  snapshot: Snapshot | undefined,
  now: number,
  epoch: number,
): PolicyState {
  const policies = { names, list: fractionsOf(list, fraction) };
  const begin = snapshot === undefined ? now : now - FOR_EVER;
  const policyState = openPolicyState(policies, begin, epoch, LendingPolicyState);
  if (snapshot === undefined) return policyState;
  const { deficit, ago, since } = snapshot;
  const lacking = deficit.map((permits) => permits * fraction);
  const part = amountLike(policyState.amount(1), lacking);
  if (sizeOf(part) > 0) policyState.settle(now - ago, part);
  if (sizeOf(since) > 0) policyState.settle(now, since);
  return policyState;
}

/** Returns the policies with that fraction of their permits. */
export function fractionsOf(policies: readonly Policy[], fraction: number): readonly Policy[] {
  return policies.map((policy) => share(policy, fraction));
}

/** Opens a state that grants every request. */
export function openWithoutLimit(policies: PolicyList, now: number, epoch: number): PolicyState {
  return openPolicyState(policies, now, epoch, UnlimitedPolicyState);
}

/** Returns how many permits the state lacks that the other one does not lack. */
export function lackedMore(state: PolicyState, than: PolicyState, now: number): Amount {
  const [more, less] = [state, than].map((one) => amountLike(one.amount(1), one.deficit(now)));
  return combine(more as Amount, less as Amount, (here, there = 0) => here - there);
}

/**
 * Lends permits to a request that is larger than the fraction can hold: it is granted when the fraction is full,
 * and the next requests wait for the debt. So each request that could be granted before still can, and the
 * mean rate is that of the fraction.
 */
class LendingPolicyState extends SinglePolicyState {
  override earliest(from: number, permits: number): number {
    const at = super.earliest(from, permits);
    return at < Infinity ? at : super.earliest(from, Math.min(permits, this.capacity(from)));
  }
}

class UnlimitedPolicyState extends SinglePolicyState {
  override get isBounded(): boolean {
    return false;
  }

  override earliest(from: number): number {
    return from;
  }

  override take(): number {
    return 0;
  }

  override giveBack(): void {}

  override settle(): void {}

  override deficit(): readonly [number] {
    return [0];
  }
}

function amountLike(shape: Amount, numbers: readonly number[]): Amount {
  return typeof shape === "number" ? (numbers[0] ?? 0) : numbers;
}
