import { getEventListeners } from "node:events";
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import type { Timer } from "../../src/ground/clock.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../src/ground/errors.ts";
import {
  fixedWindow,
  type Reservation,
  ReservationCancelledError,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
} from "../../src/index.ts";
import { StoreLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const MICRO = 0.001;

const slow = smoothBursty({ permitsPerSecond: 1 });

/** A limiter of one a second, on which the next reservation waits a second. */
async function makeUsed(options: Parameters<typeof onHand>[1] = {}) {
  const made = onHand(slow, options);
  await made.limiter.reserve();
  return made;
}

const ready = suite("remote reservation, ready");

ready("a reservation without a wait is ready at once", async () => {
  const { limiter } = onHand(slow);
  const reservation = await limiter.reserve(2);
  assert.equal([reservation.permits, reservation.waitMs], [2, 0]);
  assert.is(await reservation.ready(), 0);
  assert.is(await reservation.ready(), 0);
});

ready("ready() resolves at the instant and not before, for every caller and later", async () => {
  const { clock, limiter } = await makeUsed();
  const reservation = await limiter.reserve();
  assert.is(reservation.waitMs, 1000);
  const waiting = [watch(clock, reservation.ready()), watch(clock, reservation.ready())];
  await clock.advance(1000 - MICRO);
  assert.equal(
    waiting.map(({ at }) => at),
    [undefined, undefined],
  );
  await clock.advance(MICRO);
  assert.equal(
    waiting.map(({ at, value }) => [at, value]),
    [
      [1000, 1000],
      [1000, 1000],
    ],
  );
  assert.is(await reservation.ready(), 1000);
});

ready("several callers wait for one reservation, and the limiter closes", async () => {
  const { clock, limiter } = await makeUsed();
  const reservation = await limiter.reserve();
  const { signal } = new AbortController();
  const waiting = [
    watch(clock, reservation.ready()),
    watch(clock, limiter.acquire()),
    watch(clock, reservation.ready({ signal })),
    watch(clock, reservation.ready()),
  ];
  await clock.advance(10);
  await limiter.close();
  for (const { error } of waiting) assert.instance(error, LimiterClosedError);
  assert.is(getEventListeners(signal, "abort").length, 0);
});

ready("a reservation without ready() needs no timer", async () => {
  let set = 0;
  class CountingClock extends FakeClock {
    override wakeAt(timeMs: number, wake: () => void): Timer {
      set += 1;
      return super.wakeAt(timeMs, wake);
    }
  }
  const { limiter } = await makeUsed({ clock: new CountingClock() });
  await limiter.reserve();
  assert.is(set, 0);
});

ready("a pause defers the reservation, and it can be cancelled until then", async () => {
  const { clock, limiter } = await makeUsed();
  const [kept, dropped] = [await limiter.reserve(), await limiter.reserve()];
  const waiting = watch(clock, kept.ready());
  await limiter.pause(5000);
  const late = watch(clock, kept.ready());
  await clock.advance(4000);
  assert.is(waiting.at, undefined);
  assert.is(await dropped.cancel(), true);
  await clock.advance(1000);
  assert.equal([waiting.at, late.at], [5000, 5000]);
  assert.is(await kept.cancel(), false);
});

ready("a reset ends the pause that defers a reservation; the instant stays", async () => {
  const { clock, limiter } = await makeUsed();
  const reservations = [await limiter.reserve(), await limiter.reserve(), await limiter.reserve()];
  const waiting = reservations.map((one) => watch(clock, one.ready()));
  await limiter.pause(5000);
  await clock.advance(1500);
  await limiter.reset();
  await clock.advance(4000);
  assert.equal(instants(waiting), [1500, 2000, 3000]);
});

ready("a reset does not end a pause that is called after it, even before its reply", async () => {
  const { clock, store, limiter } = await makeUsed();
  const waiting = watch(clock, (await limiter.reserve()).ready());
  await limiter.pause(5000);
  store.held = true;
  const changes = [limiter.reset(), limiter.pause(2000)];
  await store.deliver();
  await Promise.all(changes);
  const later = watch(clock, limiter.acquire());
  await clock.advance(6000);
  assert.equal(instants([waiting, later]), [2000, 2000]);
});

ready("a reset ends a pause when the store has run it, not if it fails", async () => {
  const { clock, store, limiter } = await makeUsed();
  const waiting = watch(clock, (await limiter.reserve()).ready());
  await limiter.pause(5000);
  store.away = new Error("WRONGTYPE");
  assert.instance(await failure(() => limiter.reset()), StoreUnavailableError);
  store.away = undefined;
  await clock.advance(1500);
  assert.is(waiting.at, undefined);
  store.held = true;
  const reset = limiter.reset();
  await clock.advance(500);
  assert.is(waiting.at, undefined, "the store may still refuse it");
  await store.deliver();
  await reset;
  assert.is(waiting.at, 2000);
});

ready("a signal that is aborted already cancels it", async () => {
  const { store, limiter } = await makeUsed();
  const reason = new Error("enough");
  const reservation = await limiter.reserve();
  const signal = AbortSignal.abort(reason);
  assert.is(await failure(() => reservation.ready({ signal })), reason);
  await turn();
  assert.is(store.sent(), "back 1 ()");
  assert.is(await reservation.cancel(), false);
  assert.instance(await failure(() => reservation.ready()), ReservationCancelledError);
});

ready("a signal ends the wait and cancels the reservation, for all of its callers", async () => {
  const { clock, store, limiter } = await makeUsed();
  const controller = new AbortController();
  const { signal } = controller;
  const reservation = await limiter.reserve();
  const waiting = [
    watch(clock, reservation.ready({ signal })),
    watch(clock, reservation.ready({ signal })),
    watch(clock, reservation.ready()),
  ];
  await turn();
  const reason = new Error("enough");
  controller.abort(reason);
  await turn();
  assert.ok(waiting.every(({ error }) => error === reason));
  assert.is(store.sent(), "back 1 ()");
  assert.is(store.batches.length, 3);
  assert.is(getEventListeners(signal, "abort").length, 0);
  assert.is((await limiter.reserve()).waitMs, 1000);
});

ready("ready() leaves no listener behind", async () => {
  const { clock, limiter } = await makeUsed();
  const { signal } = new AbortController();
  const [kept, dropped] = [await limiter.reserve(), await limiter.reserve()];
  const waiting = watch(clock, kept.ready({ signal }));
  const dropping = watch(clock, dropped.ready({ signal }));
  await turn();
  assert.is(
    getEventListeners(signal, "abort").length,
    1,
    "one listener for all: Node warns of eleven",
  );
  await dropped.cancel();
  await clock.advance(1000);
  assert.is(waiting.value, 1000);
  assert.instance(dropping.error, ReservationCancelledError);
  assert.is(getEventListeners(signal, "abort").length, 0);
  const signal2 = new AbortController().signal;
  await kept.ready({ signal: signal2 });
  assert.is(getEventListeners(signal2, "abort").length, 0);
});

ready.run();

const cancel = suite("remote reservation, cancel");

cancel("cancel gives back what was taken, with the receipts, once", async () => {
  const stored = smoothBursty({ permitsPerSecond: 1, burstSeconds: 5, prefilled: true });
  const cold = smoothWarmingUp({ permitsPerSecond: 1, warmupMs: 10_000 });
  for (const [policies, permits, sent] of [
    [stored, 7, "back 7 (5)"],
    [cold, 2, "back 2 (2)"],
    [{ stored, cold }, { stored: 7, cold: 2 }, "back 7,2 (5,2)"],
    [{ stored, cold }, { cold: 2 }, "back ,2 (0,2)"],
  ] as const) {
    const [{ clock, store, limiter }, without] = [onHand(policies), onHand(policies)];
    for (const one of [limiter, without.limiter]) {
      await one.pause(1000);
      await one.charge(1);
    }
    const reservation = await limiter.reserve(permits);
    assert.ok(reservation.waitMs > 0);
    const twice = await Promise.all([reservation.cancel(), reservation.cancel()]);
    assert.equal([twice, store.sent()], [[true, false], sent]);
    assert.is(await reservation.cancel(), false);
    // where several policies have to agree, the slot itself is lost
    if (!("algorithm" in policies)) continue;
    await clock.advance(1000);
    await without.clock.advance(1000);
    assert.equal(await limiter.decide(3), await without.limiter.decide(3));
  }
});

cancel("a reservation that is due cannot be cancelled", async () => {
  const { clock, store, limiter } = await makeUsed();
  const now = await onHand(slow).limiter.reserve();
  assert.is(await now.cancel(), false);
  const reservation = await limiter.reserve();
  await clock.advance(1000);
  const { length } = store.batches;
  assert.is(await reservation.cancel(), false);
  assert.is(store.batches.length, length);
});

cancel("cancel rejects ready()", async () => {
  const { clock, limiter } = await makeUsed();
  const reservation = await limiter.reserve();
  const waiting = watch(clock, reservation.ready());
  await turn();
  assert.is(await reservation.cancel(), true);
  await turn();
  assert.instance(waiting.error, ReservationCancelledError);
  assert.equal((waiting.error as ReservationCancelledError).facts, { waitMs: 1000 });
  await clock.advance(5000);
});

cancel("cancel after settle gives back the settled amount", async () => {
  for (const settled of [0, 0.25, 1, 3]) {
    const { limiter } = await makeUsed();
    const reservation = await limiter.reserve();
    await reservation.settle(settled);
    assert.is(await reservation.cancel(), true);
    assert.is((await limiter.peek()).waitMs, 1000, `settled as ${settled}`);
  }
});

cancel("cancel rejects while the store is unavailable, and disturbs no other waiter", async () => {
  const { store, limiter } = await makeUsed();
  const [first, second] = [await limiter.reserve(), await limiter.reserve()];
  store.away = new Error("gone");
  assert.instance(await failure(() => first.cancel()), StoreUnavailableError);
  const controller = new AbortController();
  const waiting = failure(() => second.ready({ signal: controller.signal }));
  await turn();
  const reason = new Error("enough");
  controller.abort(reason);
  assert.is(await waiting, reason);
  await turn();
});

cancel.run();

const settle = suite("remote reservation, settle");

/** How long the next caller waits after these, ms. */
async function waitAfter(...settled: number[]): Promise<number> {
  const { limiter } = await makeUsed();
  const reservation = await limiter.reserve(2);
  for (const actual of settled) await reservation.settle(actual);
  return (await limiter.peek()).waitMs;
}

settle("settle charges more to the next caller or gives back, and may be repeated", async () => {
  assert.is(await waitAfter(), 3000);
  assert.is(await waitAfter(2), 3000);
  assert.is(await waitAfter(5), 6000);
  assert.is(await waitAfter(0.5), 1500);
  assert.is(await waitAfter(0), 1000);
  assert.is(await waitAfter(5, 0.5, 2), 3000);
});

settle("settle by name: policies that are not named stay as they are", async () => {
  const fast = smoothBursty({ permitsPerSecond: 10 });
  const { store, limiter } = onHand({ a: slow, b: fast, c: fast });
  const reservation = await limiter.reserve({ a: 2, b: 2 });
  await reservation.settle({ a: 3, b: 1 });
  assert.is(store.sent(), "charge 1,0,0, refund 0,1,0");
  await reservation.settle({ b: 4 });
  assert.is(store.sent(), "charge 0,3,0");
});

settle("settle refuses a bad number before anything changes", async () => {
  const { store, limiter } = await makeUsed();
  const reservation = await limiter.reserve();
  const { length } = store.batches;
  for (const bad of [-1, Number.NaN, Infinity, "1", { strange: 1 }] as number[]) {
    assert.match(`${await failure(() => reservation.settle(bad))}`, "permits");
  }
  assert.is(store.batches.length, length);
});

settle("settle after cancel charges all that was used", async () => {
  const { limiter } = await makeUsed();
  const reservation = await limiter.reserve();
  await reservation.cancel();
  await reservation.settle(3);
  assert.is((await limiter.peek()).waitMs, 4000);
});

settle("settle rejects while the store is unavailable, and can be repeated", async () => {
  const { store, limiter } = await makeUsed();
  const reservation: Reservation = await limiter.reserve();
  store.away = new Error("gone");
  assert.instance(await failure(() => reservation.settle(3)), StoreUnavailableError);
  store.away = undefined;
  await reservation.settle(3);
  assert.is((await limiter.peek()).waitMs, 4000);
});

const second = { limit: 12, windowMs: 1000 };
const windows = [fixedWindow(second), slidingWindow(second), slidingLog(second)];

/** For each kind of window a limiter; the window at 0 is used by five and seven, and eight of the next are promised. */
async function* makePromised() {
  for (const policy of windows) {
    const clock = new FakeClock();
    const limiter = StoreLimiter.create(memoryStore({ clock }), "api", policy, { clock });
    const [used, kept, promised] = [
      await limiter.reserve(5),
      await limiter.reserve(7),
      await limiter.reserve(8),
    ];
    assert.is(promised.waitMs, 1000);
    const remaining = async () => (await limiter.peek(1)).remaining;
    yield { name: policy.algorithm.name, clock, limiter, used, kept, promised, remaining };
    await limiter.close();
  }
}

settle("what a window gets back is not taken from a later one that is promised", async () => {
  for await (const { name, clock, used, kept, remaining } of makePromised()) {
    await used.settle(1);
    await kept.undo();
    await clock.advance(1000);
    assert.is(await remaining(), 4, name);
    // its window is over
    await used.undo();
    assert.is(await remaining(), 4, name);
  }
});

settle("what a promised window gets back, that window grants", async () => {
  for await (const { name, clock, promised, remaining } of makePromised()) {
    await promised.settle(6);
    await clock.advance(1000);
    assert.is(await remaining(), 6, name);
    await promised.settle(3);
    assert.is(await remaining(), 9, name);
    await promised.undo();
    assert.is(await remaining(), 12, name);
  }
});

settle("a promise that was settled to less gives the rest back when it is cancelled", async () => {
  for await (const { name, clock, limiter, promised, remaining } of makePromised()) {
    const last = await limiter.reserve(10);
    assert.is(last.waitMs, 2000, name);
    await promised.settle(6);
    assert.is(await promised.cancel(), true);
    await clock.advance(2000);
    assert.is(await remaining(), 2, name);
  }
});

settle(
  "what settle has charged comes back in any window, what was granted in its own",
  async () => {
    for await (const { name, clock, used, promised, remaining } of makePromised()) {
      await promised.undo();
      await clock.advance(1000);
      await used.settle(15);
      assert.is(await remaining(), 2, name);
      await used.settle(2);
      assert.is(await remaining(), 12, name);
      await used.settle(6);
      assert.is(await remaining(), 8, name);
      await used.settle(2);
      assert.is(await remaining(), 12, name);
    }
  },
);

settle(
  "what was fetched ahead comes back to the window for which the store granted it",
  async () => {
    for (const policy of windows) {
      const clock = new FakeClock();
      const store = memoryStore({ clock });
      const prefetch = { permits: 4, maxAgeMs: 5000 };
      const fetching = StoreLimiter.create(store, "api", policy, { clock, prefetch });
      const other = StoreLimiter.create(store, "api", policy, { clock });
      const used: Reservation[] = [];
      for (let i = 0; i < 12; i++) used.push(await fetching.reserve());
      const promised = await fetching.reserve(8);
      assert.is(promised.waitMs, 1000);
      for (const reservation of used) await reservation.undo();
      await clock.advance(1000);
      let granted = 8;
      for (const limiter of [fetching, other]) {
        while (await limiter.tryAcquire()) granted += 1;
      }
      assert.is(granted, 12, policy.algorithm.name);
      await Promise.all([fetching.close(), other.close()]);
    }
  },
);

settle.run();

const late = suite("remote reservation, a late reply");
let timers: FakeTimers.Clock;

late.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

late.after.each(() => {
  timers.uninstall();
});

late("permits of a late reply are given back; a late refusal gives nothing back", async () => {
  for (const [maxWaiting, expected] of [
    [Infinity, "back 1 ()"],
    [0, "pause 0"],
  ] as const) {
    const { store, limiter } = await makeUsed({ maxWaiting });
    const before = await limiter.peek();
    store.held = true;
    const failed = failure(() => limiter.reserve());
    await timers.tickAsync(1000);
    assert.instance(await failed, StoreUnavailableError);
    await store.deliver();
    await timers.tickAsync(25);
    assert.is(store.sent(), expected);
    assert.equal(await limiter.peek(), before);
  }
});

late.run();
