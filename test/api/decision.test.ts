import * as assert from "uvu/assert";
import {
  type Decision,
  Limiter,
  RateLimiter,
  smoothBursty,
  smoothWarmingUp,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { instants, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const bursty = (permitsPerSecond: number, burstSeconds = 0) =>
  smoothBursty({ permitsPerSecond, burstSeconds });

/** Ten requests a second and 100 tokens a second, nothing stored. */
function pair() {
  const clock = new FakeClock();
  const policies = { requests: bursty(10), tokens: bursty(100) };
  return { clock, limiter: Limiter.create(policies, { clock }) };
}

const one = suite("decision, one policy");

one("all fields, allowed and refused, at every moment", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(5, { clock, burstSeconds: 2, prefilled: true });
  const decisionOf = (
    allowed: boolean,
    waitMs: number,
    remaining: number,
    resetMs: number,
  ): Decision => {
    const quota = { allowed, limit: 11, remaining, resetMs, windowMs: 2200 };
    const { windowMs: _, ...binding } = quota;
    return { ...binding, waitMs, policy: "default", policies: { default: quota } };
  };
  assert.equal(limiter.peek(), decisionOf(true, 0, 11, 0));
  assert.equal(limiter.decide(), decisionOf(true, 0, 10, 200));
  assert.equal(limiter.decide(9), decisionOf(true, 0, 1, 2000));
  assert.equal(limiter.decide(3), decisionOf(true, 0, 0, 2600));
  assert.equal(limiter.decide(3), decisionOf(false, 600, 0, 2600));
  assert.equal(limiter.peek(1), decisionOf(false, 600, 0, 2600));
  await clock.advance(599.999);
  assert.equal(limiter.decide(), decisionOf(false, 0.001, 0, 2000.001));
  await clock.advance(0.001);
  assert.equal(limiter.peek(1), decisionOf(true, 0, 1, 2000));
  await clock.advance(199.999);
  assert.equal(limiter.peek(1), decisionOf(true, 0, 1, 1800.001));
  await clock.advance(0.001);
  assert.equal(limiter.peek(1), decisionOf(true, 0, 2, 1800));
});

one("a warming-up limiter grants one at a time and is full again when it is cold", () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(5, { clock, warmupMs: 1000 });
  const { limit, remaining, resetMs } = limiter.peek();
  assert.equal([limit, remaining, resetMs], [1, 1, 0]);
  const after = limiter.decide();
  assert.equal([after.remaining, after.resetMs], [0, 720]);
  assert.is(limiter.decide().waitMs, 520);
});

one("an infinite rate has no limit", () => {
  const limiter = RateLimiter.create(Infinity, { clock: new FakeClock() });
  const { allowed, limit, remaining, resetMs, policies } = limiter.decide(1e9);
  assert.equal([allowed, limit, remaining, resetMs], [true, Infinity, Infinity, 0]);
  assert.is(policies.default?.windowMs, 0);
});

one("with waiters in the queue nothing remains, and the wait is behind all of them", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 10, prefilled: true });
  limiter.pause(1000);
  const waiting = [1, 2].map(() => watch(clock, limiter.acquire(70)));
  const { waitMs, remaining, resetMs, allowed } = limiter.decide(5);
  assert.equal([allowed, waitMs, remaining], [false, 5000, 0]);
  assert.ok(resetMs >= 5000);
  await clock.advance(5000);
  assert.equal(instants(waiting), [1000, 1000]);
  assert.is(limiter.decide(5).allowed, true);
});

one("under a pause nothing remains, even when the store is full", () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, prefilled: true });
  limiter.pause(250);
  const { allowed, waitMs, limit, remaining, resetMs } = limiter.peek(3);
  assert.equal([allowed, waitMs, limit, remaining, resetMs], [false, 250, 11, 0, 250]);
});

one.run();

const several = suite("decision, several policies");

several("a refusal names the policy that binds, with its numbers, and lists all policies", () => {
  const { limiter } = pair();
  assert.is(limiter.tryAcquire({ requests: 1, tokens: 50 }), true);
  const refused = limiter.decide({ requests: 1, tokens: 1 });
  assert.equal(refused, {
    ...{ allowed: false, waitMs: 500, limit: 1, remaining: 0, resetMs: 500, policy: "tokens" },
    policies: {
      requests: { allowed: false, limit: 1, remaining: 0, resetMs: 100, windowMs: 100 },
      tokens: { allowed: false, limit: 1, remaining: 0, resetMs: 500, windowMs: 10 },
    },
  });
  const { policy, waitMs, policies } = limiter.decide({ requests: 1 });
  assert.ok(policies.tokens?.allowed, "a policy that is not requested does not bind");
  assert.equal([policy, waitMs], ["requests", 100]);
});

several("with equal waits the first policy is named", () => {
  const policies = { a: bursty(10), b: bursty(5), c: bursty(5) };
  const limiter = Limiter.create(policies, { clock: new FakeClock() });
  limiter.charge(1);
  assert.is(limiter.peek().policy, "b");
  assert.is(limiter.peek({ c: 1, a: 1 }).policy, "c");
});

several("a grant names the policy with the smallest share left", () => {
  const clock = new FakeClock();
  const policy = (permitsPerSecond: number) =>
    smoothBursty({ permitsPerSecond, prefilled: true, burstSeconds: 1 });
  const policies = { many: policy(99), few: policy(9), none: policy(Infinity) };
  const limiter = Limiter.create(policies, { clock });
  assert.equal([limiter.decide({ many: 50, few: 1, none: 1 }).policy], ["many"]);
  const { policy: binding, limit, remaining } = limiter.decide({ few: 8, many: 1, none: 1000 });
  assert.equal([binding, limit, remaining], ["few", 10, 1]);
});

several("a grant does not name a policy that was not requested", () => {
  const { limiter } = pair();
  limiter.charge({ tokens: 50 });
  const { allowed, policy, remaining, policies } = limiter.peek({ requests: 1 });
  assert.equal([allowed, policy, remaining, policies.tokens?.remaining], [true, "requests", 1, 0]);
});

several("all or none: a refusal by one policy charges none", async () => {
  const { clock, limiter } = pair();
  limiter.charge({ tokens: 50 });
  const before = limiter.peek();
  for (const ask of [1, { requests: 1, tokens: 1 }]) {
    assert.is(limiter.tryAcquire(ask), false);
    assert.is(limiter.decide(ask).allowed, false);
    assert.is(await limiter.tryAcquire(ask, 499.999), false);
  }
  assert.equal(limiter.peek(), before);
  assert.is(limiter.tryAcquire({ requests: 1 }), true);
  await clock.advance(500);
  assert.is(limiter.tryAcquire(), true);
});

several("the policies agree on one instant, and each is charged at that instant", async () => {
  const clock = new FakeClock();
  const policies = {
    stored: bursty(10, 1),
    slow: bursty(1),
    cold: smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }),
  };
  const limiter = Limiter.create(policies, { clock });
  limiter.charge({ stored: 5, slow: 2, cold: 1 });
  // stored is ready at 500, slow at 2000, cold at 520
  const reservation = limiter.reserve();
  assert.is(reservation.waitMs, 2000);
  await clock.advance(2000);
  // from 500 to 2000 ten permits were stored, which is the capacity, and one of them was used
  assert.is(limiter.peek().policies.stored?.remaining, 10);
  assert.is(limiter.peek({ slow: 1 }).waitMs, 1000);
  // cold again after a second and a half: the first permit costs 520
  assert.is(limiter.peek({ cold: 1 }).waitMs, 520);
});

several("a policy that is not requested has no influence", async () => {
  const { clock, limiter } = pair();
  limiter.charge({ tokens: 1000 });
  assert.is(limiter.decide({ requests: 1 }).allowed, true);
  assert.is(limiter.decide({ requests: 1 }).waitMs, 100);
  await clock.advance(100);
  assert.is(await limiter.acquire({ requests: 2 }), 0);
  assert.is(limiter.peek({ tokens: 1 }).waitMs, 9900);
});

several(
  "the wait is exact for any numbers: refused a microsecond earlier, then granted",
  async () => {
    for (const permits of [1, 7, 0.3, 1 / 3]) {
      const clock = new FakeClock();
      const policies = {
        a: bursty(7),
        b: smoothWarmingUp({ permitsPerSecond: 3, warmupMs: 700, coldFactor: 2.5 }),
      };
      const limiter = Limiter.create(policies, { clock });
      for (let i = 0; i < 20; i++) {
        limiter.decide(permits);
        const { waitMs } = limiter.decide(permits);
        await clock.advance(waitMs - 0.001);
        assert.is(limiter.decide(permits).waitMs, 0.001);
        await clock.advance(0.001);
      }
    }
  },
);

several.run();
