/**
 * Four worker processes share one limit of 20 a second through Redis. They start one after the other,
 * and one is killed meanwhile. The running processes always share the limit, and together they never
 * exceed it. Set REDIS_URL to use your own Redis; otherwise the example starts one.
 */
import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import colors from "picocolors";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";

const RATE = 20;
const ROW_MS = 250;

const [, file, limit, name] = process.argv;
if (limit !== undefined && name !== undefined) await work(limit);
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
  const server = process.env.REDIS_URL ? undefined : await startRedis();
  const env = { ...process.env, REDIS_URL: process.env.REDIS_URL ?? server?.url };
  const limit = `workers of ${process.pid}`;
  const names = ["ann", "bob", "cleo", "dan"];
  const workers = names.map((worker) =>
    fork(file ?? fileURLToPath(import.meta.url), [limit, worker], { env }),
  );
  await Promise.all(workers.map((worker) => once(worker, "message")));

  console.log(`${names.length} processes, one limit: ${RATE} a second, a mark for each permit\n`);
  console.log(
    colors.bold(`           ${names.map((worker) => worker.padEnd(8)).join("")}together`),
  );
  const startedAt = performance.now();
  const used: number[] = [];
  const row = names.map(() => 0);
  for (const [i, worker] of workers.entries()) {
    worker.on("message", () => {
      used.push(performance.now() - startedAt);
      row[i] = (row[i] ?? 0) + 1;
    });
  }
  const begin = (worker: ChildProcess | undefined) => worker?.send("begin");

  const story: Record<number, [string, () => void]> = {
    0: ["ann is alone", () => begin(workers[0])],
    1: ["bob joins", () => begin(workers[1])],
    2: ["cleo and dan join", () => workers.slice(2).forEach(begin)],
    4: ["bob is killed", () => workers[1]?.kill("SIGKILL")],
    6: ["", () => {}],
  };
  for (let rows = 0; rows <= 6000 / ROW_MS; rows++) {
    const seconds = (rows * ROW_MS) / 1000;
    const [what, happens] = story[seconds] ?? [""];
    await sleep(startedAt + seconds * 1000 - performance.now());
    if (rows > 0) draw(seconds, row.splice(0, row.length, ...names.map(() => 0)));
    if (what) console.log(colors.dim(`  ${seconds.toFixed(2)} s   ${what}`));
    happens?.();
  }
  for (const worker of workers) worker.kill();
  await Promise.all(
    workers
      .filter((worker) => worker.exitCode === null && worker.signalCode === null)
      .map((worker) => once(worker, "exit")),
  );
  await server?.stop();

  const allowed = 6 * RATE;
  console.log(`\n${used.length} permits in 6 s; ${allowed} were allowed`);
  // 10 ms of tolerance, because the server's clock may be adjusted
  const early = used.findIndex((at, i) => at < (1000 * i) / RATE - 10);
  assert.equal(early, -1, "together the processes are never ahead of the limit");
  assert.ok(used.length >= 0.7 * allowed, "the processes use most of the limit");
}

function draw(seconds: number, row: readonly number[]): void {
  const from = (seconds - ROW_MS / 1000).toFixed(2);
  const marks = row.map(
    (count) => colors.green("■".repeat(count)) + " ".repeat(Math.max(1, 8 - count)),
  );
  const sum = row.reduce((all, count) => all + count, 0);
  console.log(`  ${colors.dim(`${from} s`)}   ${marks.join("")}${colors.dim(`${sum}`)}`);
}
