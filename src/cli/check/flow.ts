/**
 * Which rule can be reached behind which: what one lets pass at most, and what another bears
 * without refusing anybody or making anybody wait. Both in requests, for one actor.
 */
import { policiesOf } from "../../adapters/http/limits.ts";
import { ALGORITHMS } from "../../adapters/http/rules/algorithms.ts";
import type { Rule } from "../../adapters/http/rules/rule.ts";
import type { Policy } from "../../index.ts";

/** What passes a rule, at most. */
interface Flow {
  /** In any interval of this length. */
  most(ms: number): number;
  /** In any interval of t ms no more than `burst + t * perMs`. */
  readonly burst: number;
  readonly perMs: number;
  /** Of a fixed window: its length, on the epoch's grid, and what each holds. */
  readonly grid?: { readonly windowMs: number; readonly limit: number };
}

/** A rule that refuses nobody by itself: whatever gets past the other one gets past it. */
export function isOutOfReach(rule: Rule, behind: Rule): boolean {
  const { own } = policiesOf(behind, ALGORITHMS);
  const flow = flowOf(own, behind.cost);
  const policies = policiesOf(rule, ALGORITHMS);
  return [policies.own, ...policies.overrides.values()].every((policy) =>
    bears(policy, rule.cost, flow),
  );
}

/** The bounds are those that the algorithms' own files state. */
function flowOf({ algorithm, numbers }: Policy, cost: number): Flow {
  if (algorithm.name === "gcra") {
    const [atOnce = 1, permits = 1, perMs = 1000, waiting = 0] = numbers;
    // whoever waits is charged to the other rules when it comes
    return bucket((atOnce + waiting) / cost, permits / perMs / cost);
  }
  const [limit = 1, windowMs = 1000, buckets = 10] = numbers;
  switch (algorithm.name) {
    case "fixed-window":
      return { ...windows(limit / cost, windowMs, 1), grid: { windowMs, limit: limit / cost } };
    case "sliding-window":
      // an interval that is a bucket shorter than the window holds no more than the limit
      return windows(limit / cost, windowMs - windowMs / buckets, 0);
    case "sliding-log":
      return windows(limit / cost, windowMs, 0);
    default:
      return { most: () => Infinity, burst: Infinity, perMs: Infinity };
  }
}

function bucket(burst: number, perMs: number): Flow {
  return { most: (ms) => burst + ms * perMs, burst, perMs };
}

/** @param extra how many windows more an interval may touch than fit into it */
function windows(limit: number, windowMs: number, extra: number): Flow {
  return {
    most: (ms) => limit * (Math.ceil(ms / windowMs) + extra),
    burst: limit * (1 + extra),
    perMs: limit / windowMs,
  };
}

function bears({ algorithm, numbers }: Policy, cost: number, flow: Flow): boolean {
  const [first = 1, second = 1000, third = 1000] = numbers;
  switch (algorithm.name) {
    case "gcra":
      return flow.burst <= first / cost && flow.perMs <= second / third / cost;
    case "fixed-window":
      return mostInGrid(flow, second) <= first / cost;
    case "sliding-window":
    case "sliding-log":
      return flow.most(second) <= first / cost;
    default:
      return false;
  }
}

/** Windows of which one is a multiple of the other begin together. */
function mostInGrid(flow: Flow, windowMs: number): number {
  const { grid } = flow;
  if (grid === undefined || windowMs % grid.windowMs !== 0) return flow.most(windowMs);
  return (grid.limit * windowMs) / grid.windowMs;
}
