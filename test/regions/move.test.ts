/** A state moves to another part of the limit: what is fresh then, and what rests for how long. */
import {
  fixedWindow,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import * as assert from "uvu/assert";
import { onGrid } from "../../src/algorithms/instants.ts";
import { move, partsOf } from "../../src/regions/move.ts";
import { listPolicies } from "../../src/stores/policies.ts";
import { openPolicyState } from "../../src/stores/state/several.ts";
import { suite } from "../support/suite.ts";

const test = suite("states of parts");

const SECOND = 1_000_000;
const window = { limit: 100, windowMs: 10_000 };

/** The state of a part, and its policies of the whole limit. */
function open(policies: Policies, part: number) {
  const { names, list } = listPolicies(policies);
  const whole = list.map(onGrid);
  return { whole, state: openPolicyState({ names, list: partsOf(whole, part) }, 0, 0) };
}

test("what was used of a window rests until it is back, the last used first given", () => {
  const stepped = { capacity: 100, refill: 100, everyMs: 10_000, stepped: true };
  // of half the limit 20 are used at 0 s and 20 at 4 s; all but a tenth is given away at 5 s: [after so many s, how much]
  const rows: readonly [Policies, number, readonly (readonly number[])[]][] = [
    [
      slidingLog(window),
      0.1,
      [
        [5.625, 0.1],
        [9, 0.2],
      ],
    ],
    [
      slidingWindow(window),
      0.1,
      [
        [5.625, 0.1],
        [9, 0.2],
      ],
    ],
    [fixedWindow(window), 0.1, [[5, 0.3]]],
    [fixedWindow({ ...window, align: "first" }), 0.1, [[5, 0.3]]],
    [tokenBucket(stepped), 0.1, [[5, 0.3]]],
    // it is of use at once
    [tokenBucket({ ...stepped, stepped: false }), 0.35, []],
  ];
  for (const [policy, expected, due] of rows) {
    const { whole, state } = open(policy, 0.5);
    state.take(0, 20);
    state.take(4 * SECOND, 20);
    const { fresh, resting } = move(
      state,
      whole,
      { from: 0.5, to: 0.1, fresh: 0, base: 0 },
      5 * SECOND,
      0,
    );
    assert.is(fresh, expected);
    const rests = resting.filter(({ part }) => part > 1e-9);
    assert.equal(
      rests.map(({ part, micros }) => [micros / SECOND, Math.round(part * 1e6) / 1e6]),
      due,
    );
  }
});

test("what is given away beside a debt rests too, however little it is", () => {
  for (const policy of [slidingLog(window), slidingWindow(window), fixedWindow(window)]) {
    for (const to of [0.9, 0.5, 0.05]) {
      const { whole, state } = open(policy, 0.95);
      state.settle(0, 1000);
      const { fresh, resting } = move(state, whole, { from: 0.95, to, fresh: 0, base: 0 }, 0, 0);
      const parts = resting.reduce((sum, { part }) => sum + part, 0);
      assert.equal([fresh, Math.round(parts * 100) / 100], [0, Math.round(95 - to * 100) / 100]);
    }
  }
});

test("beside a window, what comes back at a rate counts as used in pieces that are fresh", () => {
  const bucket = tokenBucket({ capacity: 100, refill: 100, everyMs: 10_000 });
  const { whole, state } = open({ bucket, window: slidingLog(window) }, 0.1);
  move(state, whole, { from: 0.1, to: 0.5, fresh: 0.4, base: 0 }, 0, 0);
  assert.equal(state.deficit(0).map(Math.round), [40, 0]);
});

test("a debt of a limiter with a warm-up is the same after the part has grown and shrunk", () => {
  for (const policy of [
    smoothWarmingUp({ permitsPerSecond: 0.05, warmupMs: 3_600_000 }),
    smoothBursty({ permitsPerSecond: 0.05, burstSeconds: 0 }),
  ]) {
    const { whole, state } = open(policy, 0.3);
    const now = 3 * 3600 * SECOND;
    state.take(now, 3, now);
    const owed = () => Math.round((state.earliest(now, 1) - now) / SECOND);
    const before = owed();
    for (let i = 0; i < 5; i++) {
      move(state, whole, { from: 0.3, to: 0.6, fresh: 0, base: 0.1 }, now, 0);
      assert.is(owed(), Math.round(before / 2));
      move(state, whole, { from: 0.6, to: 0.3, fresh: 0, base: 0.1 }, now, 0);
      assert.is(owed(), before);
    }
  }
});

test("windows and steps are at the same instants in all states, whenever they began", () => {
  const stepped = tokenBucket({ capacity: 100, refill: 10, everyMs: 10_000, stepped: true });
  for (const policy of [fixedWindow({ ...window, align: "first" }), stepped]) {
    const gridded = onGrid(policy);
    const { names } = listPolicies(gridded);
    for (const now of [0, 137, 9_999_999, 12 * SECOND]) {
      const state = openPolicyState({ names, list: [gridded] }, now, 3 * SECOND);
      state.take(now, 100);
      assert.is((state.earliest(now, 1) + 3 * SECOND) % (10 * SECOND), 0);
      // numbers that change do not bring them forward
      const before = state.earliest(now, 1);
      state.resize(now, partsOf([gridded], 0.5), 3 * SECOND);
      assert.ok(state.earliest(now, 1) >= before);
    }
  }
});

test.run();
