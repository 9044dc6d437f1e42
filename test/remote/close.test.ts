import { getEventListeners } from "node:events";
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { fairShares, smoothBursty, tokenBucket } from "../../src/index.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteLimiter } from "../../src/remote/remote-limiter.ts";
import { Breaker } from "../../src/stores/breaker.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { HandStore, onHand } from "../support/limiter/remote.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const unsaving = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });

const everyVerb = (limiter: RemoteLimiter): (() => Promise<unknown>)[] => [
  () => limiter.acquire(),
  () => limiter.tryAcquire(),
  () => limiter.tryAcquire(1, 5),
  () => limiter.reserve(),
  () => limiter.decide(),
  () => limiter.peek(),
  () => limiter.charge(1),
  () => limiter.refund(1),
  () => limiter.pause(1),
  () => limiter.update(unsaving(1)),
  () => limiter.reset(),
];

const closing = suite("remote limiters, close");

for (const prefetch of [undefined, { permits: 10, maxAgeMs: 1000 }]) {
  const which = prefetch === undefined ? "" : ", with prefetch";

  closing(`waiters are rejected, and their promised permits are given back${which}`, async () => {
    const { clock, store, limiter } = onHand(unsaving(10), { prefetch });
    const other = onHand(unsaving(10), { clock, store }).limiter;
    await limiter.acquire();
    const { signal } = new AbortController();
    const reservation = await limiter.reserve();
    const waiting = [
      watch<unknown>(clock, limiter.acquire()),
      watch<unknown>(clock, limiter.acquire(20)),
      watch<unknown>(clock, limiter.tryAcquire(2, { timeoutMs: 1e6, signal })),
      watch<unknown>(clock, reservation.ready({ signal })),
    ];
    await clock.advance(0);
    await limiter.close();
    for (const { error } of waiting) {
      assert.instance(error, LimiterClosedError);
      assert.match(String(error), 'limiter "test" was closed');
    }
    assert.is((await other.peek()).waitMs, 100);
    assert.is(getEventListeners(signal, "abort").length, 0);
    await clock.advance(1e6);
    assert.is(await reservation.cancel(), false);
  });

  closing(`later calls are refused, and change nothing${which}`, async () => {
    const { store, limiter } = onHand(unsaving(10), { prefetch });
    await limiter.acquire();
    await limiter.close();
    const { length } = store.batches;
    for (const verb of everyVerb(limiter)) {
      assert.instance(await failure(verb), LimiterClosedError, String(verb));
    }
    await turn();
    assert.is(store.batches.length, length);
    assert.is(limiter.stats.waiting, 0);
  });

  closing(`close awaits requests in flight, and gives their permits back${which}`, async () => {
    const { clock, store, limiter } = onHand(unsaving(10), { prefetch });
    const other = onHand(unsaving(10), { clock, store }).limiter;
    await limiter.charge(1);
    const before = await other.peek();
    store.held = true;
    const verbs = [limiter.acquire(), limiter.reserve(), limiter.tryAcquire(2, 1e6)];
    const ends = Promise.allSettled(verbs);
    await turn();
    let closed = false;
    const done = limiter.close().then(() => {
      closed = true;
    });
    for (const end of await ends) {
      assert.instance((end as PromiseRejectedResult).reason, LimiterClosedError);
    }
    await turn();
    assert.is(closed, false);
    await store.deliver();
    await done;
    assert.equal(await other.peek(), before);
  });
}

closing("prefetched permits go back, and so does a refill that arrives later", async () => {
  const { clock, store, limiter } = onHand(unsaving(10), {
    prefetch: { permits: 10, maxAgeMs: 5000 },
  });
  const other = onHand(unsaving(10), { clock, store }).limiter;
  await limiter.acquire();
  await turn();
  store.held = true;
  // half of it, so that the next refill is in flight
  const used = Array.from({ length: 5 }, () => limiter.tryAcquire(1, 1e6).catch(() => {}));
  await turn();
  assert.match(store.sent(), /^reserve 1 within \d+ x5$/);
  const done = limiter.close();
  await Promise.all(used);
  await store.deliver();
  await done;
  assert.is((await other.peek()).waitMs, 100);
});

closing(
  "a caller that waits behind another one for prefetched permits is rejected once",
  async () => {
    const policy = tokenBucket({ capacity: 100, refill: 1, everyMs: 1000 });
    const { store, limiter } = onHand(policy, { prefetch: { permits: 5, maxAgeMs: 1000 } });
    await limiter.acquire();
    await turn();
    store.held = true;
    // the buffer cannot serve the first one, and could serve the second one
    const ends = Promise.allSettled([limiter.acquire(20), limiter.acquire()]);
    const done = limiter.close();
    for (const end of await ends) {
      assert.instance((end as PromiseRejectedResult).reason, LimiterClosedError);
    }
    await store.deliver();
    await done;
    assert.equal(
      [limiter.stats.granted, limiter.stats.cancelled, limiter.stats.waiting],
      [1, 2, 0],
    );
    assert.is((await onHand(policy, { store }).limiter.peek()).remaining, 99);
  },
);

closing("a fair limiter returns permits that are granted after its waiters have left", async () => {
  const policy = tokenBucket({ capacity: 100, refill: 1, everyMs: 1000 });
  const { store, limiter } = onHand(policy, { order: fairShares() });
  const ends = Promise.allSettled(Array.from({ length: 20 }, () => limiter.acquire()));
  // the store has granted the next calls, but its reply is under way
  while (store.batches.length < 2) await Promise.resolve();
  assert.match(store.sent(), "decide 1, decide 1");
  const done = limiter.close();
  const granted = (await ends).filter(({ status }) => status === "fulfilled").length;
  await done;
  assert.equal([granted, limiter.stats.waiting], [2, 0]);
  assert.is((await onHand(policy, { store }).limiter.peek()).remaining, 98);
});

closing("a reservation without a waiter stays valid after close", async () => {
  const { clock, limiter } = onHand(unsaving(10));
  const [now, later] = [await limiter.reserve(), await limiter.reserve()];
  await limiter.close();
  assert.is(await now.ready(), 0);
  assert.instance(await failure(() => later.ready()), LimiterClosedError);
  assert.instance(await failure(() => later.settle(0)), LimiterClosedError);
  await clock.advance(100);
  assert.is(await later.ready(), 100);
});

closing("a second close returns the same promise, and `await using` closes too", async () => {
  const { store, limiter } = onHand(unsaving(10), { prefetch: { permits: 5, maxAgeMs: 1000 } });
  {
    await using same = limiter;
    await same.acquire();
  }
  assert.match(store.sent(), /^back /);
  const { length } = store.batches;
  await Promise.all([limiter.close(), limiter.close()]);
  assert.is(limiter.close(), limiter.close());
  assert.is(store.batches.length, length);
});

closing("a limiter that was never used is closed at once", async () => {
  const { store, limiter } = onHand(unsaving(10));
  assert.is(limiter.state, "ready");
  await limiter.close();
  assert.equal([limiter.state, store.batches.length], ["closed", 0]);
});

closing.run();

const away = suite("remote limiters, close while the store is unavailable");
let timers: FakeTimers.Clock;

away.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

away.after.each(() => {
  timers.uninstall();
});

for (const waitForStore of [false, true]) {
  away(
    `close takes at most timeoutMs, and leaves no timer; waitForStore: ${waitForStore}`,
    async () => {
      const { store, limiter } = onHand(unsaving(10), {
        ...{
          whenUnavailable: waitForStore ? "wait" : "throw",
          timeoutMs: 300,
          prefetch: { permits: 5, maxAgeMs: 1000 },
        },
      });
      await limiter.acquire();
      await timers.tickAsync(0);
      store.held = true;
      const asked = [limiter.acquire(), limiter.acquire(9), limiter.peek(), limiter.charge(1)];
      const ends = Promise.allSettled(asked);
      await timers.tickAsync(100);
      let closed = false;
      const done = limiter.close().then(() => {
        closed = true;
      });
      await timers.tickAsync(299);
      assert.is(closed, false);
      await timers.tickAsync(1);
      assert.is(closed, true);
      await done;
      const [sleeping, large, peeked, charged] = (await ends).map(
        (end) => (end as PromiseRejectedResult).reason,
      );
      assert.instance(sleeping, LimiterClosedError);
      assert.instance(large, LimiterClosedError);
      for (const error of [peeked, charged]) {
        assert.instance(error, waitForStore ? LimiterClosedError : StoreUnavailableError);
      }
      assert.is(timers.countTimers(), 0);
      // a reply that comes now has no receiver, and starts nothing
      await store.deliver();
      await timers.tickAsync(5000);
      assert.is(timers.countTimers(), 0);
    },
  );

  away(
    `close leaves no timer where a batch fails at once; waitForStore: ${waitForStore}`,
    async () => {
      const { store, limiter } = onHand(unsaving(10), {
        ...{
          whenUnavailable: waitForStore ? "wait" : "throw",
          timeoutMs: 300,
          prefetch: { permits: 5, maxAgeMs: 1000 },
        },
      });
      await limiter.acquire();
      await timers.tickAsync(0);
      store.away = new Error("gone");
      const asked = Promise.allSettled([limiter.acquire(9), limiter.peek()]);
      await timers.tickAsync(50);
      const done = limiter.close();
      await timers.tickAsync(300);
      await done;
      for (const { status } of await asked) assert.is(status, "rejected");
      const { length } = store.batches;
      await timers.tickAsync(5000);
      assert.is(store.batches.length, length);
      assert.is(timers.countTimers(), 0);
    },
  );
}

for (const whenUnavailable of ["throw", "allow", "local"] as const) {
  away(`other limiters of the connection go on probing: ${whenUnavailable}`, async () => {
    const clock = new FakeClock();
    const store = new HandStore(clock, new Breaker());
    const options = { clock, store, whenUnavailable, timeoutMs: 300, instances: () => 2 };
    const [one, two] = [onHand(unsaving(10), options), onHand(unsaving(10), options)];
    await Promise.all([one.limiter.acquire(), two.limiter.charge(1)]);
    store.away = new Error("gone");
    const asked = [one, two].map(({ limiter }) => limiter.acquire().catch((error) => error));
    await timers.tickAsync(10);
    const done = one.limiter.close();
    await timers.tickAsync(300);
    await done;
    const error = await asked[0];
    if (whenUnavailable === "throw") assert.instance(error, StoreUnavailableError);
    else if (whenUnavailable === "local") assert.instance(error, LimiterClosedError);
    store.away = undefined;
    await timers.tickAsync(3000);
    assert.is(store.breaker?.isOpen, false);
    assert.instance(await failure(() => one.limiter.peek()), LimiterClosedError);
    assert.is((await two.limiter.peek()).limit, 1);
    const end = two.limiter.close();
    await timers.tickAsync(300);
    await end;
    assert.is(timers.countTimers(), 0);
  });
}

for (const whenUnavailable of ["throw", "allow", "local"] as const) {
  away(`close waits for nothing when nothing is in flight: ${whenUnavailable}`, async () => {
    const store = new HandStore(new FakeClock(), new Breaker());
    const options = { store, whenUnavailable, timeoutMs: 300, instances: () => 2 };
    const { limiter } = onHand(unsaving(10), options);
    store.held = true;
    const asked = failure(() => limiter.update(unsaving(5)));
    await timers.tickAsync(300);
    store.away = new Error("gone");
    await store.deliver();
    await timers.tickAsync(5000);
    assert.is(limiter.state, "unavailable");
    let closed = false;
    const done = limiter.close().then(() => {
      closed = true;
    });
    await timers.tickAsync(1);
    assert.is(closed, true);
    await done;
    await asked;
    assert.is(timers.countTimers(), 0);
  });
}

away("a batch that leaves during close does not outlive it", async () => {
  const { store, limiter } = onHand(unsaving(10), { timeoutMs: 300 });
  store.held = true;
  const gone = failure(() => limiter.acquire());
  await timers.tickAsync(0);
  const done = limiter.close();
  assert.instance(await gone, LimiterClosedError);
  await timers.tickAsync(100);
  const delivered = store.deliver();
  store.held = true;
  await delivered;
  assert.is(store.sent(), "back 1 ()");
  await timers.tickAsync(200);
  await done;
  assert.is(timers.countTimers(), 0);
});

away.run();
