import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { algorithms, share, writePolicies } from "../../src/algorithms/index.ts";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { begin, play, type Row, SECOND } from "../support/algorithms/play.ts";
import { suite } from "../support/suite.ts";

const bucket = { capacity: 4, refill: 2, everyMs: 500 };

// -- shares --

/**
 * A policy, the numbers of a quarter of it, and the most permits that one request may take of it.
 */
const quarters: readonly [policy: Policy, numbers: readonly number[], largest: number][] = [
  [smoothBursty({ permitsPerSecond: 2 }), [0.5], Infinity],
  [smoothBursty({ permitsPerSecond: 2, burstSeconds: 3 }), [0.5, 0, 3], Infinity],
  [smoothBursty({ permitsPerSecond: 2, prefilled: true }), [0.5, 0, 1, 1], Infinity],
  [smoothBursty({ permitsPerSecond: Infinity }), [Infinity], Infinity],
  [smoothWarmingUp({ permitsPerSecond: 2, warmupMs: 1000 }), [0.5, 1000], Infinity],
  [
    smoothWarmingUp({ permitsPerSecond: 2, warmupMs: 1000, coldFactor: 5 }),
    [0.5, 1000, 5],
    Infinity,
  ],
  [gcra({ limit: 8, periodMs: 1000, burst: 1 }), [0.5, 2, 1000], 0.5],
  [gcra({ limit: 1, periodMs: 1000 }), [0.25, 0.25, 1000], 0.25],
  [tokenBucket(bucket), [1, 0.5, 500], 1],
  [tokenBucket({ ...bucket, stepped: true }), [1, 0.5, 500], 1],
  [leakyBucket({ permitsPerSecond: 4, capacity: 7 }), [0.25, 1, 1000, 1.75, 0], 2],
  [
    leakyBucket({ permitsPerSecond: 4, capacity: Infinity, nodelay: 2, slack: 1 }),
    [1, 1, 1000, Infinity, 0.25],
    Infinity,
  ],
  [fixedWindow({ limit: 1, windowMs: 1000 }), [0.25, 1000], 0.25],
  [fixedWindow({ limit: 8, windowMs: 1000, align: "first" }), [2, 1000, 1], 2],
  [slidingWindow({ limit: 8, windowMs: 1000 }), [2, 1000], 2],
  [slidingWindow({ limit: 8, windowMs: 1000, buckets: 5 }), [2, 1000, 5], 2],
  [slidingLog({ limit: 2, windowMs: 1000 }), [0.5, 1000], 0.5],
];

const shares = suite("shares of a policy");

shares("a share has a quarter of the permits and the same times", () => {
  const seen = new Set<string>();
  for (const [policy, numbers, largest] of quarters) {
    const { algorithm } = policy;
    seen.add(algorithm.name);
    const before = [...policy.numbers];
    const quarter = share(policy, 0.25);
    const facts = `${algorithm.name}(${before})`;
    assert.equal(quarter.numbers, numbers, facts);
    assert.equal(quarter, algorithm.policy(numbers), facts);
    assert.equal(policy.numbers, before, facts);
    assert.ok(Object.isFrozen(quarter), facts);
    const state = begin(quarter, -100 * SECOND);
    const most = Math.min(largest, 1e6);
    assert.ok(algorithm.earliest(quarter, state, 0, most) < Infinity, facts);
    if (largest === Infinity) continue;
    assert.is(quarter.largest ?? algorithm.quota(quarter, state, 0).limit, largest, facts);
    assert.is(algorithm.earliest(quarter, state, 0, largest * 1.001), Infinity, facts);
  }
  assert.equal([...seen].sort(), algorithms.map(({ name }) => name).sort());
});

shares("the whole share is the policy itself, without its limitKey", () => {
  const policy = gcra({ limit: 8, periodMs: 1000, burst: 1 });
  assert.equal(policy.limitAt, [1]);
  const { limitAt, ...rest } = policy;
  assert.equal(share(policy, 1), rest);
});

shares("a warming-up limiter stores a share of the permits, and warms up for as long", () => {
  const policy = smoothWarmingUp({ permitsPerSecond: 8, warmupMs: 2000 });
  const quarter = share(policy, 0.25) as typeof policy;
  assert.equal([quarter.threshold, quarter.max], [policy.threshold / 4, policy.max / 4]);
  assert.is(quarter.coolDown * quarter.max, policy.coolDown * policy.max);
  assert.is(quarter.slope, policy.slope * 16);
});

shares("a limit under a key of the store is written with the index of the key", () => {
  const policies = [
    fixedWindow({ limit: 3, windowMs: 1000 }),
    gcra({ limit: 5, periodMs: 1000 }),
    gcra({ limit: 5, periodMs: 1000, burst: 1 }),
    slidingLog({ limit: 7, windowMs: 1000 }),
  ];
  const text = writePolicies(policies, [1, 2, 3, undefined]);
  assert.is(text, "f$3@1 1000\ng$5@2 $5@2 1000\ng2 $5@3 1000\nl7 1000");
});

shares.run();

// -- deficits --

const owing = suite("deficit");

interface Case {
  readonly policy: Policy;
  readonly rows: readonly Row[];
  /** Seconds, and the deficit then. */
  readonly deficit: Readonly<Record<number, number>>;
}

const cases: Readonly<Record<string, Case>> = {
  "bursty: what the store lacks, and what is not paid for yet": {
    policy: smoothBursty({ permitsPerSecond: 2, prefilled: true }),
    rows: [[0, 5, 0]],
    deficit: { 0: 5, 1: 3, 1.5: 2, 2: 1, 2.5: 0, 9: 0 },
  },
  "bursty, new: the store is empty": {
    policy: smoothBursty({ permitsPerSecond: 2 }),
    rows: [],
    deficit: { 0: 2, 0.5: 1, 1: 0 },
  },
  "no limit: no deficit": {
    policy: smoothBursty({ permitsPerSecond: Infinity }),
    rows: [[0, 1e9, 0]],
    deficit: { "-1": 0, 0: 0 },
  },
  // the permit that was taken cost 0.52 s; then one is stored each 0.2 s
  "warming up: the price of a taken permit adds no debt": {
    policy: smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }),
    rows: [[0, 1, 0]],
    deficit: { 0: 1, 0.5: 1, 0.52: 1, 0.62: 0.5, 0.72: 0 },
  },
  "warming up: the whole store and more": {
    policy: smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }),
    rows: [[0, 8, 0]],
    deficit: { 0: 8, 0.2: 7, 0.6: 5, 2.1: 5, 2.6: 2.5, 3.1: 0 },
  },
  "token bucket: the deficit follows the level below 0 and back": {
    policy: tokenBucket(bucket),
    rows: [
      [0, 4, 0],
      [0, 2, 0.5],
    ],
    deficit: { "-1": 10, 0: 6, 0.5: 4, 1.25: 1, 1.5: 0, 9: 0 },
  },
  "token bucket, stepped: the deficit stays between steps": {
    policy: tokenBucket({ ...bucket, stepped: true }),
    rows: [
      [0, 4, 0],
      [0, 2, 0.5],
    ],
    deficit: { 0: 6, 0.499: 6, 0.5: 4, 1: 2, 1.499: 2, 1.5: 0 },
  },
  "leaky bucket: the waiting permits, and the slack that is missing": {
    policy: leakyBucket({ permitsPerSecond: 1, capacity: 5, slack: 2 }),
    rows: [
      [0, 1, 0],
      [0, 1, 1],
    ],
    deficit: { 0: 4, 1: 3, 4: 0 },
  },
  "fixed window: this window's use, and what is promised in later ones": {
    policy: fixedWindow({ limit: 3, windowMs: 1000 }),
    rows: [
      [0.1, 2, 0],
      [0.1, 3, 0.9],
      [0.1, 1, 1.9],
    ],
    deficit: { 0.1: 7, 0.999: 7, 1: 4, 2: 1, 2.999: 1, 3: 0 },
  },
  "sliding window: future windows count in full": {
    policy: slidingWindow({ limit: 10, windowMs: 10_000 }),
    rows: [
      [0.9, 6, 0],
      [3.2, 4, 0],
      [3.2, 10, 9.8],
    ],
    deficit: { 3.2: 20, 12.9: 20, 13: 10, 22.9: 10, 23: 0 },
  },
  "sliding log: future windows count in full": {
    policy: slidingLog({ limit: 2, windowMs: 1000 }),
    rows: [
      [0, 1, 0],
      [0.5, 1, 0],
      [0.5, 2, 1],
      [0.5, 1, 2],
    ],
    deficit: { 0.5: 5, 1.5: 3, 2.499: 3, 2.5: 1, 3.499: 1, 3.5: 0 },
  },
};

for (const [name, { policy, rows, deficit: expected }] of Object.entries(cases)) {
  owing(name, () => {
    const state = play(policy, rows);
    for (const [at, deficit] of Object.entries(expected)) {
      const actual = policy.algorithm.deficit(policy, state, Math.round(Number(at) * SECOND));
      assert.ok(Math.abs(actual - deficit) < 1e-9, `${actual} at ${at} s, expected ${deficit}`);
    }
  });
}

owing("every algorithm has a case", () => {
  const seen = new Set(Object.values(cases).map(({ policy }) => policy.algorithm.name));
  assert.equal([...seen].sort(), algorithms.map(({ name }) => name).sort());
});

owing("the deficit is a number at the ends of the doubles", () => {
  const { MAX_VALUE } = Number;
  const huge: Policy[] = [
    smoothBursty({ permitsPerSecond: MAX_VALUE, prefilled: true }),
    smoothWarmingUp({ permitsPerSecond: MAX_VALUE, warmupMs: 1 }),
    tokenBucket({ capacity: MAX_VALUE, refill: MAX_VALUE, everyMs: 1 }),
    tokenBucket({ capacity: MAX_VALUE, refill: MAX_VALUE, everyMs: 1, stepped: true }),
    fixedWindow({ limit: MAX_VALUE, windowMs: 1 }),
    slidingWindow({ limit: MAX_VALUE, windowMs: 1 }),
    slidingLog({ limit: MAX_VALUE, windowMs: 1 }),
    leakyBucket({ permitsPerSecond: MAX_VALUE, capacity: MAX_VALUE }),
  ];
  const seen = new Set(huge.map(({ algorithm }) => algorithm.name));
  assert.equal([...seen].sort(), algorithms.map(({ name }) => name).sort());
  for (const policy of huge) {
    const { algorithm } = policy;
    const state = begin(policy);
    for (let i = 0; i < 3; i++) algorithm.take(policy, state, 0, MAX_VALUE);
    for (const now of [-1e15, -SECOND, 0, 1, 1e15]) {
      const deficit = algorithm.deficit(policy, state, now);
      assert.ok(deficit >= 0 && deficit <= MAX_VALUE, `${algorithm.name}: ${deficit} at ${now}`);
    }
    assert.is(algorithm.deficit(policy, state, -1e15), MAX_VALUE, algorithm.name);
  }
});

owing.run();
