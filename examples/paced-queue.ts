/**
 * A crawler fetches 1000 pages, 200 a second and 20 at once. After a second, 50 urgent pages are added: they go before all
 * waiting pages. After two seconds the queue is paused for half a second.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { RateLimiter } from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";

const RATE = 200;
const ROW_MS = 250;

const queue = new PacedQueue({
  limiter: RateLimiter.create(RATE, { burstSeconds: 0 }),
  concurrency: 20,
});
const startedAt = performance.now();
const starts: { at: number; priority: number }[] = [];
let most = 0;

function crawl(pages: number, priority: number): Promise<unknown> {
  const crawlPage = async () => {
    starts.push({ at: performance.now() - startedAt, priority });
    most = Math.max(most, queue.pending);
    await sleep(20 + 40 * Math.random());
  };
  const jobs = Array.from({ length: pages }, () => crawlPage);
  return queue.addAll(jobs, { priority });
}

const all = crawl(950, 0);
await sleep(1000);
const waitedFor = queue.size;
const before = starts.length;
await crawl(50, 1);
const urgent = starts.slice(before, before + 50);

await sleep(2000 - (performance.now() - startedAt));
queue.pause();
const paused = starts.length;
await sleep(500);
assert.equal(starts.length, paused, "no job starts during the pause");
queue.start();
await all;

console.log(`${starts.length} pages: ${RATE} a second, 20 at once; a mark for 5, ! is urgent\n`);
const last = starts.at(-1)?.at ?? 0;
for (let from = 0; from <= last; from += ROW_MS) {
  const row = starts.filter(({ at }) => at >= from && at < from + ROW_MS);
  const count = row.filter(({ priority }) => priority === 1).length;
  const marks = "!".repeat(count / 5) + "■".repeat((row.length - count) / 5);
  console.log(`  ${(from / 1000).toFixed(2)} s   ${marks} ${row.length}`);
}
console.log(`\nat most ${most} at once; the urgent pages overtook ${waitedFor} waiting pages`);

assert.equal(starts.length, 1000);
assert.ok(most <= 20, "never more than 20 at once");
const early = starts.findIndex(({ at }, i) => at < (1000 * i) / RATE);
assert.equal(early, -1, "the queue is never ahead of the limit");
const isUrgent = urgent.every(({ priority }) => priority === 1);
assert.ok(isUrgent, "the 50 urgent pages start next");
assert.ok(last < 15_000, "the queue goes on after the pause");
