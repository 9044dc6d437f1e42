/**
 * Four worker processes share one limit of 20 a second through Redis. They start one after the other, and one is killed
 * meanwhile. The running processes always share the limit, and together they never exceed it.
 */
import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";

const RATE = 20;
const ROW_MS = 250;

const [, , limit] = process.argv;
if (limit !== undefined) await work(limit);
else await lead();

/** Runs one of the processes. It needs only the limit's name and numbers. */
async function work(limit: string): Promise<void> {
  const redis = new Redis(process.env.REDIS_URL ?? "");
  const limiter = RedisRateLimiter.create(redis, limit, RATE, { burstSeconds: 0 });
  process.on("disconnect", () => process.exit());
  process.send?.("ready");
  await once(process, "message");
  for (;;) {
    await limiter.acquire();
    process.send?.("working");
  }
}

/** Starts the workers and prints their permits. */
async function lead(): Promise<void> {
  const env = { ...process.env, REDIS_URL: process.env.REDIS_URL ?? (await freshUrl()) };
  const names = ["ann", "bob", "cleo", "dan"];
  const file = fileURLToPath(import.meta.url);
  const workers = names.map(() => fork(file, [`workers of ${process.pid}`], { env }));
  await Promise.all(workers.map((worker) => once(worker, "message")));

  console.log(`4 processes, one limit: ${RATE} a second, a mark for each permit\n`);
  console.log(`          ${names.map((name) => name.padEnd(8)).join("")}together`);
  const startedAt = performance.now();
  const used: number[] = [];
  const row = names.map(() => 0);
  workers.forEach((worker, i) => {
    worker.on("message", () => {
      used.push(performance.now() - startedAt);
      row[i] = (row[i] ?? 0) + 1;
    });
  });
  const begin = (worker: ChildProcess | undefined) => worker?.send("begin");
  const story: Record<number, [string, () => void]> = {
    0: ["ann is alone", () => begin(workers[0])],
    1: ["bob joins", () => begin(workers[1])],
    2: ["cleo and dan join", () => workers.slice(2).forEach(begin)],
    4: ["bob is killed", () => workers[1]?.kill("SIGKILL")],
  };
  for (let rows = 0; rows <= 6000 / ROW_MS; rows++) {
    const seconds = (rows * ROW_MS) / 1000;
    await sleep(startedAt + seconds * 1000 - performance.now());
    const time = `${seconds.toFixed(2)} s`;
    const marks = row.splice(0, 4, 0, 0, 0, 0);
    const sum = marks.reduce((all, count) => all + count, 0);
    if (rows > 0)
      console.log(`  ${time}  ${marks.map((n) => "■".repeat(n).padEnd(8)).join("")}${sum}`);
    const [what, happens] = story[seconds] ?? [];
    if (what) console.log(`  ${time}  ${what}`);
    happens?.();
  }
  for (const worker of workers) worker.kill();

  console.log(`\n${used.length} permits in 6 s; ${6 * RATE} were allowed`);
  // 10 ms of tolerance, because the server's clock may be adjusted
  const early = used.findIndex((at, i) => at < (1000 * i) / RATE - 10);
  assert.equal(early, -1, "together the processes are never ahead of the limit");
  assert.ok(used.length >= 0.7 * 6 * RATE, "the processes use most of the limit");
}
