/** Connections that break after a command has reached the server: ioredis sends it again. */
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { allOf } from "../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  RedisRateLimiter,
  type RedisRateLimiterOptions,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { until } from "../support/redis/ask.ts";
import { startProxy, type TcpProxy } from "../support/redis/proxy.ts";
import { type RedisServer, startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const RATE = 10;

let server: RedisServer;
let proxy: TcpProxy;
let redis: Redis;
let names = 0;

const test = suite("redis, lost replies");

test.before(async () => {
  server = await startRedis();
  proxy = await startProxy(server.port);
});

test.after(async () => {
  await proxy.stop();
  await server.stop();
});

test.before.each(async () => {
  await proxy.open();
  // without a handshake, whose replies would be lost too: it precedes what is sent again
  redis = new Redis(proxy.url, {
    ...{ protocol: 2, disableClientInfo: true, enableReadyCheck: false },
    maxRetriesPerRequest: null,
    retryStrategy: () => 5,
  });
  redis.on("error", () => {});
});

test.after.each(() => {
  redis.disconnect();
});

function open(options: RedisRateLimiterOptions = {}) {
  const clock = new FakeClock();
  const name = `limiter ${names++}`;
  const make = (to: string) =>
    RedisRateLimiter.create(redis, to, RATE, { clock, timeoutMs: 30_000, ...options });
  return { clock, limiter: make(name), other: make(`${name}, other`) };
}

/** The number of scripts that the server has run. */
async function runs(): Promise<number> {
  const stats = `${await server.ask("INFO", "commandstats")}`;
  const counts = stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g);
  return Array.from(counts, ([, count]) => Number(count)).reduce((sum, count) => sum + count, 0);
}

/** Waits until no script has run for a while. */
async function settled(): Promise<void> {
  let before: number;
  let count = await runs();
  do {
    before = count;
    await sleep(100);
    count = await runs();
  } while (count > before);
}

/** Runs `action` and loses this many replies to it, one after the other. */
async function losing<T>(replies: number, action: () => Promise<T>): Promise<T> {
  await proxy.stall("replies");
  let before = await runs();
  const outcome = action();
  outcome.catch(() => {});
  for (let lost = 1; lost <= replies; lost++) {
    await until("the server has run it", async () => (await runs()) > before);
    before = await runs();
    await proxy.cut({ accept: true });
    if (lost < replies) await proxy.stall("replies");
  }
  return outcome;
}

/** When the next permit is available, ms. */
async function nextFree(limiter: RedisRateLimiter): Promise<number> {
  return (await limiter.peek()).waitMs;
}

/** A limiter whose scripts the server has cached, so that each batch is one command. */
async function warm(options?: RedisRateLimiterOptions) {
  const opened = open(options);
  const { limiter, other, clock } = opened;
  await limiter.reserve();
  await other.reserve();
  await limiter.charge(1);
  await allOf(limiter, other).decide();
  await clock.advance(10_000);
  assert.is(await nextFree(limiter), 0);
  return opened;
}

for (const replies of [3, 20]) {
  test(`40 acquires take 40 permits, however often they are sent: ${replies} lost replies`, async () => {
    const { limiter } = await warm();
    await limiter.charge(RATE);
    const acquired = await losing(replies, () =>
      Promise.allSettled(Array.from({ length: 40 }, () => limiter.acquire())),
    );
    for (const { status, ...rest } of acquired) {
      assert.is(status, "rejected");
      const { reason } = rest as PromiseRejectedResult;
      assert.instance(reason, StoreUnavailableError);
      assert.match(`${reason}`, "the connection broke before the reply came");
    }
    // the burst of a second was charged first, and a smooth limiter's first permit is free
    assert.is(await nextFree(limiter), 4000);
  });
}

test("decide is charged once", async () => {
  const { limiter } = await warm();
  const [decided] = await Promise.allSettled([losing(3, () => limiter.decide(30))]);
  assert.is(decided.status, "rejected");
  assert.is(await nextFree(limiter), 2000);
});

test("charge runs once, and resolves", async () => {
  const { limiter } = await warm();
  await losing(3, () => limiter.charge(30));
  assert.is(await nextFree(limiter), 2000);
});

test("refund runs once, and resolves", async () => {
  const { limiter } = await warm();
  await limiter.charge(50);
  await losing(3, () => limiter.refund(10));
  assert.is(await nextFree(limiter), 3000);
});

test("a cancelled reservation gives its permits back once", async () => {
  const { limiter } = await warm();
  await limiter.charge(30);
  const reservation = await limiter.reserve(10);
  assert.is(await losing(3, () => Promise.resolve(reservation.cancel())), true);
  assert.is(await nextFree(limiter), 2000);
  // nor was it stored
  await limiter.charge(10);
  assert.is(await nextFree(limiter), 3000);
});

test("a combination charges all its limiters once", async () => {
  const { limiter, other } = await warm();
  const [decided] = await Promise.allSettled([
    losing(3, async () => allOf(limiter, other).decide(30)),
  ]);
  assert.is(decided.status, "rejected");
  assert.is(await nextFree(limiter), 2000);
  assert.is(await nextFree(other), 2000);
});

test('with "wait" every caller is served, and at most one batch more is charged', async () => {
  const { limiter, clock } = await warm({ whenUnavailable: "wait" });
  await limiter.charge(RATE);
  const began = clock.now();
  let served = 0;
  const acquired = await losing(3, async () =>
    Array.from({ length: 40 }, () => limiter.acquire().then(() => ++served)),
  );
  await until("all are served", async () => {
    await clock.advance(100);
    return served === 40;
  });
  await Promise.all(acquired);
  const taken = clock.now() - began + (await nextFree(limiter));
  assert.ok(taken <= 8000, `${taken} ms`);
});

test("leases and tickets are taken and released once", async () => {
  const limiter = RedisConcurrencyLimiter.create(redis, `leases ${names++}`, 3, {
    timeoutMs: 30_000,
    // a message that is lost is made up for within a third of this
    leaseMs: 9000,
  });
  const first = await limiter.acquire();
  await first.release();
  const acquiring = await losing(3, async () => Array.from({ length: 5 }, () => limiter.acquire()));
  const leases = await Promise.all(acquiring.slice(0, 3));
  const { active, waiting } = await limiter.peek();
  assert.equal({ active, waiting }, { active: 3, waiting: 2 });
  // its connection for messages may be back: a batch whose reply is stalled would hold back the releases
  await settled();
  await losing(3, async () => Promise.all(leases.map((lease) => lease.release())));
  for (const lease of await Promise.all(acquiring.slice(3))) await lease.release();
  const after = await limiter.peek();
  assert.equal([after.active, after.waiting], [0, 0]);
  await limiter.close();
});

test.run();
