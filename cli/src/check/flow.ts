/**
 * Finds rules that can never refuse a request because of another rule. Compares the most that one
 * rule lets through with what the other lets through without refusing or delaying a request. Both
 * are counted in requests of one actor.
 */

import { Limiter } from "smooth-limiter";
import {
  policiesOfRule,
  type RequestRule,
  type Rule,
  type RulePolicy,
} from "smooth-limiter-gateway/rules";

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
  const [own] = quotasOf(behind);
  const flow = own && flowOf(own, behind.cost);
  return flow !== undefined && quotasOf(rule).every((each) => bears(each, rule.cost, flow));
}

/** A policy, and the quota that its limiter reports; undefined where it lets nothing through. */
interface RuleQuota extends RulePolicy {
  readonly quota: { readonly limit: number; readonly windowMs: number } | undefined;
}

/** Those of each rule that was asked for: each is compared with many others. */
const known = new WeakMap<RequestRule, readonly RuleQuota[]>();

function quotasOf(rule: RequestRule): readonly RuleQuota[] {
  const before = known.get(rule);
  if (before !== undefined) return before;
  const quotas = policiesOfRule(rule).map((own) => {
    return { ...own, quota: own.policy && Limiter.create(own.policy).peek().policies.default };
  });
  known.set(rule, quotas);
  return quotas;
}

/** Just after an instant, ms. */
const LATER = 0.001;

/** @returns undefined if it is not known */
function flowOf(own: RulePolicy, cost: number): Flow | undefined {
  const { numbers, policy, isOnCalendar } = own;
  // months are shorter than the window of their policy; a rule without one lets nothing through
  if (policy === undefined || isOnCalendar) return undefined;
  const { algorithm } = policy;
  const { rpu, periodMs, buckets = 10 } = numbers;
  const most = (ms: number) => algorithm.bound(policy, ms * 1000, cost) / cost;
  const perMs = rpu / periodMs / cost;
  switch (algorithm.name) {
    case "gcra":
      return { most, perMs, jumps: [0] };
    case "fixed-window": {
      const grid = { windowMs: periodMs, limit: rpu / cost };
      return { most, perMs, jumps: [0, LATER], ...(isOnGrid(own) && { grid }) };
    }
    case "sliding-window": {
      const edges = Array.from({ length: buckets + 1 }, (_, i) => (i * periodMs) / buckets + LATER);
      return { most, perMs, jumps: [0, ...edges] };
    }
    case "sliding-log":
      return { most, perMs, jumps: [0, periodMs] };
    default:
      return undefined;
  }
}

/** Whether every request of a flow passes at once. */
function bears(own: RuleQuota, cost: number, flow: Flow): boolean {
  const { numbers, policy, quota } = own;
  if (policy === undefined || quota === undefined) return false;
  const { limit, windowMs } = quota;
  const room = limit / cost;
  switch (policy.algorithm.name) {
    case "gcra": {
      const perMs = numbers.rpu / numbers.periodMs / cost;
      // after one period the bounds of both grow, and this one's grows at least as fast
      return flow.perMs <= perMs && flow.jumps.every((ms) => flow.most(ms) <= room + ms * perMs);
    }
    case "fixed-window":
      return mostInGrid(flow, windowMs, isOnGrid(own)) <= room;
    case "sliding-window":
    case "sliding-log":
      // the requests fall within one window, its end excluded
      return flow.most(windowMs - LATER) <= room;
    default:
      return false;
  }
}

/** Whether the windows of a fixed window are aligned to the clock. */
function isOnGrid({ numbers, isOnCalendar }: RulePolicy): boolean {
  return !isOnCalendar && numbers.align !== "first";
}

/** The windows begin together if one length is a multiple of the other. */
function mostInGrid({ grid, most }: Flow, windowMs: number, isAligned: boolean): number {
  return grid === undefined || !isAligned || windowMs % grid.windowMs !== 0
    ? most(windowMs - LATER)
    : (grid.limit * windowMs) / grid.windowMs;
}
