/**
 * An API allows 10 requests a second and 100 a minute. Both rules have a name; a request passes if both let it, and
 * is counted by both or by none. The decision tells which rule stands in the way, and how each of them stands.
 * It runs on a FakeClock: a minute takes no time.
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
  console.log(`    ${name.padEnd(8)} ${remaining} of ${limit} left, whole again in ${reset}`);
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
// where both refuse, the one that takes longer is named
assert.equal(passed, 100);
assert.deepEqual(refusedBy, { second: 18, minute: 26 });
assert.equal(now.policy, "minute");

// who comes back exactly when told is let in
await clock.advance(now.waitMs);
tell(limiter.decide());
assert.equal(clock.now(), 60_000, "a minute after the first of all");

// a refusal is counted by neither, although "second" had room for it
const before = limiter.peek();
assert.equal(before.policies.second?.remaining, 9);
assert.equal(limiter.tryAcquire(), false);
assert.deepEqual(limiter.peek(), before);
