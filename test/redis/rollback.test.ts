/**
 * A state that is replaced by an older copy of itself, as after a failover to a replica that lags.
 */
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { type RedisServer, startRedis } from "../../scripts/redis/server.ts";
import { allOf, diagnostics, type RolledBackMessage, slidingWindow } from "../../src/index.ts";
import { RedisLimiter, RedisRateLimiter } from "../../src/redis/index.ts";
import { PATIENT } from "../support/patient.ts";
import { suite } from "../support/suite.ts";

const KEY = "l:api";

let server: RedisServer;
let redis: Redis;
const messages: RolledBackMessage[] = [];
const note = (message: RolledBackMessage) => messages.push(message);

const test = suite("redis, a state that was rolled back");

test.before(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
  diagnostics.rolledBack.subscribe(note);
});

test.after(async () => {
  diagnostics.rolledBack.unsubscribe(note);
  redis.disconnect();
  await server.stop();
});

test.before.each(async () => {
  await redis.flushall();
  messages.length = 0;
});

async function restore(key: string, copy: Buffer): Promise<void> {
  await redis.restore(key, 60_000, copy, "REPLACE");
}

async function copyOf(key: string): Promise<Buffer> {
  const copy = await redis.dumpBuffer(key);
  assert.ok(copy, `nothing under ${key}`);
  return copy as Buffer;
}

const kinds = {
  "on the hot path": (name: string) => RedisRateLimiter.create(redis, name, 1e6, PATIENT),
  "in the frame": (name: string) =>
    RedisLimiter.create(redis, name, slidingWindow({ limit: 1e6, windowMs: 60_000 }), PATIENT),
};

for (const [where, create] of Object.entries(kinds)) {
  test(`an older copy is detected once, ${where}`, async () => {
    const limiter = create("api");
    await limiter.acquire();
    const copy = await copyOf(KEY);
    for (let i = 0; i < 3; i++) await limiter.acquire();
    assert.is(limiter.stats.rollbacks, 0);
    await restore(KEY, copy);
    for (let i = 0; i < 3; i++) await limiter.acquire();
    assert.is(limiter.stats.rollbacks, 1);
    assert.equal(messages, [{ limiter: "api", lost: 3 }]);
  });
}

test("a copy that lacks only the last request is detected, also by a peek", async () => {
  const limiter = RedisRateLimiter.create(redis, "api", 1e6, PATIENT);
  await limiter.acquire();
  const copy = await copyOf(KEY);
  await limiter.acquire();
  await restore(KEY, copy);
  await limiter.peek();
  await limiter.peek();
  assert.equal(messages, [{ limiter: "api", lost: 1 }]);
});

test("peeks, refused calls, many calls at once and other processes do not look like a rollback", async () => {
  const limiter = RedisRateLimiter.create(redis, "api", 1000, PATIENT);
  const other = RedisRateLimiter.create(new Proxy(redis, {}), "api", 1000, PATIENT);
  for (let i = 0; i < 10; i++) {
    await Promise.all(Array.from({ length: 40 }, () => limiter.tryAcquire()));
    await Promise.all([limiter.peek(), limiter.decide(), other.tryAcquire(), other.peek()]);
    await limiter.acquire();
  }
  assert.equal([limiter.stats.rollbacks, other.stats.rollbacks, messages], [0, 0, []]);
});

test("a state that has expired or was removed does not look like a rollback", async () => {
  const limiter = RedisRateLimiter.create(redis, "api", 1e6, PATIENT);
  const other = RedisRateLimiter.create(new Proxy(redis, {}), "api", 1e6, PATIENT);
  for (let i = 0; i < 3; i++) {
    await limiter.acquire();
    await redis.del(KEY);
    await other.acquire();
    await limiter.acquire();
    await redis.del(KEY);
    await limiter.peek();
  }
  assert.equal([limiter.stats.rollbacks, messages], [0, []]);
});

test("the states of different keys are distinguished", async () => {
  const limiter = RedisLimiter.create(
    redis,
    "api",
    slidingWindow({ limit: 9, windowMs: 60_000 }),
    PATIENT,
  );
  const [one, two] = [limiter.for("one"), limiter.for("two")];
  await one.acquire();
  const [key = ""] = await redis.keys("*one*");
  const copy = await copyOf(key);
  for (let i = 0; i < 4; i++) await Promise.all([one.acquire(), two.acquire()]);
  assert.is(limiter.stats.rollbacks, 0);
  await restore(key, copy);
  await Promise.all([one.acquire(), two.acquire()]);
  assert.is(limiter.stats.rollbacks, 1);
  assert.equal(messages, [{ limiter: "api[one", lost: 4 }]);
});

function two(client = redis): readonly [RedisRateLimiter, RedisLimiter] {
  const window = slidingWindow({ limit: 1e6, windowMs: 60_000 });
  return [
    RedisRateLimiter.create(client, "api", 1e6, PATIENT),
    RedisLimiter.create(client, "other", window, PATIENT),
  ];
}

test("combined calls: an older copy is detected once, for the limiter that it belongs to", async () => {
  const [api, other] = two();
  const both = allOf(api, other);
  await both.acquire();
  const copy = await copyOf(KEY);
  for (let i = 0; i < 3; i++) await both.acquire();
  assert.equal([api.stats.rollbacks, other.stats.rollbacks], [0, 0]);
  await restore(KEY, copy);
  for (let i = 0; i < 3; i++) await both.acquire();
  assert.equal([api.stats.rollbacks, other.stats.rollbacks], [1, 0]);
  assert.equal(messages, [{ limiter: "api", lost: 3 }]);
});

test("a combined peek detects a copy that lacks only the last combined call", async () => {
  const [api, other] = two();
  const both = allOf(api, other);
  await both.acquire();
  const copy = await copyOf(KEY);
  await both.acquire();
  await restore(KEY, copy);
  await both.peek();
  await both.peek();
  assert.equal(messages, [{ limiter: "api", lost: 1 }]);
});

const single = (limiter: RedisRateLimiter) => limiter.acquire();
for (const [lostCall, nextCall] of [
  ["combined", "single"],
  ["single", "combined"],
]) {
  test(`a ${nextCall} call detects that a ${lostCall} call is missing; no later call reports it again`, async () => {
    const [api, other] = two();
    const both = allOf(api, other);
    const call = (kind = "") => (kind === "single" ? single(api) : both.acquire());
    await Promise.all([single(api), both.acquire(), both.acquire()]);
    await Promise.all([both.acquire(), single(api)]);
    const copy = await copyOf(KEY);
    await call(lostCall);
    await restore(KEY, copy);
    await call(nextCall);
    assert.equal(messages, [{ limiter: "api", lost: 1 }]);
    for (let i = 0; i < 3; i++) await Promise.all([single(api), both.acquire(), single(api)]);
    assert.is(messages.length, 1);
  });
}

test("calls of both kinds at once that are all missing are reported once", async () => {
  const [api, other] = two();
  const both = allOf(api, other);
  const crowd = () => Promise.all([single(api), both.acquire(), both.peek(), single(api)]);
  await crowd();
  const copy = await copyOf(KEY);
  for (let i = 0; i < 5; i++) await crowd();
  await restore(KEY, copy);
  for (let i = 0; i < 5; i++) await crowd();
  assert.is(api.stats.rollbacks, 1);
  assert.is(other.stats.rollbacks, 0);
});

test("a mix of combined and single calls of several processes does not look like a rollback", async () => {
  const processes = [two(), two(new Proxy(redis, {}))];
  const window = slidingWindow({ limit: 5, windowMs: 1000 });
  const calls = processes.flatMap(([api, other], i) => {
    const tight = RedisLimiter.create(
      i === 0 ? redis : new Proxy(redis, {}),
      "tight",
      window,
      PATIENT,
    );
    const [all, twice] = [allOf(api, other, tight), allOf(api, api)];
    return [
      () => all.tryAcquire(),
      () => twice.acquire(),
      () => all.peek(),
      () => api.tryAcquire(),
      () => tight.for("one").tryAcquire(),
      () => allOf(api, tight.for("one")).tryAcquire(),
      () => other.peek(),
    ];
  });
  for (let i = 0; i < 300; i++) {
    const some = calls.filter(() => Math.random() < 0.3);
    await Promise.all(some.map((call) => call()));
    if (i % 50 === 0) await redis.del(KEY);
  }
  const found = processes.flat().map(({ stats }) => stats.rollbacks);
  assert.equal([found, messages], [[0, 0, 0, 0], []]);
});

test("a process has one entry in a state to which it makes calls of both kinds in turn", async () => {
  const [api, other] = two();
  const both = allOf(api, other);
  for (let i = 0; i < 3; i++) {
    await single(api);
    await both.acquire();
  }
  const state = (await redis.getBuffer(KEY)) as Buffer;
  assert.is(state.readUInt8(10), 1);
});

test.run();
