/**
 * Redis is stopped while a gateway is under load, and then started again. No request fails. The first
 * ones wait for the time-out of Redis. Later ones are limited at once to this instance's share of the
 * limit. When Redis is back, the whole limit holds again.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import colors from "picocolors";
import { createGateway, nodeGateway, readRules } from "smooth-limiter-gateway";
import { startRedis } from "../../test/support/redis/server.ts";

const RATE = 80;
const TIMEOUT_MS = 200;
const ROW_MS = 500;

const server = await startRedis();
const redis = new Redis(server.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
redis.on("error", () => {}); // the client goes on trying to connect

const gateway = await createGateway({
  rules: readRules(`
    url: /
    rules: [{ actor: all, unit: second, rpu: ${RATE}, burst: 5, scope: global }]
  `),
  redis,
  instances: 4, // this one and three others: while Redis is away each allows a quarter of the limit
  timeoutMs: TIMEOUT_MS,
});
const web = createServer(nodeGateway(gateway, (_, res) => res.end("done"))).listen(0);
await once(web, "listening");
const url = `http://localhost:${(web.address() as AddressInfo).port}/`;

const row = { passed: 0, refused: 0, failed: 0, slowestMs: 0 };
const all = { failed: 0, slowestMs: 0 };
let isOver = false;

async function ask(): Promise<void> {
  const startedAt = performance.now();
  const { status } = await fetch(url).catch(() => ({ status: 0 }));
  const ms = performance.now() - startedAt;
  if (status === 200) row.passed += 1;
  else if (status === 429) row.refused += 1;
  else row.failed += 1;
  row.slowestMs = Math.max(row.slowestMs, ms);
}

async function load(): Promise<void> {
  while (!isOver) await Promise.all([ask(), sleep(20)]);
}

/** Prints the counts of each half second. */
async function watch(what: string, seconds: number): Promise<number> {
  console.log(colors.bold(`\n${what}`));
  let passed = 0;
  for (let i = 0; i < (seconds * 1000) / ROW_MS; i++) {
    await sleep(ROW_MS);
    const marks =
      colors.green("■".repeat(row.passed / 2)) + colors.red("×".repeat(row.refused / 4));
    console.log(`  ${marks} ${colors.dim(`slowest ${row.slowestMs.toFixed(0)} ms`)}`);
    passed += row.passed;
    all.failed += row.failed;
    all.slowestMs = Math.max(all.slowestMs, row.slowestMs);
    Object.assign(row, { passed: 0, refused: 0, failed: 0, slowestMs: 0 });
  }
  return passed / seconds;
}

await fetch(url);
const clients = Array.from({ length: 6 }, load);
const before = await watch(`Redis is running: ${RATE} a second for all instances`, 1.5);
await server.kill9();
const during = await watch(`Redis is stopped: ${RATE / 4} a second for this instance`, 2);
await server.restart();
await watch("Redis is started again", 1);
const after = await watch("The whole limit holds again", 1.5);
isOver = true;
await Promise.all(clients);

console.log(
  `\npassed a second: ${[before, during, after].map((rate) => rate.toFixed(0)).join(", ")}`,
);
console.log(`failed: ${all.failed}; slowest answer: ${all.slowestMs.toFixed(0)} ms`);
assert.equal(all.failed, 0, "no request fails because of the outage");
assert.ok(all.slowestMs < TIMEOUT_MS + 2000, "no request waits for Redis");
assert.ok(during < 0.6 * before, "during the outage a share of the limit holds");
assert.ok(after > during, "after the outage the whole limit holds");

web.close();
web.closeAllConnections();
await gateway.close();
redis.disconnect();
await server.stop();
