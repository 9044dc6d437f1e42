import * as assert from "uvu/assert";
import { fixedWindow } from "../../src/index.ts";
import {
  LimiterClosedError,
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
  type RedisSubscriber,
  type ScriptRunner,
} from "../../src/redis/index.ts";
import { limiterSuite } from "../local/limiter.suite.ts";
import { pacedPolicies } from "../support/algorithms/samples.ts";
import { connect, RemoteClock, type Watched } from "../support/limiter/remote.ts";
import { failure } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { suite } from "../support/suite.ts";

let watched: Watched;

const opening = suite("prefetching limiters on Redis, before");
opening.before(async () => {
  await redisServer();
  watched = await connect();
});
opening("the server starts", () => {});
opening.run();

for (const [place, [name, { at: policies, together = 1 }]] of pacedPolicies.entries()) {
  limiterSuite(
    `RedisLimiter that prefetches, ${name}`,
    (clock, { name: own = watched.fresh(), ...options } = {}) =>
      RedisLimiter.create(watched.runner, own, policies(7), {
        ...{ timeoutMs: 60_000, clock, prefetch: { permits: 3 } },
        ...options,
      }),
    {
      together,
      sample: { oneIn: 4, place },
      policies: policies(7),
      faster: policies(11),
      slower: policies(2),
      makeClock: () => new RemoteClock(),
    },
  );
}

const own = suite("prefetching limiters on Redis, by the server's clock");

/** How many scripts are sent. */
function counted(): { readonly redis: ScriptRunner; readonly batches: number } {
  let batches = 0;
  const runScript: ScriptRunner["runScript"] = (...args) => {
    batches += 1;
    return watched.runner.runScript(...args);
  };
  return {
    redis: { runScript },
    get batches() {
      return batches;
    },
  };
}

for (const prefetch of [{ permits: 2000 }, "auto"] as const) {
  own(`the mean rate is kept with few batches: ${JSON.stringify(prefetch)}`, async () => {
    const client = counted();
    const rate = 20_000;
    const limiter = RedisRateLimiter.create(client.redis, watched.fresh(), rate, {
      ...{ burstSeconds: 0, timeoutMs: 20_000, prefetch },
    });
    const start = performance.now();
    let used = 0;
    while (used < 7000) {
      await limiter.acquire();
      used += 1;
      // a chunk is 20, and instants are counted from the arrival of the first reply on
      assert.ok(used <= ((performance.now() - start) * rate) / 1000 + 21, `${used}`);
    }
    assert.ok(client.batches < used / 50, `${client.batches} batches for ${used}`);
    await limiter.close();
  });
}

own("each key has a prefetch buffer of its own, and all are closed together", async () => {
  const name = watched.fresh();
  const limiter = RedisLimiter.create(
    watched.runner,
    name,
    fixedWindow({ limit: 10, windowMs: 3_600_000, align: "first" }),
    { timeoutMs: 20_000, prefetch: { permits: 4, maxAgeMs: 60_000 } },
  );
  const [ann, bob] = [limiter.for("ann"), limiter.for("bob")];
  for (const each of [limiter, ann, bob, ann]) assert.is(await each.acquire(), 0);
  const fresh = RedisLimiter.create(
    watched.runner,
    name,
    fixedWindow({ limit: 10, windowMs: 3_600_000, align: "first" }),
    { timeoutMs: 20_000 },
  );
  const remaining = async () => [
    (await fresh.peek()).remaining,
    (await fresh.for("ann").peek()).remaining,
  ];
  assert.equal(await remaining(), [5, 5]);
  await limiter.close();
  assert.equal(await remaining(), [9, 8]);
  assert.instance(await failure(() => ann.acquire()), LimiterClosedError);
  assert.throws(
    () => limiter.for("carl"),
    (error: unknown) => error instanceof LimiterClosedError,
  );
  assert.is(limiter.for("bob"), bob);
  await limiter.close();
  await fresh.close();
});

own("`await using` closes a concurrency limiter too", async () => {
  const subscriber = {
    subscribe: async () => {},
    unsubscribe: async () => {},
    on: () => {},
    off: () => {},
  };
  const limiter = RedisConcurrencyLimiter.create(watched.runner, watched.fresh(), 1, {
    ...PATIENT,
    subscriber: subscriber as unknown as RedisSubscriber,
  });
  {
    await using same = limiter;
    await same.peek();
  }
  assert.instance(await failure(() => limiter.acquire()), LimiterClosedError);
});

own("bad options are refused", () => {
  const create = (prefetch: unknown) =>
    RedisRateLimiter.create(watched.runner, "never asked", 5, {
      ...PATIENT,
      prefetch: prefetch as "auto",
    });
  const rows: [prefetch: unknown, error: RegExp][] = [
    [0, /prefetch must be "auto" or .*, got 0/],
    [null, /prefetch must be "auto" or .*, got null/],
    ["manual", /prefetch must be "auto" or .*, got "manual"/],
    [{ permit: 5 }, /prefetch has no "permit"; expected one of permits, maxAgeMs/],
    [{ permits: 0 }, /prefetch\.permits must be a finite number above 0, or "auto", got 0/],
    [
      { permits: Infinity },
      /prefetch\.permits must be a finite number above 0, or "auto", got Infinity/,
    ],
    [{ permits: "all" }, /prefetch\.permits must be a finite number above 0, or "auto", got "all"/],
    [{ maxAgeMs: 0 }, /prefetch\.maxAgeMs must be a finite number above 0, got 0/],
    [{ permits: 5, maxAgeMs: -1 }, /prefetch\.maxAgeMs must be a finite number above 0, got -1/],
  ];
  for (const [prefetch, error] of rows) assert.throws(() => create(prefetch), error);
  for (const good of ["auto", {}, { permits: "auto" }, { permits: 0.5, maxAgeMs: 1 }, undefined]) {
    assert.ok(create(good) instanceof RedisRateLimiter);
  }
});

own.run();

const closing = suite("prefetching limiters on Redis, after");
closing("the client ends", () => watched.redis.disconnect());
closing.run();
