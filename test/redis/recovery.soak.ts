/**
 * Redis stops for 5 s and returns, under four processes that are busy: they prefetch, for keys that are new and for one
 * that is in demand. Afterwards no call is open, and the key in demand is alive in each process.
 */
import { type ChildProcess, type ForkOptions, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { fairShares, gcra } from "../../src/index.ts";
import { RedisLimiter } from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const AWAY_MS = 5000;
const LOAD_MS = 1000 + AWAY_MS + 3000;
/** What a call may take on a busy machine, once the load has ended. */
const PATIENCE_MS = 10_000;
const NAMES = ["local", "local", "allow", "allow"] as const;

interface Order {
  readonly url: string;
  readonly whenUnavailable: (typeof NAMES)[number];
  readonly fair: boolean;
}

interface Report {
  readonly calls: number;
  readonly acquired: string;
  readonly polled: boolean;
  readonly state: string;
  /** Calls without an outcome, before and after `close`. */
  readonly open: readonly number[];
}

/** One of the processes. */
async function work({ url, whenUnavailable, fair }: Order): Promise<Report> {
  const redis = new Redis(url);
  redis.on("error", () => {});
  const policy = gcra({ limit: 10, periodMs: 1000 });
  // a limit of its own: permits that were promised to another process would keep this one waiting
  const limiter = RedisLimiter.create(redis, `${process.pid} ${fair}`, policy, {
    ...{
      whenUnavailable,
      order: fair ? fairShares() : undefined,
      instances: 2,
      timeoutMs: 300,
      prefetch: "auto",
    },
  });
  const hot = limiter.for("hot");
  let calls = 0;
  let open = 0;
  const track = (call: Promise<unknown>) => {
    calls += 1;
    open += 1;
    const end = () => {
      open -= 1;
    };
    call.then(end, end);
  };
  const load = setInterval(() => {
    for (let i = 0; i < 5; i++) {
      track(limiter.for(`${process.pid} ${calls}`).tryAcquire());
      track(hot.tryAcquire(1, { timeoutMs: 200 }));
      track(hot.acquire(1, { signal: AbortSignal.timeout(300) }));
    }
  }, 10);
  await sleep(LOAD_MS);
  clearInterval(load);
  for (let ms = 0; open > 0 && ms < PATIENCE_MS; ms += 100) await sleep(100);
  const before = open;

  const acquired = await Promise.race([
    hot.acquire().then(() => "yes", String),
    sleep(PATIENCE_MS, "open", { ref: false }),
  ]);
  let polled = false;
  for (let ms = 0; !polled && ms < PATIENCE_MS; ms += 100) {
    const call = hot.tryAcquire().catch(() => false);
    polled = await Promise.race([call, sleep(PATIENCE_MS, false, { ref: false })]);
    await sleep(100);
  }
  const { state } = hot;
  await limiter.close();
  await sleep(100);
  redis.disconnect();
  return { calls, acquired, polled, state, open: [before, open] };
}

const test = suite("a busy process when Redis returns");
const workers: ChildProcess[] = [];

test.before(async () => {
  await redisServer();
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  const options: ForkOptions = { env, execArgv: ["--import", "tsx"] };
  for (const _ of NAMES) workers.push(fork(fileURLToPath(import.meta.url), ["worker"], options));
  await Promise.all(workers.map((worker) => once(worker, "message")));
});

test.after(() => {
  for (const worker of workers) worker.disconnect();
});

for (const fair of [false, true]) {
  test(fair ? "fair" : "first in, first out", async () => {
    await using server = await startRedis();
    const reports = workers.map(async (worker, i) => {
      const order: Order = { url: server.url, whenUnavailable: NAMES[i] ?? "local", fair };
      worker.send(order);
      const [report] = (await once(worker, "message")) as [Report];
      return report;
    });
    await sleep(1000);
    server.suspend();
    await sleep(AWAY_MS);
    server.resume();
    for (const { calls, ...report } of await Promise.all(reports)) {
      assert.ok(calls > 100, `${calls} calls`);
      assert.equal(report, { acquired: "yes", polled: true, state: "ready", open: [0, 0] });
    }
  });
}

if (process.argv[2] !== "worker") test.run();
else {
  process.on("message", async (order: Order) => {
    process.send?.(await work(order));
  });
  process.send?.("ready");
}
