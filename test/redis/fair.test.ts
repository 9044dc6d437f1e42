/** Fair limiters on a real Redis: the suite of all limiters, and two processes' worth of clients. */
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { allOf, fairShares, fixedWindow } from "../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  type RedisConcurrencyOptions,
  RedisLimiter,
  RedisRateLimiter,
} from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { limiterSuite } from "../local/limiter.suite.ts";
import { pacedSample } from "../support/algorithms/samples.ts";
import { connect, RemoteClock, type Watched } from "../support/limiter/remote.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { suite } from "../support/suite.ts";

let watched: Watched;

const opening = suite("fair limiters on Redis, before");
opening.before(async () => {
  await redisServer();
  watched = await connect();
});
opening("the server starts", () => {});
opening.run();

const policies = pacedSample("bursty");
for (const [place, [name, more]] of (
  [
    ["fair", {}],
    ["fair, with prefetch", { prefetch: { permits: 3 } }],
  ] as const
).entries()) {
  limiterSuite(
    `RedisRateLimiter, ${name}`,
    (clock, { name: own = watched.fresh(), ...options } = {}) =>
      RedisRateLimiter.create(watched.runner, own, 7, {
        ...{ timeoutMs: 60_000, clock, order: fairShares() },
        ...more,
        ...options,
      }),
    {
      sample: { oneIn: 2, place },
      policies: policies(7),
      faster: policies(11),
      slower: policies(2),
      makeClock: () => new RemoteClock(),
    },
  );
}

const real = suite("fair limiters on Redis, two clients");

/** Two connections, as two processes have them, to limiters with one name. */
function clients(rate: number) {
  const { host, port, db } = watched.redis.options;
  const name = watched.fresh();
  const connections = [0, 1].map(() => new Redis({ host, port, db } as never));
  const limiters = connections.map((redis) =>
    RedisRateLimiter.create(redis, name, rate, {
      order: fairShares(),
      burstSeconds: 0,
      timeoutMs: 20_000,
    }),
  );
  const end = async () => {
    await Promise.all(limiters.map((limiter) => limiter.close()));
    for (const redis of connections) redis.disconnect();
  };
  const [one, other] = limiters as [RedisRateLimiter, RedisRateLimiter];
  return { one, other, end };
}

real("a process with one busy tenant does not hold up a process with another", async () => {
  const { one, other, end } = clients(400);
  let busy = 0;
  for (let i = 0; i < 2000; i++) {
    one.acquire(1, { share: "busy" }).then(
      () => {
        busy += 1;
      },
      () => {},
    );
  }
  while (busy < 20) await one.acquire(1, { share: "waits until it is busy" });
  const before = busy;
  await other.acquire(1, { share: "quiet" });
  // the window of 20 ms has 8 permits; others go while the request travels on a busy machine
  assert.ok(busy - before < 200, `${busy - before} of the other process went before`);
  await end();
});

real("no tenant of either process starves", async () => {
  const { one, other, end } = clients(800);
  const got = new Map<string, number>();
  const start = (limiter: RedisRateLimiter, share: string, calls: number) => {
    for (let i = 0; i < calls; i++) {
      limiter.acquire(1, { share }).then(
        () => got.set(share, (got.get(share) ?? 0) + 1),
        () => {},
      );
    }
  };
  start(one, "a", 1000);
  start(one, "b", 100);
  start(other, "c", 1000);
  start(other, "d", 100);
  const sum = () => [...got.values()].reduce((total, each) => total + each, 0);
  while (sum() < 300) await new Promise((resolve) => setTimeout(resolve, 10));
  // on a busy machine the processes are not equally fast
  assert.ok(got.size === 4 && Math.min(...got.values()) > 10, JSON.stringify([...got]));
  await end();
});

real("keys have shares of their own", async () => {
  const limiter = RedisLimiter.create(
    watched.redis,
    watched.fresh(),
    fixedWindow({ limit: 50, windowMs: 60_000 }),
    { order: fairShares(), timeoutMs: 20_000 },
  );
  const key = limiter.for("ann");
  const waits = await Promise.all(
    Array.from({ length: 50 }, (_, i) => key.acquire(1, { share: `${i % 3}` })),
  );
  assert.is(waits.length, 50);
  assert.is(await key.tryAcquire(1, { share: "0", timeoutMs: 0 }), false);
  assert.is((await limiter.peek()).remaining, 50);
  await limiter.close();
});

real(
  "a combination in one script goes through the order of the shares, and charges them",
  async () => {
    const clock = new FakeClock();
    const options = { clock, timeoutMs: 20_000, order: fairShares() };
    const pace = (name: string, more = {}) =>
      RedisRateLimiter.create(watched.redis, name, 10, {
        ...PATIENT,
        ...options,
        burstSeconds: 0,
        ...more,
      });
    const fair = pace(watched.fresh());
    const common = RedisLimiter.create(
      watched.redis,
      watched.fresh(),
      fixedWindow({ limit: 1000, windowMs: 60_000 }),
      { clock, timeoutMs: 20_000 },
    );
    const limiter = allOf(common, fair);
    const order: string[] = [];
    const answered = async (count: number) => {
      while (order.length < count) {
        await clock.advance(20);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    };
    const call = (share: string, of: Pick<typeof fair, "acquire"> = fair) => {
      void of.acquire(1, { share }).then(() => order.push(share));
    };
    await limiter.acquire(5, { share: "a" });
    for (const share of ["b", "b", "a", "a", "a", "b"]) call(share);
    await new Promise((resolve) => setTimeout(resolve, 20));
    // four calls wait here, and the two of b with the store go first
    const refused = await limiter.decide(1, { share: "a" });
    assert.equal([refused.allowed, (await common.peek()).remaining], [false, 995]);
    assert.ok(refused.waitMs > (await limiter.peek(1, { share: "c" })).waitMs);
    await answered(6);
    assert.is(order.join(""), "bbbaaa");
    for (const share of ["b", "b", "b", "b", "b", "b"]) call(share);
    call("a", limiter as typeof fair);
    await answered(13);
    assert.ok(order.indexOf("a", 6) < 12, order.join(""));
    assert.is((await common.peek()).remaining, 994);
    await Promise.all([fair.close(), common.close()]);
  },
);

/** Two connections to a fair concurrency limiter with one name. */
function leasing(limit: number, options: RedisConcurrencyOptions = {}) {
  const { host, port, db } = watched.redis.options;
  const name = watched.fresh();
  const connections = [0, 1].map(() => new Redis({ host, port, db } as never));
  const limiters = connections.map((redis) =>
    RedisConcurrencyLimiter.create(redis, name, limit, {
      ...{ order: fairShares(), timeoutMs: 20_000 },
      ...options,
    }),
  );
  const end = async () => {
    await Promise.all(limiters.map((limiter) => limiter.close()));
    for (const redis of connections) redis.disconnect();
  };
  const [one, other] = limiters as [RedisConcurrencyLimiter, RedisConcurrencyLimiter];
  return { one, other, end };
}

real("leases go to tenants in turn, and to processes in turn", async () => {
  const { one, other, end } = leasing(2);
  const order: string[] = [];
  const job = (limiter: RedisConcurrencyLimiter, share: string) =>
    limiter.run(
      async ({ signal }) => {
        order.push(share);
        await new Promise((resolve) => setTimeout(resolve, 1));
        signal.throwIfAborted();
      },
      { share },
    );
  const jobs = [
    ...Array.from({ length: 60 }, () => job(one, "busy")),
    ...Array.from({ length: 5 }, () => job(one, "quiet")),
  ];
  await job(other, "elsewhere");
  await Promise.all(jobs);
  const seen = order.slice(0, 25);
  assert.is(seen.filter((share) => share === "quiet").length, 5, order.join(" "));
  assert.ok(order.indexOf("elsewhere") < 25, order.join(" "));
  assert.is(order.length, 66);
  assert.equal(await one.peek(), { limit: 2, active: 0, waiting: 0 });
  await end();
});

real("random jobs of two processes: the limit holds, every job runs, no place leaks", async () => {
  const { one, other, end } = leasing(3, {
    maxWaiting: 100,
    order: fairShares({ priorities: ["a", "b"] }),
  });
  let running = 0;
  let most = 0;
  let ended = 0;
  const jobs = Array.from({ length: 150 }, async (_, i) => {
    const controller = new AbortController();
    if (i % 11 === 0) setTimeout(() => controller.abort(), i % 40);
    const limiter = i % 3 === 0 ? other : one;
    const { signal } = controller;
    const options = {
      signal,
      share: `${i % 4}`,
      priority: i % 2 === 0 ? "a" : "b",
      weight: 1 + (i % 3),
    };
    const job = async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, i % 5));
      running -= 1;
    };
    await (i % 13 === 0
      ? limiter.tryAcquire({ timeoutMs: i, ...options }).then(async (lease) => {
          if (lease !== undefined) await job().finally(() => lease.release());
        })
      : limiter.run(job, options)
    ).catch((error: Error) => assert.is(error.name, "AbortError"));
    ended += 1;
  });
  await Promise.all(jobs);
  assert.equal([most, ended], [3, 150]);
  assert.equal(await one.peek(), { limit: 3, active: 0, waiting: 0 });
  assert.equal([one.waiting, other.waiting, one.stats.waiting, other.stats.waiting], [0, 0, 0, 0]);
  await end();
});

real.run();

const closing = suite("fair limiters on Redis, after");
closing("the client ends", () => watched.redis.disconnect());
closing.run();
