/**
 * A service allows each user 8 requests a second and a burst of 4. One user's script sends far more requests. Most of
 * them are refused, with the time after which to retry, and the other users are not affected. Each user is a key of one
 * `KeyedLimiter`. A key takes some bytes until its limit is whole again.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { gcra, KeyedLimiter } from "smooth-limiter";

const users = KeyedLimiter.create(gcra({ limit: 8, periodMs: 1000, burst: 3 }), {
  maxKeys: 10_000, // bounds the memory: requests of invented users beyond it are refused
});

/** A user that sends requests again and again. After a refusal, a polite user waits for the time in the answer. */
async function visit(user: string, everyMs: number, polite: boolean): Promise<string> {
  let answers = "";
  for (const end = performance.now() + 1500; performance.now() < end; ) {
    const { allowed, waitMs } = users.for(user).decide(); // the first step of a request handler
    answers += allowed ? "■" : "×";
    // timers count whole milliseconds, and may fire one early
    await sleep(!allowed && polite ? Math.ceil(waitMs) + 1 : everyMs);
  }
  return answers;
}

const startedAt = performance.now();
const [ann, bob, carl] = await Promise.all([
  visit("ann", 200, true),
  visit("bob", 25, false),
  visit("carl", 25, true),
]);
const seconds = (performance.now() - startedAt) / 1000;
const { limit, remaining, waitMs } = users.for("bob").peek(4);
console.log(`8 requests a second for each user: ■ 200  × 429

  ann    5 a second            ${ann}
  carl  40, waits after a 429  ${carl}
  bob   40 a second            ${bob}

bob has ${remaining.toFixed(1)} of ${limit} left, and all of them in ${Math.ceil(waitMs)} ms`);

const count = (answers: string, mark: string) => answers.split(mark).length - 1;
assert.equal(count(ann, "×"), 0, "bob's requests do not affect ann");
assert.ok(count(bob, "×") > 0, "bob is refused");
assert.ok(count(bob, "■") <= 4 + 8 * seconds, "bob gets no more than the limit");
assert.ok(!carl.includes("××"), "a retry after the given time is let in");

// bob has paid for a better plan: his earlier requests no longer count
users.forget("bob");
assert.equal(users.for("bob").peek(4).allowed, true);
