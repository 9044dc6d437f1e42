import * as assert from "uvu/assert";
import { allOf, fixedWindow, smoothBursty } from "../../src/index.ts";
import { StoreLimiter, StoreRateLimiter, StoreUnavailableError } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const DAY_MS = 86_400_000;
const window = (limit: number) => fixedWindow({ limit, windowMs: DAY_MS });

const test = suite("memoryStore");

test("limiters of one name share a limit, on a FakeClock", async () => {
  const clock = new FakeClock();
  const store = memoryStore();
  const [here, there] = [1, 2].map(() => {
    return StoreRateLimiter.create(store, "mail", 1, { clock, burstSeconds: 0 });
  }) as [StoreRateLimiter, StoreRateLimiter];
  const waited = [here, there, here, there].map((limiter) => watch(clock, limiter.acquire()));
  await clock.advance(10_000);
  assert.equal(waited.map(({ at }) => at).sort(), [0, 1000, 2000, 3000]);
  await here.setRate(10);
  assert.is(there.getRate(), 1);
  await there.peek();
  assert.is(there.getRate(), 10);
});

test("a slow store answers later, by its own clock", async () => {
  const clock = new FakeClock(1e12);
  const store = memoryStore({ clock });
  store.delayMs = 20;
  assert.is(store.delayMs, 20);
  const got = watch(clock, StoreLimiter.create(store, "api", window(1)).tryAcquire());
  await clock.advance(19);
  assert.is(got.at, undefined);
  await clock.advance(1);
  assert.equal([got.at, got.value], [1e12 + 20, true]);
  assert.throws(() => {
    store.delayMs = -1;
  }, /delayMs must be a finite number, 0 or more, got -1/);
});

test("a slow store in real time answers within timeoutMs or not", async () => {
  const [store, other] = [memoryStore(), memoryStore()];
  store.delayMs = 500;
  other.delayMs = 500;
  const hasty = StoreLimiter.create(store, "api", window(1), { timeoutMs: 10 });
  assert.instance(await failure(() => hasty.tryAcquire()), StoreUnavailableError);
  const slow = StoreLimiter.create(other, "api", window(1), { timeoutMs: 30_000 });
  assert.is(await slow.tryAcquire(), true);
  store.recover();
  assert.is(store.delayMs, 0);
});

test("a store that hangs answers nothing, and runs the calls when it recovers", async () => {
  const store = memoryStore();
  const options = { timeoutMs: 20 };
  const limiter = StoreLimiter.create(store, "api", window(5), options);
  const slow = StoreLimiter.create(store, "api", window(5), {
    ...options,
    whenUnavailable: "wait",
  });
  store.hang();
  store.hang();
  const waiting = slow.acquire();
  const error = await failure(() => limiter.acquire());
  assert.instance(error, StoreUnavailableError);
  assert.is(((error as Error).cause as Error).name, "TimeoutError");
  store.recover();
  assert.ok((await waiting) >= 0);
  while (limiter.state !== "ready") await turn();
  // permits that were granted too late have been given back
  const { remaining } = await limiter.peek();
  assert.is(remaining, 4);
});

test("a store that fails rejects with its error, also for calls that hang", async () => {
  const store = memoryStore();
  const limiter = StoreLimiter.create(store, "api", window(5), { timeoutMs: 30_000 });
  store.hang();
  const hanging = limiter.acquire();
  await turn();
  store.fail();
  const refused = await failure(() => hanging);
  assert.match(String((refused as Error).cause), /ECONNREFUSED/);
  const own = new Error("no space left");
  store.fail(own);
  const error = await failure(() => limiter.tryAcquire());
  assert.instance(error, StoreUnavailableError);
  assert.is((error as Error).cause, own);
  store.recover();
  assert.is(await limiter.tryAcquire(), true);
  assert.is((await limiter.peek()).remaining, 4);
});

test("a store that forgets starts anew", async () => {
  const store = memoryStore();
  const limiter = StoreLimiter.create(store, "api", window(1));
  assert.equal([await limiter.tryAcquire(), await limiter.tryAcquire()], [true, false]);
  store.forget();
  assert.equal([await limiter.tryAcquire(), await limiter.tryAcquire()], [true, false]);
});

test("keys that have expired by its clock are removed", async () => {
  const clock = new FakeClock(1e12);
  const store = memoryStore({ clock });
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0, prefilled: true });
  const limiter = StoreLimiter.create(store, "api", policy);
  await limiter.reserve(5);
  assert.is((await limiter.peek()).waitMs, 500);
  await limiter.pause(10_000);
  await clock.advance(5_000);
  assert.is((await limiter.peek()).waitMs, 5_000);
  await clock.advance(1e9);
  assert.is((await limiter.peek()).waitMs, 0);
});

test("limits under keys are applied, as operators set them", async () => {
  const store = memoryStore();
  const limiter = StoreLimiter.create(store, "api", window(1), { limitKey: "limit" });
  store.limits.set("limit", "2");
  assert.is((await limiter.peek()).limit, 2);
  assert.is(await allOf(limiter, StoreLimiter.create(store, "b", window(9))).tryAcquire(2), true);
  store.fail();
  assert.instance(await failure(() => limiter.peek()), StoreUnavailableError);
});

test("several limiters at once: all grant a call, or none is charged", async () => {
  const store = memoryStore();
  const common = StoreLimiter.create(store, "common", window(3));
  const users = StoreLimiter.create(store, "users", window(1));
  const both = allOf(common, users.for("ann"));
  assert.equal([await both.tryAcquire(), await both.tryAcquire()], [true, false]);
  assert.is((await common.peek()).remaining, 2);
  store.fail();
  assert.instance(await failure(() => both.tryAcquire()), StoreUnavailableError);
});

test("options are checked", () => {
  assert.throws(() => memoryStore({ delay: 5 } as never), /no "delay"/);
  assert.throws(() => memoryStore({ clock: {} as never }), /clock must have/);
});

test.run();
