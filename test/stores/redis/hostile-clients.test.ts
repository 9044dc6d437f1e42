/** Clients that break the rules: no call stays open, and no error ends the process. */
import * as assert from "uvu/assert";
import { allOf } from "../../../src/index.ts";
import {
  type RedisClient,
  RedisConcurrencyLimiter,
  RedisRateLimiter,
  StoreUnavailableError,
} from "../../../src/redis/index.ts";
import { isPermanent } from "../../../src/stores/redis/permanent.ts";
import { failure } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("hostile Redis clients");

const unhandled: unknown[] = [];
const note = (reason: unknown) => unhandled.push(reason);

test.before(() => {
  process.on("unhandledRejection", note);
});

test.after(() => {
  process.off("unhandledRejection", note);
});

test.before.each(() => {
  unhandled.length = 0;
});

const raise = (): never => {
  throw new Error("a trap");
};

const THEN = "then";
const thenable = (then: PropertyDescriptor) => Object.defineProperty({}, THEN, then);

function throwing(reason: unknown): never {
  const generator = (function* () {})();
  generator.throw(reason);
  throw new Error("it has thrown already");
}

/** A client of each family that answers each call in this way. */
const FAMILIES: Record<string, (answer: () => unknown) => object> = {
  ioredis: (answer) => ({ evalsha: answer, eval: answer }),
  "an ioredis Cluster": (answer) => ({
    ...{ evalsha: answer, eval: answer, nodes: raise },
    ...{ slots: trap, options: trap, refreshSlotsCache: raise },
  }),
  "node-redis": (answer) => ({ evalSha: answer, eval: answer }),
  "a node-redis Cluster": (answer) => ({
    ...{ evalSha: answer, eval: answer, nodeClient: raise, slots: [] },
  }),
  Upstash: (answer) => ({ evalsha: answer, eval: answer, createScript: raise }),
  Bun: (answer) => ({ send: answer, hmget: raise, evalsha: answer, eval: answer }),
  "an own one": (answer) => ({ runScript: answer }),
};

const unreadable = Object.create(null) as object;
const trap = new Proxy({}, { get: raise, has: raise, getPrototypeOf: raise, ownKeys: raise });
const withMessage = (message: unknown) => Object.assign(new Error("x"), { message });
const trappedError = Object.defineProperty(new Error("x"), "message", { get: raise });
let reads = 0;
const fickleError = Object.defineProperty(new Error("x"), "message", {
  get: () => (reads++ % 2 === 0 ? "WRONGTYPE" : raise()),
});
const trappedList = new Proxy(["0"], { get: raise });
const longList = Array.from({ length: 1000 }, () => "0");

const ANSWERS: Record<string, () => unknown> = {
  throws: raise,
  "throws what cannot be read": () => throwing(unreadable),
  "throws nothing": () => throwing(undefined),
  "throws a trap": () => throwing(trap),
  "rejects with nothing": () => Promise.reject(),
  "rejects with a text": () => Promise.reject("CROSSSLOT"),
  "rejects with a symbol": () => Promise.reject(Symbol("no")),
  "rejects with what cannot be read": () => Promise.reject(unreadable),
  "rejects with a trap": () => Promise.reject(trap),
  "rejects with an error without a text": () => Promise.reject(withMessage(5)),
  "rejects with an error that throws": () => Promise.reject(trappedError),
  "rejects with an error that throws at times": () => Promise.reject(fickleError),
  "rejects with CROSSSLOT": () => Promise.reject(new Error("CROSSSLOT")),
  "rejects with NOSCRIPT": () => Promise.reject(new Error("NOSCRIPT")),
  "rejects with MOVED": () =>
    Promise.reject(new Error("ERR Wrong: no holds a value that no limiter has written")),
  "rejects with WRONGTYPE": () => Promise.reject(new Error("WRONGTYPE")),
  "answers with nothing": async () => undefined,
  "answers with null": async () => null,
  "answers with a bigint": async () => 5n,
  "answers with an object": async () => unreadable,
  "answers with a trap": async () => trap,
  "answers with bytes": async () => new Uint8Array(5),
  "answers with an error": async () => new Error("x"),
  "answers with an empty text": async () => "",
  "answers with a strange text": async () => "\t\t\t!=\u0000",
  "answers with a very long text": async () => "x\t".repeat(100_000),
  "answers with an empty list": async () => [],
  "answers with a list of nothing": async () => [undefined],
  "answers with a list of what cannot be read": async () => [unreadable, trap],
  "answers with a list that throws": async () => trappedList,
  "answers with too long a list": async () => longList,
  "answers with lists": async () => [["0"], ["0"]],
  "answers with no promise": () => unreadable,
  "answers with a trap and no promise": () => trap,
  "never answers": () => new Promise(() => {}),
  "answers by a thenable that throws": () => thenable({ value: raise }),
  "answers by a thenable that cannot be read": () => thenable({ get: raise }),
  "answers by a thenable that answers twice": () =>
    thenable({
      value(resolve: (reply: unknown) => void, reject: (error: unknown) => void) {
        resolve(trap);
        reject(trap);
        raise();
      },
    }),
  "answers by a thenable that never answers": () => thenable({ value() {} }),
};

const QUICK = { timeoutMs: 30 };

for (const [family, make] of Object.entries(FAMILIES)) {
  test(`a client like ${family} that answers anything fails the calls, and causes no other error`, async () => {
    await Promise.all(
      Object.entries(ANSWERS).map(async ([what, answer]) => {
        const client = make(answer) as RedisClient;
        const limiter = RedisRateLimiter.create(client, "a", 5, QUICK);
        const other = RedisRateLimiter.create(client, "b", 5, { ...QUICK, prefetch: "auto" });
        const local = RedisRateLimiter.create(client, "c", 5, {
          ...{ ...QUICK, whenUnavailable: "local", instances: "auto" },
        });
        const waiting = RedisRateLimiter.create(client, "d", 5, {
          ...{ ...QUICK, whenUnavailable: "wait" },
        });
        const places = RedisConcurrencyLimiter.create(client, "e", 5, {
          ...{ ...QUICK, subscriber: { subscribe: answer, unsubscribe: answer } as never },
        });
        const calls = [
          () => limiter.acquire(),
          () => limiter.tryAcquire(1, 5),
          () => limiter.decide(),
          () => limiter.setRate(7),
          () => limiter.refund(1),
          () => other.acquire(),
          () => allOf(limiter, other).tryAcquire(),
          () => allOf(limiter, places).acquire(),
          () => local.acquire(),
          () => waiting.acquire(1, { signal: AbortSignal.timeout(100) }),
          () => places.acquire(),
          () => places.peek(),
        ];
        const ended = await Promise.all(calls.map((call) => within(30_000, call)));
        assert.equal(new Set(ended), new Set(["ended"]), `${what}: ${ended}`);
        assert.instance(await failure(() => limiter.decide()), StoreUnavailableError, what);
        await Promise.all([limiter, other, local, waiting, places].map((each) => each.close()));
      }),
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(unhandled.length, 0, `${unhandled.map((each) => (each as Error)?.stack)}`);
  });
}

/** Replies to one request for permits that differ from a correct one in a few characters. */
const NEARLY_RIGHT = [
  ...["\t", "s5\t", "s5\t ", "s5\t-0.5", "s5\tnone", "0x", "0:", "0:abc", "0*0.5", "s5\t0:nan"],
  ...[
    "zz\t0",
    "zz\tnever",
    "zz\tno",
    "g5\tnever",
    "sNaN\tnever",
    "s5 x\tno",
    "s5\ns5\t0",
    "~1~zz\t0",
  ],
];

for (const whenUnavailable of ["throw", "allow", "local"] as const) {
  test(`a reply that is nearly right grants nothing, with ${whenUnavailable}`, async () => {
    const how =
      whenUnavailable === "local" ? { whenUnavailable, instances: 2 } : { whenUnavailable };
    for (const reply of NEARLY_RIGHT) {
      const client = { runScript: async () => reply };
      const limiter = RedisRateLimiter.create(client, "a", 5, { ...QUICK, ...how });
      for (const call of [() => limiter.acquire(), () => limiter.tryAcquire()]) {
        const error = await failure(call);
        assert.instance(error, StoreUnavailableError, JSON.stringify(reply));
      }
      assert.instance(await failure(() => limiter.decide()), Error, JSON.stringify(reply));
      await limiter.close();
    }
    await new Promise((resolve) => setTimeout(resolve, 2 * QUICK.timeoutMs));
    assert.equal(unhandled, []);
  });
}

test("a reply of many megabytes is refused before it is taken apart", async () => {
  const piece = ["\t", "s5\n", "!1", "0 ", ":1", "1", "+1\ts5\t1 0 0"];
  for (const text of piece.map((each) => each.repeat(3e7 / each.length))) {
    const client = { runScript: async () => text };
    const limiter = RedisRateLimiter.create(client, "a", 5, QUICK);
    const other = RedisRateLimiter.create(client, "b", 5, QUICK);
    const places = RedisConcurrencyLimiter.create(client, "c", 5, {
      ...{ ...QUICK, subscriber: { subscribe: raise, unsubscribe: raise } as never },
    });
    const both = allOf(limiter, other);
    const calls = [() => limiter.acquire(), () => places.tryAcquire(), () => both.tryAcquire()];
    for (const call of calls) {
      assert.match(String(await failure(call)), /the script answered \d+ characters, more than/);
    }
    await Promise.all([limiter.close(), other.close(), places.close()]);
  }
});

/** Whether a call ends, with any outcome. */
async function within(ms: number, call: () => unknown): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`open: ${call}`), ms);
  });
  const ended = (async () => call())().then(
    () => "ended",
    () => "ended",
  );
  const outcome = await Promise.race([ended, late]);
  clearTimeout(timer);
  return outcome;
}

test("an object that throws when it is read is refused at creation, with what is accepted", () => {
  const strange = [
    trap,
    Object.defineProperty({}, "evalsha", { get: raise }),
    Object.defineProperty({ evalsha() {} }, "eval", { get: raise }),
    Object.defineProperty({}, "runScript", { get: raise }),
    new Proxy({ evalsha() {}, eval() {} }, { has: raise }),
  ];
  for (const client of strange as RedisClient[]) {
    for (const create of [
      () => RedisRateLimiter.create(client, "a", 5),
      () => RedisConcurrencyLimiter.create(client, "a", 5),
    ]) {
      assert.throws(
        create,
        (error: unknown) =>
          error instanceof TypeError &&
          /redis must be a client of .*@upstash.*got an object that throws/.test(error.message),
      );
    }
  }
});

test("a hostile duplicate or stream of messages leaves the limiter polling", async () => {
  const duplicates: (() => unknown)[] = [
    raise,
    () => undefined,
    () => trap,
    () => unreadable,
    () => Promise.reject(trap),
    () => ({ on: raise, subscribe: raise, connect: raise, close: raise }),
    () => ({ on() {}, once() {}, subscribe: () => 5, connect: () => 5, disconnect: raise }),
    () => ({ on() {}, subscribe: async () => {}, connect: async () => {}, unsubscribe: raise }),
  ];
  // one place is taken, and the ticket becomes a lease at the second poll
  const makeAnswer = () => {
    let calls = 0;
    return async () => (calls++ < 1 ? "1 1 1 5\t2" : "1 1 0 -1\t1");
  };
  for (const duplicate of duplicates) {
    for (const make of [FAMILIES.ioredis, FAMILIES["node-redis"], FAMILIES.Bun, FAMILIES.Upstash]) {
      const client = Object.assign(make?.(makeAnswer()) ?? {}, { duplicate, subscribe: duplicate });
      const places = RedisConcurrencyLimiter.create(client as unknown as RedisClient, "a", 1, {
        leaseMs: 300,
      });
      await places.acquire();
      await places.close();
    }
  }
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(unhandled.length, 0, `${unhandled.map((each) => (each as Error)?.stack)}`);
});

test("a request that got no reply is temporary, other TypeErrors and redirections are not", () => {
  const temporary = [
    "fetch failed",
    "Failed to fetch",
    "terminated",
    "Load failed",
    "network error",
  ];
  for (const message of temporary) assert.not(isPermanent(new TypeError(message)), message);
  assert.ok(isPermanent(new TypeError("client.fetch is not a function")));
  const ofBun = Object.assign(new Error("MOVED 5 127.0.0.1:7001"), {
    name: "RedisError [ERR_REDIS_SERVER_ERROR]",
  });
  assert.ok(isPermanent(ofBun));
});

test.run();
