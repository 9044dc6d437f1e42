import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { algorithms } from "../../src/algorithms/index.ts";
import {
  allOf,
  diagnostics,
  fixedWindow,
  gcra,
  type LimitIgnoredMessage,
  leakyBucket,
  PermitsExceedCapacityError,
  type Policy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from "../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  RedisLimiter,
  type RedisPoliciesOptions,
  RedisRateLimiter,
  type ScriptRunner,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { RegionalLimiter } from "../../src/regions/index.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import type { StoreRequest } from "../../src/stores/store.ts";
import { TransitionStore } from "../../src/stores/transition-store.ts";
import { failure } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { twinsOf } from "../support/stores/twins-of.ts";
import { suite } from "../support/suite.ts";

let redis: Redis;

async function connect(): Promise<void> {
  await redisServer();
  redis = new Redis(await freshUrl());
}

const window = (limit: number) => fixedWindow({ limit, windowMs: 3_600_000 });

const keyed = suite("limiters on Redis, for keys");
keyed.before(connect);
keyed.after(() => {
  redis.disconnect();
});

keyed("each key has its own permits, shared by all processes", async () => {
  const [here, there] = ["users", "users"].map((name) =>
    RedisLimiter.create(redis, name, window(2), PATIENT),
  ) as [RedisLimiter, RedisLimiter];
  const names = ["a", "b", "", "__proto__", "x[y", "%", "[", "日本", "a".repeat(10_000)];
  for (const name of names) {
    const limiter = here.for(name);
    assert.equal(
      [await limiter.tryAcquire(), await limiter.tryAcquire(), await limiter.tryAcquire()],
      [true, true, false],
      name,
    );
    assert.not(await there.for(name).tryAcquire());
  }
  assert.ok(await here.tryAcquire(), "the limiter itself is none of its keys");
  assert.is(await redis.dbsize(), names.length + 1);
});

keyed("a process is one caller in the states of all its keys", async () => {
  const limiter = RedisLimiter.create(redis, "callers", window(9), PATIENT);
  for (const key of ["a", "b", "a"]) await limiter.for(key).tryAcquire();
  const callers = await Promise.all(
    ["a", "b"].map(async (key) => {
      const state = (await redis.getBuffer(`l:callers[${key}`)) as Buffer;
      assert.is(state[10], 1);
      return state.subarray(11, 19).toString();
    }),
  );
  assert.match(String(callers[0]), /^[\w-]{8}$/);
  assert.is(callers[1], callers[0]);
  await redis.flushdb();
});

keyed("no key reaches another limiter's state", async () => {
  const short = RedisLimiter.create(redis, "a", window(1), PATIENT);
  const long = RedisLimiter.create(redis, "a[b", window(1), PATIENT);
  const other = RedisLimiter.create(redis, "a%5Bb", window(1), PATIENT);
  for (const limiter of [short.for("b"), long, other, short.for("b[c"), long.for("c")]) {
    assert.ok(await limiter.tryAcquire());
  }
});

keyed("calls for one key get the same limiter while it is referenced", async () => {
  const limiter = RedisLimiter.create(redis, "held", window(5), PATIENT);
  const held = limiter.for("a");
  assert.is(limiter.for("a"), held);
  assert.is.not(limiter.for("b"), held);
  assert.throws(() => limiter.for("\ud800"), /key must be well-formed Unicode/);
  assert.throws(() => limiter.for(5 as never), /key must be a string, got 5/);
});

keyed("all texts that keys are made of are well-formed: others would share one", async () => {
  const half = "\ud800";
  const limit = window(1);
  const made: readonly [RegExp, () => unknown][] = [
    [/^prefix must be/, () => RedisLimiter.create(redis, "a", limit, { prefix: half })],
    [/^hashTag must be/, () => RedisLimiter.create(redis, "a", limit, { hashTag: half })],
    [/^limitKey must be/, () => RedisLimiter.create(redis, "a", limit, { limitKey: half })],
    [/^prefix must be/, () => RedisConcurrencyLimiter.create(redis, "a", 1, { prefix: half })],
    [
      /^prefix must be/,
      () =>
        RegionalLimiter.create("a", limit, {
          ...{ home: redis, region: "eu", regions: ["eu"], prefix: half },
        }),
    ],
  ];
  for (const [message, make] of made) assert.throws(make, message);
});

keyed("errors name the key", async () => {
  const limiter = RedisLimiter.create(redis, "errors", smoothBursty({ permitsPerSecond: 0.001 }), {
    ...PATIENT,
    maxWaiting: 0,
  });
  const one = limiter.for("alice");
  await one.acquire();
  assert.match(`${await failure(() => one.acquire())}`, 'limiter "errors[alice"');
});

keyed("keys that are no longer referenced are forgotten", async () => {
  const { setFlagsFromString } = await import("node:v8");
  const { runInNewContext } = await import("node:vm");
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  const limiter = RedisLimiter.create(redis, "many", window(5), PATIENT);
  const before = new WeakRef(limiter.for("a"));
  for (let round = 0; round < 50 && before.deref() !== undefined; round++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 1);
    });
    gc();
  }
  assert.is(before.deref(), undefined);
  assert.ok(await limiter.for("a").tryAcquire());
});

keyed.run();

const limits = suite("limiters on Redis, limitKey");
limits.before(connect);
limits.after(() => {
  redis.disconnect();
});

let names = 0;
function open(policies: Parameters<typeof RedisLimiter.create>[2], options: RedisPoliciesOptions) {
  names += 1;
  return RedisLimiter.create(redis, `limits ${names}`, policies, options);
}

limits("the next decision follows the key; without it the policy's own limit applies", async () => {
  const limiter = open(window(2), { limitKey: "limit" });
  assert.is((await limiter.peek()).limit, 2);
  await redis.set("limit", "5");
  const first = await limiter.decide(3);
  assert.equal([first.allowed, first.limit, first.remaining], [true, 5, 2]);
  await redis.set("limit", "4");
  assert.is((await limiter.peek()).remaining, 1);
  await redis.set("limit", "3");
  assert.not(await limiter.tryAcquire());
  await redis.del("limit");
  const last = await limiter.peek();
  assert.equal([last.limit, last.remaining, last.allowed], [2, 0, false]);
});

for (const nonsense of ["", "many", "-5", "inf", "nan", "1e400", "0x", "-1!\t2"]) {
  limits(
    `an invalid limit is reported, and the declared one applies: ${JSON.stringify(nonsense)}`,
    async () => {
      const published: LimitIgnoredMessage[] = [];
      const onMessage = (message: LimitIgnoredMessage) => void published.push(message);
      diagnostics.limitIgnored.subscribe(onMessage);
      const limiter = open(window(7), { limitKey: "nonsense" });
      await redis.set("nonsense", nonsense);
      for (let i = 0; i < 3; i++) assert.is((await limiter.peek()).limit, 7);
      diagnostics.limitIgnored.unsubscribe(onMessage);
      const [{ limiter: name, policy, value } = {} as LimitIgnoredMessage] = published;
      assert.is(published.length, 1, "once for each value, not for each call");
      assert.equal([name, policy], [`limits ${names}`, "default"]);
      assert.is(value, nonsense.replace(/[!\t]/g, " "));
    },
  );
}

for (const zero of ["0", "-0", "0.0"]) {
  limits(`a limit of ${zero} grants nothing, and makes no caller wait`, async () => {
    const limiter = open(window(5), { limitKey: "closed" });
    await limiter.acquire(2);
    await redis.set("closed", zero);
    for (const decision of [await limiter.peek(), await limiter.decide()]) {
      const { allowed, waitMs, limit, remaining } = decision;
      assert.equal([allowed, waitMs, limit, remaining], [false, Infinity, 0, 0]);
    }
    assert.is(await limiter.tryAcquire(), false);
    assert.is(await limiter.tryAcquire(1, 1000), false);
    for (const verb of [() => limiter.acquire(), () => limiter.reserve()]) {
      const error = await failure(verb);
      assert.instance(error, PermitsExceedCapacityError);
      assert.equal((error as PermitsExceedCapacityError).facts.capacity, 0);
    }
    await limiter.charge(1);
    await redis.set("closed", "5");
    assert.is((await limiter.peek()).remaining, 2, "what was used stays used");
  });
}

limits(
  "of several policies, one with a limit of 0 refuses its requests, and is named",
  async () => {
    const limiter = open(
      { minute: window(10), day: window(100) },
      { limitKey: { day: "closed day" } },
    );
    await redis.set("closed day", "0");
    const { allowed, waitMs, policy, policies } = await limiter.peek();
    assert.equal([allowed, waitMs, policy], [false, Infinity, "day"]);
    assert.equal([policies.day?.limit, policies.minute?.remaining], [0, 10]);
    assert.is(await limiter.tryAcquire({ minute: 1 }), true);
    assert.is(await limiter.tryAcquire({ day: 1 }), false);
  },
);

limits("a rate limiter follows its key, and 0 closes it until the key changes", async () => {
  const limiter = RedisRateLimiter.create(redis, "paced", 5, { ...PATIENT, limitKey: "pace" });
  await limiter.peek();
  assert.is(limiter.getRate(), 5);
  await redis.set("pace", "50");
  await limiter.peek();
  assert.is(limiter.getRate(), 50);
  await redis.set("pace", "0");
  assert.is(await limiter.tryAcquire(), false);
  assert.is(limiter.getRate(), 0);
  await limiter.setRate(7);
  assert.is(await limiter.tryAcquire(), true, "setRate takes precedence over the key");
  assert.is(limiter.getRate(), 7);
});

limits("during an outage, a limit that was 0 stays 0", async () => {
  let away = false;
  const runScript: ScriptRunner["runScript"] = ({ lua }, keys, args) =>
    away
      ? Promise.reject(new Error("gone"))
      : (redis.eval(lua, keys.length, ...keys, ...args) as Promise<string>);
  await redis.set("closed", "0");
  for (const whenUnavailable of ["local", "allow"] as const) {
    const options = { limitKey: "closed", instances: 1, whenUnavailable } as const;
    const limiter = RedisLimiter.create(
      { runScript },
      `away ${whenUnavailable}`,
      window(5),
      options,
    );
    await limiter.peek();
    away = true;
    const { allowed, waitMs, limit } = await limiter.decide();
    assert.equal([allowed, waitMs, limit], [false, Infinity, 0]);
    assert.is((await limiter.peek()).allowed, false);
    assert.is(await limiter.tryAcquire(), false);
    assert.instance(await failure(() => limiter.acquire()), PermitsExceedCapacityError);
    assert.instance(await failure(() => limiter.reserve()), PermitsExceedCapacityError);
    away = false;
    await limiter.close();
  }
});

limits("Redis replies and stores the same as TypeScript, for any content of the keys", async () => {
  const values = [
    undefined,
    "0",
    "3",
    "-1",
    "many",
    "2.5",
    "1e3",
    "0",
    "a!b\tc",
    "9".repeat(50),
    "0.1",
    "1e-5",
    "12345678901234567",
  ];
  const declared = [
    "f$5@1 1000",
    "g$3@1 $2@1 1000",
    "s$5@1",
    "g1 $2@1 1000 4 0",
    "f$5@1 1000\nl$3@2 2000",
  ];
  const one = (n: number) => (values.length * n) % 7;
  for (const numbers of declared) {
    const names = numbers
      .split("\n")
      .map((line) => algorithms.find(({ code }) => code === line[0])?.name ?? "");
    const keys = ["kept 1", "kept 2"];
    const store = new RedisStore(scriptRunner(redis), "kept:", twinsOf(names), keys);
    const twin = new TransitionStore();
    for (let i = 0; i < 60; i++) {
      const kept = [values[i % values.length], values[one(i)]];
      for (const [k, key] of keys.entries()) {
        const value = kept[k];
        if (value === undefined) {
          twin.limits.delete(key);
          await redis.del(key);
        } else {
          twin.limits.set(key, value);
          await redis.set(key, value);
        }
      }
      const amount = names.map((_, k) => (i + k) % 3);
      const asked = amount.some((n) => n > 0) ? amount : amount.map(() => 1);
      const requests: StoreRequest[] = [
        { verb: "peek", amount: asked, late: 0 },
        { verb: "reserve", amount: asked, longest: 5e5, late: 0, count: 2 },
        { verb: "decide", amount: asked, late: 0 },
        { verb: "charge", amount: asked },
        i % 11 === 5 ? { verb: "reset" } : { verb: "deficit" },
        i % 13 === 7 ? { verb: "unset" } : { verb: "refund", amount: asked },
      ];
      const now = 1_800_000_000_000_000 + i * 300_000;
      const expected = twin.runBatch("a", numbers, requests, now, keys);
      assert.equal(await store.run(numbers, numbers, requests, now), expected, `${numbers}, ${i}`);
      const bytes = await redis.getBuffer(`kept:${numbers}`);
      assert.ok(bytes?.equals(twin.saved("a")?.bytes ?? new Uint8Array()), `${numbers}, ${i}`);
    }
  }
});

limits("a key that is no string is an error, as for the state", async () => {
  await redis.lpush("list", "5");
  const error = await failure(() => open(window(1), { limitKey: "list" }).tryAcquire());
  assert.ok(error instanceof StoreUnavailableError);
  assert.match(error.message, "WRONGTYPE");
});

for (const [name, policy, before, after] of [
  ["gcra, the burst follows", gcra({ limit: 10, periodMs: 1e6 }), 10, 20],
  ["gcra, a burst of its own", gcra({ limit: 10, periodMs: 1e6, burst: 2 }), 3, 3],
  ["tokenBucket", tokenBucket({ capacity: 10, refill: 1, everyMs: 1e6 }), 10, 20],
  ["leakyBucket", leakyBucket({ permitsPerSecond: 10, capacity: 5, nodelay: 5 }), 6, 6],
  ["slidingLog", slidingLog({ limit: 10, windowMs: 1e6 }), 10, 20],
  ["slidingWindow", slidingWindow({ limit: 10, windowMs: 1e6 }), 10, 20],
  ["smoothBursty", smoothBursty({ permitsPerSecond: 10 }), 11, 21],
] as readonly (readonly [string, Policy, number, number])[]) {
  limits(`every algorithm: ${name}`, async () => {
    await redis.set("each", "20");
    assert.is((await open(policy, {}).peek()).limit, before);
    const limiter = open(policy, { limitKey: "each" });
    const { limit, policies } = await limiter.peek();
    assert.is(limit, after);
    // this many in that time
    const { windowMs } = policies.default as { windowMs: number };
    if (name.startsWith("gcra")) assert.is(windowMs, (after * 1e6) / 20);
    if (name.startsWith("leaky")) assert.is(windowMs, (after * 1000) / 20);
  });
}

limits("each policy may have a key; a policy without one keeps its own limit", async () => {
  const limiter = open(
    { second: window(10), minute: window(100), day: window(1000) },
    { limitKey: { day: "per day", minute: "per minute" } },
  );
  await redis.mset("per day", "5", "per minute", "50");
  const { policies, policy, limit } = await limiter.peek();
  assert.equal(
    Object.values(policies).map((one) => one.limit),
    [10, 50, 5],
  );
  assert.equal(
    Object.values(limiter.policies).map(({ numbers }) => numbers[0]),
    [10, 50, 5],
  );
  assert.equal([policy, limit], ["second", 10]);
});

limits("limits apply to keyed limiters too, and setRate takes precedence", async () => {
  await redis.set("for keys", "3");
  const limiter = open(window(1), { limitKey: "for keys" });
  const one = limiter.for("a");
  assert.is((await one.peek()).limit, 3);
  await limiter.update(window(9));
  assert.is((await limiter.peek()).limit, 9);
  await limiter.resetPolicies();
  assert.is((await limiter.peek()).limit, 3);
});

limits("an unknown policy or an invalid key is refused", () => {
  for (const [limitKey, message] of [
    [5, /limitKey must be a string, got 5/],
    [null, /limitKey must be/],
    [{ other: "key" }, /limitKey has no "other"/],
    [{ default: 5 }, /limitKey.default must be a string/],
  ] as const) {
    assert.throws(() => open(window(1), { limitKey: limitKey as never }), message);
  }
});

limits("the error of a combination shows the limit of the key that a request exceeds", async () => {
  const limiter = open(window(10), { limitKey: "combined" });
  await redis.set("combined", "3");
  const both = allOf(limiter, open(window(10), {}));
  assert.is(await both.tryAcquire(3), true);
  const error = await failure(() => both.acquire(4));
  assert.instance(error, PermitsExceedCapacityError);
  assert.equal((error as PermitsExceedCapacityError).facts.capacity, 3);
});

limits("prefetched permits may be used although the limit is 0 by now", async () => {
  const limiter = open(
    { minute: window(10), day: window(100) },
    { limitKey: { day: "closed later" }, prefetch: { permits: 4, maxAgeMs: 3_600_000 } },
  );
  await limiter.acquire();
  while (!(await limiter.peek()).allowed);
  await redis.set("closed later", "0");
  const { allowed, policy, limit } = await limiter.peek();
  assert.equal([allowed, policy, limit], [true, "day", 0]);
  await limiter.close();
});

limits.run();
