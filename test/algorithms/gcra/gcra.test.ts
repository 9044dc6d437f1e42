import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { type GcraPolicy, gcra, gcraAlgorithm } from "../../../src/algorithms/gcra/gcra.ts";
import { algorithms, readPolicies, writePolicies } from "../../../src/algorithms/index.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { runs, suite } from "../../support/suite.ts";
import { aRate, aSize, bucketSuite, play, type Row, SECOND } from "../bucket.suite.ts";

const policyStates = (limit: number, burst?: number, periodMs = 1000) =>
  burst === undefined ? gcra({ limit, periodMs }) : gcra({ limit, periodMs, burst });

const tables = suite("gcra: waits");

const rows: Record<string, readonly [GcraPolicy, ...Row[]]> = {
  "the essay's example, 30 a minute and a burst of 15 more": [
    policyStates(30, 15, 60_000),
    [0, 16, 0],
    [1, 1, 1],
    [7, 1, 0],
    [7, 1, 0],
    [7, 1, 1],
    [40, 16, 0],
    [40, 17, Infinity],
  ],
  "no burst: evenly spaced permits": [
    policyStates(10, 0),
    [0, 1, 0],
    [0, 1, 0.1],
    [0, 1, 0.2],
    [0.3, 1, 0],
  ],
  "the burst is a whole limit by default": [policyStates(3), [0, 3, 0], [0, 1, 0.333334]],
  "a limit below one grants one at once": [policyStates(0.5), [0, 1, 0], [0, 1, 2], [4, 1, 0]],
  "an interval that is no whole number of microseconds: errors do not add up": [
    policyStates(7),
    ...Array.from({ length: 7 }, (): Row => [0, 1, 0]),
    [0, 1, 0.142858],
    [0, 1, 0.285715],
    [0, 5, 1],
    [2, 7, 0],
    [2.999_999, 7, 0.000_001],
    [3, 7, 1],
  ],
  "forty-nine permits are refilled in exactly their period": [
    policyStates(49),
    [0, 49, 0],
    [1, 49, 0],
    [2, 49, 0],
  ],
  "fractions of a permit": [policyStates(1), [0, 0.25, 0], [0, 0.75, 0], [0, 0.5, 0.5], [9, 1, 0]],
  "high rates are limited too": [
    policyStates(1e7, 0),
    [0, 1, 0],
    [0, 1, 1e-6],
    [0, 1, 1e-6],
    ...Array.from({ length: 8 }, (): Row => [0, 1, 1e-6]),
    [0, 1, 2e-6],
  ],
  "a clock that steps back creates no permits": [
    policyStates(10, 2),
    [1, 1, 0],
    [0.9, 1, 0],
    [0.9, 1, 0.1],
    [1, 1, 0.1],
  ],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  tables(name, () => play(policy, table));
}

tables("a whole burst is granted at once, one by one, at every rate", () => {
  for (const limit of [3, 7, 49, 300, 70_000]) {
    for (const now of [0, 2 ** 32 - 1, 2 ** 32 + 0.3]) {
      const policy = policyStates(limit);
      const state = gcraAlgorithm.start(policy, now);
      for (let gone = 0; gone < limit; gone++) {
        assert.is(gcraAlgorithm.earliest(policy, state, now, 1), now, `${gone} of ${limit}`);
        gcraAlgorithm.take(policy, state, now, 1);
      }
      assert.ok(gcraAlgorithm.earliest(policy, state, now, 1) > now);
    }
  }
});

tables("an even rate for a hundred thousand permits does not drift", () => {
  const policy = policyStates(3e6, 0);
  const state = gcraAlgorithm.start(policy, 0);
  let at = 0;
  for (let taken = 0; taken <= 3e5; taken++) {
    at = gcraAlgorithm.earliest(policy, state, 0, 1);
    gcraAlgorithm.take(policy, state, at, 1);
  }
  assert.ok(Math.abs(at - 100_000) < 1e-3, `${at}`);
});

tables("a level that has run for months still counts single permits", () => {
  const policy = policyStates(1e9, 0);
  const state = gcraAlgorithm.start(policy, 0);
  const months = 200 * 86_400 * SECOND;
  gcraAlgorithm.take(policy, state, 0, 1e9 * 200 * 86_400);
  for (let i = 0; i < 5000; i++) gcraAlgorithm.take(policy, state, months, 1);
  const { remaining, resetMs } = gcraAlgorithm.quota(policy, state, months);
  assert.equal([remaining, resetMs], [0, 0.006]);
  assert.ok(gcraAlgorithm.earliest(policy, state, months, 1) > months + 5);
});

tables("an instant between two microseconds is not rounded up", () => {
  for (const limit of [3, 7, 49, 300, 70_000, 3e6]) {
    const policy = policyStates(limit, 0);
    for (let owed = 1; owed < 500; owed++) {
      const at = gcraAlgorithm.earliest(policy, { since: 0, level: 1 - owed }, 0, 1);
      const exact = (owed * SECOND) / limit;
      assert.ok(Math.abs(at - exact) < 1e-6, `${owed} at ${limit} a second: ${at}`);
    }
  }
});

tables("an instant between two microseconds is one at which the permits are available", () => {
  for (const limit of [3, 7, 49, 300, 70_000]) {
    const policy = policyStates(limit, 0);
    for (let tenths = 1; tenths < 500; tenths++) {
      const state = { since: 0, level: -tenths / 10 };
      const at = gcraAlgorithm.earliest(policy, state, 0, 1);
      const { remaining } = gcraAlgorithm.quota(policy, state, at);
      assert.is(remaining, 1, `${tenths} at ${limit} a second`);
    }
  }
});

tables.run();

const numbers = suite("gcra: policies");

numbers("bad numbers are refused, with the argument, its bound and what it got", () => {
  const bad = [0, -0, -1, Number.NaN, Infinity, "5", null, undefined, 5n] as number[];
  for (const one of bad) {
    assert.throws(() => gcra({ limit: one, periodMs: 1 }), /^limit must be a finite number above/);
    assert.throws(() => gcra({ limit: 1, periodMs: one }), /^periodMs must be a finite number/);
  }
  for (const burst of [-1, Number.NaN, Infinity, "1", null] as number[]) {
    assert.throws(() => gcra({ limit: 1, periodMs: 1, burst }), /^burst must be a finite/);
  }
  for (const none of [null, undefined, 5, []] as never[]) {
    assert.throws(() => gcra(none), /^gcra takes \{ limit, periodMs, burst \}, got/);
  }
  const typo = { limit: 1, periodMs: 1, bursts: 5 };
  assert.throws(() => gcra(typo), /no "bursts"; expected one of limit, periodMs, burst/);
});

numbers("a policy can be serialized and restored, and not changed", () => {
  assert.ok(algorithms.includes(gcraAlgorithm as never));
  for (const policy of [policyStates(5), policyStates(1 / 3, 0.5), policyStates(7, 0, 1e-3)]) {
    const { limitAt, ...written } = policy;
    assert.equal(readPolicies(writePolicies([policy])), [written]);
    assert.ok(Object.isFrozen(policy));
  }
  const { capacity, permits, per } = gcraAlgorithm.policy([]);
  assert.equal([capacity, permits, per], [1, 1, SECOND]);
});

numbers("a request that can never pass is reported as such, without a time to retry", () => {
  const limiter = Limiter.create(policyStates(5, 4), { clock: new FakeClock() });
  for (const verb of [() => limiter.decide(5.001), () => limiter.peek(6)]) {
    assert.throws(verb, (error: Error) => error instanceof PermitsExceedCapacityError);
  }
  assert.is(limiter.peek(5).remaining, 5);
});

numbers("a new state is as full as an old one: it lives until it is full, and no longer", () => {
  const policy = policyStates(1, 9);
  const state = gcraAlgorithm.start(policy, 0);
  assert.is(gcraAlgorithm.lifetime(policy, state, 0), 0);
  gcraAlgorithm.take(policy, state, 0, 10);
  assert.is(gcraAlgorithm.lifetime(policy, state, 0), 10 * SECOND);
});

numbers("a refund to a full bucket is lost, at an earlier instant too", () => {
  const policy = policyStates(10, 9);
  const state = gcraAlgorithm.start(policy, 0);
  gcraAlgorithm.giveBack(policy, state, SECOND, 5);
  assert.equal(state, { since: SECOND, level: 10 });
  assert.is(gcraAlgorithm.earliest(policy, state, 0.5 * SECOND, 10), SECOND);
});

numbers("update: stored permits keep their share, a deficit keeps its time", () => {
  const [slow, fast] = [policyStates(10, 9), policyStates(100, 19)];
  const state = gcraAlgorithm.start(slow, 0);
  gcraAlgorithm.take(slow, state, 0, 5);
  gcraAlgorithm.resize(fast, state, 0, slow);
  assert.equal(state, { since: 0, level: 10 });
  gcraAlgorithm.take(fast, state, 0, 110);
  gcraAlgorithm.resize(slow, state, 0, fast);
  assert.is(gcraAlgorithm.earliest(slow, state, 0, 1), 1.1 * SECOND);
  gcraAlgorithm.resize(policyStates(10, 1), state, 0, slow);
  assert.is(gcraAlgorithm.earliest(slow, state, 0, 1), 1.1 * SECOND);
});

numbers("the level counts from the last instant at which the bucket was full", () => {
  const policy = policyStates(4);
  const state = gcraAlgorithm.start(policy, 0);
  gcraAlgorithm.take(policy, state, 0, 4);
  gcraAlgorithm.giveBack(policy, state, 0.5 * SECOND, 2);
  assert.equal(state, { since: 0, level: 2 }, "exactly full, not fuller");
});

numbers("update of one number: the others keep what they mean", () => {
  const before = policyStates(4, 3);
  const resized = (policy: GcraPolicy, level: number) => {
    const state = { since: 0, level };
    gcraAlgorithm.resize(policy, state, 0.5 * SECOND, before);
    return [state.since / SECOND, state.level];
  };
  assert.equal(resized(policyStates(4, 3), 1), [0, 1], "nothing changed");
  assert.equal(resized(policyStates(4, 7), 1), [0.5, 6], "the same share of the burst");
  assert.equal(resized(policyStates(4, 7), -4), [0.5, -2], "a debt stays");
  assert.equal(resized(policyStates(2, 3), 1), [0.5, 3], "permits of the past stay");
  assert.equal(resized(policyStates(2, 3), -4), [0.5, -1], "half a second to pay");
  assert.equal(resized(policyStates(4, 3, 2000), -4), [0.5, -1], "half a second to pay");
});

numbers("update of one number: no rounding moves what stays", () => {
  const before = policyStates(7, 2);
  const resized = (policy: GcraPolicy, level: number) => {
    const state = { since: 0, level };
    gcraAlgorithm.resize(policy, state, 0, before);
    return state.level;
  };
  for (let tenths = 1; tenths < 30; tenths++) {
    assert.is(resized(policyStates(5, 2), tenths / 10), tenths / 10, "the same burst");
    assert.is(resized(policyStates(7, 4), -tenths / 10), -tenths / 10, "the same pace");
  }
});

numbers("the numbers that are the limit: the burst too, if it follows from it", () => {
  assert.equal(policyStates(4).limitAt, [0, 1]);
  assert.equal(policyStates(4, 3).limitAt, [1]);
});

numbers("the window in which the burst comes back is exact, also beyond the doubles", () => {
  const windowMs = (policy: GcraPolicy) =>
    gcraAlgorithm.quota(policy, gcraAlgorithm.start(policy, 0), 0).windowMs;
  assert.is(windowMs(policyStates(49, 0, 49_000)), 1000);
  assert.is(windowMs(policyStates(1e300, 1e300, 1e200)), 1e200);
});

numbers.run();

const ends = suite("gcra: at the ends of the doubles");

const extremes = [5e-324, 1e-310, 1e-200, 1e-9, 1, 1e9, 1e200, 1.7e308];

ends("for any request, every answer is a number", () => {
  const policies = extremes.flatMap((limit) =>
    extremes.flatMap((periodMs) => [0, 1, 1e308].map((burst) => gcra({ limit, periodMs, burst }))),
  );
  for (const policy of policies) {
    const state = gcraAlgorithm.start(policy, 0);
    for (const now of [0, 1, 1e15, 0.5, -1e300, 1e300]) {
      for (const permits of [5e-324, 1e-9, 1, policy.capacity]) {
        const facts = `${permits} at ${now}: ${policy.numbers}`;
        const at = gcraAlgorithm.earliest(policy, state, now, permits);
        assert.ok(at >= now && at < Infinity, `${facts}: ${at}`);
        gcraAlgorithm.take(policy, state, at, permits);
        gcraAlgorithm.take(policy, state, now, permits);
        gcraAlgorithm.giveBack(policy, state, now, permits);
        const { remaining, resetMs, windowMs } = gcraAlgorithm.quota(policy, state, now);
        assert.ok(remaining >= 0 && resetMs >= 0 && windowMs >= 0, facts);
        assert.ok(gcraAlgorithm.lifetime(policy, state, now) >= 0, facts);
        gcraAlgorithm.resize(policies[7] as GcraPolicy, state, now, policy);
        gcraAlgorithm.resize(policy, state, now, policies[7] as GcraPolicy);
        assert.ok(Math.abs(state.level) < Infinity && Math.abs(state.since) < Infinity, facts);
      }
    }
  }
});

ends("a debt so large that the level loses its last digits still gives an exact wait", () => {
  const slow = gcra({ limit: 1, periodMs: 1e6, burst: 2 });
  const property = fc.property(fc.double({ min: 1e5, max: 1e6, noNaN: true }), (debt) => {
    const state = { since: 0, level: -debt };
    const promised = Math.ceil(gcraAlgorithm.earliest(slow, state, 0, 1));
    assert.is(gcraAlgorithm.earliest(slow, state, promised, 1), promised);
    assert.ok(gcraAlgorithm.earliest(slow, state, promised - 1, 1) > promised - 1);
  });
  void fc.assert(property, { numRuns: runs(2000) });
});

ends.run();

bucketSuite("gcra", {
  policies: fc
    .record({ limit: aRate, burst: aSize })
    .map((one) => gcra({ ...one, periodMs: 1000 })),
  largest: ({ largest }) => largest,
});
