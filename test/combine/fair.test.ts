/** Fair limiters on a store in a combination: whose turn it is, and which share pays. */
import * as assert from "uvu/assert";
import { reserveAwaited } from "../../src/api/reserve-awaited.ts";
import {
  allOf,
  fairShares,
  fixedWindow,
  type Policy,
  RateLimiter,
  smoothBursty,
  takeFromAll,
} from "../../src/index.ts";
import type { RemoteLimiter } from "../../src/remote/remote-limiter.ts";
import { casStore, StoreLimiter } from "../../src/store.ts";
import type { Store } from "../../src/stores/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { suite } from "../support/suite.ts";

const test = suite("fair limiters on a store in a combination");

const hourly = fixedWindow({ limit: 1, windowMs: 3_600_000 });
const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });

/** A fair limiter of 10 a second on a store, combined with one in this process. */
function world(clock = new FakeClock(), store: Store = memoryStore({ clock })) {
  const fair = StoreLimiter.create(store, "shared", policy, { clock, order: fairShares() });
  const other = RateLimiter.create(1000, { clock });
  const order: string[] = [];
  const call = (limiter: Pick<StoreLimiter, "acquire">, share: string) => {
    limiter.acquire(1, { share }).then(
      () => order.push(share),
      () => {},
    );
  };
  /** Three calls each of a and of b: without debts they alternate. */
  const contend = async (limiter: Pick<StoreLimiter, "acquire"> = fair) => {
    for (const share of ["b", "b", "a", "a", "a", "b"]) call(limiter, share);
    await clock.advance(10_000);
    return order.splice(0).join("");
  };
  return { clock, store, fair, other, limiter: allOf(fair, other), order, call, contend };
}

test("without a debt the shares alternate", async () => {
  const { fair, contend } = world();
  await fair.acquire(1, { share: "c" });
  assert.is(await contend(), "bbabaa");
});

for (const [verb, take] of [
  ["acquire", (limiter) => limiter.acquire(5, { share: "a" })],
  ["decide", (limiter) => limiter.decide(5, { share: "a" })],
  ["reserve", (limiter) => limiter.reserve(5, { share: "a" })],
  ["tryAcquire", (limiter) => limiter.tryAcquire(5, { timeoutMs: 50, share: "a" })],
] as const satisfies readonly [string, (limiter: StoreLimiter) => unknown][]) {
  test(`${verb} of a combination charges the share`, async () => {
    const { limiter, contend } = world();
    await take(limiter as unknown as StoreLimiter);
    assert.is(await contend(), "bbbaaa");
  });
}

test("a reservation that has to wait is charged, and refunded when it is cancelled or undone", async () => {
  for (const end of ["keep", "cancel", "undo"] as const) {
    const { clock, fair, limiter, contend } = world();
    await fair.acquire(1, { share: "c" });
    const reservation = await limiter.reserve(5, { share: "a" });
    assert.is(reservation.waitMs, 100);
    if (end !== "keep") {
      await reservation[end]();
      await reservation.undo();
    }
    assert.is(await contend(), end === "keep" ? "bbbaaa" : "bbabaa", end);
    await clock.advance(1000);
  }
});

test("what a combination gives back is refunded to the share", async () => {
  const { clock, fair, other, limiter, contend } = world();
  await fair.acquire(1, { share: "c" });
  other.pause(60_000);
  const refused = await limiter.decide(5, { share: "a" });
  assert.equal([refused.allowed, refused.waitMs], [false, 60_000]);
  assert.is(await limiter.tryAcquire(1, { timeoutMs: 50, share: "a" }), false);
  const { undo } = await takeFromAll([{ limiter: fair, timeoutMs: 1000 }]);
  await undo();
  const waiting = (fair as unknown as RemoteLimiter)[reserveAwaited](5, undefined, {
    share: "a",
  });
  await clock.advance(100);
  const reservation = await waiting;
  await reservation.ready();
  await reservation.undo();
  await reservation.undo();
  assert.is(await contend(), "bbabaa");
});

for (const [name, storeOn] of [
  ["a store that asks limiters together", (clock: FakeClock) => memoryStore({ clock })],
  ["a store that does not", () => casStore(new MapBackend())],
] as const) {
  test(`what was taken at once is given back, and its share is refunded: ${name}`, async () => {
    const clock = new FakeClock();
    const { fair, contend } = world(clock, storeOn(clock));
    const taken = await takeFromAll([{ limiter: fair, permits: 5 }]);
    assert.is(taken.allowed, true);
    assert.is((await fair.peek()).waitMs, 500);
    await taken.undo();
    assert.is((await fair.peek()).waitMs, 0);
    await fair.acquire(1, { share: "c" });
    assert.is(await contend(), "bbabaa");
  });
}

test("a combination overtakes no caller that waits in this process", async () => {
  const { clock, fair, limiter, order, call } = world();
  await fair.acquire(1, { share: "c" });
  for (let i = 0; i < 8; i++) call(fair, "a");
  await clock.advance(0);
  const seen = await limiter.peek(1, { share: "a" });
  assert.equal([seen.allowed, seen.waitMs], [false, 900]);
  assert.is((await limiter.peek(1, { share: "b" })).waitMs, 400);
  // the store would grant it now, but it is not its turn
  await fair.reset();
  assert.is((await limiter.decide(1, { share: "a" })).allowed, false);
  assert.is(await limiter.tryAcquire(), false);
  call(limiter as never, "b");
  await clock.advance(1000);
  assert.equal(order.slice().sort().join(""), "aaaaaaaab");
  assert.ok(order.indexOf("b") < 6, order.join(""));
});

/** As `world`, with four callers that wait, and a store whose state another process has reset. */
async function behindOthers() {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const own = world(clock, store);
  const create = (name: string, limit: Policy) =>
    StoreLimiter.create(store, name, limit, { clock });
  const [elsewhere, beside] = [create("shared", policy), create("beside", hourly)];
  await own.fair.acquire(1, { share: "c" });
  for (let i = 0; i < 4; i++) own.call(own.fair, "a");
  await clock.advance(0);
  await elsewhere.reset();
  return { ...own, elsewhere, beside };
}

test("while others go first nothing is taken, although the store would grant it", async () => {
  const { fair, elsewhere, beside } = await behindOthers();
  const { allowed, results } = await takeFromAll([{ limiter: fair }, { limiter: beside }]);
  assert.equal([allowed, results.map((result) => result?.allowed)], [false, [false, true]]);
  assert.equal([results[0]?.decision.allowed, results[0]?.decision.waitMs], [false, 100]);
  assert.equal([(await elsewhere.peek()).waitMs, (await beside.peek()).remaining], [0, 1]);
});

test("a request that accepts a wait is booked at once, although others go first", async () => {
  const { fair, elsewhere } = await behindOthers();
  const { allowed, results } = await takeFromAll([{ limiter: fair, timeoutMs: 1000 }]);
  assert.equal([allowed, results[0]?.reservation?.waitMs], [true, 0]);
  assert.is((await elsewhere.peek()).waitMs, 100);
  const late = await takeFromAll([{ limiter: fair, permits: 9, timeoutMs: 50 }]);
  assert.equal([late.allowed, late.results[0]?.decision.waitMs], [false, 100]);
});

test("a fair limiter that another refusal leaves untouched says that it would pass", async () => {
  const { clock, store, fair } = world();
  const beside = StoreLimiter.create(store, "beside", hourly, { clock });
  await beside.acquire();
  const { allowed, results } = await takeFromAll([{ limiter: fair }, { limiter: beside }]);
  assert.equal([allowed, results.map((result) => result?.allowed)], [false, [true, false]]);
  assert.is(results[0]?.decision.allowed, true);
});

test("a limiter that is optional is charged out of turn, and the others decide", async () => {
  const { clock, fair, other, call, order } = world();
  await fair.acquire(1, { share: "c" });
  for (let i = 0; i < 4; i++) call(fair, "a");
  await clock.advance(0);
  const taken = await takeFromAll([{ limiter: fair, optional: true }, { limiter: other }]);
  assert.is(taken.allowed, true);
  await clock.advance(1000);
  assert.is(order.join(""), "aaaa");
});

test("a combination of a fair limiter checks its arguments", async () => {
  const { limiter } = world();
  assert.match(`${await failure(() => limiter.decide(0, { share: "a" }))}`, "permits");
  assert.match(`${await failure(() => limiter.peek(1, { share: 7 as never }))}`, "share");
});

test("no caller of a combination is left when the limiter waits and is aborted", async () => {
  const { clock, fair, limiter, contend } = world();
  await fair.acquire(1, { share: "c" });
  const controller = new AbortController();
  const { signal } = controller;
  const calls = Array.from({ length: 4 }, () =>
    watch(clock, limiter.acquire(1, { share: "a", signal })),
  );
  await clock.advance(50);
  controller.abort(new Error("enough"));
  await clock.advance(0);
  assert.ok(calls.every(({ error }) => String(error).includes("enough")));
  assert.is(await contend(), "bbabaa");
});

test.run();
