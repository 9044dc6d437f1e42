/** Fair limiters on a real Redis: the suite of all limiters, and two processes' worth of clients. */
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { redisServer } from "../../scripts/redis-server.ts";
import { fixedWindow } from "../../src/index.ts";
import { RedisLimiter, RedisRateLimiter } from "../../src/redis/index.ts";
import { limiterSuite } from "../limiter/limiter.suite.ts";
import { pacedSample } from "../support/algorithms/samples.ts";
import { connect, RemoteClock, type Watched } from "../support/limiter/remote.ts";
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
for (const [name, more] of [
  ["fair", {}],
  ["fair, with prefetch", { prefetch: { permits: 3 } }],
] as const) {
  limiterSuite(
    `RedisRateLimiter, ${name}`,
    (clock, { name: own = watched.fresh(), ...options } = {}) =>
      RedisRateLimiter.create(watched.runner, own, 7, {
        ...{ timeoutMs: 60_000, clock, fair: true },
        ...more,
        ...options,
      }),
    {
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
    RedisRateLimiter.create(redis, name, rate, { fair: true, burstSeconds: 0, timeoutMs: 20_000 }),
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
    { fair: true, timeoutMs: 20_000 },
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

real.run();

const closing = suite("fair limiters on Redis, after");
closing("the client ends", () => watched.redis.disconnect());
closing.run();
