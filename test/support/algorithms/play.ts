/** Tables of cases: when a request comes, for how many permits, and the answer. */
import * as assert from "uvu/assert";
import type { Policy } from "../../../src/algorithms/algorithm.ts";

export const SECOND = 1_000_000;

/** A request at this second for this many permits has to wait that many seconds. */
export type Row = readonly [at: number, ask: number, wait: number];

/** A state that was started at 0 of the epoch. */
export function begin(policy: Policy, now = 0, epoch = 0): unknown {
  const state = policy.algorithm.start(policy, now);
  policy.algorithm.align?.(policy, state, epoch);
  return state;
}

/** Grants every row as soon as possible, if it can be granted at all. */
export function play(policy: Policy, rows: readonly Row[], state = begin(policy)): unknown {
  const { algorithm } = policy;
  for (const [index, [at, ask, wait]] of rows.entries()) {
    const from = Math.round(at * SECOND);
    const instant = algorithm.earliest(policy, state, from, ask);
    const due = wait === Infinity ? Infinity : from + Math.round(wait * SECOND);
    assert.is(instant, due, `row ${index + 1}: ${ask} at ${at} s`);
    if (instant < Infinity) algorithm.take(policy, state, instant, ask);
  }
  return state;
}
