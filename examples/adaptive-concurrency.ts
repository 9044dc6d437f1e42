/**
 * A client calls a service that has four workers, but does not know that. Its limit finds out how many calls may run at
 * once, and follows when the service loses three of its workers.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { adaptive, ConcurrencyLimiter } from "smooth-limiter";

const WORK_MS = 5;
let workers = 4;
let busy = 0;
const queue: (() => void)[] = [];

/** The service: calls that find no free worker wait in its queue. */
async function call(): Promise<void> {
  while (busy >= workers) await new Promise<void>((free) => queue.push(free));
  busy += 1;
  await sleep(WORK_MS);
  busy -= 1;
  queue.shift()?.();
}

const limiter = ConcurrencyLimiter.create(adaptive({ max: 100, start: 40 }), { name: "service" });

/** 60 callers, each of which calls again and again. */
async function load(durationMs: number): Promise<{ calls: number; meanMs: number }> {
  const endMs = performance.now() + durationMs;
  const heldMs: number[] = [];
  const caller = async () => {
    while (performance.now() < endMs) {
      await limiter.run(async () => {
        const sentMs = performance.now();
        await call();
        heldMs.push(performance.now() - sentMs);
      });
    }
  };
  await Promise.all(Array.from({ length: 60 }, caller));
  return { calls: heldMs.length, meanMs: heldMs.reduce((a, b) => a + b, 0) / heldMs.length };
}

console.log(`4 workers; the limit starts at ${limiter.limit}`);
for (const [word, count] of [
  ["learned", 4],
  ["after three workers are lost", 1],
] as const) {
  workers = count;
  const { calls, meanMs } = await load(1500);
  console.log(`${word}: limit ${limiter.limit}, ${calls} calls, ${meanMs.toFixed(1)} ms a call`);
}

assert.ok(limiter.limit < 40, "far fewer calls at once than at the start");
assert.equal(limiter.active, 0);
