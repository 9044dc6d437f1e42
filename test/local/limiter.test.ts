import * as assert from "uvu/assert";
import type { Algorithm } from "../../src/algorithms/algorithm.ts";
import { type SmoothState, smooth } from "../../src/algorithms/smooth/smooth.ts";
import {
  Limiter,
  PermitsExceedCapacityError,
  type Policies,
  type Policy,
  RateLimiter,
  type SmoothPolicy,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { pacedPolicies, pacedSample } from "../support/algorithms/samples.ts";
import { failure } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";
import { type Kind, limiterSuite, localLimiterSuite } from "./limiter.suite.ts";

type Make = Parameters<typeof localLimiterSuite>[1];

const bursty = pacedSample("bursty");
const warmingUp = pacedSample("warming up");

const local =
  (policies: Kind["policies"]): Make =>
  (clock, options) =>
    Limiter.create(policies, { ...options, clock });

/** 7 a second: its interval is no whole number of microseconds. */
const kinds: [string, Make, (permitsPerSecond: number) => Kind["policies"], number | undefined][] =
  [
    [
      "RateLimiter, bursty",
      (clock, options) => RateLimiter.create(7, { ...options, clock }),
      bursty,
      1,
    ],
    [
      "RateLimiter, warming up",
      (clock, options) => RateLimiter.create(7, { ...options, clock, warmupMs: 1000 }),
      warmingUp,
      1,
    ],
    ...pacedPolicies.map(([name, { at, together }]): (typeof kinds)[number] => [
      name,
      local(at(7)),
      at,
      together,
    ]),
  ];

for (const [name, make, policies, together = 1] of kinds) {
  const kind = { policies: policies(7), faster: policies(11), slower: policies(2), together };
  limiterSuite(name, make, kind);
  localLimiterSuite(name, make, kind);
}

/** Bursty, but without lending: it never grants more at once than its limit. */
const bounded: Algorithm<SmoothPolicy> = {
  ...(smooth as Algorithm<SmoothPolicy>),
  name: "bounded",
  earliest(policy, state, from, permits) {
    const { limit } = this.quota(policy, state, from);
    return permits > limit
      ? Infinity
      : smooth.earliest(policy, state as SmoothState, from, permits);
  },
};
const holds = (capacity: number): Policy => ({
  ...bursty(capacity - 1),
  algorithm: bounded as Algorithm,
});

const impossible = suite("requests that can never pass");

const alone = { policy: "default", permits: 6, capacity: 5 };
const joint = { policy: "large", permits: 6, capacity: 5 };

impossible("every verb throws, and names the policy, before anything changes", async () => {
  const cases: [Policies, typeof alone][] = [
    [holds(5), alone],
    [{ open: bursty(1000), large: holds(5), small: holds(3) }, joint],
  ];
  for (const [policies, facts] of cases) {
    for (const waiting of [false, true]) {
      const clock = new FakeClock();
      const limiter = Limiter.create(policies, { clock });
      const tooMany = facts === alone ? 6 : { open: 6, large: 6 };
      if (waiting) {
        limiter.charge(1);
        limiter.reserve();
      }
      const before = limiter.peek();
      const verbs: Record<string, () => unknown> = {
        acquire: () => limiter.acquire(tooMany),
        tryAcquire: () => limiter.tryAcquire(tooMany),
        "tryAcquire with a time-out": () => limiter.tryAcquire(tooMany, 10),
        reserve: () => limiter.reserve(tooMany),
        decide: () => limiter.decide(tooMany),
        peek: () => limiter.peek(tooMany),
        charge: () => limiter.charge(tooMany),
        refund: () => limiter.refund(tooMany),
      };
      for (const [verb, action] of Object.entries(verbs)) {
        const error = await failure(action);
        assert.instance(error, PermitsExceedCapacityError, verb);
        assert.equal((error as PermitsExceedCapacityError).facts, facts, verb);
        assert.is((error as PermitsExceedCapacityError).code, "PERMITS_EXCEED_CAPACITY");
      }
      assert.equal(limiter.peek(), before);
    }
  }
});

impossible.run();

const creating = suite("Limiter.create");

creating("create refuses values that are no policy, an empty list, and unknown options", () => {
  const strange = [null, undefined, 5, "bursty", [], [bursty(1)], { algorithm: {} }, { a: {} }];
  for (const policies of strange as never[]) {
    assert.throws(() => Limiter.create(policies), /polic/);
  }
  assert.throws(() => Limiter.create({}), /at least one policy/);
  const options = [
    [{ maxWait: 5 }, /maxWait/],
    [{ maxWaiting: -1 }, /maxWaiting/],
    [{ maxWaiting: "5" }, /maxWaiting/],
    [{ name: 5 }, /name/],
    [{ clock: {} }, /clock/],
    [null, /options/],
    [5, /options/],
  ] as const;
  for (const [bad, words] of options) {
    assert.throws(() => Limiter.create(bursty(1), bad as never), words);
  }
});

creating("several policies are asked until all agree on one instant", async () => {
  /** Open for a second at each multiple of this many seconds. */
  const openEach = (seconds: number): Policy => {
    const period = seconds * 1e6;
    const gate: Algorithm<SmoothPolicy> = {
      ...(smooth as Algorithm<SmoothPolicy>),
      earliest: (_policy, _state, from) =>
        from % period < 1e6 ? from : Math.ceil(from / period) * period,
    };
    return { ...bursty(Infinity), algorithm: gate as Algorithm };
  };
  const clock = new FakeClock();
  const limiter = Limiter.create({ two: openEach(2), three: openEach(3) }, { clock });
  await clock.advance(1500);
  // two is open at 2, three at 3, two at 4, three at 6, and two is open at 6 as well
  assert.is(limiter.reserve().waitMs, 4500);
  const waited = limiter.acquire();
  await clock.advance(4500);
  assert.is(await waited, 4500);
});

creating("a policy with the name default is the same as one without a name", () => {
  const clock = new FakeClock();
  const [named, unnamed] = [
    Limiter.create({ default: bursty(5) }, { clock }),
    Limiter.create(bursty(5), { clock }),
  ];
  assert.equal(named.decide(3), unnamed.decide({ default: 3 }));
  assert.equal(named.peek(), unnamed.peek());
  named.update(bursty(50));
  unnamed.update({ default: bursty(50) });
  assert.equal(named.peek(), unnamed.peek());
});

creating("the error of update names the policies of the limiter and those that it got", () => {
  const limiter = Limiter.create({ requests: bursty(5), tokens: bursty(50) });
  const words = /requests: smooth, tokens: smooth.*tokens: smooth, requests: bounded/;
  assert.throws(() => limiter.update({ tokens: bursty(5), requests: holds(5) }), words);
  assert.throws(() => limiter.update({ tokens: bursty(5) }), /got \(tokens: smooth\)/);
});

creating.run();
