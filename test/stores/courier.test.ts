import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../scripts/redis/server.ts";
import { redisServer } from "../../scripts/redis-server.ts";
import { smoothBursty } from "../../src/index.ts";
import { RedisLimiter, StoreUnavailableError } from "../../src/redis.ts";
import type { Script, ScriptRunner } from "../../src/stores/redis/client.ts";
import { Courier } from "../../src/stores/redis/courier.ts";
import { suite } from "../suite.ts";

const both = (name: string) => ({
  one: { name, lua: `${name}, one key` },
  many: { name: `${name}:many`, lua: `${name}, many keys` },
});

/** Remembers what it is to run; the replies are the test's. */
class HandRunner implements ScriptRunner {
  readonly calls: string[] = [];
  readonly #reply: (script: Script, keys: readonly string[]) => unknown;

  constructor(reply: (script: Script, keys: readonly string[]) => unknown) {
    this.#reply = reply;
  }

  async runScript(script: Script, keys: readonly string[], args: readonly string[]) {
    this.calls.push(`${script.name} ${keys} ${args}`);
    return this.#reply(script, keys);
  }
}

const told = (_: Script, keys: readonly string[]) =>
  keys.length === 1 ? `one ${keys}` : keys.map((key) => `+many ${key}`);

const test = suite("courier");

test("keys of one turn share a call, each script by itself", async () => {
  const runner = new HandRunner(told);
  const courier = Courier.of(runner);
  const [a, b] = [both("a"), both("b")];
  const replies = Promise.all([
    courier.run(a, "1", ["x"]),
    courier.run(b, "2", []),
    courier.run(a, "3", ["y", "z"]),
  ]);
  assert.equal(runner.calls, []);
  assert.equal(await replies, ["many 1", "one 2", "many 3"]);
  assert.equal(runner.calls, ["a:many 1,3 1,x,2,y,z", "b 2 "]);
  assert.is(await courier.run(a, "4", []), "one 4");
});

test("all who use one client share", () => {
  const [one, other] = [new HandRunner(told), new HandRunner(told)];
  assert.is(Courier.of(one), Courier.of(one));
  assert.is.not(Courier.of(one), Courier.of(other));
});

test("no call has more than 64 keys", async () => {
  const runner = new HandRunner(told);
  const courier = Courier.of(runner);
  const script = both("a");
  const replies = await Promise.all(
    Array.from({ length: 129 }, (_, i) => courier.run(script, `${i}`, [])),
  );
  assert.equal(
    runner.calls.map((call) => call.split(" ")[1]?.split(",").length),
    [64, 64, 1],
  );
  assert.is(replies[128], "one 128");
  assert.is(replies[64], "many 64");
});

test("one key's trouble is not the others'", async () => {
  const runner = new HandRunner(() => ["+fine", "-WRONGTYPE", "+fine too"]);
  const courier = Courier.of(runner);
  const script = both("a");
  const outcomes = await Promise.allSettled(
    ["1", "2", "3"].map((key) => courier.run(script, key, [])),
  );
  assert.equal(
    outcomes.map((one) => (one.status === "fulfilled" ? one.value : `${one.reason}`)),
    ["fine", "Error: WRONGTYPE", "fine too"],
  );
});

test("the call's trouble is everybody's", async () => {
  const gone = new Error("connection lost");
  const courier = Courier.of(new HandRunner(() => Promise.reject(gone)));
  const script = both("a");
  const outcomes = await Promise.allSettled(["1", "2"].map((key) => courier.run(script, key, [])));
  assert.equal(
    outcomes.map((one) => one.status === "rejected" && one.reason),
    [gone, gone],
  );
});

for (const refusal of [
  "CROSSSLOT Keys in request don't hash to the same slot",
  "All the keys in a pipeline command should belong to the same slot",
]) {
  test(`apart where keys cannot go together: ${refusal.split(" ")[0]}`, async () => {
    const runner = new HandRunner((script, keys) => {
      if (keys.length > 1) throw new Error(refusal);
      return `${script.name} ${keys}`;
    });
    const courier = Courier.of(runner);
    const script = both("a");
    const pair = () => Promise.all(["1", "2"].map((key) => courier.run(script, key, [])));
    assert.equal(await pair(), ["a 1", "a 2"]);
    assert.equal(await pair(), ["a 1", "a 2"]);
    assert.equal(runner.calls, ["a:many 1,2 0,0", "a 1 ", "a 2 ", "a 1 ", "a 2 "]);
  });
}

let redis: Redis;

test.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

test.after(() => {
  redis.disconnect();
});

test("on Redis: many limiters in a call, and one whose key holds something else", async () => {
  await redis.lpush("l:strange", "what is this?");
  const limiterOf = (name: string) =>
    RedisLimiter.create(redis, name, smoothBursty({ permitsPerSecond: 1 }));
  const limiters = ["a", "strange", "b"].map(limiterOf);
  const [a, strange, b] = await Promise.all(
    limiters.map((limiter) => limiter.decide().catch((error: unknown) => error)),
  );
  assert.ok(strange instanceof StoreUnavailableError);
  assert.match(strange.message, "WRONGTYPE");
  assert.equal(
    [a, b].map((decision) => (decision as { allowed: boolean }).allowed),
    [true, true],
  );
  assert.equal(await Promise.all(["a", "b", "c"].map((name) => limiterOf(name).tryAcquire())), [
    false,
    false,
    true,
  ]);
});

test.run();
