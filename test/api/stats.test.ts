import { once } from "node:events";
import * as assert from "uvu/assert";
import { diagnostics } from "../../src/ground/diagnostics.ts";
import {
  allOf,
  ConcurrencyLimiter,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  QueueFullError,
  RateLimiter,
  ReservationCancelledError,
  smoothBursty,
  TooManyKeysError,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { listener, type ReceivedMessage } from "../support/limiter/listen.ts";
import { failure, turn } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const { start, takeMessages, stop } = listener();
const test = suite("meter");

test.before(start);
test.before.each(() => void takeMessages());
test.after(stop);

function api({ permitsPerSecond = 10, maxWaiting = Infinity } = {}) {
  const clock = new FakeClock();
  return {
    clock,
    limiter: RateLimiter.create(permitsPerSecond, { clock, maxWaiting, name: "api" }),
  };
}

const nothing = { granted: 0, refused: 0, cancelled: 0, waiting: 0 };

test("an immediate grant is counted, and sends no event", async () => {
  const { limiter, clock } = api();
  await clock.advance(1000);
  await limiter.acquire();
  limiter.tryAcquire();
  await limiter.tryAcquire(1, 50);
  limiter.reserve();
  limiter.decide();
  limiter.peek();
  assert.equal(limiter.stats, { ...nothing, granted: 5 });
  assert.equal(takeMessages(), []);
});

test("a wait sends an event when it is over, with its length", async () => {
  const { limiter, clock } = api();
  const all = [limiter.acquire(3), limiter.acquire(), limiter.tryAcquire(2, 1000)];
  assert.equal(limiter.stats, { ...nothing, granted: 1, waiting: 2 });
  assert.equal(takeMessages(), []);
  await clock.advance(300);
  assert.equal(takeMessages(), [["wait", { limiter: "api", permits: 1, waitMs: 300 }]]);
  await clock.advance(100);
  assert.equal(takeMessages(), [["wait", { limiter: "api", permits: 2, waitMs: 400 }]]);
  assert.equal(await Promise.all(all), [0, 300, true]);
  assert.equal(limiter.stats, { ...nothing, granted: 3 });
});

test("a reservation's wait sends its event at once", async () => {
  const { limiter, clock } = api();
  limiter.reserve(5);
  const reservation = limiter.reserve(2);
  await turn();
  assert.equal(takeMessages(), [["wait", { limiter: "api", permits: 2, waitMs: 500 }]]);
  await clock.advance(200);
  reservation.cancel();
  await turn();
  const [[event, facts]] = takeMessages() as [ReceivedMessage];
  assert.instance(facts.reason, ReservationCancelledError);
  const { reason } = facts;
  const cancelled = { limiter: "api", permits: 2, waitedMs: 200, reason };
  assert.equal([event, facts], ["cancelled", cancelled]);
  assert.equal(limiter.stats, { ...nothing, granted: 2, cancelled: 1 });
});

test("the event of a refusal carries how long the wait would have been, and the policy", async () => {
  const { limiter } = api();
  limiter.tryAcquire(3);
  const refused = {
    ...{ limiter: "api", permits: 2, reason: "too-long", waitedMs: 0 },
    ...{ waitMs: 300, policy: "default" },
  };
  assert.is(limiter.tryAcquire(2), false);
  assert.equal(takeMessages(), [["refused", refused]], "within the call");
  assert.is(limiter.decide(2).allowed, false);
  assert.equal(takeMessages(), [["refused", refused]]);
  assert.is(await limiter.tryAcquire(2, 299), false);
  assert.equal(takeMessages(), [["refused", refused]]);
  assert.is(await limiter.tryAcquire(2, 0), false);
  assert.equal(takeMessages(), [["refused", refused]]);
  limiter.peek(2);
  assert.equal(takeMessages(), []);
  assert.equal(limiter.stats, { ...nothing, granted: 1, refused: 4 });
});

test("several policies: events carry the permits by name, and which policy refused", () => {
  const limiter = Limiter.create(
    {
      requests: gcra({ limit: 100, periodMs: 1000 }),
      tokens: fixedWindow({ limit: 10, windowMs: 1000, align: "first" }),
    },
    { clock: new FakeClock(), name: "model" },
  );
  limiter.tryAcquire({ requests: 1, tokens: 8 });
  limiter.tryAcquire({ tokens: 5 });
  limiter.tryAcquire(3);
  const refused = { limiter: "model", reason: "too-long", waitedMs: 0, policy: "tokens" };
  assert.equal(takeMessages(), [
    ["refused", { ...refused, permits: { tokens: 5 }, waitMs: 1000 }],
    ["refused", { ...refused, permits: { requests: 3, tokens: 3 }, waitMs: 1000 }],
  ]);
  assert.equal(limiter.stats, { ...nothing, granted: 1, refused: 2 });
});

test("a full queue refuses acquire, reserve and a try with a time-out", async () => {
  const { limiter } = api({ maxWaiting: 1 });
  limiter.tryAcquire();
  void limiter.acquire();
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  assert.instance(await failure(() => limiter.reserve()), QueueFullError);
  assert.is(await limiter.tryAcquire(1, 1000), false);
  const refused = {
    ...{ limiter: "api", permits: 1, reason: "queue-full", waitedMs: 0 },
    ...{ waitMs: 200, policy: "default" },
  };
  assert.equal(takeMessages(), [
    ["refused", refused],
    ["refused", refused],
    ["refused", refused],
  ]);
  assert.equal(limiter.stats, { ...nothing, granted: 1, refused: 3, waiting: 1 });
});

test("a waiter whose time-out a setRate breaks sends an event with its wait", async () => {
  const { limiter, clock } = api();
  await clock.advance(50);
  limiter.tryAcquire(5);
  const tried = [limiter.tryAcquire(1, 600), limiter.tryAcquire(1, 700)];
  await clock.advance(100);
  limiter.pause(650);
  assert.equal(takeMessages(), [], "not during the call");
  await turn();
  assert.equal(takeMessages(), [
    ["refused", { limiter: "api", permits: 1, reason: "too-long", waitedMs: 100 }],
    ["refused", { limiter: "api", permits: 1, reason: "too-long", waitedMs: 100 }],
  ]);
  assert.equal(await Promise.all(tried), [false, false]);
  assert.equal(limiter.stats, { ...nothing, granted: 1, refused: 2 });
});

test("the event of an aborted wait carries the limiter, the wait and the reason", async () => {
  const { limiter, clock } = api();
  limiter.tryAcquire(5);
  const [one, two] = [new AbortController(), new AbortController()];
  const waits = [
    limiter.acquire(1, { signal: one.signal }),
    limiter.tryAcquire(2, { signal: two.signal }),
    limiter.reserve(3).ready({ signal: two.signal }),
  ];
  const ends = waits.map((wait) => failure(() => wait));
  await turn();
  takeMessages();
  await clock.advance(100);
  one.abort("changed my mind");
  await clock.advance(100);
  two.abort("me too");
  await Promise.all(ends);
  assert.equal(takeMessages(), [
    ["cancelled", { limiter: "api", permits: 1, waitedMs: 100, reason: "changed my mind" }],
    ["cancelled", { limiter: "api", permits: 2, waitedMs: 200, reason: "me too" }],
    ["cancelled", { limiter: "api", permits: 3, waitedMs: 200, reason: "me too" }],
  ]);
  assert.equal(limiter.stats, { ...nothing, granted: 2, cancelled: 3 });
});

test("a wait of hours has its full length, although time is counted anew while no caller waits", async () => {
  const { limiter, clock } = api({ permitsPerSecond: 1e-4 });
  const hours = 2 * 3_600_000;
  limiter.tryAcquire();
  const controller = new AbortController();
  const ended = failure(() => limiter.acquire(1, { signal: controller.signal }));
  await clock.advance(hours);
  controller.abort();
  await ended;
  const reservation = limiter.reserve();
  await clock.advance(hours / 4);
  reservation.cancel();
  await turn();
  const cancelled = takeMessages().filter(([event]) => event === "cancelled");
  assert.equal(
    cancelled.map(([, { waitedMs }]) => waitedMs),
    [hours, hours / 4],
  );
});

test("bad arguments and requests that can never pass are not counted as refusals", async () => {
  const limiter = Limiter.create(gcra({ limit: 2, periodMs: 1000 }), { clock: new FakeClock() });
  await failure(() => limiter.acquire(3));
  await failure(() => limiter.tryAcquire(-1));
  await failure(() => limiter.acquire(1, { signal: AbortSignal.abort() }));
  assert.equal(limiter.stats, nothing);
  assert.equal(takeMessages(), []);
});

test("events of a keyed limiter carry the key; its counters sum up all keys", async () => {
  const clock = new FakeClock();
  const policy = fixedWindow({ limit: 1, windowMs: 1000, align: "first" });
  const users = KeyedLimiter.create(policy, { clock, name: "users" });
  users.for("ann").tryAcquire();
  users.for("bob").tryAcquire();
  users.for("ann").tryAcquire();
  users.for("bob").decide();
  const wait = users.for("ann").acquire();
  assert.is(users.stats.waiting, 1);
  users.for("ann").tryAcquire();
  const refusal = {
    reason: "too-long",
    waitedMs: 0,
    policy: "default",
    limiter: "users",
    permits: 1,
  };
  assert.equal(takeMessages(), [
    ["refused", { ...refusal, key: "ann", waitMs: 1000 }],
    ["refused", { ...refusal, key: "bob", waitMs: 1000 }],
    ["refused", { ...refusal, key: "ann", waitMs: 2000 }],
  ]);
  await clock.advance(1000);
  assert.is(await wait, 1000);
  assert.equal(takeMessages(), [
    ["wait", { limiter: "users", key: "ann", permits: 1, waitMs: 1000 }],
  ]);
  assert.is(await users.for("carl").acquire(), 0);
  assert.is(await users.for("dan").acquire(1, {}), 0);
  assert.equal(users.stats, { ...nothing, granted: 5, refused: 3 });
});

test("a full table of keys counts as a refusal, for every verb", async () => {
  const clock = new FakeClock();
  const users = KeyedLimiter.create(gcra({ limit: 2, periodMs: 1000 }), {
    ...{ clock, maxKeys: 1, name: "users", whenFull: "refuse" },
  });
  users.for("ann").tryAcquire();
  const carl = users.for("carl");
  assert.is(carl.tryAcquire(), false);
  assert.is(await carl.tryAcquire(1, 100), false);
  assert.is(carl.decide().allowed, false);
  for (const verb of [() => carl.acquire(), () => carl.reserve()]) {
    assert.instance(await failure(verb), TooManyKeysError);
  }
  const refused = { limiter: "users", key: "carl", permits: 1, reason: "too-many-keys" };
  assert.equal(
    takeMessages(),
    Array.from({ length: 5 }, () => ["refused", { ...refused, waitedMs: 0 }]),
  );
  assert.instance(await failure(() => carl.pause(1)), TooManyKeysError);
  assert.equal(takeMessages(), [], "requests for no permits are not counted");
  assert.equal(users.stats, { ...nothing, granted: 1, refused: 5 });
});

test("combinations: the limiters that refuse send the events", async () => {
  const clock = new FakeClock();
  const common = RateLimiter.create(1000, { clock, name: "common" });
  const users = KeyedLimiter.create(gcra({ limit: 1, periodMs: 1000 }), { clock, name: "users" });
  const inner = allOf(users.for("ann"), common);
  const limiter = allOf(common, inner);
  await clock.advance(1000);
  assert.is(limiter.tryAcquire(), true);
  takeMessages();
  assert.is(limiter.tryAcquire(), false);
  assert.is(await limiter.tryAcquire(1, 500), false);
  assert.is(limiter.decide().allowed, false);
  const refused = {
    ...{ limiter: "users", key: "ann", permits: 1, reason: "too-long", waitedMs: 0 },
    ...{ waitMs: 1000, policy: "default" },
  };
  assert.equal(takeMessages(), [
    ["refused", refused],
    ["refused", refused],
    ["refused", refused],
  ]);
  assert.equal(common.stats, { ...nothing, granted: 2 });
  assert.equal(users.stats, { ...nothing, granted: 1, refused: 3 });
});

test("leases: waits, refusals, time-outs, cancellations", async () => {
  const clock = new FakeClock();
  const limiter = ConcurrencyLimiter.create(1, { clock, maxWaiting: 2, name: "reports" });
  const lease = await limiter.acquire();
  const controller = new AbortController();
  const waits = [limiter.acquire(), limiter.acquire(1, { signal: controller.signal })];
  assert.is(limiter.tryAcquire(), undefined);
  assert.is(await limiter.tryAcquire(1, 0), undefined);
  assert.is(await limiter.tryAcquire(1, 5), undefined);
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  assert.equal(limiter.stats, { ...nothing, granted: 1, refused: 4, waiting: 2 });
  const place = { limiter: "reports", permits: 1 };
  assert.equal(
    takeMessages(),
    ["too-long", "too-long", "queue-full", "queue-full"].map((reason) => [
      "refused",
      { ...place, reason, waitedMs: 0 },
    ]),
  );
  await clock.advance(70);
  const ended = failure(() => waits[1]);
  controller.abort("enough");
  await ended;
  assert.equal(takeMessages(), [["cancelled", { ...place, waitedMs: 70, reason: "enough" }]]);
  const tried = limiter.tryAcquire(1, 30);
  await clock.advance(30);
  assert.is(await tried, undefined);
  assert.equal(takeMessages(), [["refused", { ...place, reason: "too-long", waitedMs: 30 }]]);
  lease.release();
  await waits[0];
  assert.equal(takeMessages(), [["wait", { ...place, waitMs: 100 }]]);
  assert.equal(limiter.stats, { ...nothing, granted: 2, refused: 5, cancelled: 1 });
});

test("a subscriber may call the limiter, also during a release", async () => {
  const { limiter, clock } = api();
  const asked: Promise<unknown>[] = [];
  let answers = 0;
  const again = () => {
    limiter.peek();
    answers += 1;
    if (answers <= 10) asked.push(limiter.tryAcquire(1, 150), limiter.acquire());
  };
  diagnostics.wait.subscribe(again);
  diagnostics.refused.subscribe(again);
  diagnostics.cancelled.subscribe(again);
  const controller = new AbortController();
  const { signal } = controller;
  asked.push(limiter.acquire(2), limiter.acquire(), limiter.tryAcquire(1, 1000));
  asked.push(failure(() => limiter.acquire(1, { signal })));
  await clock.advance(200);
  controller.abort();
  limiter.tryAcquire();
  await clock.advance(10_000);
  diagnostics.wait.unsubscribe(again);
  diagnostics.refused.unsubscribe(again);
  diagnostics.cancelled.unsubscribe(again);
  await Promise.all(asked);
  const { granted, refused, cancelled, waiting } = limiter.stats;
  assert.equal([cancelled, waiting], [1, 0]);
  assert.is(granted + refused + cancelled, asked.length + 1);
  const waits = takeMessages().filter(([event]) => event === "wait");
  assert.is(waits.length, granted - 1, "every caller but the first has waited");
});

test("a subscriber that throws disturbs no caller: its error is uncaught", async () => {
  const { limiter, clock } = api();
  const fail = () => {
    throw new Error("a bad subscriber");
  };
  diagnostics.refused.subscribe(fail);
  diagnostics.wait.subscribe(fail);
  // the test runner listens too, and would end the process
  const listeners = process.rawListeners("uncaughtException") as (() => void)[];
  process.removeAllListeners("uncaughtException");
  try {
    limiter.tryAcquire();
    let thrown = once(process, "uncaughtException");
    assert.is(limiter.tryAcquire(), false);
    assert.match(String((await thrown)[0]), /a bad subscriber/);
    thrown = once(process, "uncaughtException");
    const wait = limiter.acquire();
    await clock.advance(100);
    assert.is(await wait, 100);
    assert.match(String((await thrown)[0]), /a bad subscriber/);
  } finally {
    for (const listener of listeners) process.on("uncaughtException", listener);
    diagnostics.refused.unsubscribe(fail);
    diagnostics.wait.unsubscribe(fail);
  }
  assert.equal(limiter.stats, { ...nothing, granted: 2, refused: 1 });
});

const silent = suite("meter without subscribers");

silent("without subscribers no message is built, and everything is counted", async () => {
  const channels = Object.values(diagnostics);
  let published = 0;
  for (const channel of channels) {
    // code of the pages, which runs in this process too, may have subscribed
    Object.defineProperty(channel, "hasSubscribers", { value: false, configurable: true });
    channel.publish = () => {
      published += 1;
    };
  }
  const clock = new FakeClock();
  const limiter = Limiter.create(smoothBursty({ permitsPerSecond: 10 }), { clock });
  const controller = new AbortController();
  limiter.tryAcquire();
  limiter.tryAcquire();
  const wait = limiter.acquire();
  const cancelled = failure(() => limiter.acquire(1, { signal: controller.signal }));
  const refused = limiter.tryAcquire(1, 250);
  limiter.pause(300);
  controller.abort();
  await clock.advance(1000);
  await Promise.all([wait, cancelled, refused]);
  for (const channel of channels) {
    Reflect.deleteProperty(channel, "publish");
    Reflect.deleteProperty(channel, "hasSubscribers");
  }
  assert.is(published, 0);
  assert.equal(limiter.stats, { granted: 2, refused: 2, cancelled: 1, waiting: 0 });
});

test.run();
silent.run();
