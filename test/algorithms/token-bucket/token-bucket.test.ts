import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { gcraAlgorithm } from "../../../src/algorithms/gcra/gcra.ts";
import { algorithms, readPolicies, writePolicies } from "../../../src/algorithms/index.ts";
import { steppedBucket, tokenBucket } from "../../../src/algorithms/token-bucket/token-bucket.ts";
import { Limiter, PermitsExceedCapacityError, type Policy } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { suite } from "../../support/suite.ts";
import { aRate, aSize, bucketSuite, play, type Row, SECOND } from "../bucket.suite.ts";

const steps = (capacity: number, refill: number, everyMs = 1000) =>
  tokenBucket({ capacity, refill, everyMs, stepped: true });

const go = suite("token bucket: Go's x/time/rate");

/** A limiter of ten a second, as Go's tests have it; instants are tenths of a second. */
async function ask(
  burst: number,
  rows: readonly (readonly [at: number, n: number, ok: boolean])[],
) {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: burst, refill: 10, everyMs: 1000 });
  const limiter = Limiter.create(policy, { clock });
  for (const [i, [at, n, ok]] of rows.entries()) {
    await clock.advance(at * 100 - clock.now());
    if (n > burst) {
      const never = (error: Error) => error instanceof PermitsExceedCapacityError;
      assert.throws(() => limiter.tryAcquire(n), never);
    } else assert.is(limiter.tryAcquire(n), ok, `row ${i + 1}: ${n} at ${at}`);
  }
}

go("allow, burst 1", () =>
  ask(1, [
    [0, 1, true],
    [0, 1, false],
    [0, 1, false],
    [1, 1, true],
    [1, 1, false],
    [2, 2, false],
    [2, 1, true],
    [2, 1, false],
  ]),
);

go("allow, burst 3", () =>
  ask(3, [
    [0, 2, true],
    [0, 2, false],
    [0, 1, true],
    [0, 1, false],
    [1, 4, false],
    [2, 1, true],
    [3, 1, true],
    [4, 1, true],
    [4, 1, true],
    [4, 1, false],
    [9, 3, true],
    [9, 1, false],
  ]),
);

go("reserve with its delay, and a cancelled one leaves no gap", async () => {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: 2, refill: 10, everyMs: 1000 });
  const limiter = Limiter.create(policy, { clock });
  assert.is(limiter.reserve(2).waitMs, 0);
  const second = limiter.reserve(2);
  assert.is(second.waitMs, 200);
  assert.is(limiter.reserve(1).waitMs, 300);
  assert.is(second.cancel(), true);
  assert.is(limiter.reserve(1).waitMs, 200);
  assert.throws(() => limiter.reserve(3), /3 permits can never pass/);
});

go("a clock that steps back creates no permits", () => {
  play(tokenBucket({ capacity: 3, refill: 10, everyMs: 1000 }), [
    [0.1, 1, 0],
    [0, 1, 0],
    [0, 1, 0.1],
    [0.1, 1, 0.1],
  ]);
});

go("a refill that is no whole number", () => {
  play(tokenBucket({ capacity: 1, refill: 0.1, everyMs: 100 }), [
    [0, 1, 0],
    [0, 1, 1],
    [1, 1, 1],
    [2.5, 0.5, 0],
    [2.5, 0.5, 0.5],
  ]);
});

go.run();

const stepped = suite("token bucket: stepped");

const rows: Record<string, readonly [Policy, ...Row[]]> = {
  "the essay's example": [steps(5, 2), [0, 5, 0], [0.999_999, 2, 0.000_001], [1, 4, 2], [3, 1, 1]],
  "the steps keep their grid, whenever the bucket is full": [
    steps(5, 5),
    [0.7, 5, 0],
    [0.7, 5, 0.3],
    [7.9, 5, 0],
    [7.9, 1, 0.1],
  ],
  "a tenth at each step: ten steps give one": [
    steps(1, 0.1, 100),
    [0, 1, 0],
    [0, 1, 1],
    [1.95, 1, 0.05],
    [2, 1, 1],
    [3.99, 1, 0.01],
  ],
  "a request above the capacity is never granted": [steps(5, 2), [0, 5.001, Infinity], [0, 5, 0]],
  "an interval below a microsecond is one microsecond": [
    steps(1, 1, 1e-5),
    [0, 1, 0],
    [0, 1, 1e-6],
    [0, 1, 2e-6],
  ],
  "a clock that steps back creates no permits": [
    steps(5, 5),
    [2.5, 5, 0],
    [1.5, 5, 1.5],
    [0, 1, 4],
  ],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  stepped(name, () => play(policy, table));
}

stepped("a decision shows remaining, reset and window", () => {
  const policy = steps(5, 2);
  const state = steppedBucket.start(policy, 0);
  const full = { limit: 5, remaining: 5, resetMs: 0, windowMs: 2500 };
  assert.equal(steppedBucket.quota(policy, state, 0), full);
  steppedBucket.take(policy, state, 0, 4);
  const quotas = [0, 0.999_999, 1, 1.5, 2].map((at) => {
    const { remaining, resetMs } = steppedBucket.quota(policy, state, at * SECOND);
    return [remaining, resetMs];
  });
  assert.equal(quotas, [
    [1, 2000],
    [1, 1000.001],
    [3, 1000],
    [3, 500],
    [5, 0],
  ]);
  assert.is(steppedBucket.lifetime(policy, state, SECOND), SECOND);
});

stepped("a refund to a full bucket is lost, at an earlier instant too", () => {
  const policy = steps(10, 10);
  const state = steppedBucket.start(policy, 0);
  steppedBucket.giveBack(policy, state, 1.5 * SECOND, 5);
  assert.equal(state, { since: SECOND, tokens: 10 });
  assert.is(steppedBucket.earliest(policy, state, 0.5 * SECOND, 10), SECOND);
});

stepped("update: no step comes sooner than its share, tokens keep theirs, debts stay", () => {
  const [daily, quick] = [steps(10, 10, 86_400_000), steps(20, 10)];
  const state = steppedBucket.start(daily, 0);
  steppedBucket.take(daily, state, 0, 10);
  const evening = 0.75 * 86_400 * SECOND;
  steppedBucket.resize(quick, state, evening, daily);
  assert.equal(state, { since: evening - 0.75 * SECOND, tokens: 0 });
  steppedBucket.take(quick, state, evening, 3);
  steppedBucket.resize(daily, state, evening, quick);
  assert.equal(state, { since: 0, tokens: -3 });
  steppedBucket.giveBack(daily, state, evening, 8);
  steppedBucket.resize(steps(20, 1, 86_400_000), state, evening, daily);
  assert.equal(state, { since: 0, tokens: 10 });
});

stepped("the state counts from the last time that the bucket was full", () => {
  const policy = steps(4, 2);
  const state = steppedBucket.start(policy, 0);
  const after = (deed: "take" | "giveBack", at: number, permits: number) => {
    steppedBucket[deed](policy, state, at * SECOND, permits);
    return [state.since / SECOND, state.tokens];
  };
  assert.equal(after("take", 0, 4), [0, 0]);
  assert.equal(after("take", 1.5, 1), [0, -1], "not full: the grid's origin stays");
  assert.equal(after("giveBack", 1.5, 1), [0, 0]);
  assert.equal(after("giveBack", 1.5, 2), [0, 2], "exactly full");
  assert.equal(after("take", 1.5, 3), [1, 1], "exactly full");
  assert.equal(after("giveBack", 1.5, 4), [1, 4], "fuller than full");
});

stepped("update of one number: the others keep what they mean", () => {
  const before = steps(8, 2);
  const at = 1.5 * SECOND;
  const resized = (policy: Policy, now = at) => {
    const state = { since: 0, tokens: 2 };
    steppedBucket.resize(policy as typeof before, state, now, before);
    return [state.since, state.tokens];
  };
  assert.equal(resized(steps(8, 2)), [0, 2], "nothing changed");
  assert.equal(resized(steps(16, 2)), [SECOND, 8], "the same share of the capacity");
  assert.equal(resized(steps(8, 1)), [SECOND, 4], "past steps added what they added then");
  assert.equal(resized(steps(8, 2, 2000)), [at - SECOND, 4], "the same share of the interval");
  for (let now = SECOND; now < SECOND + 300; now++) {
    assert.is(resized(steps(16, 2), now)[0], SECOND, "no rounding moves the grid");
  }
});

stepped("a bucket that was empty for long still counts single tokens", () => {
  const policy = steps(1, 1e6, 0.001);
  const state = steppedBucket.start(policy, 0);
  for (let now = 1; now < 100; now++) steppedBucket.take(policy, state, now, 1e6);
  assert.is(steppedBucket.quota(policy, state, 99).remaining, 0);
  steppedBucket.take(policy, state, 99, 2e12);
  steppedBucket.take(policy, state, 2e6 + 99, 0.5);
  assert.ok(state.since > 2e6, "the state counts from a later step");
  assert.is(steppedBucket.earliest(policy, state, 2e6 + 99, 0.5), 2e6 + 100);
});

stepped("a sum that has lost its last digits still gives the first step", () => {
  const policy = steps(2 ** 50, 0.001, 1);
  const state = { since: 0, tokens: 2 ** 50 - 8 };
  for (const wanted of [2 ** 50 - 7.75, 2 ** 50 - 7, 2 ** 50]) {
    const at = steppedBucket.earliest(policy, state, 0, wanted);
    const there = (now: number) => steppedBucket.quota(policy, state, now).remaining;
    assert.ok(there(at) >= wanted && there(at - 1) < wanted, `${wanted} at ${at}`);
  }
});

stepped.run();

const numbers = suite("token bucket: policies");

numbers("bad numbers are refused", () => {
  const good = { capacity: 1, refill: 1, everyMs: 1 };
  for (const name of ["capacity", "refill", "everyMs"]) {
    for (const bad of [0, -0, -1, Number.NaN, Infinity, "5", null, undefined, 5n]) {
      const words = new RegExp(`^${name} must be a finite number above 0, got`);
      assert.throws(() => tokenBucket({ ...good, [name]: bad }), words);
    }
  }
  for (const bad of [0, 1, "yes", null] as never[]) {
    assert.throws(() => tokenBucket({ ...good, stepped: bad }), /^stepped must be true or false/);
  }
  assert.throws(() => tokenBucket(5 as never), /^tokenBucket takes \{ .*, got 5/);
  assert.throws(
    () => tokenBucket({ ...good, rate: 1 } as never),
    /no "rate"; expected one of capacity/,
  );
});

numbers("a policy can be serialized and restored, and not changed", () => {
  assert.ok(algorithms.includes(steppedBucket as never));
  for (const policy of [steps(5, 0.1), tokenBucket({ capacity: 5, refill: 0.1, everyMs: 7 })]) {
    assert.equal(readPolicies(writePolicies([policy])), [policy]);
    assert.ok(Object.isFrozen(policy));
  }
  assert.is(tokenBucket({ capacity: 5, refill: 1, everyMs: 7 }).algorithm, gcraAlgorithm);
  const { capacity, refill, every } = steppedBucket.policy([]);
  assert.equal([capacity, refill, every], [1, 1, SECOND]);
});

numbers("at the ends of the doubles every answer is a number", () => {
  const extremes = [5e-324, 1e-310, 1e-9, 1, 1e9, 1e200, 1.7e308];
  const policies = extremes.flatMap((capacity) =>
    extremes.flatMap((refill) => extremes.map((everyMs) => steps(capacity, refill, everyMs))),
  );
  for (const policy of policies) {
    const state = steppedBucket.start(policy, 0);
    for (const now of [0, 0.5, 1e15, -1e300, 1e300]) {
      const facts = `at ${now}: ${policy.numbers}`;
      const permits = Math.min(1, policy.capacity);
      const at = steppedBucket.earliest(policy, state, now, permits);
      assert.ok(at >= now && at < Infinity, `${facts}: ${at}`);
      steppedBucket.take(policy, state, at, permits);
      steppedBucket.take(policy, state, now, policy.capacity);
      steppedBucket.giveBack(policy, state, now, permits);
      const { remaining, resetMs, windowMs } = steppedBucket.quota(policy, state, now);
      assert.ok(remaining >= 0 && resetMs >= 0 && windowMs >= 0, facts);
      assert.ok(steppedBucket.lifetime(policy, state, now) >= 0, facts);
      steppedBucket.resize(steps(5, 2), state, now, policy);
      steppedBucket.resize(policy, state, now, steps(5, 2));
      assert.ok(Math.abs(state.tokens) < Infinity && Math.abs(state.since) < Infinity, facts);
    }
  }
});

numbers.run();

const aBucket = fc.record({ capacity: aSize, refill: aRate });

bucketSuite("token bucket", {
  policies: aBucket.map((one) => tokenBucket({ ...one, everyMs: 1000 })),
  largest: ({ capacity }) => capacity,
});

bucketSuite("token bucket, stepped", {
  policies: fc
    .tuple(aBucket, fc.constantFrom(0.001, 0.7, 10, 1000, 86_400_000))
    .map(([one, everyMs]) => steps(one.capacity, one.refill, everyMs)),
  largest: ({ capacity }) => capacity,
});
