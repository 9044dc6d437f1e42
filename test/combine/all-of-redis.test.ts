import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { allOf, fixedWindow } from "../../src/index.ts";
import { RedisLimiter } from "../../src/redis/index.ts";
import { PATIENT } from "../support/patient.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const test = suite("all of several limiters on Redis");
let redis: Redis;

test.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

test.after(() => {
  redis.disconnect();
});

test("limiters of one Redis share one script call; a refusal gives everything back", async () => {
  let calls = 0;
  const client = new Proxy(redis, {
    get: (target, name) => {
      if (name === "evalsha") calls += 1;
      const value = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const hour = (limit: number) => fixedWindow({ limit, windowMs: 3_600_000 });
  const common = RedisLimiter.create(client, "common", hour(3), PATIENT);
  const users = RedisLimiter.create(client, "users", { user: hour(2) }, PATIENT);
  const limiter = allOf(common, users.for("a"));
  assert.ok(await limiter.tryAcquire());
  calls = 0;
  assert.ok(await limiter.tryAcquire());
  assert.is(calls, 1);
  assert.not(await limiter.tryAcquire());
  assert.is((await common.peek()).remaining, 1);
  const decision = await limiter.decide();
  assert.equal([decision.allowed, decision.policy], [false, "user"]);
  assert.equal([(await common.peek()).remaining, decision.remaining], [1, 0]);
  const other = await allOf(common, users.for("b")).decide();
  assert.equal(
    [other.allowed, other.waitMs, other.remaining, other.policy],
    [true, 0, 0, "default"],
  );
  assert.is((await allOf(common, users.for("b")).peek()).allowed, false);
});

test.run();
