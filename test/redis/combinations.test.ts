import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  diagnostics,
  fixedWindow,
  gcra,
  Limiter,
  leakyBucket,
  PermitsExceedCapacityError,
} from "../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  RedisLimiter,
  type RedisPoliciesOptions,
  type ScriptRunner,
  StoreUnavailableError,
} from "../../src/redis/index.ts";
import { scriptRunner } from "../../src/stores/redis/client.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { contest, stateOf } from "../support/limiter/contest.ts";
import { failure, turn } from "../support/limiter/watch.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { until } from "../support/redis/ask.ts";
import { freshUrl } from "../support/redis/server.ts";
import { runs, suite } from "../support/suite.ts";

const HOUR = 3_600_000;
const hour = (limit: number) => fixedWindow({ limit, windowMs: HOUR, align: "first" });
let redis: Redis;
let other: Redis;

const state = () => stateOf(redis);

function suiteOnRedis(name: string) {
  const test = suite(name, { timeoutMs: 180_000 });
  test.before(async () => {
    await redisServer();
    const url = await freshUrl();
    redis = new Redis(url);
    other = new Redis(url);
  });
  test.before.each(async () => {
    await redis.flushdb();
  });
  test.after(() => {
    redis.disconnect();
    other.disconnect();
  });
  return test;
}

const test = suiteOnRedis("combinations on Redis");

for (const [inFlight, good] of [
  [100, 15],
  [runs(1000), 4],
] as const) {
  test(`${inFlight} refused requests in flight keep no permit from others: allOf`, async () => {
    const clients = [redis, other];
    const common = clients.map((client) =>
      RedisLimiter.create(client, "common", hour(good + 5), PATIENT),
    );
    const devices = clients.map((client) =>
      RedisLimiter.create(client, "devices", hour(1), PATIENT),
    );
    await contest(redis, inFlight, good, async (client, device) =>
      allOf(
        common[client] as RedisLimiter,
        (devices[client] as RedisLimiter).for(device),
      ).tryAcquire(),
    );
  });
}

test("a decision shows for each rule whether it granted the request", async () => {
  const common = RedisLimiter.create(redis, "common", { common: hour(2) }, PATIENT);
  const device = RedisLimiter.create(redis, "device", { second: hour(1), third: hour(9) }, PATIENT);
  const limiter = allOf(common, device);
  const first = await limiter.decide();
  assert.ok(first.allowed && Object.values(first.policies).every(({ allowed }) => allowed));
  const { allowed, policy, policies } = await limiter.decide();
  assert.equal([allowed, policy], [false, "second"]);
  assert.equal(
    Object.entries(policies).map(([name, status]) => [name, status.allowed, status.remaining]),
    [
      ["common", true, 1],
      ["second", false, 0],
      ["third", true, 8],
    ],
  );
});

test("reserve books each member at its own instant; cancel gives all permits back", async () => {
  const window = RedisLimiter.create(redis, "window", hour(9), PATIENT);
  const line = RedisLimiter.create(
    redis,
    "line",
    leakyBucket({ permitsPerSecond: 1, capacity: 2 }),
    PATIENT,
  );
  const limiter = allOf(window, line);
  await limiter.acquire();
  const before = await state();
  const reserved = await limiter.reserve();
  assert.ok(reserved.waitMs > 200 && reserved.waitMs <= 1000);
  const last = await limiter.reserve();
  assert.match(`${await failure(() => limiter.reserve())}`, "QueueFullError");
  assert.not(await limiter.tryAcquire(1, 5000));
  assert.is((await window.peek()).remaining, 6);
  assert.ok(await last.cancel());
  assert.is((await window.peek()).remaining, 7);
  assert.is(Object.keys(before).length, 2);
  assert.ok(await limiter.tryAcquire(1, 3000));
});

test("two limiters of one name share one state, and must have the same policies", async () => {
  const clock = new FakeClock(Date.now());
  const same = [1, 2].map(() => RedisLimiter.create(redis, "same", hour(4), { ...PATIENT, clock }));
  const twice = allOf(...same, ...same);
  assert.ok(await twice.tryAcquire());
  assert.is((await (same[0] as RedisLimiter).peek()).remaining, 0, "one permit for each mention");
  const before = await state();
  assert.not(await twice.tryAcquire());
  const other = RedisLimiter.create(redis, "same", hour(5), { ...PATIENT, clock });
  const mixed = allOf(...same, other);
  const asks = [() => mixed.tryAcquire(), () => mixed.peek(), () => mixed.acquire()];
  for (const ask of asks) {
    const error = await failure(ask);
    assert.instance(error, TypeError);
    assert.match(`${error}`, /two limiters that are named "same".*give each its own name/);
  }
  assert.equal(await state(), before);
  const users = RedisLimiter.create(redis, "user", hour(4), PATIENT);
  assert.ok(await allOf(users.for("a"), users.for("b"), users.for("a")).tryAcquire());
  assert.is((await users.for("a").peek()).remaining, 2);
});

for (const value of ["0", "-3", "many"]) {
  test(`limitKey holds ${JSON.stringify(value)}`, async () => {
    const ignored: unknown[] = [];
    const listener = (message: unknown) => ignored.push(message);
    diagnostics.limitIgnored.subscribe(listener);
    await redis.set("kept limit", value);
    const common = RedisLimiter.create(redis, "common", { common: hour(9) }, PATIENT);
    const kept = RedisLimiter.create(
      redis,
      "kept",
      { kept: hour(2), free: hour(7) },
      { ...PATIENT, limitKey: { kept: "kept limit" } },
    );
    const limiter = allOf(common, kept);
    const first = await limiter.peek();
    const isShut = value === "0";
    assert.equal([first.allowed, first.policies.kept?.limit], [!isShut, isShut ? 0 : 2]);
    const before = await state();
    if (isShut) {
      for (let i = 0; i < 2; i++) {
        const { allowed, waitMs, policy, limit, policies } = await limiter.decide();
        assert.equal([allowed, waitMs, policy, limit], [false, Infinity, "kept", 0]);
        assert.equal(
          Object.entries(policies).map(([name, one]) => [name, one.allowed, one.remaining]),
          [
            ["common", true, 9],
            ["kept", false, 0],
            ["free", true, 7],
          ],
        );
        assert.not(await limiter.tryAcquire());
        assert.not(await limiter.tryAcquire(1, 5000), "waiting does not help");
      }
      const verbs = [() => limiter.reserve(), () => limiter.acquire()];
      for (const verb of verbs) assert.instance(await failure(verb), PermitsExceedCapacityError);
      assert.equal(await state(), before, "refusals write nothing");
    } else {
      assert.ok(await limiter.tryAcquire());
      assert.ok(await limiter.tryAcquire());
      assert.not(await limiter.tryAcquire());
      assert.is((await common.peek()).remaining, 7);
    }
    assert.equal(
      ignored,
      isShut ? [] : [{ limiter: "kept", policy: "kept", value }],
      "reported once",
    );
    diagnostics.limitIgnored.unsubscribe(listener);
  });
}

test("leases on Redis: a refused caller takes none", async () => {
  const places = RedisConcurrencyLimiter.create(redis, "places", 2, PATIENT);
  const window = RedisLimiter.create(redis, "window", hour(2), PATIENT);
  const limiter = allOf(places, window);
  const first = await limiter.tryAcquire();
  const second = await limiter.acquire();
  assert.is(await limiter.tryAcquire(), undefined);
  await first?.release();
  assert.is(await limiter.tryAcquire(), undefined, "no permit is left");
  assert.equal([(await places.peek()).active, second.signal.aborted], [1, false]);
  await second[Symbol.asyncDispose]();
  assert.is((await places.peek()).active, 0);
  assert.is(await limiter.tryAcquire(1, 20), undefined, "no permit within that time");
  assert.is((await places.peek()).active, 0);
  const local = allOf(places, Limiter.create(gcra({ limit: 100, periodMs: 1000, burst: 0 })));
  const held = [await local.tryAcquire(1, 5000), await local.tryAcquire(1, 5000)];
  assert.is(await local.tryAcquire({ timeoutMs: 30 }), undefined, "no place within that time");
  setTimeout(() => void held[0]?.release(), 20);
  const late = await local.tryAcquire({ timeoutMs: 30_000 });
  for (const lease of [late, held[1]]) await lease?.release();
  assert.is((await places.peek()).active, 0);
  const leaving = new AbortController();
  const waiting = failure(() => limiter.acquire(1, { signal: leaving.signal }));
  setTimeout(() => leaving.abort(new Error("enough")), 50);
  assert.match(`${await waiting}`, "enough");
  assert.is((await places.peek()).active, 0);
  await places.close();
});

test("a shared limiter and a local one wait in turn", async () => {
  const local = Limiter.create(fixedWindow({ limit: 9, windowMs: HOUR }));
  const shared = RedisLimiter.create(
    redis,
    "pace",
    gcra({ limit: 20, periodMs: 1000, burst: 0 }),
    PATIENT,
  );
  const start = performance.now();
  const elapsed = async () => {
    await allOf(local, shared).acquire();
    return performance.now() - start;
  };
  const grantedMs = await Promise.all([elapsed(), elapsed(), elapsed()]);
  // a loaded machine may be late, never early
  assert.ok(
    grantedMs.every((ms, i) => ms > i * 50 - 1),
    `${grantedMs}`,
  );
  assert.is(local.peek().remaining, 6);
  const leaving = new AbortController();
  const left = allOf(local, shared).acquire(1, { signal: leaving.signal });
  leaving.abort(new Error("enough"));
  assert.match(`${await failure(() => left)}`, "enough");
});

test("keys in several slots are peeked at first; a hash tag brings them together", async () => {
  const plain = scriptRunner(redis);
  let calls = 0;
  /** Answers like a Cluster. */
  const runner: ScriptRunner = {
    runScript(script, keys, args) {
      calls += 1;
      const tags = new Set(keys.map((key) => /\{([^}]+)\}/.exec(key)?.[1] ?? key));
      if (tags.size === 1) return plain.runScript(script, keys, args);
      return Promise.reject(new Error("CROSSSLOT Keys in request don't hash to the same slot"));
    },
  };
  const make = (options: RedisPoliciesOptions) => {
    const common = RedisLimiter.create(runner, "common", hour(3), options);
    const device = RedisLimiter.create(runner, "device", hour(1), options);
    return { common, of: (name: string) => allOf(common, device.for(name)) };
  };
  const scattered = make({});
  assert.ok(await scattered.of("a").tryAcquire());
  const before = await state();
  assert.not(await scattered.of("a").tryAcquire());
  assert.equal(await state(), before);
  assert.is((await scattered.of("b").decide()).allowed, true);
  // two requests compete for the last permit between peek and charge
  const both = await Promise.all(["c", "d"].map((name) => scattered.of(name).tryAcquire()));
  assert.is(both.filter(Boolean).length, 1);
  assert.is((await scattered.common.peek()).remaining, 0);
  const loser = both[0] ? "d" : "c";
  const { policies } = await scattered.of(loser).peek();
  assert.is(policies["default#2"]?.remaining, 1, "what was taken is given back");

  const tagged = make({ hashTag: "shop" });
  calls = 0;
  assert.ok(await tagged.of("a").tryAcquire());
  assert.not(await tagged.of("a").tryAcquire());
  assert.is(calls, 2);
  for (const hashTag of ["", "a{b", "}"]) {
    assert.throws(() => make({ hashTag }), /hashTag must be a text without braces/);
  }
});

test("an error that arrives after the caller has left is no outage", async () => {
  const rejects: ((error: Error) => void)[] = [];
  const runner: ScriptRunner = {
    runScript: () => new Promise((_, reject) => rejects.push(reject)),
  };
  const [one, two] = ["one", "two"].map((name) =>
    RedisLimiter.create(runner, name, hour(1), PATIENT),
  );
  const both = allOf(one as RedisLimiter, two as RedisLimiter);
  const leaving = new AbortController();
  const left = failure(() => both.acquire(1, { signal: leaving.signal }));
  await turn();
  assert.is(rejects.length, 1);
  leaving.abort(new Error("enough"));
  assert.match(`${await left}`, "enough");
  for (const reject of rejects) reject(new Error("connection refused"));
  await turn();
  assert.equal([one?.state, one?.stats.outages], ["ready", 0]);
});

test("during an outage a busy event loop refuses no request that may be answered locally", async () => {
  const runner: ScriptRunner = { runScript: () => Promise.reject(new Error("gone")) };
  const make = (name: string) =>
    RedisLimiter.create(runner, name, hour(1), { ...PATIENT, whenUnavailable: "allow" });
  const both = allOf(make("one"), make("two"));
  for (let i = 0; i < 160; i++) {
    const answer = both.tryAcquire();
    for (let microtasks = i % 40; microtasks > 0; microtasks--) await Promise.resolve();
    // timers of 0 ms are due then, and calls of this turn are answered in the next one
    for (const end = performance.now() + 4; performance.now() < end; );
    assert.ok(await answer, `${i}`);
  }
});

test("during an outage each member acts by its own whenUnavailable", async () => {
  let away: Error | undefined = new Error("connection refused");
  const plain = scriptRunner(redis);
  const make = (options: RedisPoliciesOptions) => {
    const runner: ScriptRunner = {
      runScript: (...args) => (away ? Promise.reject(away) : plain.runScript(...args)),
    };
    const common = RedisLimiter.create(runner, "common", hour(4), options);
    const device = RedisLimiter.create(runner, "device", hour(1), options);
    return { common, of: (name: string) => allOf(common, device.for(name)) };
  };
  const thrown = make({});
  assert.instance(await failure(() => thrown.of("a").tryAcquire()), StoreUnavailableError);
  assert.ok(thrown.common.stats.failed > 0);

  const local = make({ whenUnavailable: "local", instances: 2 });
  assert.ok(await local.of("a").tryAcquire());
  assert.not(await local.of("a").tryAcquire());
  assert.is((await local.common.peek()).remaining, 1);
  assert.ok((await local.of("b").decide()).allowed);
  assert.not((await local.of("c").peek()).allowed);
  const booked = await local.of("b").reserve();
  assert.ok(booked.waitMs > 0, `${booked.waitMs} ms`);
  assert.is(await booked.cancel(), true);

  const open = make({ whenUnavailable: "allow" });
  for (let i = 0; i < 9; i++) assert.ok(await open.of("a").tryAcquire());

  const waitForStore = make({ whenUnavailable: "wait" });
  assert.not(await waitForStore.of("a").tryAcquire(), "the wait is no longer than for the permits");
  assert.not(await waitForStore.of("a").tryAcquire(1, 20));
  const place = ConcurrencyLimiter.create(1);
  assert.is(await allOf(place, waitForStore.of("a")).tryAcquire(1, 20), undefined);
  assert.is(await allOf(place, waitForStore.of("a")).tryAcquire(), undefined);
  assert.is(place.active, 0);
  const decided = waitForStore.of("z").decide();
  const acquired = waitForStore.of("y").acquire();
  await new Promise((resolve) => setTimeout(resolve, 50));
  away = undefined;
  assert.ok((await decided).allowed);
  assert.is(await acquired, 0);
  const limiters = [thrown, local, open, waitForStore];
  await Promise.all(limiters.map(({ common }) => common.close()));
});

test("during an outage the local fallbacks refuse requests beyond their share", async () => {
  const runner: ScriptRunner = { runScript: () => Promise.reject(new Error("connection refused")) };
  const options = { whenUnavailable: "local", instances: 1 } as const;
  const common = RedisLimiter.create(runner, "common", hour(3), options);
  const pace = RedisLimiter.create(runner, "pace", gcra({ limit: 1, periodMs: HOUR }), options);
  assert.not(await allOf(common, pace, pace).tryAcquire());
  assert.ok(await allOf(pace).tryAcquire());
  assert.not(await allOf(common, pace, pace).tryAcquire(1, 1.5 * HOUR));
  assert.is((await common.peek()).remaining, 3);
  await Promise.all([common, pace].map((limiter) => limiter.close()));

  const refused: ScriptRunner = {
    runScript: () => Promise.reject(new Error("NOPERM this user has no permissions")),
  };
  const other = RedisLimiter.create(refused, "other", hour(3), options);
  assert.instance(await failure(() => allOf(other).tryAcquire()), StoreUnavailableError);
});

for (const whenUnavailable of ["local", "allow"] as const) {
  test(`during an outage a limit of 0 rejects requests to a combination, with "${whenUnavailable}"`, async () => {
    let away: Error | undefined;
    const plain = scriptRunner(redis);
    const runner: ScriptRunner = {
      runScript: (...args) => (away ? Promise.reject(away) : plain.runScript(...args)),
    };
    const options = { whenUnavailable, instances: 1 } as const;
    await redis.set("closed", "0");
    const closed = RedisLimiter.create(runner, "shut", hour(4), {
      ...PATIENT,
      ...options,
      limitKey: "closed",
    });
    const both = allOf(RedisLimiter.create(runner, "open", hour(4), options), closed);
    const verdict = async () => [await both.tryAcquire(), (await both.peek()).limit];
    assert.equal(await verdict(), [false, 0]);
    away = new Error("connection refused");
    assert.equal(await verdict(), [false, 0]);
    assert.instance(await failure(() => both.reserve()), PermitsExceedCapacityError);
    await closed.close();
  });
}

test('a lost reply: limiters with "wait" ask Redis again', async () => {
  const plain = scriptRunner(redis);
  let isLost = true;
  const runner: ScriptRunner = {
    runScript(...args) {
      if (!isLost) return plain.runScript(...args);
      isLost = false;
      return new Promise(() => {});
    },
  };
  const options = { timeoutMs: 500, whenUnavailable: "wait" } as const;
  const common = RedisLimiter.create(runner, "common", hour(3), options);
  assert.ok((await allOf(common).decide()).allowed);
  assert.is((await common.peek()).remaining, 2);
  await common.close();
});

test("requests beyond the capacity, or that may not wait, are refused", async () => {
  const common = RedisLimiter.create(redis, "common", hour(3), PATIENT);
  const pace = RedisLimiter.create(redis, "pace", gcra({ limit: 1, periodMs: 1000, burst: 0 }), {
    ...PATIENT,
    maxWaiting: 0,
  });
  const limiter = allOf(common, pace);
  assert.instance(await failure(() => limiter.tryAcquire(4)), PermitsExceedCapacityError);
  assert.ok(await limiter.tryAcquire());
  assert.not(await limiter.tryAcquire(1, 5000));
  assert.is((await common.peek()).remaining, 2);
});

test("permits of a reply that comes too late are given back to each limiter", async () => {
  const plain = scriptRunner(redis);
  let release: () => void = () => {};
  let isHeld = true;
  const runner: ScriptRunner = {
    async runScript(...args) {
      const reply = await plain.runScript(...args);
      if (isHeld) {
        isHeld = false;
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      }
      return reply;
    },
  };
  // what gives them back must be in time on a busy machine, too
  const options = { timeoutMs: 1000 };
  const common = RedisLimiter.create(runner, "common", hour(4), options);
  const device = RedisLimiter.create(runner, "device", hour(2), options);
  const limiter = allOf(common, device);
  const error = await failure(() => limiter.tryAcquire());
  assert.instance(error, StoreUnavailableError);
  release();
  const others = [
    RedisLimiter.create(redis, "common", hour(4), PATIENT),
    RedisLimiter.create(redis, "device", hour(2), PATIENT),
  ] as const;
  const remaining = async () => [
    (await others[0].peek()).remaining,
    (await others[1].peek()).remaining,
  ];
  await until("all are back", async () => `${await remaining()}` === "4,2");
  await until("it is granted", () => limiter.tryAcquire());
  await until("one of each is used", async () => `${await remaining()}` === "3,1");
});

test.run();
