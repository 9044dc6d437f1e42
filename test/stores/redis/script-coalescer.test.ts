import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { smoothBursty } from "../../../src/index.ts";
import { RedisLimiter, StoreUnavailableError } from "../../../src/redis/index.ts";
import type { Script, ScriptRunner } from "../../../src/stores/redis/client.ts";
import { coalescerOf } from "../../../src/stores/redis/script-coalescer.ts";
import { PATIENT } from "../../support/patient.ts";
import { redisServer } from "../../support/programs/redis-server.ts";
import { freshUrl } from "../../support/redis/server.ts";
import { suite } from "../../support/suite.ts";

const both = (name: string) => ({
  one: { name, lua: `${name}, one key` },
  many: { name: `${name}:many`, lua: `${name}, many keys` },
});

/** Records the calls; the replies are the test's. */
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

const describeCall = (_: Script, keys: readonly string[]) =>
  keys.length === 1 ? `one ${keys}` : keys.map((key) => `many ${key}`);

const test = suite("script coalescer");

test("keys of one turn share a call, each script by itself", async () => {
  const runner = new HandRunner(describeCall);
  const coalescer = coalescerOf(runner);
  const [a, b] = [both("a"), both("b")];
  const replies = Promise.all([
    coalescer.run(a, "1", ["x"], []),
    coalescer.run(b, "2", [], []),
    coalescer.run(a, "3", ["y", "z"], []),
  ]);
  assert.equal(runner.calls, []);
  assert.equal(await replies, ["many 1", "one 2", "many 3"]);
  assert.equal(runner.calls, ["a:many 1,3 1,1,x,1,2,y,z", "b 2 "]);
  assert.is(await coalescer.run(a, "4", [], []), "one 4");
});

test("keys whose arguments are equal share those", async () => {
  const runner = new HandRunner(describeCall);
  const coalescer = coalescerOf(runner);
  const script = both("a");
  const lists = [["x", "y"], ["x", "y"], ["x", "z"], ["x"], ["x"], ["x", "y"]];
  await Promise.all(lists.map((args, i) => coalescer.run(script, `${i}`, args, [`own${i}`])));
  const shared = "2,2,x,y,own0,own1,1,2,x,z,own2,2,1,x,own3,own4,1,2,x,y,own5";
  assert.equal(runner.calls, [`a:many 0,1,2,3,4,5 ${shared}`]);
  await coalescer.run(script, "6", ["x"], ["own6"]);
  assert.is(runner.calls[1], "a 6 x,own6");
});

test("all limiters of one client share calls", () => {
  const [one, other] = [new HandRunner(describeCall), new HandRunner(describeCall)];
  assert.is(coalescerOf(one), coalescerOf(one));
  assert.is.not(coalescerOf(one), coalescerOf(other));
});

test("no call has more than 64 keys", async () => {
  const runner = new HandRunner(describeCall);
  const coalescer = coalescerOf(runner);
  const script = both("a");
  const replies = await Promise.all(
    Array.from({ length: 129 }, (_, i) => coalescer.run(script, `${i}`, [], [])),
  );
  assert.equal(
    runner.calls.map((call) => call.split(" ")[1]?.split(",").length),
    [64, 64, 1],
  );
  assert.is(replies[128], "one 128");
  assert.is(replies[64], "many 64");
});

test("an error of one key does not affect the others", async () => {
  const runner = new HandRunner(() => ["fine", "-WRONGTYPE", "fine too"]);
  const coalescer = coalescerOf(runner);
  const script = both("a");
  const outcomes = await Promise.allSettled(
    ["1", "2", "3"].map((key) => coalescer.run(script, key, [], [])),
  );
  assert.equal(
    outcomes.map((one) => (one.status === "fulfilled" ? one.value : `${one.reason}`)),
    ["fine", "Error: WRONGTYPE", "fine too"],
  );
});

test("an error of the call reaches every key", async () => {
  const gone = new Error("connection lost");
  const coalescer = coalescerOf(new HandRunner(() => Promise.reject(gone)));
  const script = both("a");
  const outcomes = await Promise.allSettled(
    ["1", "2"].map((key) => coalescer.run(script, key, [], [])),
  );
  assert.equal(
    outcomes.map((one) => one.status === "rejected" && one.reason),
    [gone, gone],
  );
});

for (const refusal of [
  "CROSSSLOT Keys in request don't hash to the same slot",
  "All the keys in a pipeline command should belong to the same slot",
]) {
  test(`calls are split where keys cannot go together: ${refusal.split(" ")[0]}`, async () => {
    const runner = new HandRunner((script, keys) => {
      if (keys.length > 1) throw new Error(refusal);
      return `${script.name} ${keys}`;
    });
    const coalescer = coalescerOf(runner);
    const script = both("a");
    const pair = () => Promise.all(["1", "2"].map((key) => coalescer.run(script, key, [], [])));
    assert.equal(await pair(), ["a 1", "a 2"]);
    assert.equal(await pair(), ["a 1", "a 2"]);
    assert.equal(runner.calls, ["a:many 1,2 2,0", "a 1 ", "a 2 ", "a 1 ", "a 2 "]);
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

test("on Redis: many limiters in a call, and one whose key holds a foreign value", async () => {
  await redis.lpush("l:strange", "what is this?");
  const limiterOf = (name: string) =>
    RedisLimiter.create(redis, name, smoothBursty({ permitsPerSecond: 1 }), PATIENT);
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

for (const [fault, runScript, message] of [
  [
    "throws",
    () => {
      throw new Error("broken");
    },
    "broken",
  ],
  ["does not return a promise", () => "nothing", "the script answered"],
  ["replies with too little", async () => ["1"], "the script answered"],
] as const) {
  test(`a client that ${fault} fails its calls, and causes no other error`, async () => {
    const runner = { runScript } as unknown as ScriptRunner;
    const coalescer = coalescerOf(runner);
    const script = both(fault);
    const outcomes = await Promise.allSettled(
      ["1", "2"].map((key) => coalescer.run(script, key, [], [])),
    );
    for (const outcome of outcomes) {
      assert.is(outcome.status, "rejected");
      assert.match(String((outcome as PromiseRejectedResult).reason), message);
    }
  });
}

test("a client that throws: callers get an error, at a limiter of one key and of several", async () => {
  const redis = {
    runScript: () => {
      throw new Error("broken");
    },
  } as unknown as ScriptRunner;
  const limiter = RedisLimiter.create(
    redis,
    "broken",
    smoothBursty({ permitsPerSecond: 5 }),
    PATIENT,
  );
  for (const call of [
    () => limiter.acquire(),
    () => Promise.all([limiter.for("a").acquire(), limiter.for("b").acquire()]),
  ]) {
    const error = await call().then(
      () => undefined,
      (reason) => reason,
    );
    assert.instance(error, StoreUnavailableError);
  }
});

test.run();
