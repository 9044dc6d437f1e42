import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { algorithms, readPolicies, writePolicies } from "../../../src/algorithms/index.ts";
import {
  type SmoothPolicy,
  type SmoothState,
  smooth,
  smoothBursty,
  smoothWarmingUp,
} from "../../../src/algorithms/smooth/smooth.ts";
import { runs, suite } from "../../support/suite.ts";

const SECOND = 1_000_000;

/** A request at this second for this many permits has to wait that many seconds. */
type Row = readonly [at: number, ask: number, wait: number];

/** Bursty at this many permits a second. */
function bursty(permitsPerSecond: number, burstSeconds = 1, prefilled = false): SmoothPolicy {
  return smoothBursty({ permitsPerSecond, burstSeconds, prefilled });
}

/** Warming up over this many seconds. */
function warming(permitsPerSecond: number, seconds: number, coldFactor = 3): SmoothPolicy {
  return smoothWarmingUp({ permitsPerSecond, warmupMs: seconds * 1000, coldFactor });
}

/** Grants every row as soon as possible. */
function play(policy: SmoothPolicy, rows: readonly Row[], state = smooth.start(policy, 0)): void {
  for (const [index, [at, ask, wait]] of rows.entries()) {
    const before = smooth.copy(state);
    const instant = smooth.earliest(policy, state, at * SECOND, ask);
    assert.equal(state, before, "a peek must change nothing");
    near(instant, (at + wait) * SECOND, `row ${index + 1} (${at} s, ${ask}) waits ${wait} s`);
    smooth.take(policy, state, instant, ask);
  }
}

/** Equal up to the rounding of doubles: far below a microsecond. */
function near(actual: number, expected: number, what: string): void {
  const slack = 1e-3 + Math.abs(expected) * 1e-12;
  const facts = `${what}: got ${actual}, expected ${expected}`;
  assert.ok(actual === expected || Math.abs(actual - expected) <= slack, facts);
}

/** What these permits cost, in microseconds, when this many are stored. */
function cost(policy: SmoothPolicy, stored: number, permits: number): number {
  const state = { nextFree: 0, stored };
  smooth.take(policy, state, 0, permits);
  return state.nextFree;
}

// The everyday numbers from which properties are drawn. Extreme ones have a suite of their own.

const unit = { min: 0, max: 1, noNaN: true };
const aRate = fc.double({ min: -2, max: 7, noNaN: true }).map((digits) => 10 ** digits);
/** Permits. */
const anAmount = fc.oneof(fc.integer({ min: 1, max: 2000 }), fc.double({ ...unit, min: 0.01 }));
/** Whole microseconds. */
const aPause = fc.oneof(fc.constant(0), fc.nat(1000), fc.nat(SECOND), fc.nat(1000 * SECOND));
const aBursty = fc
  .tuple(
    aRate,
    fc.oneof(fc.constantFrom(0, 1), fc.double({ ...unit, min: 0.001, max: 100 })),
    fc.boolean(),
  )
  .map((args) => legible(bursty(...args), `bursty(${args})`));
const aWarmingUp = fc
  .tuple(
    aRate,
    fc.double({ ...unit, min: 0.001, max: 100 }),
    fc.double({ ...unit, min: 1, max: 20 }),
  )
  .map((args) => legible(warming(...args), `warming(${args})`));
const aPolicy = fc.oneof(aBursty, aWarmingUp);
const aPast = fc
  .array(fc.tuple(aPause, fc.constantFrom("take", "charge", "giveBack"), anAmount), {
    maxLength: 8,
  })
  .chain((actions) =>
    aPause.map((pause) => ({ actions, now: sum(actions.map(([by]) => by)) + pause })),
  );

type Past = typeof aPast extends fc.Arbitrary<infer P> ? P : never;

function law<Ts>(property: fc.IProperty<Ts>, options?: fc.Parameters<Ts>): void {
  void fc.assert(property, { numRuns: runs(500), ...options });
}

/** The same policy, shown in a counterexample by how it was made. */
function legible(policy: SmoothPolicy, text: string): SmoothPolicy {
  return Object.assign({ ...policy }, { [fc.toStringMethod]: () => text });
}

/** A limiter with this history. */
function lived(policy: SmoothPolicy, { actions }: Past): SmoothState {
  const state = smooth.start(policy, 0);
  let now = 0;
  for (const [pause, action, permits] of actions) {
    now += pause;
    if (action === "giveBack") smooth.giveBack(policy, state, now, permits);
    else
      smooth.take(
        policy,
        state,
        action === "take" ? smooth.earliest(policy, state, now, permits) : now,
        permits,
      );
  }
  return state;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Equal up to the last bits. */
function alike(actual: SmoothState, expected: SmoothState): void {
  near(actual.nextFree, expected.nextFree, "nextFree");
  const slack = 1e-9 * (1 + Math.abs(expected.stored));
  const facts = `stored: got ${actual.stored}, expected ${expected.stored}`;
  assert.ok(Math.abs(actual.stored - expected.stored) <= slack, facts);
}

const tables = suite("smooth: waits");

const rows: Record<string, readonly [SmoothPolicy, ...Row[]]> = {
  "seed table 1: evenly spaced permits": [
    bursty(5),
    [0, 1, 0],
    [0, 1, 0.2],
    [0.2, 1, 0.2],
    [0.4, 1, 0.2],
    [0.6, 1, 0.2],
  ],
  "seed table 2: a large request goes at once, the next one pays": [
    bursty(5),
    [0, 5, 0],
    [0, 1, 1],
    [1, 1, 0.2],
  ],
  "seed table 3, the essay's bursty example: at most a second's permits are stored": [
    bursty(2),
    [0, 1, 0],
    [5.5, 1, 0],
    [5.5, 1, 0],
    [5.5, 1, 0],
    [5.5, 1, 0.5],
    [6, 1, 0.5],
  ],
  "seed table 4, the essay's warming-up example: a trapezoid, and after a second's idleness again":
    [
      warming(5, 1),
      [0, 1, 0],
      [0, 1, 0.52],
      [0.52, 1, 0.36],
      [0.88, 1, 0.22],
      [1.1, 1, 0.2],
      [1.3, 1, 0.2],
      [2.5, 1, 0],
      [2.5, 1, 0.36],
      [2.86, 1, 0.22],
      [3.08, 1, 0.2],
      [3.28, 1, 0.2],
      [3.48, 1, 0.2],
      [3.68, 1, 0.2],
      [3.88, 1, 0.2],
      [4.08, 1, 0.2],
      [4.28, 1, 0.2],
    ],
  "the size of a request does not delay that request": [bursty(5), [0, 1000, 0], [0, 9, 200]],
  "stored permits are free, fresh ones are paid for by the next request": [
    bursty(5),
    [0.8, 6, 0],
    [0.8, 1, 0.4],
  ],
  "a request for less than is stored leaves the rest": [
    bursty(5),
    [1, 2, 0],
    [1, 3, 0],
    [1, 1, 0],
    [1, 1, 0.2],
  ],
  "requests for half a permit": [
    bursty(5),
    [0, 0.5, 0],
    [0, 0.25, 0.1],
    [0.1, 1, 0.05],
    [0.15, 1, 0.2],
  ],
  "idle for exactly the wait: nothing is stored": [
    bursty(5),
    [0, 1, 0],
    [0.2, 1, 0],
    [0.2, 1, 0.2],
  ],
  "idle for ever: the store is bounded": [bursty(5), [1e9, 5, 0], [1e9, 1, 0], [1e9, 1, 0.2]],
  "idle for ever, warming up: no colder than cold": [warming(5, 1), [1e9, 1, 0], [1e9, 1, 0.52]],
  "two and a half seconds of burst": [bursty(2, 2.5), [9, 5, 0], [9, 1, 0], [9, 1, 0.5]],
  "a third of a second of burst, less than a permit": [
    bursty(2, 1 / 3),
    [9, 1, 0],
    [9, 1, 1 / 6],
    [9, 1, 4 / 6],
  ],
  "no burst: idle time is lost": [bursty(5, 0), [9, 1, 0], [9, 1, 0.2], [99, 3, 0], [99, 1, 0.6]],
  "prefilled: a limiter that starts with a full store": [
    bursty(5, 1, true),
    [0, 5, 0],
    [0, 1, 0],
    [0, 1, 0.2],
  ],
  "intervals that are no whole microseconds add up exactly": [
    bursty(7),
    [0, 1, 0],
    [0, 1, 1 / 7],
    [0, 1, 2 / 7],
    [0, 1, 3 / 7],
    [0, 994, 4 / 7],
    [0, 1, 998 / 7],
  ],
  "many permits in a microsecond are not free": [
    bursty(3e6),
    [0, 1, 0],
    [0, 1, 1 / 3e6],
    [0, 1, 2 / 3e6],
    [0, 3e6, 1e-6],
    [0, 1, 1 + 1e-6],
  ],
  "a request at a time before the state's own": [
    bursty(5),
    [9, 5, 0],
    [9, 5, 0],
    [0, 1, 10],
    [8, 1, 2.2],
    [10.4, 1, 0],
  ],
  "a request at a time before 0": [bursty(5), [-7, 1, 7], [-7, 1, 7.2]],
  "an infinite rate never waits": [
    bursty(Infinity),
    [0, 1e9, 0],
    [0, 1e308, 0],
    [0, 1, 0],
    [9, 1, 0],
  ],
  "an infinite rate with a warm-up never waits": [
    warming(Infinity, 1),
    [0, 1e9, 0],
    [0, 1, 0],
    [9, 1e9, 0],
    [9, 1, 0],
  ],
  "cold factor 1: evenly spaced permits, with a store that costs": [
    warming(5, 1, 1),
    [0, 1, 0],
    [0, 7, 0.2],
    [0.2, 1, 1.4],
    [99, 8, 0],
    [99, 1, 1.6],
  ],
  "cold factor 10: expensive at first": [
    warming(5, 4, 10),
    [0, 1, 0],
    [0, 1, 1.7525],
    [1.7525, 1, 1.2575],
    [3.01, 1, 0.7625],
  ],
  "warming up: the whole store at once costs the warm-up and half of it": [
    warming(5, 1),
    [0, 5, 0],
    [0, 1, 1.5],
    [1.5, 1, 0.2],
  ],
  "warming up: a request beyond the store": [warming(5, 1), [0, 7, 0], [0, 1, 1.9]],
  "warming up: a request across the threshold": [warming(5, 1), [0, 4, 0], [0, 1, 1.3]],
  "warming up: a small request halfway through": [
    warming(5, 1),
    [0, 1, 0],
    [0, 0.5, 0.52],
    [0, 0.5, 0.72],
    [0, 1, 0.88],
  ],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  tables(name, () => play(policy, table));
}

tables("a limiter that starts late behaves the same", () => {
  const policy = bursty(4);
  const state = smooth.start(policy, 1024 * SECOND);
  play(
    policy,
    [
      [1024, 1, 0],
      [1024, 1, 0.25],
      [1024.5, 1, 0],
      [1025.5, 4, 0],
      [1025.5, 1, 0.25],
    ],
    state,
  );
});

tables("evenly spaced permits for a hundred thousand permits of any size", () => {
  for (const permits of [1, 3, 1000]) {
    const policy = bursty(80_000);
    const state = smooth.start(policy, 0);
    for (let taken = 0; taken < 100_000 * permits; taken += permits) {
      smooth.take(policy, state, smooth.earliest(policy, state, 0, permits), permits);
    }
    assert.is(state.nextFree, 100_000 * permits * 12.5);
  }
});

tables.run();

const numbers = suite("smooth: values derived from a policy");

numbers("bursty: the interval and the capacity", () => {
  const { stable, coolDown, max, warmingUp, algorithm } = bursty(80_000, 2);
  assert.equal([stable, coolDown, max, warmingUp], [12.5, 12.5, 160_000, false]);
  assert.is(algorithm, smooth);
  assert.ok(algorithms.includes(smooth), "the algorithm is registered");
});

numbers("warming up: the essay's numbers", () => {
  const { stable, coolDown, max, threshold, slope, warmingUp } = warming(5, 1);
  assert.equal([stable, max, threshold, warmingUp], [200_000, 5, 2.5, true]);
  near(slope, 160_000, "slope");
  near(coolDown, 200_000, "the idle time that stores one permit");
});

numbers("warming up takes the warm-up, and the warm part of the store half as long", () => {
  law(
    fc.property(aWarmingUp, (policy) => {
      const warmup = policy.coolDown * policy.max;
      near(cost(policy, policy.max, policy.max - policy.threshold), warmup, "cold to warm");
      near(cost(policy, policy.threshold, policy.threshold), warmup / 2, "warm to empty");
    }),
  );
});

numbers("the price is the area under the line", () => {
  const steps = 10_000;
  law(
    fc.property(aWarmingUp, fc.double(unit), fc.double(unit), (policy, full, share) => {
      const stored = policy.max * full;
      const permits = stored * share;
      let area = 0;
      for (let i = 0; i < steps; i++) {
        const there = stored - (permits * (i + 0.5)) / steps;
        const slope = Math.max(0, there - policy.threshold) * policy.slope;
        area += ((policy.stable + slope) * permits) / steps;
      }
      const paid = permits > 0 ? cost(policy, stored, permits) : 0;
      assert.ok(Math.abs(paid - area) <= 1e-6 * area + 1e-9, `paid ${paid}, area ${area}`);
    }),
    { numRuns: runs(50) },
  );
});

numbers("stored permits cost the same in parts as at once", () => {
  law(
    fc.property(aPolicy, fc.double(unit), (policy, share) => {
      const part = policy.max * share;
      if (part === 0 || part === policy.max) return;
      const parts =
        cost(policy, policy.max, part) + cost(policy, policy.max - part, policy.max - part);
      near(parts, cost(policy, policy.max, policy.max), "two parts");
    }),
  );
});

numbers("bad numbers are refused", () => {
  const bad = [0, -0, -1, Number.NaN, -Infinity, "5", null, undefined, 5n];
  for (const permitsPerSecond of bad as number[]) {
    assert.throws(() => smoothBursty({ permitsPerSecond }), /^permitsPerSecond must be/);
    const cold = { permitsPerSecond, warmupMs: 1 };
    assert.throws(() => smoothWarmingUp(cold), /^permitsPerSecond must be/);
  }
  for (const warmupMs of [...bad, Infinity] as number[]) {
    assert.throws(() => smoothWarmingUp({ permitsPerSecond: 1, warmupMs }), /^warmupMs must be/);
  }
  for (const coldFactor of [0.99, 0, -3, Number.NaN, Infinity, "3", null] as number[]) {
    const cold = { permitsPerSecond: 1, warmupMs: 1, coldFactor };
    assert.throws(
      () => smoothWarmingUp(cold),
      /^coldFactor must be a finite number, 1 or more, got/,
    );
  }
  for (const burstSeconds of [-1, Number.NaN, Infinity, "1", null] as number[]) {
    const burst = { permitsPerSecond: 1, burstSeconds };
    assert.throws(
      () => smoothBursty(burst),
      /^burstSeconds must be a finite number, 0 or more, got/,
    );
  }
  for (const prefilled of [0, 1, "yes", null] as never[]) {
    assert.throws(
      () => smoothBursty({ permitsPerSecond: 1, prefilled }),
      /^prefilled must be true or/,
    );
  }
  for (const none of [null, undefined, 5, "5", []] as never[]) {
    assert.throws(() => smoothBursty(none), /^smoothBursty takes \{ .*, got/);
    assert.throws(() => smoothWarmingUp(none), /^smoothWarmingUp takes \{ .*, got/);
  }
  const typo = { permitsPerSecond: 1, warmupMs: 1, warmUp: 5 };
  assert.throws(
    () => smoothWarmingUp(typo),
    /no "warmUp"; expected one of permitsPerSecond, warmupMs/,
  );
  const strange = { permitsPerSecond: 1, coldFactor: 3 };
  assert.throws(
    () => smoothBursty(strange),
    /no "coldFactor"; expected one of permitsPerSecond, burst/,
  );
});

numbers("a policy can be serialized and restored", () => {
  const policies = [
    ...[bursty(5), bursty(5, 0), bursty(1 / 3, 2.5), bursty(5, 1, true), bursty(Infinity)],
    ...[warming(5, 1), warming(1 / 3, 0.1, 1), warming(Infinity, 1, 7)],
  ];
  assert.equal(readPolicies(writePolicies(policies)), policies);
  assert.equal(readPolicies("?1 2 3"), [], "of an unknown algorithm");
  for (const policy of policies) assert.equal(smooth.policy(policy.numbers), policy);
});

numbers("a policy cannot be changed by accident", () => {
  for (const policy of [bursty(5), warming(5, 1)]) assert.ok(Object.isFrozen(policy));
});

numbers.run();

const undo = suite("smooth: give-backs");

undo("give back what was taken last: exact to the last bit for round numbers", () => {
  const policy = warming(4, 2);
  for (const permits of [1, 2, 4, 6, 8, 9, 20]) {
    const state = smooth.start(policy, 0);
    const receipt = smooth.take(policy, state, 0, permits);
    assert.is(
      receipt,
      Math.min(permits, 8),
      "the receipt is the number of permits that came from the store",
    );
    smooth.giveBack(policy, state, 0, permits, receipt);
    assert.equal(state, { nextFree: 0, stored: 8 });
  }
});

undo("give back what was taken last: otherwise exact up to the last bits", () => {
  law(
    fc.property(aPolicy, aPast, anAmount, (policy, past, permits) => {
      const state = lived(policy, past);
      const at = smooth.earliest(policy, state, past.now, permits);
      // the current instant is part of what is taken: idle time until then has become stored
      // permits
      smooth.giveBack(policy, state, at, permits, smooth.take(policy, state, at, permits));
      const asIfNever = lived(policy, past);
      const before = smooth.copy(asIfNever);
      smooth.take(policy, before, at, permits);
      smooth.take(policy, state, at, permits);
      alike(state, before);
    }),
  );
});

undo("give back in any order: later requests for the same permits get the same answers", () => {
  const policy = warming(5, 1);
  const state = smooth.start(policy, 0);
  const first = smooth.take(policy, state, 0, 2);
  const second = smooth.take(policy, state, 0, 4);
  smooth.giveBack(policy, state, 0, 2, first);
  smooth.giveBack(policy, state, 0, 4, second);
  alike(state, smooth.start(policy, 0));
});

undo("without a receipt: all permits count as fresh", () => {
  const policy = bursty(5);
  const state = smooth.start(policy, 0);
  smooth.take(policy, state, 0, 10);
  smooth.giveBack(policy, state, 0, 4);
  play(policy, [[0, 1, 1.2]], state);
});

undo("never above the capacity, without a receipt and with one", () => {
  for (const policy of [bursty(5), bursty(5, 0), bursty(5, 1, true), warming(5, 1)]) {
    for (const [permits, receipt] of [
      [1000, undefined],
      [1000, 1000],
      [1000, 3],
    ] as const) {
      const state = smooth.start(policy, 0);
      const full = { nextFree: SECOND, stored: policy.max };
      smooth.giveBack(policy, state, 0, permits, receipt);
      assert.ok(state.stored <= policy.max);
      const instants = [1, 5, 1, 1].map((n) => {
        const at = smooth.earliest(policy, state, SECOND, n);
        smooth.take(policy, state, at, n);
        return at;
      });
      const most = [1, 5, 1, 1].map((n) => {
        const at = smooth.earliest(policy, full, SECOND, n);
        smooth.take(policy, full, at, n);
        return at;
      });
      assert.ok(
        instants.every((at, i) => at >= (most[i] ?? 0)),
        `${instants} earlier than ${most}`,
      );
    }
  }
});

undo.run();

const resizing = suite("smooth: update");

resizing("the store keeps its share", () => {
  const state = smooth.start(bursty(10), 0);
  smooth.resize(bursty(20), state, 0.5 * SECOND, bursty(10));
  assert.equal(state, { nextFree: 0.5 * SECOND, stored: 10 });
});

resizing("until then time counted at the old rate", () => {
  const state = smooth.start(bursty(1), 0);
  smooth.resize(bursty(1000, 100), state, 0.25 * SECOND, bursty(1, 100));
  assert.is(state.stored, 250);
});

resizing("granted permits are a deficit at the old rate", () => {
  const state = smooth.start(bursty(1), 0);
  play(bursty(1), [[0, 10, 0]], state);
  smooth.resize(bursty(1000), state, 0, bursty(1));
  play(
    bursty(1000),
    [
      [0, 1, 10],
      [10, 1, 0.001],
    ],
    state,
  );
});

resizing("a state in the future keeps its instant and its store's share", () => {
  const state = { nextFree: 9 * SECOND, stored: 3 };
  smooth.resize(bursty(10), state, SECOND, bursty(5));
  assert.equal(state, { nextFree: 9 * SECOND, stored: 6 });
});

resizing("an update and its reverse restore the state", () => {
  law(
    fc.property(aPolicy, aPolicy, aPast, (policy, other, past) => {
      fc.pre(other.max > 0 && policy.max > 0);
      const state = lived(policy, past);
      smooth.resize(policy, state, past.now, policy);
      const before = smooth.copy(state);
      smooth.resize(other, state, past.now, policy);
      assert.ok(state.stored <= other.max * (1 + 1e-12), "within the store");
      smooth.resize(policy, state, past.now, other);
      alike(state, before);
    }),
  );
});

resizing("an update to the same numbers changes nothing", () => {
  law(
    fc.property(aPolicy, aPast, (policy, past) => {
      const state = lived(policy, past);
      smooth.resize(policy, state, past.now, policy);
      const before = smooth.copy(state);
      smooth.resize(policy, state, past.now, policy);
      assert.equal(state, before);
    }),
  );
});

resizing("from an infinite rate: bursty full, warming up warm", () => {
  for (const now of [0, SECOND]) {
    const full = smooth.start(bursty(Infinity), 0);
    smooth.resize(bursty(2), full, now, bursty(Infinity));
    assert.equal(full, { nextFree: now, stored: 2 });
    const warm = smooth.start(warming(Infinity, 1), 0);
    smooth.resize(warming(2, 1), warm, now, warming(Infinity, 1));
    assert.equal(warm, { nextFree: now, stored: 0 });
  }
});

resizing("to an infinite rate: a deficit stays, then no caller waits", () => {
  for (const [finite, infinite] of [
    [bursty(2), bursty(Infinity)],
    [warming(2, 1), warming(Infinity, 1)],
  ] as const) {
    const state = { nextFree: 0.5 * SECOND, stored: 0 };
    smooth.resize(infinite, state, 0, finite);
    play(
      infinite,
      [
        [0, 1e9, 0.5],
        [0, 1, 0.5],
        [0.5, 1e9, 0],
      ],
      state,
    );
  }
});

resizing("between infinite rates nothing is stored", () => {
  const state = smooth.start(bursty(Infinity), 0);
  smooth.resize(bursty(Infinity, 9), state, SECOND, bursty(Infinity));
  assert.equal(state, { nextFree: SECOND, stored: 0 });
});

resizing("a store that gets a capacity starts empty", () => {
  const state = smooth.start(bursty(5, 0), 0);
  smooth.resize(bursty(5, 1), state, 9 * SECOND, bursty(5, 0));
  assert.equal(state, { nextFree: 9 * SECOND, stored: 0 });
  smooth.resize(bursty(5, 0), state, 10 * SECOND, bursty(5, 1));
  assert.equal(state, { nextFree: 10 * SECOND, stored: 0 });
});

resizing.run();

const looks = suite("smooth: decisions");

looks("bursty, new: one permit is available, a second until the store is full", () => {
  const policy = bursty(5);
  const state = smooth.start(policy, 0);
  assert.equal(smooth.quota(policy, state, 0), {
    limit: 6,
    remaining: 1,
    resetMs: 1000,
    windowMs: 1200,
  });
});

looks("bursty: remaining and reset as time passes and permits are used", () => {
  const policy = bursty(5);
  const state = smooth.start(policy, 0);
  const remaining = (at: number) => smooth.quota(policy, state, at * SECOND).remaining;
  assert.equal([0, 0.199_999, 0.2, 0.4, 1, 9].map(remaining), [1, 1, 2, 3, 6, 6]);
  smooth.take(policy, state, 9 * SECOND, 6);
  assert.equal([9, 9.199_999, 9.2, 9.4, 10.2].map(remaining), [0, 0, 1, 2, 6]);
  assert.is(smooth.quota(policy, state, 9 * SECOND).resetMs, 1200);
});

looks("an infinite rate", () => {
  for (const policy of [bursty(Infinity), warming(Infinity, 1)]) {
    const state = smooth.start(policy, 0);
    const free = { limit: Infinity, remaining: Infinity, resetMs: 0, windowMs: 0 };
    assert.equal(smooth.quota(policy, state, 0), free);
    const owing = { nextFree: SECOND, stored: 0 };
    assert.equal(smooth.quota(policy, owing, 0), { ...free, remaining: 0, resetMs: 1000 });
  }
});

looks("warming up: one by one", () => {
  const policy = warming(5, 1);
  const state = smooth.start(policy, 0);
  const idle = { limit: 1, remaining: 1, resetMs: 0, windowMs: 200 };
  assert.equal(smooth.quota(policy, state, 0), idle);
  smooth.take(policy, state, 0, 1);
  assert.equal(smooth.quota(policy, state, 0), { ...idle, remaining: 0, resetMs: 720 });
});

looks("a peek changes nothing", () => {
  law(
    fc.property(aPolicy, aPast, anAmount, (policy, past, permits) => {
      const state = lived(policy, past);
      const before = smooth.copy(state);
      smooth.quota(policy, state, past.now);
      smooth.lifetime(policy, state, past.now);
      smooth.earliest(policy, state, past.now, permits);
      smooth.earliest(policy, state, past.now - 12_345, permits);
      assert.equal(state, before);
    }),
  );
});

looks("a copy shares nothing", () => {
  const policy = bursty(5);
  const state = smooth.start(policy, 0);
  smooth.take(policy, smooth.copy(state), 0, 5);
  assert.equal(state, smooth.start(policy, 0));
});

looks("remaining is 0 exactly while a caller would have to wait, and never above the limit", () => {
  law(
    fc.property(aPolicy, aPast, (policy, past) => {
      const state = lived(policy, past);
      const { remaining, limit } = smooth.quota(policy, state, past.now);
      const waits = smooth.earliest(policy, state, past.now, 1) > past.now;
      assert.is(remaining === 0, waits);
      assert.ok(remaining <= limit && remaining >= 0);
    }),
  );
});

looks("as many permits as remain are granted at once, one after the other, and no more", () => {
  law(
    fc.property(aBursty, aPast, (policy, past) => {
      fc.pre(policy.max < 1000);
      const state = lived(policy, past);
      const { remaining } = smooth.quota(policy, state, past.now);
      smooth.resize(policy, state, past.now, policy);
      // if the store lacks a permit only by the last bits, one more is granted than shown
      const missing = Math.ceil(state.stored) - state.stored;
      fc.pre(missing === 0 || missing > 1e-6);
      let gone = 0;
      while (smooth.earliest(policy, state, past.now, 1) <= past.now) {
        smooth.take(policy, state, past.now, 1);
        gone += 1;
      }
      assert.is(gone, remaining);
    }),
  );
});

looks("after resetMs the limiter is as after endless idleness, and not before", () => {
  law(
    fc.property(aPolicy, aPast, (policy, past) => {
      const state = lived(policy, past);
      const { resetMs } = smooth.quota(policy, state, past.now);
      const then = past.now + Math.round(resetMs * 1000);
      const { remaining, limit } = smooth.quota(policy, state, then);
      assert.is(remaining, limit);
      // the last microsecond may be missing in the last bits
      assert.ok(smooth.quota(policy, state, then).resetMs <= 0.001);
      if (resetMs > 0.003) assert.ok(smooth.quota(policy, state, then - 3).resetMs > 0);
    }),
  );
});

looks("resetMs counts down with the time", () => {
  law(
    fc.property(aPolicy, aPast, aPause, (policy, past, pause) => {
      const state = lived(policy, past);
      const { resetMs } = smooth.quota(policy, state, past.now);
      const later = smooth.quota(policy, state, past.now + pause).resetMs;
      assert.ok(Math.abs(Math.max(0, resetMs - pause / 1000) - later) <= 0.002);
    }),
  );
});

looks("a state past its life grants no less than a new one", () => {
  law(
    fc.property(aPolicy, aPast, anAmount, (policy, past, permits) => {
      const state = lived(policy, past);
      const lifetime = smooth.lifetime(policy, state, past.now);
      assert.ok(lifetime >= 0 && lifetime < Infinity);
      const then = Math.ceil(past.now + lifetime);
      const fresh = smooth.start(policy, then);
      for (const n of [permits, 1, 1]) {
        const kept = smooth.earliest(policy, state, then, n);
        const anew = smooth.earliest(policy, fresh, then, n);
        assert.ok(kept <= anew + 1e-3, `kept ${kept}, new ${anew}`);
        smooth.take(policy, state, kept, n);
        smooth.take(policy, fresh, anew, n);
      }
    }),
  );
});

looks("on another time scale every answer is the same", () => {
  law(
    fc.property(aPolicy, aPast, anAmount, aPause, (policy, past, permits, by) => {
      const state = lived(policy, past);
      const shifted = smooth.copy(state);
      smooth.shift(shifted, by);
      const at = smooth.earliest(policy, state, past.now, permits);
      near(smooth.earliest(policy, shifted, past.now + by, permits), at + by, "instant");
      assert.is(shifted.stored, state.stored);
    }),
  );
});

looks.run();

const promises = suite("smooth: guarantees");

promises("honest: a caller is granted at the instant it is promised, and not before", () => {
  law(
    fc.property(aPolicy, aPast, anAmount, (policy, past, permits) => {
      const state = lived(policy, past);
      const at = smooth.earliest(policy, state, past.now, permits);
      assert.ok(at >= past.now);
      assert.is(smooth.earliest(policy, state, at, permits), at);
      assert.is(smooth.earliest(policy, state, at + 1, permits), at + 1);
      if (at > past.now) {
        for (const sooner of [past.now, at - 1, at - 0.001]) {
          assert.is(smooth.earliest(policy, state, sooner, permits), at);
        }
      }
    }),
  );
});

promises("bursty: any interval holds at most the store, the rate, and one request", () => {
  law(
    fc.property(
      aBursty,
      fc.array(fc.tuple(aPause, anAmount), { maxLength: 40 }),
      (policy, asks) => {
        const state = smooth.start(policy, 0);
        const grants: { at: number; permits: number }[] = [];
        let now = 0;
        for (const [pause, permits] of asks) {
          now += pause;
          const at = smooth.earliest(policy, state, now, permits);
          smooth.take(policy, state, at, permits);
          grants.push({ at, permits });
        }
        for (const [i, first] of grants.entries()) {
          let used = 0;
          for (const { at, permits } of grants.slice(i)) {
            // the last request counts as the one that is granted before it is paid for
            const bound = policy.max + (at - first.at) / policy.stable;
            assert.ok(used <= bound * (1 + 1e-9) + 1e-5, `${used} used, ${bound} allowed`);
            used += permits;
          }
        }
      },
    ),
  );
});

promises("warming up: any interval holds at most the rate and one request", () => {
  law(
    fc.property(
      aWarmingUp,
      fc.array(fc.tuple(aPause, anAmount), { maxLength: 40 }),
      (policy, asks) => {
        const state = smooth.start(policy, 0);
        let now = 0;
        for (const [pause, permits] of asks) {
          now += pause;
          const at = smooth.earliest(policy, state, now, permits);
          smooth.take(policy, state, at, permits);
          const cheapest = at + permits * policy.stable;
          assert.ok(state.nextFree >= cheapest * (1 - 1e-12), "cheaper than stable");
        }
      },
    ),
  );
});

promises("a state stays within its bounds in any history", () => {
  law(
    fc.property(aPolicy, aPast, (policy, past) => {
      const { stored, nextFree } = lived(policy, past);
      assert.ok(stored >= 0 && stored <= policy.max);
      assert.ok(Number.isFinite(nextFree));
    }),
  );
});

promises.run();

const ends = suite("smooth: at the ends of the doubles");

const extremes = [
  5e-324, 1e-320, 1e-308, 1e-200, 1e-155, 1e-100, 1e-9, 1, 1e9, 1e100, 1e200, 1e308,
];
const farPolicies = [...extremes, Infinity].flatMap((rate) => [
  bursty(rate),
  bursty(rate, 0),
  bursty(rate, 3600, true),
  warming(rate, 1),
  warming(rate, 1e-6),
  warming(rate, 1e7, 1),
  warming(rate, 10, 1e6),
]);

ends("no policy derives a value that is not a number", () => {
  for (const policy of farPolicies) {
    const { stable, coolDown, max, threshold, slope } = policy;
    for (const number of [stable, coolDown, max, threshold, slope]) {
      assert.ok(number >= 0, `${policy.permitsPerSecond}: ${JSON.stringify(policy)}`);
    }
  }
});

ends("for any request, every answer is a number", () => {
  for (const policy of farPolicies) {
    for (const permits of [1e-9, 1, 1000, 1e15]) {
      const state = smooth.start(policy, 0);
      for (const now of [0, 1, 1e6, 1e15]) {
        const facts = `${permits} at ${now}: ${JSON.stringify(policy)}`;
        const at = smooth.earliest(policy, state, now, permits);
        assert.ok(at >= now && at < Infinity, `${facts} ${at}`);
        const receipt = smooth.take(policy, state, at, permits);
        assert.ok(receipt >= 0 && receipt <= permits, facts);
        smooth.take(policy, state, at, permits);
        smooth.giveBack(policy, state, at, permits, receipt);
        smooth.giveBack(policy, state, at, permits);
        assert.ok(state.stored >= 0 && state.stored <= policy.max, facts);
        assert.not(Number.isNaN(state.nextFree), facts);
        const { limit, remaining, resetMs, windowMs } = smooth.quota(policy, state, now);
        assert.ok(limit >= 1 && remaining >= 0 && resetMs >= 0 && windowMs >= 0, facts);
        assert.ok(smooth.lifetime(policy, state, now) >= 0, facts);
      }
    }
  }
});

ends("from any numbers to any others: the store is within its bounds", () => {
  for (const before of farPolicies) {
    for (const after of farPolicies) {
      const state = smooth.start(before, 0);
      smooth.resize(after, state, SECOND, before);
      const facts = `${before.permitsPerSecond} to ${after.permitsPerSecond}`;
      assert.ok(state.stored >= 0 && state.stored <= after.max, `${facts}: ${state.stored}`);
      assert.is(state.nextFree, SECOND, facts);
    }
  }
});

ends("the slowest of all rates grants one permit, and then none", () => {
  for (const policy of [bursty(5e-324), warming(5e-324, 1)]) {
    const state = smooth.start(policy, 0);
    assert.is(smooth.earliest(policy, state, 0, 1), 0);
    smooth.take(policy, state, 0, 1);
    assert.ok(smooth.earliest(policy, state, 2 ** 53, 1) > 2 ** 53);
  }
});

ends("the fastest finite rate grants every request", () => {
  const policy = bursty(1e308);
  play(policy, [
    [0, 1e15, 0],
    [0, 1, 0],
    [1, 1e15, 0],
    [1, 1, 0],
  ]);
});

ends("an unlimited rate bounds nothing, even in the shortest time", () => {
  for (const policy of [bursty(Infinity), warming(Infinity, 1)]) {
    assert.equal(
      [smooth.bound(policy, 0, 1), smooth.bound(policy, SECOND, 1)],
      [Infinity, Infinity],
    );
  }
});

ends.run();
