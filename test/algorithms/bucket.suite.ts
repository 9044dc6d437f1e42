import * as fc from "fast-check";
import * as assert from "uvu/assert";
import type { Algorithm, Policy } from "../../src/algorithms/algorithm.ts";
import { runs, suite } from "../support/suite.ts";

export const SECOND = 1_000_000;

/**
 * A request at this second for this many permits has to wait that many seconds; `Infinity`: for
 * ever.
 */
export type Row = readonly [at: number, ask: number, wait: number];

/** Grants every row as soon as possible. */
export function play(policy: Policy, rows: readonly Row[]): void {
  const { algorithm } = policy;
  const state = algorithm.start(policy, 0);
  for (const [index, [at, ask, wait]] of rows.entries()) {
    const now = at * SECOND;
    const instant = algorithm.earliest(policy, state, now, ask);
    const dueAt = Math.ceil(instant - now) / SECOND;
    assert.is(dueAt, wait, `row ${index + 1} (${at} s, ${ask})`);
    if (wait < Infinity) algorithm.take(policy, state, instant, ask);
  }
}

/** From 0.001 to 10 000 000 a second. */
export const aRate = fc.oneof(
  fc.double({ min: -3, max: 7, noNaN: true }).map((digits) => 10 ** digits),
  fc.constantFrom(0.001, 1 / 3, 1, 7, 49, 1000 / 3, 70_000, 1e6, 3e6, 1e7),
);
export const aSize = fc.oneof(
  fc.integer({ min: 1, max: 100 }),
  fc.double({ min: 0.5, max: 1e5, noNaN: true }),
);
/** Permits; a share of the largest request where it is below 1. */
const anAsk = fc.oneof(
  fc.integer({ min: 1, max: 20 }),
  fc.double({ min: 1e-3, max: 1, noNaN: true }),
);
/** Whole microseconds. */
const aPause = fc.oneof(fc.constant(0), fc.nat(10), fc.nat(SECOND), fc.nat(1000 * SECOND));
const aPast = fc.array(
  fc.tuple(aPause, fc.constantFrom("take", "take", "take", "charge", "giveBack"), anAsk),
  { maxLength: 12 },
);

export interface Bucket<P extends Policy> {
  readonly policies: fc.Arbitrary<P>;
  /** The largest request that can be granted. */
  largest(policy: P): number;
}

/** The properties of buckets of every kind, from any state. */
export function bucketSuite<P extends Policy>(
  name: string,
  { policies, largest }: Bucket<P>,
): void {
  const test = suite(`${name}: promises`);
  const policy = policies.map((one) =>
    Object.assign({ ...one }, { [fc.toStringMethod]: () => `${name}(${one.numbers})` }),
  );

  function law(check: (history: History<P>) => void): () => void {
    return () => {
      void fc.assert(
        fc.property(policy, aPast, aPause, anAsk, (one, past, pause, ask) => {
          check(new History(one, largest(one), past, pause, ask));
        }),
        { numRuns: runs(600) },
      );
    };
  }

  test(
    "honest: refused at every microsecond before the promised one, granted then",
    law(({ at, now, permits }) => {
      const instant = at(now, permits);
      const dueAt = Math.ceil(instant);
      assert.ok(instant >= now && instant < Infinity);
      assert.is(at(instant, permits), instant);
      assert.is(at(dueAt, permits), dueAt);
      for (const sooner of [dueAt - 1, dueAt - 2, dueAt - 1000, (now + dueAt) / 2]) {
        const whole = Math.floor(sooner);
        if (whole >= now && whole < dueAt) assert.is(at(whole, permits), instant);
      }
    }),
  );

  test(
    "n permits are granted now exactly if n <= remaining, at and beside every edge",
    law(({ at, now, permits, remaining, policy }) => {
      const edge = Math.ceil(at(now, permits));
      for (const instant of [now, edge - 1, edge, edge + 1, (now + edge) / 2].map(Math.floor)) {
        const left = remaining(instant);
        const beside = left * Number.EPSILON;
        const { limit } = policy.algorithm.quota(policy, policy.algorithm.start(policy, 0), 0);
        for (const n of [permits, 1, left, left - beside, left + beside, limit]) {
          if (n <= 0 || n > limit) continue;
          assert.is(at(instant, n) === instant, n <= left, `${n} of ${left} at ${instant}`);
        }
      }
    }),
  );

  test(
    "a peek changes nothing, and a copy shares nothing",
    law(({ state, now, permits, policy }) => {
      const { algorithm } = policy;
      const before = algorithm.copy(state);
      algorithm.earliest(policy, state, now, permits);
      algorithm.earliest(policy, state, now - 12_345, permits);
      algorithm.overflows?.(policy, state, now, permits);
      algorithm.quota(policy, state, now);
      algorithm.lifetime(policy, state, now);
      algorithm.take(policy, algorithm.copy(state), now, permits);
      assert.equal(state, before);
    }),
  );

  test(
    "a later request is granted no earlier, whatever its size",
    law(({ state, at, now, permits, policy }) => {
      const first = at(now, permits);
      if (first === now) return;
      policy.algorithm.take(policy, state, first, permits);
      for (const n of [1e-3, 1, permits]) {
        if (n <= largest(policy as P)) assert.ok(Math.ceil(at(now, n)) >= Math.floor(first));
      }
    }),
  );

  test("no interval holds more than the bound", () => {
    const asks = fc.array(fc.tuple(aPause, anAsk), { maxLength: 40 });
    const property = fc.property(policy, asks, (one, list) => {
      const { algorithm } = one;
      const state = algorithm.start(one, 0);
      const grants: { at: number; permits: number }[] = [];
      let now = 0;
      for (const [pause, ask] of list) {
        now += pause;
        const permits = sized(ask, largest(one));
        const at = algorithm.earliest(one, state, now, permits);
        algorithm.take(one, state, at, permits);
        grants.push({ at, permits });
      }
      for (const [i, first] of grants.entries()) {
        let used = 0;
        for (const { at, permits } of grants.slice(i)) {
          used += permits;
          const most = one.algorithm.bound(one, Math.max(0, at - first.at), largest(one));
          assert.ok(used <= most * (1 + 1e-9) + 1e-6, `${used} used, ${most} allowed`);
        }
      }
    });
    void fc.assert(property, { numRuns: runs(600) });
  });

  test(
    "a state past its life grants no less than a new one",
    law(({ state, now, permits, policy }) => {
      const { algorithm } = policy;
      const lifetime = algorithm.lifetime(policy, state, now);
      const then = Math.ceil(now + lifetime);
      const fresh = algorithm.start(policy, then);
      for (const n of [permits, 1e-3, permits]) {
        const kept = algorithm.earliest(policy, state, then, n);
        const anew = algorithm.earliest(policy, fresh, then, n);
        assert.ok(kept <= anew + 1 + anew * 1e-12, `kept ${kept}, new ${anew}`);
        algorithm.take(policy, state, kept, n);
        algorithm.take(policy, fresh, anew, n);
      }
    }),
  );

  test(
    "the bucket is full after resetMs, and not before",
    law(({ state, now, remaining, policy }) => {
      const { limit, resetMs } = policy.algorithm.quota(policy, state, now);
      // centuries in ms have no microseconds
      if (resetMs > 2 ** 40) return;
      const then = now + Math.round(resetMs * 1000);
      assert.is(remaining(then), limit);
      if (resetMs > 0) assert.ok(remaining(then - 1) < limit);
    }),
  );

  test(
    "permits given back are as if never taken, and never exceed the capacity",
    law(({ state, at, now, permits, remaining, policy }) => {
      const { algorithm } = policy;
      const before = at(now, permits);
      algorithm.take(policy, state, before, permits);
      algorithm.giveBack(policy, state, now, permits);
      // the level is rounded, and the smallest difference may be a whole step
      const hair = 1e-9 * (1 + permits);
      assert.ok(at(now, permits + hair) >= before - 1 - before * 1e-12);
      assert.ok(at(now, permits - hair) <= before + 1 + before * 1e-9);
      algorithm.giveBack(policy, state, now, 1e9);
      const { limit } = algorithm.quota(policy, state, now);
      assert.is(remaining(now), limit);
      algorithm.take(policy, state, now, limit);
      assert.is(remaining(now), 0);
    }),
  );

  test(
    "on another time scale every answer is the same",
    law(({ state, at, now, permits, policy }) => {
      const before = at(now, permits);
      policy.algorithm.shift(state, 2 ** 24);
      const after = at(now + 2 ** 24, permits) - 2 ** 24;
      assert.ok(Math.abs(after - before) <= 1 + before * 1e-9);
    }),
  );

  test("an update and its reverse create no permits; equal numbers change nothing", () => {
    const property = fc.property(
      policy,
      policy,
      aPast,
      aPause,
      anAsk,
      (one, two, past, pause, ask) => {
        const { algorithm } = one;
        const { state, now, remaining, at, permits } = new History(
          one,
          largest(one),
          past,
          pause,
          ask,
        );
        const left = remaining(now);
        const full = at(now, permits);
        algorithm.resize(one, state, now, one);
        assert.equal([remaining(now), at(now, permits)], [left, full]);
        algorithm.resize(two, state, now, one);
        const { limit, remaining: there } = algorithm.quota(two, state, now);
        assert.ok(there <= limit);
        algorithm.resize(one, state, now, two);
        assert.ok(remaining(now) <= left * (1 + 1e-9));
        // the share of a share is rounded, and the smallest difference may be a whole step
        const hair = 1e-9 * (1 + permits);
        const after = at(now, permits + hair);
        assert.ok(after >= full - 2 - full * 1e-9, `${after} before ${full}`);
      },
    );
    void fc.assert(property, { numRuns: runs(600) });
  });

  test.run();
}

function sized(ask: number, largest: number): number {
  return Math.min(ask, largest);
}

/** A limiter with this history, and a request for it. */
class History<P extends Policy> {
  readonly policy: P;
  readonly state: unknown;
  readonly now: number;
  readonly permits: number;

  constructor(
    policy: P,
    largest: number,
    past: readonly (readonly [number, string, number])[],
    pause: number,
    ask: number,
  ) {
    const algorithm: Algorithm = policy.algorithm;
    this.policy = policy;
    this.state = algorithm.start(policy, 0);
    this.permits = sized(ask, largest);
    let now = 0;
    for (const [by, action, amount] of past) {
      now += by;
      const n = sized(amount, largest);
      if (action === "giveBack") algorithm.giveBack(policy, this.state, now, n);
      else {
        const at = action === "take" ? algorithm.earliest(policy, this.state, now, n) : now;
        algorithm.take(policy, this.state, at, n);
      }
    }
    this.now = now + pause;
  }

  readonly at = (from: number, n: number): number =>
    this.policy.algorithm.earliest(this.policy, this.state, from, n);

  readonly remaining = (now: number): number =>
    this.policy.algorithm.quota(this.policy, this.state, now).remaining;
}
