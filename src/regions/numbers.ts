import type { Policy } from "../algorithms/algorithm.ts";
import { hasInstants } from "../algorithms/instants.ts";
import type { PolicyList } from "../stores/policies.ts";
import { SinglePolicyState } from "../stores/state/one.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { lifetimesOf, partsOf } from "./move.ts";
import { capacityOf } from "./resting.ts";

/** A part is never smaller: a state at a rate of 0 would not know its debts. */
export const LEAST = 1e-9;
/** Leases are longer at the home by this factor, for clocks that run at different speeds. */
export const DRIFT = 1.1;
/** What was used rests longer by this factor, and no more than a minute: after a window of a day others wait for it. */
const REST_DRIFT = 0.01;
const MOST_DRIFT_MS = 60_000;
/** Nothing is kept longer, as by other stores: 31 000 years. */
export const LONGEST_MS = 1e15;

/** Returns for how long what is fresh after that time rests: clocks run at different speeds, and those of homes show whole ms. */
export function restOn(ms: number): number {
  return Math.ceil(ms + Math.min(REST_DRIFT * ms, MOST_DRIFT_MS)) + 1;
}

/** The numbers in force, and what follows from them for the parts of all keys. */
export interface Numbers {
  /** Of the whole limit, and of a part that has nothing on lease. */
  readonly policies: PolicyList;
  readonly basePolicies: PolicyList;
  /** Permits a ms of the whole limit, by policy. */
  readonly rates: readonly number[];
  /** After how many ms the whole limit is back, by policy. */
  readonly horizons: readonly number[];
  /** The largest request that the whole limit grants, by policy. */
  readonly largest: readonly number[];
  /** The lifetime of a new state, µs, by policy: one that lasts no longer has no more than a new one. */
  readonly lifetimes: readonly number[];
  /** Whether pieces rest that were used: see `resting.ts`. */
  readonly rests: boolean;
  /** How long the state of a part may matter: a piece is fresh after that, ms. And that of each policy whose pieces rest. */
  readonly keepMs: number;
  readonly restsMs: readonly number[];
  /** Under one policy: the largest request so far that the largest part can grant, so that it need not be asked again. */
  fits: number;
}

/** Whether pieces that were used rest for as long as before. */
export function restAsLong({ restsMs }: Numbers, before: Numbers): boolean {
  return restsMs.every((restMs, i) => restMs === before.restsMs[i]);
}

/** @param base the fraction of a part that has nothing on lease */
export function numbersOf(policies: PolicyList, base: number): Numbers {
  const { names, list } = policies;
  const basePolicies = { names, list: partsOf(list, Math.max(LEAST, base)) };
  const horizons = list.map(horizonOf);
  return {
    policies,
    basePolicies,
    lifetimes: lifetimesOf(openPolicyState(basePolicies, 0, 0), basePolicies.list, 0),
    rates: list.map(rateOf),
    horizons,
    largest: list.map(largestOf),
    rests: list.some(hasInstants),
    keepMs: Math.min(LONGEST_MS, restOn(Math.max(0, ...horizons.filter(Number.isFinite)))),
    restsMs: horizons.filter((_, i) => hasInstants(list[i] as Policy)),
    fits: 0,
  };
}

function rateOf(policy: Policy): number {
  const { algorithm } = policy;
  const { limit, windowMs } = algorithm.quota(policy, algorithm.start(policy, 0), 0);
  return windowMs > 0 ? limit / windowMs : Infinity;
}

/** Returns the largest request that the policy grants; `Infinity` if it lends. */
function largestOf(policy: Policy): number {
  const state = new SinglePolicyState(policy, policy.algorithm.start(policy, 0));
  const largest = state.capacity(0);
  return state.earliest(0, 2 * largest) < Infinity ? Infinity : largest;
}

function horizonOf(policy: Policy): number {
  const { algorithm } = policy;
  const state = algorithm.start(policy, 0);
  const capacity = capacityOf(policy);
  algorithm.take(policy, state, 0, Math.max(Number.MIN_VALUE, capacity));
  const { limit, windowMs } = algorithm.quota(policy, state, 0);
  // a limiter that lends grants the next request before it is full again
  const full = (algorithm.deficit(policy, state, 0) / limit) * windowMs;
  return Math.max(full, algorithm.earliest(policy, state, 0, capacity) / 1000);
}
