import { Buffer } from "node:buffer";
import { setTimeout as sleep } from "node:timers/promises";
import * as assert from "uvu/assert";
import { fixedWindow, gcra, slidingLog, smoothBursty } from "../../src/index.ts";
import {
  type CasBackend,
  casStore,
  StoreLimiter,
  StoreRateLimiter,
  StoreUnavailableError,
} from "../../src/store.ts";
import type { StoreRequest } from "../../src/stores/store.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure } from "../support/limiter/watch.ts";
import { describeState } from "../support/stores/describe-state.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { suite } from "../support/suite.ts";

const DAY_MS = 86_400_000;
const START = 1_800_000_000_000_000;
/** Ten a day. */
const TEN = "f10 86400000";
const window = (limit: number) => fixedWindow({ limit, windowMs: DAY_MS });

/** A backend whose next compareAndSet calls are scripted. */
class FaultyBackend extends MapBackend {
  readonly script: (
    | "lost race"
    | "written, rejects"
    | "not written, rejects"
    | "written, says no"
  )[] = [];
  reads = 0;
  writes = 0;

  override async get(key: string): Promise<Uint8Array | undefined> {
    this.reads += 1;
    return super.get(key);
  }

  override async compareAndSet(...args: Parameters<CasBackend["compareAndSet"]>): Promise<boolean> {
    this.writes += 1;
    const fault = this.script.shift();
    if (fault === "lost race") return false;
    if (fault === "not written, rejects") throw new Error("boom");
    const isSet = await super.compareAndSet(...args);
    if (fault === "written, rejects") throw new Error("boom");
    return fault === "written, says no" ? false : isSet;
  }
}

const take = (amount = 1): StoreRequest => {
  return { verb: "reserve", amount, longest: 0, late: 0, count: 1 };
};

let batches = 0;

/** A batch with a number, as limiters send it. */
function batchId(caller = "caller-a") {
  batches += 1;
  return { caller, number: batches };
}

async function used(backend: CasBackend, key = "key"): Promise<number> {
  const peek: StoreRequest = { verb: "peek", amount: 1, late: 0 };
  const { answers } = await casStore(backend).run(key, TEN, [peek], START);
  return 10 - Number(answers[0]?.quotas[0]?.remaining);
}

const writing = suite("casStore, writes");

writing("a refusal and a peek write nothing", async () => {
  const backend = new FaultyBackend();
  const limiter = StoreLimiter.create(casStore(backend), "api", window(1));
  await limiter.peek();
  assert.is(backend.writes, 0);
  assert.is(await limiter.tryAcquire(), true);
  assert.is(backend.writes, 1);
  for (let i = 0; i < 3; i++) assert.is(await limiter.tryAcquire(), false);
  assert.is((await limiter.decide()).allowed, false);
  assert.is(backend.writes, 1);
});

writing("compareAndSet gets the bytes that get returned, and how long they matter", async () => {
  const seen: unknown[] = [];
  const held = new Map<string, Buffer>();
  const store = casStore({
    get: async (key) => held.get(key),
    compareAndSet: async (key, before, after, lifeMs) => {
      seen.push([before === held.get(key), lifeMs]);
      // a view in the middle of a larger buffer, as sockets return it
      const padded = Buffer.concat([Buffer.from("xxx"), after, Buffer.from("yyyyy")]);
      held.set(key, padded.subarray(3, 3 + after.length));
      return true;
    },
    now: async () => START / 1000,
  });
  const limiter = StoreRateLimiter.create(store, "api", 10, {
    burstSeconds: 0,
    prefilled: true,
  });
  await limiter.reserve(5);
  await limiter.reserve(5);
  assert.equal([...held.keys()], ["l:api"]);
  assert.equal(seen, [
    [true, 500 + 1000],
    [true, 1000 + 1000],
  ]);
  await limiter.setRate(20);
  assert.equal(seen.at(-1), [true, Infinity]);
  await limiter.resetRate();
  assert.is(Number.isFinite((seen.at(-1) as number[])[1]), true);
});

writing("a life has an hour of slack where the time is not the backend's own", async () => {
  const backend = new MapBackend();
  const clock = new FakeClock(1e12);
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0, prefilled: true });
  await StoreLimiter.create(casStore(backend), "fake", policy, { clock }).reserve(5);
  await StoreLimiter.create(casStore(backend), "machine", policy).reserve(5);
  assert.equal([...backend.lives.values()], [3_600_500, 3_600_500]);
});

writing("a prefix precedes the keys, and each `for` has a key", async () => {
  const backend = new MapBackend();
  const limiter = StoreLimiter.create(casStore(backend), "a[b", window(5), { prefix: "p:" });
  await limiter.acquire();
  await limiter.for("ann").acquire();
  assert.is(limiter.for("ann"), limiter.for("ann"));
  assert.equal([...backend.values.keys()], ["p:a%5Bb", "p:a%5Bb[ann"]);
  await limiter.close();
  await failure(() => limiter.for("bob"));
});

writing("a limitKey is read from the backend", async () => {
  const backend = new MapBackend();
  const put = (key: string, text: string) => backend.values.set(key, Buffer.from(text));
  const limiter = StoreLimiter.create(casStore(backend), "api", window(1), { limitKey: "limit" });
  put("limit", "2");
  assert.equal([await limiter.tryAcquire(), await limiter.tryAcquire()], [true, true]);
  assert.is(await limiter.tryAcquire(), false);
  put("limit", "3");
  assert.is(await limiter.tryAcquire(), true);
  put("limit", "0");
  const { limit, waitMs } = await limiter.peek();
  assert.equal([limit, waitMs], [0, Infinity]);
  backend.values.delete("limit");
  assert.is((await limiter.peek()).limit, 1);
});

writing("the backend's time is in ms with fractions", async () => {
  let ms = 1_800_000_000_000.25;
  const backend = Object.assign(new MapBackend(), { now: async () => ms });
  const limiter = StoreRateLimiter.create(casStore(backend), "api", 1000, { burstSeconds: 0 });
  await limiter.reserve();
  ms += 0.75;
  assert.is((await limiter.peek()).waitMs, 0.25);
  ms += 0.25;
  assert.is(await limiter.tryAcquire(), true);
});

writing("clocks that differ, and times that were read too early, gain nothing", async () => {
  for (const apart of [5, 900]) {
    let ms = 1_800_000_000_000;
    let isAhead = false;
    const now = async () => {
      isAhead = !isAhead;
      return isAhead ? ms + apart : ms;
    };
    const backend = Object.assign(new MapBackend(), { now });
    const store = casStore(backend);
    const limiter = StoreRateLimiter.create(store, "api", 1000, { burstSeconds: 0 });
    // twice as many as the rate allows: the last one waits for as long as all this took
    for (; ms < 1_800_000_001_000; ms += 1) {
      await limiter.reserve();
      await limiter.reserve();
    }
    const { waitMs } = await limiter.peek();
    assert.ok(waitMs >= 1000 - apart && waitMs <= 1000 + apart, `${apart} ms: ${waitMs}`);
  }
});

writing("a clock that was set back far continues from there", async () => {
  let ms = 1_800_000_000_000;
  const backend = Object.assign(new MapBackend(), { now: async () => ms });
  const limiter = StoreRateLimiter.create(casStore(backend), "api", 1, { burstSeconds: 0 });
  await limiter.reserve(10);
  ms -= 3_600_000;
  assert.is((await limiter.peek()).waitMs, 10_000);
  await limiter.reserve(5);
  ms += 5000;
  assert.is((await limiter.peek()).waitMs, 10_000);
});

writing("a caller's time that was read before another write counts nothing twice", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  const own = backend.compareAndSet.bind(backend);
  const numbers = "s1000";
  const charge = (amount: number): StoreRequest[] => [{ verb: "charge", amount }];
  await store.run("key", numbers, charge(1000), START, batchId());
  backend.compareAndSet = async (...args) => {
    backend.compareAndSet = own;
    await store.run("key", numbers, charge(1), START + 500_000, batchId("other"));
    return own(...args);
  };
  await store.run("key", numbers, charge(1), START, batchId());
  const [peek] = (
    await store.run(
      "key",
      numbers,
      [{ verb: "peek", amount: 1, late: 0 }],
      START + 600_000,
      batchId(),
    )
  ).answers;
  assert.is(peek?.wait, 402_000);
});

writing("without `now` the machine's time is used, in microseconds", async () => {
  const backend = new MapBackend();
  const limiter = StoreRateLimiter.create(casStore(backend), "api", 1, { burstSeconds: 0 });
  await limiter.reserve();
  const [, base, last] =
    /base (\d+), last (\d+)/.exec(describeState(backend.values.get("l:api"))) ?? [];
  const ms = (Number(base) * 2 ** 24 + Number(last)) / 1000;
  assert.ok(Math.abs(Date.now() - ms) < 5000);
});

writing.run();

const races = suite("casStore, races and lost replies");

races("a write that lost a race runs again on the new state", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  backend.script.push("lost race", "lost race");
  const { answers } = await store.run("key", TEN, [take(3)], START, batchId());
  assert.is(answers[0]?.wait, 0);
  assert.equal([backend.writes, await used(backend)], [3, 3]);
});

races("many processes at once: each permit is granted once", async () => {
  const backend = new FaultyBackend();
  const wins = await Promise.all(
    Array.from({ length: 25 }, (_, i) => {
      const limiter = StoreLimiter.create(casStore(backend), "api", window(10), {
        timeoutMs: 20_000,
        clock: new FakeClock(i),
      });
      return limiter.tryAcquire();
    }),
  );
  assert.is(wins.filter(Boolean).length, 10);
});

races("a lost race is not retried after the limiter has given up", async () => {
  const backend = new FaultyBackend();
  backend.compareAndSet = async () => {
    backend.writes += 1;
    return false;
  };
  const limiter = StoreLimiter.create(casStore(backend), "api", window(10), { timeoutMs: 500 });
  const error = await failure(() => limiter.acquire());
  assert.instance(error, StoreUnavailableError);
  assert.ok(backend.writes > 1);
  // no probes from now on
  await limiter.close();
  await sleep(200);
  const { writes } = backend;
  await sleep(200);
  assert.is(backend.writes, writes);
});

races("a read that is answered after that is not followed by a write", async () => {
  const backend = new FaultyBackend();
  const deadlineMs = performance.now() - 1;
  const error = await failure(() =>
    casStore(backend).run("key", TEN, [take()], START, batchId(), deadlineMs),
  );
  assert.match(String(error), /"key" could not be written in time: the store was too slow to read/);
  assert.is(backend.writes, 0);
});

races("a write whose reply is lost is charged once, and its answer counts", async () => {
  for (const fault of ["written, rejects", "written, says no"] as const) {
    const backend = new FaultyBackend();
    const store = casStore(backend);
    backend.script.push(fault);
    const { answers } = await store.run("key", TEN, [take(4)], START, batchId());
    assert.equal([answers[0]?.wait, answers[0]?.receipts.length], [0, 1], fault);
    assert.equal([backend.writes, await used(backend)], [1, 4], fault);
  }
});

races("the same holds where other processes have written since", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  const own = backend.compareAndSet.bind(backend);
  let isFirst = true;
  backend.compareAndSet = async (...args) => {
    const isSet = await own(...args);
    if (!isFirst) return isSet;
    isFirst = false;
    for (let i = 0; i < 3; i++)
      await store.run("key", TEN, [take()], START, batchId(`other--${i}`));
    throw new Error("boom");
  };
  await store.run("key", TEN, [take(4)], START, batchId());
  assert.is(await used(backend), 7);
});

races("the equal write of another process is not mistaken for its own", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  await Promise.all(
    ["caller-a", "caller-b"].map((caller) =>
      store.run("key", TEN, [take()], START, batchId(caller)),
    ),
  );
  assert.is(await used(backend), 2);
});

races("a write that was rejected reports that error, and charges nothing", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  for (const mine of [batchId(), undefined]) {
    backend.script.push("not written, rejects");
    const error = await failure(() => store.run("key", TEN, [take()], START, mine));
    assert.match(String(error), /boom/);
    backend.get = async () => backend.values.get("key");
  }
  assert.equal([backend.writes, await used(backend)], [2, 0]);
});

races("the first error is reported even if the second read fails too", async () => {
  for (const look of [
    async () => {
      throw new Error("second");
    },
    async () => new Uint8Array(40).fill(7),
  ]) {
    const backend = new FaultyBackend();
    backend.compareAndSet = async () => {
      backend.get = look;
      throw new Error("first");
    };
    const error = await failure(() =>
      casStore(backend).run("key", TEN, [take()], START, batchId()),
    );
    assert.match(String(error), /first/);
  }
});

races("a later batch of the same caller does not stand for one that failed", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  const [early, late] = [batchId(), batchId()];
  const own = backend.compareAndSet.bind(backend);
  backend.compareAndSet = async () => {
    backend.compareAndSet = own;
    await store.run("key", TEN, [take(2)], START, late);
    throw new Error("boom");
  };
  const error = await failure(() => store.run("key", TEN, [take(5)], START, early));
  assert.match(String(error), /boom/);
  assert.is(await used(backend), 2);
});

races("a batch that arrives after a later one of its caller is not run", async () => {
  const backend = new FaultyBackend();
  const store = casStore(backend);
  const [early, late] = [batchId(), batchId()];
  await store.run("key", TEN, [take()], START, late);
  const error = await failure(() => store.run("key", TEN, [take()], START, early));
  assert.is((error as Error).name, "LostReplyError");
  assert.is(await used(backend), 1);
});

races.run();

const wrong = suite("casStore, faulty backends");

const GOOD: CasBackend = {
  get: async () => undefined,
  compareAndSet: async () => true,
};

wrong("a backend is checked at creation as far as possible", () => {
  const backends: [unknown, RegExp][] = [
    [undefined, /backend.get must be a function, got undefined/],
    [{ ...GOOD, get: 5 }, /backend.get must be a function, got 5/],
    [{ get: GOOD.get }, /backend.compareAndSet must be a function/],
    [{ ...GOOD, now: 5 }, /backend.now must be a function, got 5/],
    [{ ...GOOD, isPermanent: true }, /backend.isPermanent must be a function, got true/],
  ];
  for (const [backend, words] of backends) assert.throws(() => casStore(backend as never), words);
  for (const store of [undefined, null, {}, GOOD]) {
    assert.throws(
      () => StoreLimiter.create(store as never, "api", window(1)),
      /store must be made by casStore, postgresStore or memoryStore/,
    );
  }
  const bare = { run: casStore(GOOD).run };
  const limitKey = "limit";
  assert.throws(() => StoreLimiter.create(bare, "api", window(1), { limitKey }), /limitKey needs/);
  const store = casStore(GOOD);
  assert.throws(
    () => StoreLimiter.create(store, "api", window(1), { hashTag: "x" } as never),
    /no "hashTag"/,
  );
  assert.throws(
    () => Reflect.construct(StoreLimiter as never, []),
    /StoreLimiter has no public constructor/,
  );
  assert.throws(
    () => Reflect.construct(StoreRateLimiter as never, []),
    /StoreRateLimiter has no public/,
  );
});

wrong("a wrong reply is an error that names the key, at once, and no call stays open", async () => {
  const bytes = new Uint8Array(50).fill(65);
  const cases: [Partial<Record<keyof CasBackend, unknown>>, RegExp][] = [
    [{ get: () => 5 }, /get\("l:api"\) of the backend must return a promise, got 5/],
    [
      { get: async () => "text" },
      /get\("l:api"\) of the backend must answer a Uint8Array, .* got "text"/,
    ],
    [
      { get: async () => bytes },
      /key "l:api" holds 50 bytes that no limiter has written: 41 41 .*…; remove it/,
    ],
    [{ get: async () => bytes.subarray(0, 3) }, /key "l:api" holds 3 bytes that .*: 41 41 41;/],
    [
      { compareAndSet: () => true },
      /compareAndSet\("l:api", …\) .* must return a promise, got true/,
    ],
    [
      { compareAndSet: async () => 1 },
      /compareAndSet\("l:api", …\) .* must answer true or false, got 1/,
    ],
    [{ compareAndSet: async () => undefined }, /compareAndSet\("l:api", …\) .* got undefined/],
    [{ now: () => 5 }, /now\(\) for key "l:api" .* must return a promise, got 5/],
    [
      { now: async () => "5" },
      /now\(\) for key "l:api" .* must answer ms of Unix time, .* got "5"/,
    ],
    [{ now: async () => 1.8e15 }, /must answer ms of Unix time/],
    [{ now: async () => Number.NaN }, /must answer ms of Unix time, .* got NaN/],
  ];
  for (const whenUnavailable of ["throw", "wait", "allow"] as const) {
    for (const [part, words] of cases) {
      const store = casStore({ ...GOOD, ...part } as CasBackend);
      const limiter = StoreLimiter.create(store, "api", window(1), { whenUnavailable });
      for (const action of [() => limiter.acquire(), () => limiter.decide()]) {
        const error = await failure(action);
        assert.instance(error, StoreUnavailableError, `${words}`);
        assert.match((error as Error).message, words);
      }
    }
  }
});

wrong("an exception is a failure like a rejection, and names the key", async () => {
  const boom = new TypeError("fetch failed");
  for (const [name, part] of Object.entries({
    get: { get: () => raise(boom) },
    compareAndSet: { compareAndSet: () => raise(boom) },
    now: { now: () => raise(boom) },
  })) {
    const limiter = StoreLimiter.create(casStore({ ...GOOD, ...part }), "api", window(1));
    const error = (await failure(() => limiter.acquire())) as StoreUnavailableError;
    assert.instance(error, StoreUnavailableError);
    assert.match(
      error.message,
      new RegExp(`${name}\\(.*"l:api".* of the backend threw: fetch failed`),
    );
    assert.is((error.cause as Error).cause, boom);
  }
  const odd = casStore({ ...GOOD, get: () => raise("odd") });
  assert.match(String(await failure(() => odd.run("k", TEN, [take()], 0))), /threw: odd/);
});

function raise(error: unknown): never {
  throw error;
}

wrong('a rejection is the cause, also a TypeError, and callers with "wait" ask again', async () => {
  const boom = new TypeError("fetch failed");
  let isUnavailable = true;
  const backend = new MapBackend();
  const get = async (key: string) => (isUnavailable ? raise(boom) : backend.values.get(key));
  const store = casStore({ get, compareAndSet: backend.compareAndSet.bind(backend) });
  const policies = window(5);
  const waiter = StoreLimiter.create(store, "api", policies, { whenUnavailable: "wait" });
  const waiting = waiter.acquire();
  const open = StoreLimiter.create(store, "api", policies, { whenUnavailable: "allow" });
  assert.is(await open.tryAcquire(), true);
  const error = await failure(() => StoreLimiter.create(store, "api", policies).acquire());
  assert.is((error as Error).cause, boom);
  isUnavailable = false;
  assert.ok((await waiting) >= 0);
});

wrong("an error that the backend declares permanent rejects calls in every mode", async () => {
  const denied = new Error("permission denied");
  const asked: unknown[] = [];
  const store = casStore({
    ...GOOD,
    get: () => raise(denied),
    isPermanent: (error) => asked.push(error) > 0 && error === denied,
  });
  for (const whenUnavailable of ["throw", "wait", "allow"] as const) {
    const limiter = StoreLimiter.create(store, "api", window(1), { whenUnavailable });
    assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
  }
  assert.ok(asked.every((error) => error === denied));
  const confused = casStore({ ...GOOD, isPermanent: () => raise("oh") });
  assert.is(confused.isPermanent?.(new Error("x")), false);
});

wrong("a damaged state is an error or another state, never a hang", async () => {
  const requests: StoreRequest[] = [
    { verb: "peek", amount: 1, late: 0 },
    take(),
    { verb: "deficit" },
    { verb: "refund", amount: 1 },
  ];
  for (const [declared, policy] of Object.entries({
    f: window(5),
    g: gcra({ limit: 5, periodMs: 1000 }),
    l: slidingLog({ limit: 5, windowMs: 1000 }),
  })) {
    const clock = new FakeClock(1e12);
    const backend = new MapBackend();
    const limiter = StoreLimiter.create(casStore(backend), "api", policy, { clock });
    for (let i = 0; i < 3; i++) await limiter.tryAcquire();
    const whole = backend.values.get("l:api") as Uint8Array;
    const numbers = `${declared}${policy.numbers.join(" ")}`;
    for (let at = 0; at < whole.length; at++) {
      for (const bits of [1, 64, 127, 255]) {
        const damaged = Uint8Array.from(whole);
        damaged[at] = Number(damaged[at]) ^ bits;
        const store = casStore({ ...GOOD, get: async () => damaged });
        const outcome = await store.run("api", numbers, requests, 1e15 + 5e6).catch(String);
        if (typeof outcome === "string") assert.match(outcome, /key "api" holds \d+ bytes/);
      }
      const cut = casStore({ ...GOOD, get: async () => whole.subarray(0, at) });
      const error = await failure(() => cut.run("api", numbers, requests, 1e15));
      assert.match(String(error), /key "api" holds \d+ bytes that no limiter has written/);
    }
  }
});

wrong("numbers that do not fit are refused in any state", async () => {
  const many = Array.from({ length: 7000 }, (_, i) => `f${i + 1} 1000`).join("\n");
  const error = await failure(() => casStore(GOOD).run("api", many, [take()], 0));
  assert.match(String(error), /take \d+ bytes; at most 65535 fit/);
});

wrong.run();
