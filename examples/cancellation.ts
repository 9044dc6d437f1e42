/**
 * Callers that stop waiting: a closed page aborts its signal, a reservation is cancelled, and a time-out is too short
 * for the wait. Their permits are not lost: the callers behind them move up.
 */
import assert from "node:assert/strict";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";

const limiter = RateLimiter.create(2, { burstSeconds: 0 });

/** Returns how long a new caller would wait, rounded up to tenths of a second. */
const wait = () => `${(Math.ceil(limiter.peek().waitMs / 100) / 10).toFixed(1)} s`;
const tell = (who: string, what: string) =>
  console.log(
    `  ${who.padEnd(10)} ${what.padEnd(42)} ${colors.dim(`a new caller would wait ${wait()}`)}`,
  );

console.log("A printer takes 2 pages a second, and all users wait in one queue\n");

const released: string[] = [];
const page = (name: string, signal?: AbortSignal) =>
  limiter.acquire(1, { signal }).then((waitedMs) => {
    released.push(name);
    tell(name, colors.green(`prints after ${(waitedMs / 1000).toFixed(2)} s`));
  });

const closed = new AbortController();
const ann = page("ann");
const bob = page("bob", closed.signal);
const carl = page("carl");
const dora = limiter.reserve(2);
const emma = page("emma");
await ann;
tell("", "bob, carl, dora (2 pages) and emma wait");

const before = limiter.peek().waitMs;
const inTime = await limiter.tryAcquire(1, 300);
tell("fred", `waits for at most 0.3 s: ${inTime}`);

closed.abort(new Error("bob closed the page"));
const reason = await bob.catch((error: Error) => error.message);
tell("bob", colors.yellow(`gives up: "${reason}"`));

const cancelled = dora.cancel();
tell("dora", colors.yellow(`cancels her reservation: ${cancelled}`));
const after = limiter.peek().waitMs;

await Promise.all([carl, emma]);
console.log("\nThree pages fewer: the users behind them moved up by one and a half seconds");

assert.equal(inTime, false, "a time-out that cannot be met resolves to false at once");
assert.equal(reason, "bob closed the page", "an abort rejects with the signal's own reason");
assert.ok(cancelled, "a reservation can be cancelled until its time has come");
assert.ok(before - after >= 1500, `the wait became shorter by only ${before - after} ms`);
assert.deepEqual(released, ["ann", "carl", "emma"], "first in, first out");
