/**
 * A database that was just restarted has empty caches: a query takes 150 ms at first and 20 ms when it is warm. It runs
 * one query at a time, so with a full load from the start queries pile up. A limiter that warms up begins at a third of
 * its rate, and reaches the full rate when the database is warm.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";
import { ok, startServer } from "./lib/api-server.ts";

const QUERIES = 30;

/** Runs one query at a time, each faster than the one before. */
function startDatabase() {
  let served = 0;
  let last = Promise.resolve();
  return startServer(async () => {
    last = last.then(() => sleep(Math.max(20, 150 - 10 * served++)));
    await last;
    return ok;
  });
}

/** Sends the queries at the limiter's pace. @returns how long each answer took, ms */
async function load(limiter: RateLimiter): Promise<number[]> {
  const database = await startDatabase();
  const query = async () => {
    await limiter.acquire();
    const sentAt = performance.now();
    await fetch(database.url);
    return performance.now() - sentAt;
  };
  const times = await Promise.all(Array.from({ length: QUERIES }, query));
  await database.close();
  return times;
}

function show(name: string, times: readonly number[]): void {
  const bars = times.map((ms) => "▁▂▃▄▅▆▇█"[Math.min(7, Math.floor(ms / 80))]).join("");
  const worst = Math.round(Math.max(...times));
  console.log(`  ${name.padEnd(12)} ${colors.cyan(bars)}   slowest answer ${worst} ms`);
}

console.log(
  `${QUERIES} queries at 20 a second for a cold database; a bar is the time that one answer took\n`,
);
const bursty = await load(RateLimiter.create(20));
show("bursty", bursty);
const warmingUp = await load(RateLimiter.create(20, { warmupMs: 1000 }));
show("warming up", warmingUp);
console.log("\nThe same queries at the same rate: only the start is slower");

assert.ok(Math.max(...warmingUp) < Math.max(...bursty), "with a warm-up queries pile up less");
