/**
 * A service that gives each user 8 requests a second and a burst of 4. One of them has a script that asks far more
 * often: it is refused, and told when to come back; the others do not notice. Each user is a key of one
 * `KeyedLimiter`, and costs some bytes for as long as it matters what it has used.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { gcra, KeyedLimiter } from "smooth-limiter";

const users = KeyedLimiter.create(gcra({ limit: 8, periodMs: 1000, burst: 3 }), {
  maxKeys: 10_000, // a bound on memory: whoever invents users beyond it is refused
});

/** What a handler of requests does first. */
function handle(user: string): { status: 200 | 429; retryAfterMs: number } {
  const { allowed, waitMs } = users.for(user).decide();
  return { status: allowed ? 200 : 429, retryAfterMs: waitMs };
}

/** A user who asks again and again; one who is polite waits as long as it is told. */
async function visit(user: string, everyMs: number, polite: boolean): Promise<string> {
  let answers = "";
  for (const end = performance.now() + 1500; performance.now() < end; ) {
    const { status, retryAfterMs } = handle(user);
    answers += status === 200 ? "■" : "×";
    // timers know whole milliseconds, and may be one early
    await sleep(status === 429 && polite ? Math.ceil(retryAfterMs) + 1 : everyMs);
  }
  return answers;
}

const paint = (answers: string) =>
  answers.replaceAll("■", colors.green("■")).replaceAll("×", colors.red("×"));

console.log(paint("8 requests a second for each user: ■ 200  × 429\n"));
const startedAt = performance.now();
const [ann, bob, carl] = await Promise.all([
  visit("ann", 200, true),
  visit("bob", 25, false),
  visit("carl", 25, true),
]);

console.log(`  ann    5 a second            ${paint(ann)}`);
console.log(`  carl  40 a second, but waits ${paint(carl)}`);
console.log(`  bob   40 a second            ${paint(bob)}`);

const seconds = (performance.now() - startedAt) / 1000;
const { limit, remaining, waitMs } = users.for("bob").peek(4);
console.log(`
  bob has ${remaining.toFixed(1)} of ${limit} left, and all of them in ${Math.ceil(waitMs)} ms. Users in memory: ${users.size}.`);

const count = (answers: string, mark: string) => answers.split(mark).length - 1;
assert.equal(count(ann, "×"), 0, "ann does not notice that bob is there");
assert.ok(count(bob, "×") > 0, "bob is refused");
assert.ok(count(bob, "■") <= 4 + 8 * seconds, "and gets no more than the limit");
assert.ok(!carl.includes("××"), "who comes back when told is let in");

// bob has paid for a better plan: what he used before is forgotten
users.forget("bob");
assert.equal(users.for("bob").peek(4).allowed, true);
