/**
 * An API allows 10 requests a second and 100 a minute. Each rule has a name. A request passes if both rules allow it,
 * and is counted by both or by none. The decision names the rule that refused and reports the state of each rule.
 * The example runs on a FakeClock, so a minute takes no time.
 */
import assert from "node:assert/strict";
import colors from "picocolors";
import { type Decision, Limiter, slidingLog } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";

const clock = new FakeClock();
const limiter = Limiter.create(
  {
    second: slidingLog({ limit: 10, windowMs: 1000 }),
    minute: slidingLog({ limit: 100, windowMs: 60_000 }),
  },
  { clock },
);

const refusedBy: Record<string, number> = { second: 0, minute: 0 };
let passed = 0;

function ask(): string {
  const { allowed, policy } = limiter.decide();
  if (allowed) {
    passed += 1;
    return colors.green("■");
  }
  refusedBy[policy] = (refusedBy[policy] ?? 0) + 1;
  return policy === "second" ? colors.yellow("s") : colors.red("m");
}

function describe(name: string, { limit, remaining, resetMs }: Decision["policies"][string]): void {
  const reset = `${resetMs / 1000} s`;
  console.log(`    ${name.padEnd(8)} ${remaining} of ${limit} left, all of them in ${reset}`);
}

function tell(decision: Decision): void {
  const when = decision.allowed ? "may go" : `refused by "${decision.policy}"`;
  console.log(`\n  at ${clock.now() / 1000} s: ${when}, wait ${decision.waitMs / 1000} s`);
  for (const [name, status] of Object.entries(decision.policies)) describe(name, status);
}

console.log(
  `12 requests a second: ${colors.green("■")} passed  ${colors.yellow("s")} refused by "second"  ${colors.red("m")} by "minute"\n`,
);

for (let second = 0; second < 12; second += 1) {
  let row = "";
  for (let i = 0; i < 12; i += 1) {
    row += ask();
    await clock.advance(50);
  }
  console.log(`  ${String(second).padStart(2)} s  ${row}`);
  if (second === 0) tell(limiter.peek());
  await clock.advance(400);
}

const now = limiter.peek();
tell(now);
// if both rules refuse, the decision names the one with the longer wait
assert.equal(passed, 100);
assert.deepEqual(refusedBy, { second: 18, minute: 26 });
assert.equal(now.policy, "minute");

// a retry exactly after `waitMs` is let in
await clock.advance(now.waitMs);
tell(limiter.decide());
assert.equal(clock.now(), 60_000, "a minute after the first request");

// neither rule counts a refused request, although "second" would have allowed it
const before = limiter.peek();
assert.equal(before.policies.second?.remaining, 9);
assert.equal(limiter.tryAcquire(), false);
assert.deepEqual(limiter.peek(), before);
