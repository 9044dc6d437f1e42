/**
 * Finds rules that can never refuse a request because of another rule. Compares the most that one
 * rule lets through with what the other lets through without refusing or delaying a request. Both
 * are counted in requests of one actor.
 */

import type { Policy } from "smooth-limiter";
import { policiesOf } from "../../limits.ts";
import { ALGORITHMS } from "../../rules/algorithms.ts";
import type { RequestRule, Rule } from "../../rules/rule.ts";

/** The most requests that pass a rule: the algorithm's own bound. */
interface Flow {
  /** The most in any interval of this length, ms. */
  most(ms: number): number;
  readonly perMs: number;
  /**
   * The lengths up to one period at which `most` jumps, and just after. `most` is linear in
   * between.
   */
  readonly jumps: readonly number[];
  /** Of a fixed window that is aligned to the clock: its length, and the limit of each window. */
  readonly grid?: { readonly windowMs: number; readonly limit: number };
}

/**
 * Whether a rule never refuses a request, because every request that passes `behind` also passes
 * it.
 */
export function isOutOfReach(rule: Rule, behind: Rule): boolean {
  if (rule.quotaUnit === undefined) {
    return behind.quotaUnit === undefined && isRequestOutOfReach(rule, behind);
  }
  if (rule.quotaUnit === "concurrent-requests") {
    if (behind.quotaUnit !== rule.quotaUnit) return false;
    const numbers = [rule, ...rule.overrides].map(({ connections }) => connections);
    return (
      Math.min(...numbers) >= behind.connections &&
      (behind.maxAgeMs ?? Infinity) >= (rule.maxAgeMs ?? Infinity)
    );
  }
  if (behind.quotaUnit !== rule.quotaUnit) return false;
  return [rule, ...rule.overrides].every(
    ({ bytesPerSecond, afterBytes }) =>
      bytesPerSecond >= behind.bytesPerSecond && afterBytes >= behind.afterBytes,
  );
}

function isRequestOutOfReach(rule: RequestRule, behind: RequestRule): boolean {
  const { own } = policiesOf(behind, ALGORITHMS);
  // months are shorter than the window of their policy; a rule without one lets nothing through
  if (own.policy === undefined || own.calendar !== undefined) return false;
  const flow = flowOf(own.policy, behind.cost);
  const policies = policiesOf(rule, ALGORITHMS);
  return [policies.own, ...policies.overrides.values()].every(
    ({ policy }) => policy !== undefined && bears(policy, rule.cost, flow),
  );
}

/** Just after an instant, ms. */
const LATER = 0.001;

function flowOf(policy: Policy, cost: number): Flow {
  const { algorithm, numbers } = policy;
  const most = (ms: number) => algorithm.bound(policy, ms * 1000, cost) / cost;
  const [limit = 1, second = 1000, third] = numbers;
  switch (algorithm.name) {
    case "gcra":
      return { most, perMs: second / (third ?? 1000) / cost, jumps: [0] };
    case "fixed-window":
      return {
        ...{ most, perMs: limit / second / cost, jumps: [0, LATER] },
        ...(third === undefined && { grid: { windowMs: second, limit: limit / cost } }),
      };
    case "sliding-window": {
      const buckets = third ?? 10;
      const edges = Array.from({ length: buckets + 1 }, (_, i) => (i * second) / buckets + LATER);
      return { most, perMs: limit / second / cost, jumps: [0, ...edges] };
    }
    case "sliding-log":
      return { most, perMs: limit / second / cost, jumps: [0, second] };
    default:
      return { most: () => Infinity, perMs: Infinity, jumps: [0] };
  }
}

function bears({ algorithm, numbers }: Policy, cost: number, flow: Flow): boolean {
  const [first = 1, second = 1000, third = 1000] = numbers;
  switch (algorithm.name) {
    case "gcra": {
      const perMs = second / third / cost;
      // after one period the bounds of both grow, and this one's grows at least as fast
      return (
        flow.perMs <= perMs && flow.jumps.every((ms) => flow.most(ms) <= first / cost + ms * perMs)
      );
    }
    case "fixed-window":
      return mostInGrid(flow, second, numbers[2] === undefined) <= first / cost;
    case "sliding-window":
    case "sliding-log":
      // the requests fall within one window, its end excluded
      return flow.most(second - LATER) <= first / cost;
    default:
      return false;
  }
}

/** The windows begin together if one length is a multiple of the other. */
function mostInGrid(flow: Flow, windowMs: number, isOnGrid: boolean): number {
  const { grid } = flow;
  if (grid === undefined || !isOnGrid || windowMs % grid.windowMs !== 0)
    return flow.most(windowMs - LATER);
  return (grid.limit * windowMs) / grid.windowMs;
}
