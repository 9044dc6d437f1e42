import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { RemoteConcurrency } from "../../src/concurrency/leased/remote-concurrency.ts";
import { gcra, QueueFullError, smoothBursty } from "../../src/index.ts";
import { RedisLimiter, StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteOptions } from "../../src/remote/remote-options.ts";
import { HandLeaseStore, settled } from "../support/limiter/lease-store.ts";
import { listener } from "../support/limiter/listen.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure, turn } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const { start, takeMessages, stop } = listener();
let timers: FakeTimers.Clock;

const test = suite("outages");
test.before(start);
test.before.each(() => {
  takeMessages();
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});
test.after.each(() => timers.uninstall());
test.after(stop);

const gone = new Error("gone");
const none = { granted: 0, refused: 0, cancelled: 0, waiting: 0 };
const calm = { failed: 0, outages: 0, unavailableMs: 0, grantedInOutages: 0 };

/** A limiter whose store is unavailable while `store.away` is set; both clocks move together. */
function make(
  options: Partial<RemoteOptions> = {},
  policy = smoothBursty({ permitsPerSecond: 10 }),
) {
  const made = onHand(policy, { name: "api", ...options });
  const pass = async (ms: number) => {
    await made.clock.advance(ms);
    await timers.tickAsync(ms);
    await turn();
  };
  return { ...made, pass };
}

test("a remote limiter reports the store's grants and refusals like a local one", async () => {
  const { limiter, pass } = make();
  const first = [limiter.acquire(3), limiter.acquire(), limiter.tryAcquire(2, 399)];
  assert.equal(limiter.stats, { ...none, ...calm, waiting: 3 });
  await pass(0);
  const api = { limiter: "api" };
  assert.equal(takeMessages(), [
    ["refused", { ...api, permits: 2, reason: "too-long", waitedMs: 0 }],
  ]);
  await pass(300);
  assert.equal(takeMessages(), [["wait", { ...api, permits: 1, waitMs: 300 }]]);
  assert.equal(await Promise.all(first), [0, 300, false]);
  await limiter.decide(5);
  assert.equal(takeMessages(), [
    [
      "refused",
      { ...api, permits: 5, reason: "too-long", waitedMs: 0, waitMs: 100, policy: "default" },
    ],
  ]);
  await pass(100);
  assert.is((await limiter.decide(1)).allowed, true);
  assert.equal(limiter.stats, { ...none, ...calm, granted: 3, refused: 2 });
  assert.equal([limiter.state, takeMessages()], ["ready", []]);
});

test("a limiter on Redis reports reservations, cancelled waits and a full queue too", async () => {
  const { limiter, pass } = make({ maxWaiting: 3 });
  await limiter.reserve(5);
  const reservation = await limiter.reserve(2);
  const controller = new AbortController();
  const { signal } = controller;
  const waits = [limiter.acquire(1, { signal }), limiter.acquire(), limiter.reserve()];
  const ends = Promise.all(waits.map((wait) => failure(() => wait)));
  await pass(100);
  const api = { limiter: "api", permits: 1 };
  assert.equal(takeMessages(), [
    ["wait", { ...api, permits: 2, waitMs: 500 }],
    ["refused", { ...api, reason: "queue-full", waitedMs: 0 }],
    ["refused", { ...api, reason: "queue-full", waitedMs: 0 }],
  ]);
  assert.is(limiter.stats.waiting, 1);
  controller.abort("enough");
  await reservation.cancel();
  const [abort, full, fuller] = await ends;
  assert.is(abort, "enough");
  assert.instance(full, QueueFullError);
  assert.instance(fuller, QueueFullError);
  const messages = takeMessages();
  assert.equal(messages[0], ["cancelled", { ...api, waitedMs: 100, reason: "enough" }]);
  assert.equal(
    messages.map(([event, { permits, waitedMs }]) => [event, permits, waitedMs]),
    [
      ["cancelled", 1, 100],
      ["cancelled", 2, 100],
    ],
  );
  assert.equal(limiter.stats, { ...none, ...calm, granted: 2, refused: 2, cancelled: 2 });
});

test("throw: the first failure and the first reply are reported", async () => {
  const { limiter, store, pass } = make();
  await limiter.tryAcquire();
  store.away = gone;
  assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
  await pass(250);
  assert.instance(await failure(() => limiter.decide()), StoreUnavailableError);
  assert.is(limiter.state, "unavailable");
  assert.equal(takeMessages(), [["unavailable", { limiter: "api", cause: gone }]]);
  assert.equal(limiter.stats, {
    ...{ ...none, ...calm, granted: 1 },
    ...{ failed: 2, outages: 1, unavailableMs: 250 },
  });
  await pass(250);
  store.away = undefined;
  await limiter.peek();
  await turn();
  const counts = { granted: 0, refused: 0, failed: 2 };
  assert.equal(takeMessages(), [
    ["recovered", { limiter: "api", cause: gone, durationMs: 500, ...counts }],
  ]);
  assert.equal([limiter.state, limiter.stats.unavailableMs], ["ready", 500]);
});

test("throw: a store that does not answer in time is unavailable until a probe finds it", async () => {
  const { limiter, store, pass } = make({ timeoutMs: 100 });
  store.held = true;
  const failed = failure(() => limiter.acquire());
  await pass(100);
  await failed;
  const [[event, { cause }] = ["wait", {} as Record<string, unknown>]] = takeMessages();
  assert.equal([event, (cause as Error).name], ["unavailable", "TimeoutError"]);
  await store.deliver();
  await pass(1000);
  const [[back, { durationMs }] = ["wait", {} as Record<string, unknown>]] = takeMessages();
  assert.is(back, "recovered");
  assert.ok(Number(durationMs) > 0 && Number(durationMs) <= 50, `${durationMs}`);
});

for (const [whenUnavailable, granted, refused] of [
  ["allow", 15, 0],
  // of the 10 stored permits this process owns one half, and the next request is lent
  ["local", 10, 1],
] as const) {
  test(`${whenUnavailable}: reports what was granted during an outage`, async () => {
    const { limiter, store, pass } = make({ whenUnavailable, instances: () => 2 });
    await limiter.charge(1);
    await pass(10_000);
    store.away = gone;
    for (let i = 0; i < 3; i++) await limiter.tryAcquire(5);
    await pass(5);
    assert.is(limiter.stats.grantedInOutages, granted);
    store.away = undefined;
    await pass(1000);
    const messages = takeMessages().filter(([event]) => event !== "refused");
    const [, { durationMs }] = messages[1] as [string, Record<string, unknown>];
    assert.equal(messages, [
      ["unavailable", { limiter: "api", cause: gone }],
      ["recovered", { limiter: "api", cause: gone, durationMs, granted, refused, failed: 0 }],
    ]);
    assert.ok(Number(durationMs) >= 5 && Number(durationMs) < 1000);
    assert.is(limiter.state, "ready");
  });
}

test("local: waits, reservations and cancellations during an outage are reported too", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "local", instances: () => 1 });
  store.away = gone;
  await limiter.acquire(2);
  const wait = limiter.acquire();
  const reservation = await limiter.reserve();
  assert.is(await limiter.tryAcquire(1, 50), false);
  await pass(100);
  await reservation.cancel();
  await pass(100);
  assert.is(await wait, 200);
  const api = { limiter: "api", permits: 1 };
  const messages = takeMessages().filter(([event]) => event !== "unavailable");
  const reason = messages[2]?.[1].reason;
  assert.equal(messages, [
    ["wait", { ...api, waitMs: 300 }],
    ["refused", { ...api, reason: "too-long", waitedMs: 0 }],
    ["cancelled", { ...api, waitedMs: 100, reason }],
    ["wait", { ...api, waitMs: 200 }],
  ]);
});

test("local: a waiter that a pause makes too late is reported with its wait", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "local", instances: () => 1 });
  store.away = gone;
  await limiter.acquire(5);
  const tried = limiter.tryAcquire(1, 600);
  await pass(100);
  takeMessages();
  await limiter.pause(700);
  assert.is(await tried, false);
  const refused = { limiter: "api", permits: 1, reason: "too-long", waitedMs: 100 };
  assert.equal(takeMessages(), [["refused", refused]]);
});

test("a waiter that is due when the store recovers counts as granted in the outage", async () => {
  const { limiter, clock, store } = make({ whenUnavailable: "local", instances: () => 1 });
  store.away = gone;
  await limiter.acquire(2);
  const wait = limiter.acquire();
  await turn();
  store.away = undefined;
  // the clock is at the instant, its timers have not fired yet
  clock.now = () => 200;
  await timers.tickAsync(1000);
  await wait;
  const recovered = takeMessages().find(([event]) => event === "recovered");
  assert.equal([recovered?.[1].granted, limiter.stats.grantedInOutages], [3, 3]);
});

test("wait: a caller that waited for the store is reported with its wait; a try ends in time", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "wait" });
  store.away = gone;
  const wait = limiter.acquire();
  const tried = limiter.tryAcquire(1, 20);
  await pass(20);
  assert.is(await tried, false);
  store.away = undefined;
  await pass(80);
  await wait;
  assert.equal(
    takeMessages().map(([event]) => event),
    ["unavailable", "refused", "recovered", "wait"],
  );
  assert.equal(limiter.stats, {
    ...{ ...none, ...calm, granted: 1, refused: 1, outages: 1 },
    unavailableMs: limiter.stats.unavailableMs,
  });
});

test("wait: a waiter that left before the outage is not reported when its time-out ends", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "wait" });
  store.held = true;
  const first = limiter.acquire();
  await pass(0);
  const controller = new AbortController();
  const tried = limiter.tryAcquire(1, { timeoutMs: 1500, signal: controller.signal });
  const gaveUp = failure(() => tried);
  const other = limiter.acquire();
  controller.abort("enough");
  assert.is(await gaveUp, "enough");
  await pass(1000);
  assert.is(limiter.state, "unavailable");
  await pass(600);
  await store.deliver();
  await pass(100);
  await Promise.all([first, other]);
  const { waiting, refused, cancelled } = limiter.stats;
  assert.equal([waiting, refused, cancelled], [0, 0, 1]);
  assert.is(timers.countTimers(), 0);
  takeMessages();
});

test("wait: a caller that got an error is not reported again", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "wait" });
  store.held = true;
  const first = limiter.acquire();
  await pass(1000);
  const refused = failure(() => limiter.tryAcquire(1, 1500));
  store.away = new Error("NOPERM");
  await store.deliver();
  await first;
  assert.instance(await refused, StoreUnavailableError);
  assert.is(timers.countTimers(), 0);
  await pass(2000);
  assert.equal([limiter.stats.waiting, limiter.stats.refused], [0, 0]);
  takeMessages();
});

test("wait: a try that is requested again still ends in time", async () => {
  const { limiter, store, pass } = make({ whenUnavailable: "wait", timeoutMs: 100 });
  await limiter.acquire(20);
  store.held = true;
  const tried = limiter.tryAcquire(1, 3000);
  await pass(150);
  await store.deliver();
  await pass(0);
  store.held = true;
  const paused = limiter.pause(2000);
  await pass(3000);
  assert.is(await Promise.race([tried, turn().then(() => "waits")]), false);
  await store.deliver();
  await pass(1000);
  await paused;
  takeMessages();
});

test("an error that waiting cannot fix is no outage", async () => {
  for (const whenUnavailable of ["throw", "wait", "allow"] as const) {
    const { limiter, store } = make({ whenUnavailable });
    store.away = new Error("WRONGTYPE");
    assert.instance(await failure(() => limiter.acquire()), StoreUnavailableError);
    assert.equal([limiter.state, limiter.stats.failed], ["ready", 1]);
  }
  assert.equal(takeMessages(), []);
});

test("all keys of a limiter share one outage and one set of counters", async () => {
  let away = false;
  const redis = {
    runScript: () => Promise.reject(away ? gone : new Error("WRONGTYPE")),
  };
  const limiter = RedisLimiter.create(redis, "users", gcra({ limit: 5, periodMs: 1000 }), {
    whenUnavailable: "allow",
  });
  away = true;
  for (const key of ["ann", "bob", "ann"]) await limiter.for(key).tryAcquire(2);
  assert.equal(takeMessages(), [["unavailable", { limiter: "users", cause: gone }]]);
  const { granted, outages, grantedInOutages } = limiter.stats;
  assert.equal([limiter.state, granted, outages, grantedInOutages], ["unavailable", 3, 1, 6]);
  await limiter.for("ann").pause(100);
  assert.is(await limiter.for("ann").tryAcquire(1, 50), false);
  const [[event, { key }] = ["wait", {} as Record<string, unknown>]] = takeMessages();
  assert.equal([event, key], ["refused", "ann"]);
});

test("wait: of all keys with waiters, one at a time probes the store", async () => {
  let probes = 0;
  const redis = {
    runScript: (_: unknown, __: unknown, args: readonly string[]) => {
      if (args.includes("pause")) probes += 1;
      return Promise.reject(gone);
    },
  };
  const limiter = RedisLimiter.create(redis, "users", gcra({ limit: 5, periodMs: 1000 }), {
    whenUnavailable: "wait",
  });
  const waits = Array.from({ length: 100 }, (_, i) => limiter.for(`${i}`).acquire());
  const ends = Promise.allSettled(waits);
  await timers.tickAsync(10_000);
  assert.ok(probes > 10 && probes < 30, `${probes} probes in 10 s`);
  const closed = limiter.close();
  await timers.tickAsync(1000);
  await Promise.all([closed, ends]);
  assert.is(timers.countTimers(), 0);
  takeMessages();
});

test("an outage ends with its limiter at the latest", async () => {
  const { limiter, store } = make();
  const leases = new HandLeaseStore();
  const places = new RemoteConcurrency(leases, "key", 1, {
    ...{ name: "pages", leaseMs: 9000, maxWaiting: 2, timeoutMs: 100, whenUnavailable: "throw" },
  });
  store.away = gone;
  leases.away = gone;
  for (const each of [limiter, places]) {
    await failure(() => each.acquire());
    await timers.tickAsync(30);
    const closed = each.close();
    await timers.tickAsync(0);
    await closed;
    await timers.tickAsync(1000);
    assert.equal([each.state, each.stats.unavailableMs], ["closed", 30]);
  }
  takeMessages();
});

test("leases: waits, refusals, cancellations, failures, outages", async () => {
  const store = new HandLeaseStore();
  const limiter = new RemoteConcurrency(store, "key", 1, {
    ...{ name: "pages", leaseMs: 9000, maxWaiting: 2, timeoutMs: 100 },
    whenUnavailable: "throw",
  });
  const lease = await limiter.acquire();
  const controller = new AbortController();
  const waits = [limiter.acquire(), limiter.acquire(1, { signal: controller.signal })];
  const aborted = failure(() => waits[1]);
  await settled();
  assert.is(await limiter.tryAcquire(1, 0), undefined);
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  await timers.tickAsync(50);
  controller.abort("enough");
  await aborted;
  const tried = limiter.tryAcquire(1, 20);
  await timers.tickAsync(20);
  assert.is(await tried, undefined);
  await lease.release();
  await settled();
  await waits[0];
  const page = { limiter: "pages", permits: 1 };
  assert.equal(takeMessages(), [
    ["refused", { ...page, reason: "too-long", waitedMs: 0 }],
    ["refused", { ...page, reason: "queue-full", waitedMs: 0 }],
    ["cancelled", { ...page, waitedMs: 50, reason: "enough" }],
    ["refused", { ...page, reason: "too-long", waitedMs: 20 }],
    ["wait", { ...page, waitMs: 70 }],
  ]);
  store.away = gone;
  assert.instance(await failure(() => limiter.tryAcquire()), StoreUnavailableError);
  assert.is(limiter.state, "unavailable");
  await timers.tickAsync(30);
  store.away = undefined;
  await limiter.peek();
  await settled();
  const counts = { granted: 0, refused: 0, failed: 1 };
  const [unavailable, recovered] = takeMessages();
  assert.equal(unavailable, ["unavailable", { limiter: "pages", cause: gone }]);
  assert.equal(recovered?.[1], { limiter: "pages", cause: gone, durationMs: 30, ...counts });
  assert.equal(limiter.stats, {
    ...{ granted: 2, refused: 3, cancelled: 1, waiting: 0 },
    ...{ ...calm, failed: 1, outages: 1, unavailableMs: 30 },
  });
  const last = failure(() => limiter.acquire());
  await settled();
  await limiter.close();
  await last;
  assert.equal([limiter.state, limiter.stats.cancelled], ["closed", 2]);
});

test("leases that are granted during an outage are reported after recovery", async () => {
  const store = new HandLeaseStore();
  const limiter = new RemoteConcurrency(store, "key", 2, {
    ...{ name: "pages", leaseMs: 9000, maxWaiting: 5, timeoutMs: 100 },
    ...{ whenUnavailable: "local", instances: () => 1 },
  });
  store.away = gone;
  const lease = await limiter.acquire();
  await limiter.acquire();
  const wait = limiter.acquire();
  await settled();
  assert.equal([limiter.state, limiter.stats.waiting], ["unavailable", 1]);
  await timers.tickAsync(5);
  await lease.release();
  await wait;
  store.away = undefined;
  await timers.tickAsync(1000);
  const [away, waited, back] = takeMessages();
  assert.equal(away, ["unavailable", { limiter: "pages", cause: gone }]);
  assert.equal(waited, ["wait", { limiter: "pages", permits: 1, waitMs: 5 }]);
  const { durationMs, ...facts } = back?.[1] ?? {};
  assert.ok(Number(durationMs) >= 5 && Number(durationMs) < 1000, `${durationMs}`);
  assert.equal(facts, { limiter: "pages", cause: gone, granted: 3, refused: 0, failed: 0 });
  assert.equal([limiter.state, limiter.stats.grantedInOutages], ["ready", 3]);
  await limiter.close();
});

test.run();
