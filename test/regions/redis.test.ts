/** The reserve in a region's Redis, on a real server: one limit of every algorithm for two processes. */
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { algorithms } from "../../src/algorithms/index.ts";
import {
  diagnostics,
  fixedWindow,
  gcra,
  leakyBucket,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { RegionalLimiter } from "../../src/regions/index.ts";
import { PATIENT } from "../support/patient.ts";
import { type RedisServer, startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions on Redis", PATIENT);
let server: RedisServer;
let redis: Redis;

test.before(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
});

test.after(async () => {
  redis.disconnect();
  await server.stop();
});

/** Two processes of a region. Their home is new, so they have the reserve alone: a quarter of the limit. */
function open(name: string, policies: Policies) {
  const options = { home: redis, local: redis, region: "eu", regions: ["eu", "us"], reserve: 0.5 };
  return [1, 2].map(() =>
    RegionalLimiter.create(name, policies, { ...options, everyMs: 60_000, leaseMs: 600_000 }),
  ) as [RegionalLimiter, RegionalLimiter];
}

/** 80 an hour, and how many a quarter of it lets through at once. */
const HOUR_MS = 3_600_000;
const SECONDS = 3600;
const hourly: readonly (readonly [Policy, number])[] = [
  [tokenBucket({ capacity: 80, refill: 80, everyMs: HOUR_MS }), 20],
  [tokenBucket({ capacity: 80, refill: 80, everyMs: HOUR_MS, stepped: true }), 20],
  [gcra({ limit: 80, periodMs: HOUR_MS }), 20],
  [fixedWindow({ limit: 80, windowMs: HOUR_MS, align: "first" }), 20],
  [slidingWindow({ limit: 80, windowMs: HOUR_MS }), 20],
  [slidingLog({ limit: 80, windowMs: HOUR_MS }), 20],
  [leakyBucket({ permitsPerSecond: 80 / SECONDS, capacity: 80 }), 1],
  [smoothBursty({ permitsPerSecond: 80 / SECONDS }), 1],
  [smoothWarmingUp({ permitsPerSecond: 80 / SECONDS, warmupMs: HOUR_MS }), 1],
];

for (const [i, [policy, expected]] of hourly.entries()) {
  test(`${policy.algorithm.name} ${i}: two processes share the reserve, also of a key`, async () => {
    const limiters = open(`${i}`, policy);
    for (const [one, two] of [limiters, limiters.map((limiter) => limiter.for("ann"))]) {
      assert.ok(one && two);
      let granted = 0;
      while (await (granted % 2 ? one : two).tryAcquire()) granted += 1;
      assert.is(granted, expected);
      assert.is(await one.tryAcquire(), false);
      assert.is(await two.tryAcquire(), false);
    }
    await Promise.all(limiters.map((limiter) => limiter.close()));
  });
}

test("these are all algorithms", () => {
  const tried = new Set(hourly.map(([{ algorithm }]) => algorithm.name));
  assert.equal([...tried].sort(), algorithms.map(({ name }) => name).sort());
});

test("those who wait in two processes are served by the reserve as it fills", async () => {
  const limiters = open("paced", tokenBucket({ capacity: 80, refill: 80, everyMs: 1000 }));
  const calls = limiters.flatMap((limiter) => Array.from({ length: 15 }, () => limiter.acquire()));
  const waits = await Promise.all(calls);
  assert.is(waits.length, 30);
  assert.ok(waits.some((seconds) => seconds > 0));
  await Promise.all(limiters.map((limiter) => limiter.close()));
});

test("several policies: the reserve of each is in Redis", async () => {
  const limiters = open("both", {
    second: tokenBucket({ capacity: 80, refill: 80, everyMs: 1000 }),
    day: fixedWindow({ limit: 40, windowMs: 24 * 3_600_000 }),
  });
  const answers: boolean[] = [];
  for (let i = 0; i < 6; i++) {
    for (const limiter of limiters) answers.push(await limiter.tryAcquire({ second: 1, day: 2 }));
  }
  assert.equal(answers, [true, true, true, true, true, ...Array(7).fill(false)]);
  await Promise.all(limiters.map((limiter) => limiter.close()));
});

test("without rights to the keys of its parts an outage names all of them", async () => {
  const rights = ["~l:parts%regions", "+eval", "+evalsha", "+get", "+set", "+time"];
  await redis.acl("SETUSER", "root", "on", ">secret", ...rights);
  const url = server.url.replace("//", "//root:secret@");
  const client = new Redis(url, { enableReadyCheck: false });
  const policy = tokenBucket({ capacity: 80, refill: 80, everyMs: 1000 });
  const options = { home: client, region: "eu", regions: ["eu", "us"], everyMs: 200 };
  const limiter = RegionalLimiter.create("parts", policy, options);
  const causes: string[] = [];
  const note = ({ cause }: { cause?: unknown }) => causes.push(String(cause));
  diagnostics.unavailable.subscribe(note);
  for (let i = 0; causes.length === 0 && i < 1000; i++) {
    await limiter.tryAcquire();
    await sleep(10);
  }
  diagnostics.unavailable.unsubscribe(note);
  assert.match(causes[0] ?? "", / on "l:parts%regions\*"/);
  await limiter.close();
  client.disconnect();
});

test.run();
