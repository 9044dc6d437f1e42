/**
 * Four processes that prefetch use one name, and one of them is killed. Each writes every permit
 * that it uses to a file at once, so the use of the killed process is known. All bounds are hard:
 * late timers and slow replies only reduce the use.
 */
import { type ChildProcess, type ForkOptions, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { RedisRateLimiter } from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const WORKERS = 4;
const SECONDS = 6;
const PERMITS = 200;
/** The set-up takes a while, and a clock may be slewed meanwhile: 0.5 ms a second. */
const SLACK_MS = 10;

interface Order {
  readonly url: string;
  readonly name: string;
  readonly rate: number;
  readonly callers: number;
  readonly file: string;
  /** By `monotonicMs`. */
  readonly endAt: number;
}

function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** One of the processes. */
async function work({ url, name, rate, callers, file, endAt }: Order): Promise<void> {
  const redis = new Redis(url);
  const limiter = RedisRateLimiter.create(redis, name, rate, {
    ...{ timeoutMs: 20_000, prefetch: { permits: PERMITS, maxAgeMs: 300 } },
  });
  const notes = openSync(file, "w");
  const caller = async () => {
    while (monotonicMs() < endAt) {
      // a process that is idle for a while leaves prefetched permits behind
      if (Math.random() < 0.001) await sleep(100);
      if (Math.random() < 0.8) await limiter.acquire();
      else if (!(await limiter.tryAcquire(1, 20))) continue;
      writeSync(notes, new Float64Array([monotonicMs()]));
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  await limiter.close();
  redis.disconnect();
}

const test = suite("prefetch, several processes");
const workers: ChildProcess[] = [];
const folder = mkdtempSync(join(tmpdir(), "smooth-limiter-prefetch-"));
let server: Awaited<ReturnType<typeof startRedis>>;
let redis: Redis;

test.before(async () => {
  await redisServer();
  server = await startRedis();
  redis = new Redis(server.url);
});

test.after(async () => {
  for (const worker of workers) worker.kill();
  rmSync(folder, { recursive: true, force: true });
  redis.disconnect();
  await server.stop();
});

async function startWorker(): Promise<ChildProcess> {
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const options: ForkOptions = { env, execArgv: ["--import", "tsx"] };
  const worker = fork(fileURLToPath(import.meta.url), ["worker"], options);
  workers.push(worker);
  await once(worker, "message");
  return worker;
}

function notesOf(file: string): number[] {
  const bytes = readFileSync(file);
  return Array.from({ length: Math.floor(bytes.length / 8) }, (_, i) => bytes.readDoubleLE(8 * i));
}

for (const [rate, callers] of [
  [2000, 1],
  [2000, 20],
  [20_000, 4],
] as const) {
  test(`${rate} a second, ${callers} callers in each; one is killed`, async () => {
    const name = `prefetched ${rate} ${callers}`;
    const limiter = RedisRateLimiter.create(redis, name, rate, { timeoutMs: 20_000 });
    const team = await Promise.all(Array.from({ length: WORKERS }, startWorker));
    const files = team.map((_, i) => join(folder, `${name} ${i}`));
    const calledAt = monotonicMs();
    await limiter.acquire();
    const bornAt = monotonicMs();
    const endAt = bornAt + SECONDS * 1000;
    const ends = team.map((worker, i) => {
      const order: Order = { url: server.url, name, rate, callers, file: files[i] ?? "", endAt };
      worker.send(order);
      return Promise.race([once(worker, "message"), once(worker, "exit")]);
    });
    await sleep(SECONDS * 500);
    team[0]?.kill("SIGKILL");
    await Promise.all(ends);

    const askedAt = monotonicMs();
    const { waitMs, resetMs } = await limiter.peek();
    const now = monotonicMs();
    const all = files.flatMap(notesOf).sort((a, b) => a - b);
    const facts = `${all.length} used`;

    // from the creation on: rate x time, and a chunk, since the store was empty then
    const piece = Math.max(1, rate / 1000);
    for (const [i, at] of all.entries()) {
      const most = (rate * (at - calledAt + SLACK_MS)) / 1000 + 1 + piece;
      assert.ok(
        i + 2 <= most,
        `${facts}: ${i + 2} used after ${at - calledAt} ms, at most ${most}`,
      );
    }
    // what the server has granted is what was used, plus what the killed process held
    const stored = rate - ((resetMs - waitMs) * rate) / 1000;
    const handedOut = (rate * (now + waitMs - bornAt)) / 1000 - stored;
    const lost = handedOut - all.length - 1;
    const slack = (rate * (SLACK_MS + bornAt - calledAt + now - askedAt)) / 1000;
    assert.ok(lost >= -slack, `${facts}: used and not handed out: ${-lost}`);
    // nothing is lost beyond the store, which fills while a process is killed or after all have
    // ended
    assert.ok(lost <= PERMITS + callers + slack, `${facts}: lost: ${lost}, slack ${slack}`);
    // nearly all on a quiet machine
    assert.ok(all.length >= 0.2 * rate * SECONDS, facts);
  });
}

if (process.argv[2] !== "worker") test.run();
else {
  process.on("message", async (order: Order) => {
    await work(order);
    process.send?.("done", () => process.disconnect());
  });
  process.send?.("ready");
}
