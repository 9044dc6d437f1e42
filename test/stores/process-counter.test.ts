import FakeTimers from "@sinonjs/fake-timers";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { ProcessCounter } from "../../src/stores/process-counter.ts";
import { type RedisClient, scriptRunner } from "../../src/stores/redis/client.ts";
import { processCountersOf } from "../../src/stores/redis/process-counters.ts";
import { processScript } from "../../src/stores/redis/scripts.ts";
import { freshUrl } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const counting = suite("process counter");
let timers: FakeTimers.Clock;

counting.before.each(() => {
  timers = FakeTimers.install({ toFake: ["performance"] });
});

counting.after.each(() => {
  timers.uninstall();
});

/** A counter whose store answers as the test says. */
function make() {
  const lifetimes: number[] = [];
  let reply: () => Promise<number> = async () => 1;
  const counter = new ProcessCounter((lifetimeMs) => {
    lifetimes.push(lifetimeMs);
    return reply();
  });
  /** A limiter that is used every 10 ms. */
  const use = async (ms: number) => {
    for (let at = 0; at < ms; at += 10) {
      timers.tick(10);
      counter.used();
      await Promise.resolve();
    }
  };
  return { counter, lifetimes, use, answer: (to: () => Promise<number>) => (reply = to) };
}

counting("a used limiter registers often at first, then every 5 s at most, for 15 s", async () => {
  const { counter, lifetimes, use } = make();
  assert.is(counter.count, 1);
  await use(5000);
  assert.ok(lifetimes.length >= 3 && lifetimes.length <= 6, `${lifetimes.length} in 5 s`);
  const before = lifetimes.length;
  await use(60_000);
  const later = lifetimes.length - before;
  assert.ok(later >= 11 && later <= 17, `${later} in 60 s`);
  assert.equal(new Set(lifetimes), new Set([15_000]));
});

counting("an idle limiter does not register", async () => {
  const { lifetimes, use } = make();
  await use(10);
  timers.tick(3_600_000);
  await Promise.resolve();
  assert.is(lifetimes.length, 1);
});

counting("with many processes the pauses grow, and so do the lifetimes", async () => {
  const { counter, lifetimes, use, answer } = make();
  answer(async () => 1000);
  await use(200_000);
  assert.is(counter.count, 1000);
  const before = lifetimes.length;
  await use(500_000);
  const later = lifetimes.length - before;
  assert.ok(later >= 9 && later <= 15, `${later} in 500 s`);
  assert.is(lifetimes.at(-1), 150_000);
});

counting("the last count stays while the store fails, or replies without a count", async () => {
  const { counter, use, answer } = make();
  answer(async () => 7);
  await use(1000);
  assert.is(counter.count, 7);
  for (const bad of [() => Promise.reject(new Error("away")), async () => NaN, async () => 0]) {
    answer(bad);
    await use(60_000);
    assert.is(counter.count, 7);
  }
});

counting(
  "a higher count applies at once, a lower one when the others had time to register",
  async () => {
    const { counter, use, answer } = make();
    answer(async () => 4);
    await use(10_000);
    answer(async () => 1);
    await use(9000);
    assert.is(counter.count, 4);
    await use(12_000);
    assert.is(counter.count, 1);
    answer(async () => 5);
    await use(5000);
    assert.is(counter.count, 5);
  },
);

counting.run();

const onRedis = suite("process counter on Redis");
let redis: Redis;

onRedis.before(async () => {
  redis = new Redis(await freshUrl());
});

onRedis.after(() => {
  redis.disconnect();
});

const register = (key: string, id: string, lifetimeMs: number) =>
  scriptRunner(redis as RedisClient).runScript(processScript.one, [key], [id, String(lifetimeMs)]);

onRedis("each process counts once, until its registration lapses", async () => {
  const key = "l:a%processes";
  assert.is(await register(key, "one", 60_000), "1");
  assert.is(await register(key, "two", 60_000), "2");
  assert.is(await register(key, "one", 60_000), "2");
  assert.is(await register(key, "three", 1), "3");
  const lasts = await redis.pttl(key);
  assert.ok(lasts > 50_000 && lasts <= 60_000, `${lasts} ms`);
  while (Number(await register(key, "one", 60_000)) > 2);
  assert.is(await register(key, "two", 60_000), "2");
});

onRedis("limiters with one key share a counter; several keys share a call", async () => {
  const scripts: string[] = [];
  const plain = scriptRunner(redis as RedisClient);
  const counters = processCountersOf({
    runScript: (script, keys, args) => {
      scripts.push(`${script.name} ${keys.join(" ")}`);
      return plain.runScript(script, keys, args);
    },
  });
  const [a, b] = [counters.counter("l:x"), counters.counter("l:y")];
  assert.is(counters.counter("l:x"), a);
  a.used();
  b.used();
  while (scripts.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(scripts, ["smoothLimiter:processes:many l:x%processes l:y%processes"]);
});

onRedis.run();
