/**
 * What every algorithm promises, as properties over random histories: through the contract, and
 * through a `Limiter` on a `FakeClock`. `promises.test.ts` runs it over the registration. A failure
 * names the property, the seed and the history.
 */
import fc from "fast-check";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { share } from "../../src/algorithms/index.ts";
import { Limiter } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { type Everyday, LARGEST_REQUEST } from "../support/algorithms/samples.ts";
import { type Deed, World } from "../support/algorithms/world.ts";
import { suite } from "../support/suite.ts";

/** Number of windows after which the mean rate has to be that of the quota. */
const LONG_RUN = 20;
const SHIFT = 2 ** 24;
/** Longer than any state takes to be full, and a whole number of most steps; microseconds. */
const LONG_AGO = 1e12;
/** How many permits rounding may cost at instants long after 0. */
const GRAIN = 1e-6;

const somePermits = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(1, 1, 1, 2, 3, 5) },
  { weight: 1, arbitrary: fc.constantFrom(0.5, 0.1, 1 / 3, LARGEST_REQUEST) },
);
const micros = fc.oneof(
  fc.constantFrom(0, 1, 1000, 100_000, 1_000_000),
  fc.integer({ min: 0, max: 3_000_000 }),
);

/** @param numRuns how many histories each property is tried on */
export function algorithmSuite(name: string, everyday: Everyday, numRuns: number): void {
  const { lends = false, cancels = true, permits = somePermits, seeds = [] } = everyday;
  const { lent = 0, later = () => 0 } = everyday;
  const test = suite(`${name}, what every algorithm promises`);

  const policies = everyday.policies.map(legible);
  const step = fc.record({ verb: fc.constant("step"), micros });
  const edge = fc.record({
    verb: fc.constant("edge"),
    permits,
    fresh: fc.boolean(),
    by: fc.constantFrom(-1, 0, 0, 1),
  });
  const ask = fc.record({
    verb: fc.constant("ask"),
    permits,
    longest: fc.oneof(fc.constantFrom(0, Infinity, Infinity), micros),
  });
  const cancel = fc.record({ verb: fc.constant("cancel"), which: fc.nat({ max: 20 }) });
  const pause = fc.record({ verb: fc.constant("pause"), micros });
  const debt: fc.Arbitrary<Deed> = fc.oneof(
    fc.record({ verb: fc.constant("charge"), permits }),
    fc.record({ verb: fc.constant("refund"), permits }),
  );
  const usual: fc.WeightedArbitrary<Deed>[] = [
    { weight: 2, arbitrary: step },
    { weight: 3, arbitrary: edge },
    { weight: 6, arbitrary: ask },
    { weight: 1, arbitrary: cancel },
    { weight: 1, arbitrary: pause },
  ];
  const deedsOf = (...actions: fc.WeightedArbitrary<Deed>[]) =>
    fc.array(fc.oneof(...actions), { maxLength: 30, size: "max" });
  const start = fc.constantFrom(0, 1, 123_456);
  const epoch = fc.constantFrom(0, SHIFT, 1_700_000_000_123_456);
  const lived = fc
    .record({
      policy: policies,
      start,
      epoch,
      actions: deedsOf(...usual, { weight: 2, arbitrary: debt }),
    })
    .map((past) => ({
      past,
      get world() {
        const world = new World(past.policy, past.start, past.epoch);
        for (const action of past.actions) world.do(action);
        return world;
      },
      [fc.toStringMethod]: () => fc.stringify(past),
    }));

  function law<Ts>(property: string, holds: fc.IRawProperty<Ts>): void {
    test(property, async () => {
      for (const seed of seeds) await fc.assert(holds, { seed, numRuns });
      await fc.assert(holds, { numRuns });
    });
  }

  function within(
    policy: Policy,
    grants: readonly { at: number; permits: number }[],
    more = 0,
  ): void {
    const sorted = grants.toSorted((a, b) => a.at - b.at);
    for (const [i, first] of sorted.entries()) {
      let used = 0;
      for (const { at, permits } of sorted.slice(i)) {
        used += permits;
        const most = policy.algorithm.bound(policy, at - first.at, LARGEST_REQUEST) + more;
        const facts = `${used} used from ${first.at} to ${at}, ${most} allowed`;
        assert.ok(used <= most * (1 + 1e-9) + 1e-9, facts);
      }
    }
  }

  law(
    "envelope: no interval holds more than its bound",
    fc.property(policies, start, epoch, deedsOf(...usual), (policy, now, epoch, actions) => {
      const world = new World(policy, now, epoch);
      for (const action of actions) if (cancels || action.verb !== "cancel") world.do(action);
      within(policy, world.grants);
    }),
  );

  law(
    "envelope: the same through a limiter, with waiters that leave",
    fc.asyncProperty(policies, deedsOf(...usual), async (policy, actions) => {
      const clock = new FakeClock(1_700_000_000_000);
      const limiter = Limiter.create(policy, { clock });
      const micros = () => Math.round(clock.now() * 1000);
      const grants: { at: number; permits: number }[] = [];
      const waiting: AbortController[] = [];
      for (const action of actions) {
        if (action.verb === "step") await clock.advance(action.micros / 1000);
        else if (action.verb === "pause") limiter.pause(action.micros / 1000);
        else if (action.verb === "cancel") waiting[action.which % waiting.length]?.abort();
        else if (action.permits > limiter.peek(1e-9).limit) continue;
        else if (action.verb === "edge") {
          const { waitMs, resetMs } = limiter.peek(action.permits);
          const ms = (action.fresh ? resetMs : waitMs) + action.by / 1000;
          if (ms <= 3.6e6) await clock.advance(Math.max(0, ms));
        } else if (action.verb === "ask") {
          const { permits } = action;
          const controller = new AbortController();
          waiting.push(controller);
          const timeoutMs = action.longest / 1000;
          const { signal } = controller;
          const note = (got: boolean) => {
            if (got) grants.push({ at: micros(), permits });
          };
          limiter.tryAcquire(permits, { timeoutMs, signal }).then(note, () => {});
        }
      }
      await clock.advance(1e6);
      within(policy, grants);
    }),
  );

  law(
    "in the long run, `limit` permits are granted every `windowMs`",
    fc.property(policies, start, epoch, (policy, now, epoch) => {
      const { algorithm } = policy;
      const world = new World(policy, now, epoch);
      const { limit, windowMs } = algorithm.quota(policy, world.state, now);
      // leaves nothing stored, and a warming-up limiter warm
      algorithm.take(policy, world.state, now, 100 * Math.max(limit, 1000));
      // small enough that a bucket which is refilled in steps never overflows meanwhile
      const each = limit / Math.ceil(Math.min(limit, 8));
      const begun = world.earliest(now, each);
      let at = begun;
      for (let used = 0; used < LONG_RUN * limit * (1 - 1e-9); used += each) {
        at = world.earliest(at, each);
        algorithm.take(policy, world.state, at, each);
      }
      const most = algorithm.bound(policy, LONG_RUN * windowMs * 1000, 0);
      const pace = (LONG_RUN + 3) * limit + (policy.largest ?? 0);
      assert.ok(most <= pace + GRAIN, `a bound of ${most}, ${pace} at that rate`);
      const windows = (world.earliest(at, each) - begun) / (windowMs * 1000);
      assert.ok(
        Math.abs(windows - LONG_RUN) <= 1.01,
        `the limit was granted ${LONG_RUN} times in ${windows} windows`,
      );
    }),
  );

  law(
    "in order: after a promise no request of any size gets an earlier instant",
    fc.property(lived, permits, fc.array(permits, { minLength: 1 }), (past, permits, asks) => {
      const { world } = past;
      const { policy, state, now } = world;
      const { algorithm } = policy;
      if (!algorithm.inOrder) return;
      const at = world.earliest(now, permits);
      if (at === Infinity) return;
      algorithm.take(policy, state, at, permits);
      for (const other of [5e-324, ...asks]) {
        const next = world.earliest(now, other);
        assert.ok(next >= at - GRAIN, `${other} at ${next}, although ${at} was promised`);
      }
    }),
  );

  law(
    "a cancel after an update gives back what was taken, and no more",
    fc.property(lived, policies, permits, permits, (past, other, permits, next) => {
      const { world } = past;
      const { policy, state, now, epoch } = world;
      const { algorithm } = policy;
      const at = world.earliest(now, permits);
      if (other.algorithm !== algorithm || at === Infinity) return;
      const receipt = algorithm.take(policy, state, at, permits);
      algorithm.resize(other, state, now, policy);
      algorithm.align?.(other, state, epoch);
      const kept = algorithm.copy(state);
      algorithm.giveBack(other, state, now, permits, receipt);
      const free = algorithm.earliest(other, state, now, next);
      const taken = algorithm.earliest(other, kept, now, next);
      const facts = `at ${free} after the cancel, at ${taken} without it`;
      assert.ok(free <= taken + 1, facts);
      const [had, has] = [kept, state].map(
        (one) => algorithm.quota(other, one, Math.ceil(taken)).remaining,
      );
      const more = Number(has) - Number(had);
      // one permit of a limiter that lends is rounded up
      const most = permits + (lends ? 1 : 0);
      assert.ok(taken === Infinity || more <= most + GRAIN, `${more} of ${permits} came back`);
    }),
  );

  law(
    "honest: a caller is granted at the instant it is promised, and not before",
    fc.property(lived, permits, fc.nat({ max: 1000 }), (past, permits, share) => {
      const { world } = past;
      const { now } = world;
      const at = world.earliest(now, permits);
      if (at === Infinity) return;
      assert.ok(at >= now);
      const due = Math.ceil(at);
      assert.ok(world.earliest(due, permits) <= due, "granted at the promised instant");
      const between = now + Math.floor(((due - now) * share) / 1000);
      for (const sooner of [now, due - 1, due - 2, between]) {
        if (sooner < now || sooner >= due) continue;
        assert.ok(world.earliest(sooner, permits) > sooner, `not granted at ${sooner}`);
        assert.is(Math.ceil(world.earliest(sooner, permits)), due, `the same promise at ${sooner}`);
      }
    }),
  );

  law(
    "remaining is what can be taken now, at every edge",
    fc.property(lived, permits, (past, permits) => {
      const { world } = past;
      const { policy, state, now } = world;
      const instants = [now];
      const edges = [
        world.earliest(now, permits),
        now + policy.algorithm.lifetime(policy, state, now),
      ];
      for (const edge of edges.map(Math.ceil)) {
        if (edge < Infinity) instants.push(edge - 1, edge, edge + 1);
      }
      for (const at of instants.filter((instant) => instant >= now)) {
        const { limit, remaining, resetMs, windowMs } = policy.algorithm.quota(policy, state, at);
        assert.ok(remaining >= 0 && remaining <= limit, `${remaining} of ${limit}`);
        assert.ok(resetMs >= 0 && resetMs < Infinity && windowMs >= 0);
        if (lends) continue;
        const above = remaining * (1 + 2 ** -52);
        for (const n of [permits, remaining, above, remaining + 1, 1e-9]) {
          if (!(n > 0)) continue;
          const goes = world.earliest(at, n) <= at;
          assert.is(goes, n <= remaining, `${n} at ${at}, ${remaining} remain`);
        }
      }
    }),
  );

  law(
    "a peek, a refusal and a copy change nothing",
    fc.property(lived, permits, (past, permits) => {
      const { world } = past;
      const { policy, state, now } = world;
      const before = structuredClone(state);
      for (const from of [now, now - 10_000, now + 1_000_000]) {
        world.earliest(from, permits);
        policy.algorithm.quota(policy, state, from);
        policy.algorithm.lifetime(policy, state, from);
        world.deficit(from);
      }
      policy.algorithm.overflows?.(policy, state, now, permits);
      policy.algorithm.take(policy, world.copy(), now, permits);
      policy.algorithm.giveBack(policy, world.copy(), now, permits);
      policy.algorithm.shift(world.copy(), 1);
      policy.algorithm.resize(policy, world.copy(), now + 1_000_000, policy);
      assert.equal(state, before);
    }),
  );

  law(
    "a state that lapses grants no more than one that stays",
    fc.property(lived, fc.array(permits, { maxLength: 6 }), micros, (past, asks, pause) => {
      const { world } = past;
      const { policy, state, now } = world;
      const { algorithm } = policy;
      const then = Math.ceil(now + algorithm.lifetime(policy, state, now)) + pause;
      const fresh = world.fresh(then);
      let at = then;
      for (const permits of asks) {
        const anew = world.earliest(at, permits, fresh);
        const kept = world.earliest(at, permits);
        assert.ok(kept <= anew + 1e-3, `new at ${anew}, kept at ${kept}`);
        if (anew === Infinity) continue;
        algorithm.take(policy, fresh, anew, permits);
        algorithm.take(policy, state, kept, permits);
        at = Math.max(at, Math.ceil(Math.min(anew, at + 1_000_000)));
      }
    }),
  );

  law(
    "an update and its reverse grant no request sooner",
    fc.property(lived, policies, permits, micros, (past, other, permits, pause) => {
      const { world } = past;
      const { policy, state, now, epoch } = world;
      const { algorithm } = policy;
      if (other.algorithm !== algorithm) return;
      const before = world.copy();
      algorithm.resize(other, state, now, policy);
      algorithm.align?.(other, state, epoch);
      algorithm.resize(policy, state, now, other);
      algorithm.align?.(policy, state, epoch);
      for (const from of [now, now + 1, now + pause]) {
        const [then, since] = [before, state].map((one) => world.earliest(from, permits, one));
        // the last bit of a sum may decide over a microsecond
        assert.ok(Number(since) >= Number(then) - 1.001, `${then} before, ${since} after`);
        const remaining = [before, state].map(
          (one) => algorithm.quota(policy, one, from).remaining,
        );
        const [had = 0, has = 0] = remaining;
        assert.ok(has <= had * (1 + 1e-9) + 1e-9, `${had} remained, ${has} remain`);
      }
    }),
  );

  law(
    "an update to the same numbers changes no answer",
    fc.property(lived, permits, micros, (past, permits, pause) => {
      const { world } = past;
      const { policy, state, now, epoch } = world;
      const before = world.copy();
      policy.algorithm.resize(policy, state, now, policy);
      policy.algorithm.align?.(policy, state, epoch);
      for (const from of [now, now + 1, now + pause]) {
        near(world.earliest(from, permits), world.earliest(from, permits, before));
      }
    }),
  );

  law(
    "on a time scale with another origin every answer is the same",
    fc.property(lived, fc.integer({ min: -3, max: 300 }), fc.array(permits), (past, n, asks) => {
      const { world } = past;
      const { policy, state, now } = world;
      const { algorithm } = policy;
      const by = n * SHIFT;
      const shifted = world.copy();
      algorithm.shift(shifted, by);
      for (const permits of asks) {
        const at = world.earliest(now, permits);
        const there = world.earliest(now + by, permits, shifted);
        near(there - by, at);
        if (at === Infinity) continue;
        algorithm.take(policy, state, at, permits);
        algorithm.take(policy, shifted, there, permits);
        const [here, far] = [
          algorithm.quota(policy, state, now),
          algorithm.quota(policy, shifted, now + by),
        ];
        if (!lends) near(far.remaining, here.remaining);
        near(far.resetMs, here.resetMs);
      }
    }),
  );

  law(
    "the deficit is 0 after idleness, and then equals what is taken",
    fc.property(lived, permits, permits, (past, one, other) => {
      const { world } = past;
      const { policy, now } = world;
      assert.is(world.deficit(now + LONG_AGO), 0);
      const state = world.fresh(now - LONG_AGO);
      assert.is(world.deficit(now, state), 0);
      let taken = 0;
      for (const permits of [one, other]) {
        const goes = world.earliest(now, permits, state) <= now;
        policy.algorithm.take(policy, state, now, permits);
        taken += permits;
        const deficit = world.deficit(now, state);
        const facts = `${deficit} deficit, ${taken} taken`;
        assert.ok(deficit >= taken - GRAIN, facts);
        if (!goes) return;
        assert.ok(deficit <= taken + GRAIN, facts);
      }
    }),
  );

  law(
    "the deficit is a number, and falls to 0",
    fc.property(lived, fc.array(micros, { maxLength: 5 }), (past, pauses) => {
      const { world } = past;
      let at = world.now;
      let before = world.deficit();
      assert.ok(before >= 0 && before < Infinity, `${before}`);
      for (const pause of pauses) {
        at += pause;
        const deficit = world.deficit(at);
        assert.ok(deficit >= 0 && deficit <= before + GRAIN, `${before}, then ${deficit}`);
        before = deficit;
      }
      const { resetMs } = world.policy.algorithm.quota(world.policy, world.state, at);
      const left = world.deficit(at + Math.ceil(resetMs * 1000) + 1);
      assert.ok(left <= GRAIN, `${left} when it is full`);
    }),
  );

  law(
    "taking the deficit from an idle state leads to the same answers",
    fc.property(lived, fc.array(permits), micros, (past, asks, pause) => {
      const { world } = past;
      const { policy, now } = world;
      const state = world.fresh(world.start - LONG_AGO);
      const deficit = world.deficit();
      if (deficit > 0) policy.algorithm.take(policy, state, now, deficit);
      // before that instant a pause delays every request in this state, but not in the other
      const free = Math.max(now, Math.ceil(world.earliest(now, 5e-324)));
      const slack = later(policy);
      for (const permits of asks) {
        for (const from of [free, free + 1, free + pause]) {
          const at = world.earliest(from, permits);
          // the last bit of a sum may decide over a step
          const soonest = world.earliest(from, permits * (1 + 1e-9), state);
          const latest = world.earliest(from, permits * (1 - 1e-9), state);
          const description = `${permits} from ${from}: ${at}, of ${deficit} deficit ${soonest}, ${latest}`;
          if (at === Infinity) continue;
          assert.ok(soonest >= at - 1, description);
          assert.ok(latest <= at + slack + 1, description);
        }
        if (slack > 0) continue;
        const at = world.earliest(free, permits);
        if (at === Infinity) continue;
        policy.algorithm.take(policy, world.state, at, permits);
        policy.algorithm.take(policy, state, at, permits);
      }
    }),
  );

  law(
    "shares: together they grant no more than the whole policy",
    fc.property(
      policies,
      fc.integer({ min: 1, max: 7 }),
      fc.array(fc.tuple(fc.nat({ max: 6 }), fc.oneof(...usual)), { maxLength: 40, size: "max" }),
      (policy, count, actions) => {
        const part = legible(share(policy, 1 / count));
        const worlds = Array.from({ length: count }, () => new World(part, 0, 0));
        let now = 0;
        for (const [which, action] of actions) {
          if (!cancels && action.verb === "cancel") continue;
          const world = worlds[which % count] as World;
          const scaled =
            "permits" in action ? { ...action, permits: action.permits / count } : action;
          world.now = now;
          world.do(which % 2 === 0 ? scaled : action);
          now = world.now;
        }
        const grants = worlds.flatMap(({ grants }) => grants);
        within(policy, grants, (count - 1) * lent);
      },
    ),
  );

  law(
    "a share is a policy like any other, down to fractions of a permit",
    fc.property(policies, fc.double({ min: 1e-6, max: 1, noNaN: true }), (policy, fraction) => {
      const { algorithm } = policy;
      const part = share(policy, fraction);
      assert.ok(Object.isFrozen(part));
      assert.is(part.algorithm, algorithm);
      assert.is(part.limitAt, undefined);
      const { permitsAt } = algorithm;
      policy.numbers.forEach((n, i) => {
        const expected = permitsAt.includes(i) ? n * fraction : n;
        const number = algorithm.policy(part.numbers).numbers[i] ?? 0;
        assert.ok(Math.abs(number - expected) <= expected * 4e-9, `${number}, not ${expected}`);
      });
      const world = new World(part, 0, 0);
      const { limit } = algorithm.quota(part, world.state, 0);
      const { largest = lends ? Infinity : limit } = part;
      for (const permits of [1e-9, fraction / 3, largest, 1, 2]) {
        if (permits === Infinity) continue;
        const at = world.earliest(0, permits);
        assert.is(at === Infinity, permits > largest, `${permits} of ${largest}`);
        algorithm.take(part, world.state, 0, permits);
        assert.ok(world.earliest(0, permits) >= 0);
        assert.ok(world.deficit(0) >= 0 && world.deficit(0) < Infinity);
      }
    }),
  );

  test.run();
}

/** The same policy, shown in a counterexample by its numbers. */
function legible(policy: Policy): Policy {
  const text = `${policy.algorithm.name}(${policy.numbers})`;
  return Object.assign({ ...policy }, { [fc.toStringMethod]: () => text });
}

/** The same, for numbers with fractions: up to the rounding of doubles. */
function near(actual: number, expected: number): void {
  if (actual === expected) return;
  const slack = 2e-3 + Math.abs(expected) * 1e-9;
  assert.ok(Math.abs(actual - expected) <= slack, `${actual}, expected ${expected}`);
}
