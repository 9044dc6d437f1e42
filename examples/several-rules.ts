/**
 * An API allows 10 requests a second and 100 a minute. Each rule has a name. A request passes if both rules allow it,
 * and is counted by both or by none. The decision names the rule that refused and reports the state of each rule.
 */
import assert from "node:assert/strict";
import { Limiter, slidingLog } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";

const clock = new FakeClock();
const limiter = Limiter.create(
  {
    second: slidingLog({ limit: 10, windowMs: 1000 }),
    minute: slidingLog({ limit: 100, windowMs: 60_000 }),
  },
  { clock },
);
const counts: Record<string, number> = { passed: 0, second: 0, minute: 0 };

console.log('12 requests a second: ■ passed  s refused by "second"  m by "minute"\n');
for (let second = 0; second < 12; second += 1) {
  let row = "";
  for (let i = 0; i < 12; i += 1) {
    const { allowed, policy } = limiter.decide();
    const outcome = allowed ? "passed" : policy;
    counts[outcome] = (counts[outcome] ?? 0) + 1;
    row += { passed: "■", second: "s", minute: "m" }[outcome];
    await clock.advance(50);
  }
  console.log(`  ${String(second).padStart(2)} s  ${row}`);
  await clock.advance(400);
}
assert.deepEqual(counts, { passed: 100, second: 18, minute: 26 });

// if both rules refuse, the decision names the one with the longer wait
const now = limiter.peek();
console.log(`\nat 12 s: refused by "${now.policy}", wait ${now.waitMs / 1000} s`);
for (const [name, { limit, remaining, resetMs }] of Object.entries(now.policies)) {
  console.log(`  ${name}  ${remaining} of ${limit} left, all of them in ${resetMs / 1000} s`);
}
assert.equal(now.policy, "minute");

// a retry exactly after `waitMs` is let in
await clock.advance(now.waitMs);
assert.ok(limiter.tryAcquire());
assert.equal(clock.now(), 60_000, "a minute after the first request");

// neither rule counts a refused request, although "second" would have allowed it
const before = limiter.peek();
assert.equal(before.policies.second?.remaining, 9);
assert.equal(limiter.tryAcquire(), false);
assert.deepEqual(limiter.peek(), before);
