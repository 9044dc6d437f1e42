/**
 * A service renders reports. Each takes a lot of memory, so at most 3 may be rendered at once: first in
 * one process, then in two that share the limit through Redis.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { ConcurrencyLimiter } from "smooth-limiter";
import { RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";

const AT_ONCE = 3;

let running = 0;
let most = 0;

async function render(name: string, ms: number): Promise<void> {
  running += 1;
  most = Math.max(most, running);
  console.log(`  ${"■".repeat(running).padEnd(AT_ONCE)} ${name} begins`);
  await sleep(ms);
  running -= 1;
}

console.log(`One process, ${AT_ONCE} at once:\n`);
const limiter = ConcurrencyLimiter.create(AT_ONCE, { maxWaiting: 100 });
const reports = ["sales", "stock", "staff", "taxes", "trips", "tools"];
const started = reports.map((name, i) => limiter.run(() => render(name, 60 + 40 * (i % 3))));

// a page that cannot wait shows an older report instead
const lease = limiter.tryAcquire();
console.log(
  `      a page: ${lease ? "a fresh report" : "all slots are taken, yesterday's report"}`,
);
assert.equal(lease, undefined);
assert.equal(limiter.waiting, 3);

await Promise.all(started);
assert.equal(most, AT_ONCE, "exactly the allowed number runs at once");

console.log(`\nTwo processes, together ${AT_ONCE} at once:\n`);
const redis = new Redis(process.env.REDIS_URL ?? (await freshUrl()));
const name = `reports of ${process.pid}`;
// in production each limiter is in its own process: they share only the name
const here = RedisConcurrencyLimiter.create(redis, name, AT_ONCE);
const there = RedisConcurrencyLimiter.create(redis, name, AT_ONCE);

most = 0;
await Promise.all(
  reports.map((report, i) =>
    i % 2 === 0
      ? here.run(() => render(`${report} (here)`, 80))
      : there.run(({ signal }) => {
          // aborted when this process could not renew its lease: another process may have the place
          signal.throwIfAborted();
          return render(`${report} (there)`, 80);
        }),
  ),
);
assert.equal(most, AT_ONCE);

await here.setLimit(1); // takes effect in all processes at once
assert.equal((await there.peek()).limit, 1);
await there.resetLimit();

console.log(`\n  held at the end: ${(await here.peek()).active}`);
await Promise.all([here.close(), there.close()]);
redis.disconnect();
