import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import type { Policy } from "../../../src/algorithms/algorithm.ts";
import { readPolicies, writePolicies } from "../../../src/algorithms/index.ts";
import type { RemoteLimiter } from "../../../src/api/limiter-api.ts";
import { allOf, smoothBursty, smoothWarmingUp, tokenBucket } from "../../../src/index.ts";
import {
  RedisConcurrencyLimiter,
  RedisLimiter,
  RedisRateLimiter,
  type RedisRateLimiterOptions,
  StoreUnavailableError,
} from "../../../src/redis/index.ts";
import { casStore } from "../../../src/stores/cas-store.ts";
import { scriptRunner } from "../../../src/stores/redis/client.ts";
import { RedisStore } from "../../../src/stores/redis/redis-store.ts";
import type { StoreRequest } from "../../../src/stores/store.ts";
import { TransitionStore } from "../../../src/stores/transition-store.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure } from "../../support/limiter/watch.ts";
import { PATIENT } from "../../support/patient.ts";
import { redisServer } from "../../support/programs/redis-server.ts";
import { until } from "../../support/redis/ask.ts";
import {
  freshUrl,
  type RedisServer,
  startRedis,
  startReplica,
} from "../../support/redis/server.ts";
import { describeState } from "../../support/stores/describe-state.ts";
import { MapBackend } from "../../support/stores/map-backend.ts";
import { twinsOf } from "../../support/stores/twins-of.ts";
import { runs, suite } from "../../support/suite.ts";

const HOUR_MS = 3_600_000;
const RUNS = runs(120);

let redis: Redis;
let url: string;

/** A suite with a client of an empty database. */
function redisSuite(title: string) {
  const test = suite(title);
  test.before(async () => {
    await redisServer();
    url = await freshUrl();
    redis = new Redis(url);
  });
  test.after(() => {
    redis.disconnect();
  });
  test.before.each(async () => {
    await redis.flushdb();
  });
  return test;
}

function open(
  name: string,
  permitsPerSecond: number,
  options: RedisRateLimiterOptions = {},
  client: Redis = redis,
): RedisRateLimiter {
  return RedisRateLimiter.create(client, name, permitsPerSecond, {
    ...PATIENT,
    ...PATIENT,
    ...options,
  });
}

// -- memory --

const memory = redisSuite("redis store, memory");

memory("one limiter takes at most 136 bytes, a warming-up one 168", async () => {
  const name = "the name is 20 long.";
  for (const [rate, ...kinds] of [
    [5, [{}, 120], [{ burstSeconds: 10, prefilled: true }, 136], [{ warmupMs: 1000 }, 150]],
    [12_345.678, [{}, 136], [{ warmupMs: 1234.5, coldFactor: 2.5 }, 168]],
    // the numbers are stored as text, so 17 digits take their space
    [1 / 3, [{}, 150], [{ warmupMs: 1000 }, 168]],
  ] as const) {
    for (const [options, most] of kinds) {
      await redis.flushdb();
      const limiter = open(name, rate, options);
      await limiter.reserve(3);
      await limiter.reserve(1 / 3);
      const bytes = Number(await redis.memory("USAGE", `l:${name}`));
      assert.ok(bytes > 0 && bytes <= most, `${JSON.stringify(options)}: ${bytes} bytes`);
      assert.is(await redis.dbsize(), 1);
    }
  }
});

memory("a rate that was set is removed with resetRate", async () => {
  const limiters = Array.from({ length: 20 }, (_, i) => open("shared", 5 + i));
  await Promise.all(limiters.map((limiter) => limiter.reserve()));
  const before = Number(await redis.strlen("l:shared"));
  for (const limiter of limiters) await limiter.setRate(1000);
  assert.ok(Number(await redis.strlen("l:shared")) > before);
  for (const limiter of limiters) await limiter.resetRate();
  assert.ok(Number(await redis.strlen("l:shared")) <= before + 1);
});

memory.run();

// -- expiry --

const expiry = redisSuite("redis store, expiry");

const RATES = [0.001, 0.01, 1 / 3, 1, 5, 1000 / 3, 80_000, 1_000_000, 10_000_000];
const KINDS: readonly RedisRateLimiterOptions[] = [
  {},
  { burstSeconds: 0 },
  { burstSeconds: 60, prefilled: true },
  { burstSeconds: 1e-9, prefilled: true },
  { warmupMs: 1e-3 },
  { warmupMs: 10_000, coldFactor: 10 },
];

expiry("a key lives as long as it matters, at every rate, whatever was done last", async () => {
  let count = 0;
  for (const rate of RATES) {
    for (const kind of KINDS) {
      const actions: ((limiter: RedisRateLimiter) => Promise<unknown>)[] = [
        (limiter) => limiter.tryAcquire(),
        (limiter) => limiter.reserve(1e-3),
        (limiter) => limiter.reserve(1000),
        (limiter) => limiter.decide(),
        (limiter) => limiter.charge(5),
        (limiter) => limiter.refund(5),
        (limiter) => limiter.pause(0),
        (limiter) => limiter.pause(70_000),
        (limiter) => limiter.resetRate(),
      ];
      await Promise.all(
        actions.map(async (action) => {
          const name = `${count++}`;
          const limiter = open(name, rate, kind);
          let startedAt: number;
          let resetMs: number;
          let life: number;
          // on a machine that stalls, a key with a second to live lapses before it is checked
          do {
            startedAt = performance.now();
            await action(limiter);
            ({ resetMs } = await limiter.peek());
            life = await redis.pttl(`l:${name}`);
          } while (performance.now() - startedAt > 500);
          const description = `${rate} ${JSON.stringify(kind)} ${action}: ${life} ms of ${resetMs}`;
          assert.ok(life > 0 && life >= resetMs, description);
          assert.ok(life <= resetMs + HOUR_MS + 60_000, description);
        }),
      );
    }
  }
  assert.ok((await redis.dbsize()) <= count, "no other keys are written");
});

expiry(
  "by the server's clock a key outlives its state by a second, also if the hot path writes it",
  async () => {
    const limiter = open("prefilled", 5, { prefilled: true });
    for (let i = 0; i < 5; i++) {
      await limiter.reserve();
      const life = await redis.pttl("l:prefilled");
      assert.ok(life > 0 && life <= 60_000, `${life} ms`);
    }
  },
);

expiry("a state remembers 64 callers, on either path", async () => {
  const transition = new TransitionStore();
  const store = new RedisStore(scriptRunner(redis), "l:", twinsOf(["smooth"]));
  const request: StoreRequest = {
    verb: "reserve",
    amount: 1,
    longest: Infinity,
    late: 0,
    count: 1,
  };
  for (let i = 0; i < 70; i++) {
    const batchId = { caller: `caller${10 + i}`, number: 1 };
    const now = 1_800_000_000_000_000 + i;
    await store.run("shared", "s5", [request], now, batchId);
    transition.runBatch("shared", "s5", [request], now, [], batchId);
    const bytes = transition.saved("shared")?.bytes ?? [];
    assert.ok(Buffer.from(bytes).equals((await redis.getBuffer("l:shared")) as Buffer), `${i}`);
  }
});

expiry("a life longer than Redis can count is cut", async () => {
  const limiter = open("slow", 1e-12);
  await limiter.charge(1e6);
  assert.ok((await redis.pttl("l:slow")) > 9e14);
  await limiter.pause(1e300);
  assert.ok((await redis.pttl("l:slow")) > 9e14);
});

expiry("a rate that was set does not lapse until resetRate", async () => {
  const limiter = open("set", 5);
  await limiter.setRate(10);
  assert.is(await redis.pttl("l:set"), -1);
  await limiter.acquire();
  assert.is(await redis.pttl("l:set"), -1);
  await limiter.resetRate();
  assert.ok((await redis.pttl("l:set")) > 0);
});

expiry("with a clock of the application the key stays an hour longer", async () => {
  const clock = new FakeClock(1e12);
  await open("own clock", 5, { clock, burstSeconds: 1, prefilled: true }).acquire();
  const life = await redis.pttl("l:own clock");
  assert.ok(life > HOUR_MS && life <= HOUR_MS + 1000);
});

const smallPolicy: fc.Arbitrary<Policy> = fc.oneof(
  fc
    .record({
      permitsPerSecond: fc.constantFrom(0.001, 1, 7, 1000 / 3, 3_000_000),
      burstSeconds: fc.constantFrom(0, 0.5, 1, 3),
      prefilled: fc.boolean(),
    })
    .map(smoothBursty),
  fc
    .record({
      permitsPerSecond: fc.constantFrom(0.001, 1, 7, 1000 / 3, 3_000_000),
      warmupMs: fc.constantFrom(0.1, 1000, 60_000),
    })
    .map(smoothWarmingUp),
);
const share = fc.constantFrom(0, 0.1, 0.5, 1, 2, 10);
const past = fc.array(
  fc.record({
    verb: fc.constantFrom("reserve", "charge", "refund", "pause"),
    permits: fc.constantFrom(1, 3, 0.5, 20),
    step: share,
  }),
  { minLength: 1, maxLength: 8 },
);

expiry("a key that lapsed never grants more than one that stayed", async () => {
  const START = 1_800_000_000_000_000;
  let stories = 0;
  const property = fc.asyncProperty(
    fc.array(smallPolicy, { minLength: 1, maxLength: 2 }).map(writePolicies),
    past,
    // all of one size: a state that grants a large request refuses more of the later small ones
    fc.constantFrom(1, 3, 0.5),
    fc.array(share, { minLength: 1, maxLength: 10 }),
    async (declared, actions, size, asks) => {
      const policies = readPolicies(declared);
      const names = policies.map(({ algorithm }) => algorithm.name);
      // how long Redis keeps it can be calculated to the millisecond: the twin test has checked
      // that they agree
      const transition = new TransitionStore();
      const store = new RedisStore(scriptRunner(redis), "", twinsOf(names));
      const intervals = policies.map(({ numbers: [rate = 1] }) => 1e6 / rate);
      const interval = Math.max(...intervals);
      const stays = `stays ${stories}`;
      const lapses = `lapses ${stories++}`;
      let now = START;
      for (const { verb, permits, step } of actions) {
        now += Math.round(step * interval);
        const amount = policies.map(() => permits);
        const request: Record<typeof verb, StoreRequest> = {
          reserve: { verb: "reserve", amount, longest: Infinity, late: 0, count: 1 },
          charge: { verb: "charge", amount },
          refund: { verb: "refund", amount },
          pause: { verb: "pause", micros: Math.round(permits * interval) },
        };
        for (const key of [stays, lapses]) await store.run(key, declared, [request[verb]], now);
        transition.runBatch(lapses, declared, [request[verb]], now);
      }
      // by the server's own clock it lives a second longer than this
      const { lifeMs = 0 } = transition.saved(lapses) ?? {};
      now += Math.max(0, lifeMs - HOUR_MS) * 1000;
      await redis.del(lapses);
      const through = [0, 0];
      const amount = policies.map(() => size);
      for (const step of asks) {
        now += Math.round(step * interval);
        const ask: StoreRequest = { verb: "reserve", amount, longest: 0, late: 0, count: 5 };
        for (const [i, key] of [stays, lapses].entries()) {
          const { answers } = await store.run(key, declared, [ask], now);
          through[i] = (through[i] ?? 0) + answers.filter(({ wait }) => wait === 0).length;
        }
        const [stayed = 0, lapsed = 0] = through;
        assert.ok(lapsed <= stayed, `${lapsed} after it lapsed, ${stayed} if it stayed`);
      }
    },
  );
  await fc.assert(property, { numRuns: RUNS, includeErrorInReport: true });
});

expiry.run();

// -- no trace --

const trace = redisSuite("redis store, refusals and peeks");

trace("refusals and peeks write nothing: neither the state nor its expiry", async () => {
  const policies = { requests: smoothBursty({ permitsPerSecond: 0.01 }) };
  const more = { ...policies, tokens: smoothWarmingUp({ permitsPerSecond: 1, warmupMs: 1000 }) };
  const limiters: readonly (readonly [string, RemoteLimiter])[] = [
    ["rate", open("rate", 0.01, { maxWaiting: 0 })],
    ["one", RedisLimiter.create(redis, "one", policies, { ...PATIENT, ...PATIENT, maxWaiting: 0 })],
    ["two", RedisLimiter.create(redis, "two", more, { ...PATIENT, ...PATIENT, maxWaiting: 0 })],
  ];
  for (const [name, limiter] of limiters) {
    await limiter.peek();
    assert.is(await redis.exists(`l:${name}`), 0);
    await limiter.charge(1);
    await redis.pexpire(`l:${name}`, 12_345_678);
    const before = await redis.dumpBuffer(`l:${name}`);
    await limiter.peek();
    assert.is((await limiter.peek(20)).allowed, false);
    assert.is(await limiter.tryAcquire(), false);
    assert.is(await limiter.tryAcquire(2, 10), false);
    assert.is((await limiter.decide()).allowed, false);
    await failure(() => limiter.acquire());
    await failure(() => limiter.reserve());
    assert.equal(await redis.dumpBuffer(`l:${name}`), before);
    const life = await redis.pttl(`l:${name}`);
    assert.ok(life > 12_000_000 && life <= 12_345_678, `${life}`);
  }
});

trace(
  "the deficit of each policy is returned with the time until the next grant, and nothing is written",
  async () => {
    const policies: Policy[] = [
      smoothBursty({ permitsPerSecond: 2, prefilled: true }),
      smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }),
    ];
    const declared = writePolicies(policies);
    const store = new RedisStore(scriptRunner(redis), "deficit:", twinsOf(["smooth", "smooth"]));
    const tell = async (now: number) => {
      const { answers } = await store.run("a", declared, [{ verb: "deficit" }], now);
      return answers[0];
    };
    const nothing = { receipts: [], slowest: 0, quotas: [] };
    assert.equal(await tell(0), { ...nothing, wait: 0, deficit: [0, 0] });
    assert.is(await redis.exists("deficit:a"), 0);
    const requests: StoreRequest[] = [
      { verb: "charge", amount: [5, 1] },
      { verb: "pause", micros: 250_000.5 },
    ];
    const { answers } = await store.run("a", declared, requests, 1_000_000);
    assert.equal(
      answers.map(({ deficit }) => deficit),
      [[], []],
    );
    const before = await redis.dumpBuffer("deficit:a");
    assert.equal(await tell(1_000_000), { ...nothing, wait: 250_001, deficit: [5, 1] });
    assert.equal(await tell(2_000_000), { ...nothing, wait: 0, deficit: [3, 0] });
    assert.equal(await redis.dumpBuffer("deficit:a"), before);
  },
);

trace.run();

// -- names --

const names = redisSuite("redis store, names");

const ODD_NAMES = [
  " ",
  "  ",
  "a",
  "A",
  "a b",
  "a\nb",
  "a\tb",
  "a\r\nb",
  "a=b",
  "\ta=s5",
  "a\0",
  "a\0b",
  "{a}",
  "{a}b",
  "{}",
  "}{",
  "{",
  "*",
  "a*",
  "l:a",
  "a:b",
  "l:",
  "../a",
  "__proto__",
  "constructor",
  "toString",
  '"a"',
  "%s%d%1",
  "é",
  "e\u0301",
  "日本語",
  "🙂",
  "\ufffd",
  "\ufeffa",
  "x".repeat(10_240),
  "x".repeat(10_241),
  "日".repeat(10_240),
];

names("each name is a limiter of its own under a key of its own", async () => {
  const limiters = ODD_NAMES.map((name) => open(name, 0.001));
  const before = await Promise.all(limiters.map((limiter) => limiter.tryAcquire()));
  assert.ok(before.every(Boolean), `${before}`);
  for (const limiter of limiters) assert.is(await limiter.tryAcquire(), false);
  const keys = await redis.keys("*");
  const written = (name: string) => name.replaceAll("%", "%25").replaceAll("[", "%5B");
  assert.equal(keys.sort(), ODD_NAMES.map((name) => `l:${written(name)}`).sort());
  await Promise.all(limiters.map((limiter) => limiter.setRate(1)));
  assert.is(await redis.dbsize(), ODD_NAMES.length);
});

names("an invalid name is refused", () => {
  for (const bad of ["", undefined, null, 5, {}, [], Symbol.iterator] as never[]) {
    assert.throws(() => open(bad, 5), /name must/);
  }
  for (const half of ["\ud800", "a\udfff", "\udc00\ud800", "\ud83dx"]) {
    assert.throws(
      () => open(half, 5),
      (error: unknown) => error instanceof RangeError && /name must/.test(error.message),
    );
  }
});

names("the prefix comes first, and an invalid prefix is refused", async () => {
  await open("a", 5, { prefix: "my app:" }).acquire();
  await open("a", 5, { prefix: "" }).acquire();
  await open("a", 5).acquire();
  assert.equal((await redis.keys("*")).sort(), ["a", "l:a", "my app:a"]);
  for (const bad of [null, 5, {}] as never[]) {
    assert.throws(() => open("a", 5, { prefix: bad }), /prefix must/);
  }
});

names("ioredis' own keyPrefix comes before the limiter's", async () => {
  const client = new Redis(url, { keyPrefix: "{tenant}:" });
  try {
    const limiter = open("a", 0.001, {}, client);
    assert.is(await limiter.tryAcquire(), true);
    assert.is((await limiter.decide()).allowed, false);
    assert.is(await open("a", 0.001).tryAcquire(), true);
    assert.equal((await redis.keys("*")).sort(), ["l:a", "{tenant}:l:a"]);
  } finally {
    client.disconnect();
  }
});

names("two limiters of one name share it, even if they are of different kinds", async () => {
  const policy = smoothBursty({ permitsPerSecond: 0.001 });
  assert.is(await open("a", 0.001).tryAcquire(), true);
  assert.is(await RedisLimiter.create(redis, "a", policy, PATIENT).tryAcquire(), false);
});

names.run();

// -- trouble --

/** The error of the call: one of this library with Redis' own as its cause. */
async function trouble(call: () => Promise<unknown>, words: RegExp): Promise<void> {
  const error = await failure(call);
  assert.instance(error, StoreUnavailableError);
  const { code, facts, cause, message } = error as StoreUnavailableError;
  assert.is(code, "STORE_UNAVAILABLE");
  assert.is(facts.limiter, "troubled");
  assert.instance(cause, Error);
  assert.match((cause as Error).message, words);
  assert.match(message, words);
}

const KEY = "l:troubled";

const faults = suite("redis store, trouble");
let server: RedisServer;

faults.before(async () => {
  await redisServer();
  server = await startRedis({ args: ["--busy-reply-threshold", "50"] });
  redis = new Redis(server.url);
});

faults.after(async () => {
  redis.disconnect();
  await server.stop();
});

faults.before.each(async () => {
  await redis.flushall();
});

/** A limiter that has granted one permit and will not grant a second one for long. */
async function openUsed(client = redis): Promise<RedisRateLimiter> {
  const limiter = open("troubled", 0.001, {}, client);
  assert.is(await limiter.tryAcquire(), true);
  return limiter;
}

faults("SCRIPT FLUSH: the scripts are sent again, and no state is lost", async () => {
  const limiter = await openUsed();
  for (let i = 0; i < 5; i++) {
    await redis.script("FLUSH");
    assert.is(await limiter.tryAcquire(), false);
    await redis.script("FLUSH");
    assert.is((await limiter.decide()).allowed, false);
  }
  const fast = open("fast", 1e6);
  const flushing = (async () => {
    for (let i = 0; i < 50; i++) await redis.script("FLUSH");
  })();
  for (let i = 0; i < 50; i++) {
    const calls = Array.from({ length: 10 }, () => fast.acquire());
    await Promise.all([...calls, fast.peek()]);
  }
  await flushing;
});

faults("WRONGTYPE: a key of another type stays as it is", async () => {
  await redis.lpush(KEY, "foreign");
  const limiter = open("troubled", 5);
  const says = /WRONGTYPE the key "l:troubled" holds a value of type list.*another name or prefix/;
  await trouble(() => limiter.tryAcquire(), says);
  const both = allOf(limiter, open("untroubled", 5));
  await trouble(async () => both.tryAcquire(), says);
  await trouble(() => limiter.peek(), /WRONGTYPE/);
  await trouble(() => limiter.setRate(5), /WRONGTYPE/);
  assert.equal(await redis.lrange(KEY, 0, -1), ["foreign"]);
});

faults("a string that no limiter has written stays as it is", async () => {
  const long = ["4|1700000000|12 permits", '{"user":"one","used":12}', "a session: 0123456789"];
  for (const text of ["", "short", ...long]) {
    await redis.set(KEY, text);
    const limiter = open("troubled", 5);
    const says = `the key "l:troubled" holds ${JSON.stringify(text)}, which no limiter has written`;
    for (const asked of [limiter, allOf(limiter, open("untroubled", 5))]) {
      const error = (await failure(() => asked.tryAcquire())) as StoreUnavailableError;
      assert.ok(error.message.includes(says), error.message);
    }
    assert.is(await redis.get(KEY), text);
  }
});

faults(
  "more numbers than a state can hold are an error, and the state stays as it was",
  async () => {
    const policies = (first: number) =>
      Array.from({ length: 20 }, (_, i) =>
        tokenBucket({
          capacity: first + i + 1 / 3,
          refill: Math.E,
          everyMs: 1000 / 7,
          stepped: true,
        }),
      );
    const set = (first: number) => {
      const declared = writePolicies(policies(first));
      const names = policies(first).map(({ algorithm }) => algorithm.name);
      const requests = [{ verb: "set", numbers: writePolicies(policies(first + 0.5)) }] as const;
      return [new RedisStore(scriptRunner(redis), "", twinsOf(names)), casStore(backend)].map(
        (store) =>
          store.run("long", declared, requests, 1e15).then(
            () => ({ error: undefined, isPermanent: false }),
            (error) => ({ error: `${error}`, isPermanent: store.isPermanent?.(error) }),
          ),
      );
    };
    const backend = new MapBackend();
    let before: Buffer | null = null;
    for (let i = 0; i < 40; i++) {
      const ends = await Promise.all(set(100 * i));
      const now = await redis.getBuffer("long");
      assert.is(describeState(now), describeState(backend.values.get("long")));
      if (ends.some(({ error }) => error !== undefined)) {
        for (const { error, isPermanent } of ends) {
          assert.match(
            `${error}`,
            /the numbers of all policies.* take \d+ bytes; at most 65535 fit/,
          );
          assert.ok(isPermanent);
        }
        assert.is(describeState(now), describeState(before));
        return;
      }
      before = now;
    }
    assert.unreachable("no state was too large");
  },
);

for (const whenUnavailable of ["wait", "allow", "local"] as const) {
  faults(
    `${whenUnavailable}: a fault of one key is an error, and affects no other key`,
    async () => {
      await redis.set(KEY, "short");
      const options = { whenUnavailable, instances: 2 };
      const [limiter, other] = [open("troubled", 5, options), open("untroubled", 1000, options)];
      for (let i = 0; i < 5; i++) {
        await trouble(() => limiter.acquire(), /no limiter has written/);
        await other.acquire();
      }
      assert.equal([limiter.state, other.state, other.stats.outages], ["ready", "ready", 0]);
      await Promise.all([limiter.close(), other.close()]);
    },
  );
}

faults(
  "a limitKey that is no string is named; the original error stays if the cause is not found",
  async () => {
    await redis.del(KEY);
    await redis.hset("limits:kept", "a", "b");
    const kept = open("troubled", 5, { limitKey: "limits:kept" });
    await trouble(() => kept.tryAcquire(), /the key "limits:kept" holds a value of type hash/);
    // deleted meanwhile, or the check fails
    const wrong = new Error("WRONGTYPE as it was");
    for (const reply of [
      () => Promise.resolve("none\t"),
      () => Promise.reject(new Error("gone")),
    ]) {
      let calls = 0;
      const client = { runScript: () => (calls++ === 0 ? Promise.reject(wrong) : reply()) };
      const error = await failure(() =>
        open("troubled", 5, {}, client as unknown as Redis).tryAcquire(),
      );
      assert.is((error as StoreUnavailableError).cause, wrong);
    }
    // a user without the right to ask for the type
    const client = {
      runScript: ({ name }: { readonly name: string }) =>
        name.endsWith(":look") ? Promise.resolve("\t") : Promise.reject(wrong),
    };
    await trouble(
      () => open("troubled", 5, {}, client as unknown as Redis).tryAcquire(),
      /a value of type unknown/,
    );
  },
);

faults("NOPERM: without the right commands or keys; and which commands are enough", async () => {
  const before = await openUsed().then(() => redis.dumpBuffer(KEY));
  const rights: [rights: string[], words: RegExp][] = [
    [["~*", "+@all", "-evalsha", "-eval"], /NOPERM/],
    [["~other:*", "+@all"], /can't access|key/i],
    [["~l:*", "+eval", "+evalsha", "+get", "+time"], /can't run this command/],
  ];
  for (const [i, [list, words]] of rights.entries()) {
    await redis.acl("SETUSER", `user${i}`, "on", ">secret", ...list);
    const client = new Redis(server.url.replace("//", `//user${i}:secret@`), {
      enableReadyCheck: false,
    });
    try {
      const limiter = open("troubled", 0.001, {}, client);
      await trouble(() => limiter.charge(1), words);
      await trouble(
        () => limiter.charge(1),
        /a limiter needs \+evalsha \+eval \+get \+set \+time on "l:troubled"/,
      );
    } finally {
      client.disconnect();
    }
  }
  assert.equal(await redis.dumpBuffer(KEY), before);

  // a script needs read and write permission for every key, so a limitKey cannot be %R~limits:*
  const enough = ["~l:*", "~limits:*", "+eval", "+evalsha", "+get", "+set", "+time"];
  await redis.acl("SETUSER", "enough", "on", ">secret", ...enough);
  const client = new Redis(server.url.replace("//", "//enough:secret@"), {
    enableReadyCheck: false,
  });
  try {
    const limiter = open("troubled", 0.001, {}, client);
    assert.is(await limiter.tryAcquire(), false);
    await limiter.setRate(1e6);
    assert.is(await limiter.tryAcquire(), false);
    await limiter.resetRate();
    assert.is(await open("kept", 1, { limitKey: "limits:kept" }, client).tryAcquire(), true);
  } finally {
    client.disconnect();
  }
});

faults("OOM: refused, and the state stays; peeks are answered", async () => {
  const limiter = await openUsed();
  const before = await redis.dumpBuffer(KEY);
  await redis.config("SET", "maxmemory", "1");
  try {
    await trouble(() => limiter.charge(1), /OOM/);
    await trouble(() => open("troubled", 5, { prefix: "new:" }).tryAcquire(), /OOM/);
  } finally {
    await redis.config("SET", "maxmemory", "0");
  }
  assert.equal(await redis.dumpBuffer(KEY), before);
  assert.is(await limiter.tryAcquire(), false);
});

faults("READONLY: a replica refuses writes, and answers peeks and refusals", async () => {
  const limiter = await openUsed();
  await using replica = await startReplica(server);
  const client = new Redis(replica.url);
  try {
    const there = open("troubled", 0.001, {}, client);
    await trouble(() => there.charge(1), /READONLY/);
    await trouble(() => open("troubled", 5, { prefix: "new:" }, client).tryAcquire(), /READONLY/);
    const { allowed, remaining } = await there.peek();
    assert.equal([allowed, remaining], [false, 0]);
    assert.is(await there.tryAcquire(), false);
    const leases = RedisConcurrencyLimiter.create(client, "troubled", 1, PATIENT);
    await trouble(() => leases.peek(), /READONLY/);
    await leases.close();
  } finally {
    client.disconnect();
  }
  assert.is(await limiter.tryAcquire(), false);
});

faults("BUSY: refused while another script runs", async () => {
  const limiter = await openUsed();
  const before = await redis.dumpBuffer(KEY);
  const other = new Redis(server.url);
  try {
    const endless = failure(() => other.eval("while true do end", 0));
    await until("the server is busy", async () =>
      redis.ping().then(
        () => false,
        (error) => /BUSY/.test(`${error}`),
      ),
    );
    await trouble(() => limiter.charge(1), /BUSY/);
    await redis.script("KILL");
    assert.match(`${await endless}`, /kill/i);
  } finally {
    other.disconnect();
  }
  assert.equal(await redis.dumpBuffer(KEY), before);
  assert.is(await limiter.tryAcquire(), false);
});

faults("LOADING: refused while the server loads its data, which is kept", async () => {
  const events = ["--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no"];
  const args = ["--key-load-delay", "200000", ...events];
  await using slow = await startRedis({ args });
  const options = { enableReadyCheck: false, retryStrategy: () => 20, maxRetriesPerRequest: null };
  const client = new Redis(slow.url, options);
  client.on("error", () => {});
  try {
    await openUsed(client);
    const before = await client.dumpBuffer(KEY);
    for (let i = 0; i < 100; i++) await client.set(`filler ${i}`, "x".repeat(1000));
    await client.save();
    await slow.kill9();
    const restarted = slow.restart();
    await until(
      "the server is loading",
      async () =>
        client.ping().then(
          () => false,
          (error) => /LOADING/.test(`${error}`),
        ),
      { everyMs: 2 },
    );
    await trouble(() => open("troubled", 0.001, {}, client).charge(1), /LOADING/);
    await client.config("SET", "key-load-delay", "0");
    await restarted;
    assert.equal(await client.dumpBuffer(KEY), before);
    assert.is(await open("troubled", 0.001, {}, client).tryAcquire(), false);
  } finally {
    client.disconnect();
  }
});

faults("no server: refused, and a closed client reports this", async () => {
  const client = new Redis(server.url);
  const limiter = open("troubled", 5, {}, client);
  await limiter.acquire();
  client.disconnect();
  await sleep(0);
  await trouble(() => limiter.acquire(), /closed/i);
  await trouble(() => limiter.tryAcquire(), /closed/i);
  await trouble(() => limiter.reserve(), /closed/i);
  await trouble(() => limiter.peek(), /closed/i);
});

faults("an invalid reply is an error that shows the reply", async () => {
  const wrongCounts = ["0*2", "0*0", "0*-1", "0*x", "0*1e15", "0 0", "s5\t0*1e15"];
  for (const strange of [null, undefined, 7, [], "", "s5", "s5\t0\t0", ...wrongCounts]) {
    const limiter = RedisRateLimiter.create(
      { runScript: async () => strange },
      "troubled",
      5,
      PATIENT,
    );
    await trouble(
      () => limiter.acquire(),
      /the script answered .*( to 1 requests|, which is not a text)/,
    );
  }
});

faults("an invalid reply to a combination is an error too, and every call ends", async () => {
  for (const strange of [null, undefined, 7, [], "s5", [null], ["+"], [{}], ["+1\ts5"]]) {
    const redis = { runScript: async () => strange };
    const both = allOf(
      RedisRateLimiter.create(redis, "troubled", 5, PATIENT),
      RedisRateLimiter.create(redis, "troubled too", 5, PATIENT),
    );
    const ends = await Promise.allSettled([both.acquire(), both.tryAcquire(), both.decide()]);
    for (const end of ends) {
      assert.is(end.status, "rejected", String(strange));
      if (end.status === "rejected") assert.instance(end.reason, StoreUnavailableError);
    }
  }
});

faults.run();
