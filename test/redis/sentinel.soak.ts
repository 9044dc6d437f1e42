/**
 * Failovers by real Sentinels: a master, two replicas, three Sentinels. Sentinel makes the old
 * master a replica some ten seconds after the promotion, and ioredis stays with it until then, so
 * two masters grant permits at the same time. docs/outage-bounds.md states the bound; the figures
 * that it quotes are printed here.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { RedisRateLimiter, StoreUnavailableError } from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { MASTER, type SentinelGroup, startSentinels } from "../support/redis/sentinels.ts";
import { suite } from "../support/suite.ts";

const RATE = 100;
const BURST_SECONDS = 0.1;
const STORE = RATE * BURST_SECONDS;
const CALLERS = 10;
const TIMEOUT_MS = 300;
/** How long the load continues after the failover. */
const AFTER_MS = 14_000;
/**
 * How long a busy machine may be suspended, ms: a master may accept writes for that much longer.
 */
const MARGIN_MS = 3000;

const MIN_REPLICAS = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];

interface Scene {
  readonly title: string;
  readonly args?: string[];
  /** Of ioredis. */
  readonly failoverDetector?: boolean;
  readonly fault: (group: SentinelGroup) => Promise<void>;
  /** For how long two masters may grant, ms. */
  readonly twoMastersMs: number;
}

const planned = (group: SentinelGroup) => group.failover();
const silent = async (group: SentinelGroup) => group.master.suspend();

const scenes: readonly Scene[] = [
  { title: "planned failover, default settings", fault: planned, twoMastersMs: 12_000 },
  {
    title: "planned failover, min-replicas-to-write 1, min-replicas-max-lag 1",
    args: MIN_REPLICAS,
    fault: planned,
    twoMastersMs: 3000,
  },
  {
    title: "planned failover, failoverDetector of ioredis",
    failoverDetector: true,
    fault: planned,
    twoMastersMs: 2000,
  },
  { title: "the master falls silent", fault: silent, twoMastersMs: 0 },
];

const sentinels = suite("failover by Sentinel", { timeoutMs: 90_000 });
sentinels.before(async () => {
  await redisServer();
});

for (const scene of scenes) {
  sentinels(scene.title, async () => {
    const { args = [], failoverDetector = false, fault, twoMastersMs } = scene;
    await using group = await startSentinels({ args });
    const clients: Redis[] = [];
    const used: number[] = [];
    let isOver = false;

    const call = async (limiter: RedisRateLimiter) => {
      while (!isOver) {
        try {
          await limiter.acquire();
          used.push(performance.now());
        } catch (error) {
          assert.instance(error, StoreUnavailableError);
          await sleep(20);
        }
      }
    };
    const startProcess = () => {
      const client = new Redis({
        sentinels: group.addresses,
        name: MASTER,
        retryStrategy: () => 50,
        sentinelRetryStrategy: () => 50,
        failoverDetector,
      });
      client.on("error", () => {});
      clients.push(client);
      const limiter = RedisRateLimiter.create(client, "sentinel", RATE, {
        burstSeconds: BURST_SECONDS,
        timeoutMs: TIMEOUT_MS,
      });
      return Array.from({ length: CALLERS }, () => call(limiter));
    };

    let usedBefore = 0;
    try {
      const calls = [...startProcess(), ...startProcess()];
      await sleep(1000);
      await fault(group);
      await group.switched();
      // they are sent to the new master
      calls.push(...startProcess(), ...startProcess());
      usedBefore = used.length;
      await sleep(AFTER_MS);
      isOver = true;
      await Promise.all(calls);
    } finally {
      isOver = true;
      for (const client of clients) client.disconnect();
    }

    const excess = mostAhead(used) - STORE - 1;
    const promised = clients.length * CALLERS;
    const most = (RATE * (twoMastersMs + MARGIN_MS)) / 1000 + STORE + promised + 1;
    console.log(`${scene.title}: ${Math.round(excess)} permits too many, at most ${most}`);
    assert.ok(excess <= most, `${excess} permits too many, at most ${most}`);
    assert.ok(used.length > usedBefore, "permits are granted after the failover");
  });
}

/** The most permits used in any interval beyond the rate. */
function mostAhead(used: number[]): number {
  let most = 0;
  let least = Infinity;
  for (const [i, at] of used.sort((a, b) => a - b).entries()) {
    const ahead = i - (RATE * at) / 1000;
    least = Math.min(least, ahead);
    most = Math.max(most, ahead + 1 - least);
  }
  return most;
}

sentinels.run();
