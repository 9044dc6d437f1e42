import { getEventListeners } from "node:events";
import FakeTimers from "@sinonjs/fake-timers";
import * as fc from "fast-check";
import * as assert from "uvu/assert";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  type Policies,
  QueueFullError,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteLimiter } from "../../src/remote/remote-limiter.ts";
import { StoreRateLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const unsaving = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });

/** A limiter that prefetches, and one of another process that does not. */
function open(
  policies: Policies,
  permits: number | "auto",
  { maxAgeMs = 1000, ...options }: Parameters<typeof onHand>[1] & { maxAgeMs?: number } = {},
) {
  const made = onHand(policies, { ...options, prefetch: { permits, maxAgeMs } });
  const { clock, store } = made;
  return { ...made, other: onHand(policies, { clock, store }).limiter };
}

/** Acquires one after the other for `ms`. Returns the instants of the grants. */
async function drive(clock: FakeClock, limiter: RemoteLimiter, ms: number): Promise<number[]> {
  const instants: number[] = [];
  const end = clock.now() + ms;
  const loop = async () => {
    while (clock.now() < end) {
      await limiter.acquire();
      instants.push(clock.now());
    }
  };
  const done = loop();
  await clock.advance(ms);
  await clock.advance(100);
  await done;
  return instants;
}

const serving = suite("prefetcher, serving");

serving("one caller: the same instants as single requests, and few batches", async () => {
  const { clock, store, limiter } = open(unsaving(1000), 100);
  const instants = await drive(clock, limiter, 1000);
  assert.equal(
    instants.slice(0, 1000),
    Array.from({ length: 1000 }, (_, i) => i),
  );
  assert.ok(store.batches.length <= 21, `${store.batches.length} batches`);
  assert.is(store.sent(0), "reserve 1 within Infinity x1, reserve 1 within 1000000 x100");
  // that far beyond the local waiters
  assert.is(store.sent(1), "reserve 1 within 1001000 x50");
});

serving("a high rate is prefetched in chunks of a millisecond, and the mean is exact", async () => {
  const { clock, store, limiter } = open(unsaving(100_000), 5000);
  const instants = await drive(clock, limiter, 200);
  const used = instants.filter((at) => at < 200).length;
  assert.ok(used >= 20_000 - 100 && used <= 20_000 + 100, `${used}`);
  // 2500 in each refill
  assert.ok(store.batches.length <= 9, `${store.batches.length} batches`);
  assert.is(store.sent(0), "reserve 1 within Infinity x1, reserve 100 within 1000000 x50");
});

serving("a due permit is granted at once, without a batch and without a timer", async () => {
  const { store, limiter } = open(smoothBursty({ permitsPerSecond: 100, prefilled: true }), 50);
  await limiter.acquire();
  await turn();
  const { length } = store.batches;
  assert.equal([await limiter.acquire(), await limiter.acquire(2)], [0, 0]);
  assert.equal(await Promise.all([limiter.tryAcquire(), limiter.tryAcquire(3, 0)]), [true, true]);
  assert.is(await limiter.acquire(1, {}), 0);
  assert.is(await limiter.tryAcquire(1, { timeoutMs: 5 }), true);
  assert.is((await limiter.reserve(2)).waitMs, 0);
  assert.is(store.batches.length, length);
});

serving("a permit that is not due in time is refused without a batch or a charge", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  await limiter.acquire();
  await turn();
  const { length } = store.batches;
  assert.equal(
    [await limiter.tryAcquire(), await limiter.tryAcquire(1, 99), await limiter.tryAcquire(2, 199)],
    [false, false, false],
  );
  assert.is(store.batches.length, length);
  const just = watch(clock, limiter.tryAcquire(2, 200));
  await clock.advance(200);
  assert.equal([just.value, just.at], [true, 200]);
});

serving("several policies: only requests with one number for all use the buffer", async () => {
  const policies = { a: unsaving(10), b: unsaving(20) };
  const { clock, store, limiter } = open(policies, 4);
  await limiter.acquire();
  await turn();
  assert.is(store.sent(), "reserve 1,1 within Infinity x1, reserve 1,1 within 1000000 x4");
  const same = [limiter.acquire(), limiter.acquire({ a: 1, b: 1 })].map((one) => watch(clock, one));
  await clock.advance(0);
  const { length } = store.batches;
  const different = watch(clock, limiter.acquire({ b: 1 }));
  await turn();
  assert.is(store.batches.length, length + 1);
  await clock.advance(10_000);
  assert.equal(
    [...same, different].map(({ at }) => at),
    // behind the reserved permits: 5 chunks and 2 more
    [100, 200, 650],
  );
});

serving("a request larger than `permits` is sent alone, without a prefetch", async () => {
  const { store, limiter } = open(unsaving(10), 4);
  await limiter.acquire(5);
  assert.is(store.sent(), "reserve 5 within Infinity x1");
});

serving(
  "callers that the buffer cannot serve ask in one batch, and a refill follows them",
  async () => {
    const { clock, store, limiter } = open(unsaving(1000), 20);
    const instants = Array.from({ length: 50 }, () => watch(clock, limiter.acquire()));
    await clock.advance(0);
    assert.equal(
      store.batches.map((_, i) => store.sent(i)),
      ["reserve 1 within Infinity x50, reserve 1 within 1000000 x20"],
    );
    await clock.advance(100);
    assert.equal(
      instants.map(({ at }) => at),
      Array.from({ length: 50 }, (_, i) => i),
    );
  },
);

serving("refills also serve callers that wait in line far ahead", async () => {
  const { clock, store, limiter } = open(unsaving(100), 50, { maxAgeMs: 500 });
  let used = 0;
  const work = async () => {
    for (;;) {
      await limiter.acquire();
      used += 1;
    }
  };
  for (let i = 0; i < 100; i++) work().catch(() => {});
  await clock.advance(1000);
  const { length } = store.batches;
  const before = used;
  await clock.advance(2000);
  assert.is(used - before, 200);
  // fewer batches than callers
  assert.ok(store.batches.length - length <= 20, `${store.batches.length - length} batches`);
});

serving("pause delays prefetched permits", async () => {
  const { clock, limiter } = open(smoothBursty({ permitsPerSecond: 10, prefilled: true }), 4);
  await limiter.acquire();
  await turn();
  await limiter.acquire();
  await limiter.pause(500);
  assert.is(await limiter.tryAcquire(), false);
  assert.equal([(await limiter.peek()).waitMs, (await limiter.peek()).remaining], [500, 0]);
  const waited = watch(clock, limiter.acquire());
  await clock.advance(499);
  assert.is(waited.at, undefined);
  await clock.advance(1);
  assert.is(waited.at, 500);
});

serving("after a reset the next refill reaches no further than without the pause", async () => {
  const { clock, store, limiter, other } = open(unsaving(10), 100);
  await limiter.pause(60_000);
  assert.is(await limiter.tryAcquire(), false);
  assert.match(store.sent(), /within 61000000 x100$/);
  const waited = watch(clock, limiter.acquire());
  await turn();
  await limiter.reset();
  await turn();
  assert.is(waited.at, 0);
  assert.is((await other.peek()).waitMs, 100);
  const later = watch(clock, limiter.acquire());
  await turn();
  assert.match(store.sent(), /within 1000000 x100$/);
  await clock.advance(100);
  assert.is(later.at, 100);
});

serving("a refill that is under way at a reset returns to the old state", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  await limiter.pause(60_000);
  store.held = true;
  const tried = limiter.tryAcquire();
  await turn();
  const reset = limiter.reset();
  await store.deliver();
  await Promise.all([tried, reset]);
  assert.is(store.sent(), "back 1 (), back 1 (), back 1 (), back 1 (), reset");
  await limiter.charge(1);
  const later = watch(clock, limiter.acquire());
  await clock.advance(1000);
  assert.is(later.at, 100);
});

serving("a local setRate applies at once: prefetched permits go back first", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  await limiter.acquire();
  await turn();
  await limiter.update(unsaving(1000));
  assert.is(store.sent(), "back 1 (), back 1 (), back 1 (), back 1 (), set s1000 0 0");
  const waited = [limiter.acquire(), limiter.acquire()].map((one) => watch(clock, one));
  await clock.advance(1000);
  assert.equal(
    waited.map(({ at }) => at),
    [100, 101],
  );
  await limiter.resetPolicies();
  assert.match(store.sent(), /^back .*unset$/);
});

serving("decide and peek: prefetched permits can be granted, and are counted", async () => {
  const { clock, limiter } = open(smoothBursty({ permitsPerSecond: 10, prefilled: true }), 6);
  await limiter.acquire();
  await turn();
  const { allowed, remaining } = await limiter.peek(6);
  assert.equal([allowed, remaining], [true, 6]);
  const decided = await limiter.decide(2);
  assert.equal([decided.allowed, decided.remaining], [true, 4]);
  for (let i = 0; i < 8; i++) assert.is((await limiter.decide()).allowed, true);
  const { waitMs } = await limiter.decide();
  assert.is(waitMs, 100);
  await clock.advance(100);
  assert.is((await limiter.decide()).allowed, true);
});

serving("decide puts back what it took if the store cannot be asked", async () => {
  const { store, limiter } = open(smoothBursty({ permitsPerSecond: 10, prefilled: true }), 6);
  await limiter.acquire();
  await turn();
  store.away = new Error("LOADING");
  assert.instance(await failure(() => limiter.decide(6)), StoreUnavailableError);
  assert.is(await limiter.tryAcquire(6), true);
});

serving("maxWaiting counts waiters, not prefetched permits", async () => {
  const { clock, limiter } = open(unsaving(10), 8, { maxWaiting: 2 });
  await limiter.acquire();
  await turn();
  const waiting = [watch(clock, limiter.acquire()), watch(clock, limiter.acquire())];
  await turn();
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  await clock.advance(200);
  assert.equal(
    waiting.map(({ at }) => at),
    [100, 200],
  );
});

serving.run();

const bounds = suite("prefetcher, bounds");

bounds("no permit is reserved further ahead than maxAgeMs", async () => {
  const { clock, store, limiter, other } = open(unsaving(10), 1000, { maxAgeMs: 500 });
  await limiter.acquire();
  await turn();
  assert.is((await other.peek()).waitMs, 600);
  // the reply is cut short: no second request follows at once
  const { length } = store.batches;
  const waited = watch(clock, limiter.acquire());
  await clock.advance(100);
  assert.equal([waited.at, store.batches.length], [100, length]);
  await drive(clock, limiter, 1000);
  assert.ok((await other.peek()).waitMs <= 600);
});

bounds("a bucket with little capacity gives few permits, and is not asked repeatedly", async () => {
  const { clock, store, limiter } = open(leakyBucket({ permitsPerSecond: 100, capacity: 5 }), 50);
  const instants = await drive(clock, limiter, 1000);
  assert.equal(
    instants.slice(0, 100),
    Array.from({ length: 100 }, (_, i) => 10 * i),
  );
  const refused = store.batches.flat().filter(({ verb }) => verb === "reserve").length;
  assert.ok(refused < 150, `${refused}`);
});

bounds("a refill has at most 1024 chunks", async () => {
  const { store, limiter } = open(unsaving(10), 1e6, { maxAgeMs: 1e9 });
  await limiter.acquire();
  assert.is(store.sent(), "reserve 1 within Infinity x1, reserve 1 within 1000000000000 x1024");
});

const KINDS: Record<string, Policies> = {
  smoothBursty: smoothBursty({ permitsPerSecond: 100 }),
  "smoothBursty, in chunks": smoothBursty({ permitsPerSecond: 5000, prefilled: true }),
  smoothWarmingUp: smoothWarmingUp({ permitsPerSecond: 5000, warmupMs: 100 }),
  gcra: gcra({ limit: 100, periodMs: 1000 }),
  tokenBucket: tokenBucket({ capacity: 5000, refill: 5000, everyMs: 1000 }),
  stepped: tokenBucket({ capacity: 5000, refill: 5000, everyMs: 1000, stepped: true }),
  fixedWindow: fixedWindow({ limit: 5000, windowMs: 1000 }),
  slidingWindow: slidingWindow({ limit: 5000, windowMs: 1000 }),
  slidingLog: slidingLog({ limit: 5000, windowMs: 1000 }),
  "two policies": { a: gcra({ limit: 5000, periodMs: 1000 }), b: unsaving(6000) },
};

for (const [name, policies] of Object.entries(KINDS)) {
  bounds(`unused permits go back after maxAgeMs, as if never taken: ${name}`, async () => {
    const { clock, store, limiter } = open(policies, 60, { maxAgeMs: 200 });
    const twin = onHand(policies);
    // part of a chunk
    for (const permits of [1, 7, 2]) {
      for (const each of [limiter, twin.limiter]) watch(clock, each.acquire(permits));
      await clock.advance(0);
    }
    const { length } = store.batches;
    await clock.advance(2000);
    await twin.clock.advance(2000);
    assert.is(store.batches.length, length + 1);
    assert.match(store.sent(), /^back /);
    const [mine, plain] = [await limiter.peek(), await twin.limiter.peek()];
    assert.equal([mine.allowed, mine.remaining], [plain.allowed, plain.remaining]);
  });
}

bounds("while other processes wait, at most maxAgeMs after the permit could be used", async () => {
  const { clock, limiter, other } = open(fixedWindow({ limit: 10, windowMs: 3_600_000 }), 9, {
    maxAgeMs: 700,
  });
  await limiter.acquire();
  await turn();
  assert.is(await other.tryAcquire(), false);
  await clock.advance(699);
  assert.is(await other.tryAcquire(), false);
  await clock.advance(1);
  assert.is((await other.peek()).remaining, 9);
});

bounds("a suspended process uses prefetched permits of any age, and no more", async () => {
  const fake = new FakeClock();
  let stoodStill = 0;
  const clock = {
    now: () => fake.now() + stoodStill,
    wakeAt: (timeMs: number, wake: () => void) => fake.wakeAt(timeMs - stoodStill, wake),
  };
  const policy = fixedWindow({ limit: 10, windowMs: 1000, align: "first" });
  const { limiter, other } = open(policy, 4, { maxAgeMs: 100, clock });
  await limiter.acquire();
  await turn();
  stoodStill = 5000;
  const at = (of: RemoteLimiter) =>
    Promise.all(Array.from({ length: 20 }, () => of.tryAcquire())).then(
      (answers) => answers.filter((granted) => granted).length,
    );
  const [here, there] = [await at(limiter), await at(other)];
  assert.is(here + there, 10 + 4, "the limit, and `permits` from before");
});

bounds("a permit in use is kept", async () => {
  const { clock, store, limiter } = open(
    smoothBursty({ permitsPerSecond: 10, prefilled: true }),
    4,
    {
      maxAgeMs: 1000,
    },
  );
  await limiter.acquire();
  for (let i = 0; i < 20; i++) {
    await clock.advance(200);
    assert.is(await limiter.tryAcquire(), true);
  }
  assert.ok(store.batches.flat().every(({ verb }) => verb === "reserve"));
});

bounds("an idle limiter has no timer", async () => {
  const alarms = new Set<unknown>();
  const { clock, limiter } = open(unsaving(100), 10, { maxAgeMs: 300 });
  const { wakeAt } = clock;
  clock.wakeAt = (timeMs, wake) => {
    const alarm = {};
    alarms.add(alarm);
    const timer = wakeAt.call(clock, timeMs, () => {
      alarms.delete(alarm);
      wake();
    });
    return {
      cancel: () => {
        alarms.delete(alarm);
        timer.cancel();
      },
    };
  };
  await drive(clock, limiter, 100);
  assert.is(alarms.size, 1);
  await clock.advance(1000);
  assert.is(alarms.size, 0);
});

bounds("auto: no prefetch for slow callers, much for fast ones", async () => {
  const slow = open(unsaving(5), "auto");
  await drive(slow.clock, slow.limiter, 5000);
  assert.ok(slow.store.batches.flat().every((each) => each.verb === "reserve" && each.count === 1));
  const { clock, store, limiter } = open(unsaving(1000), "auto");
  await drive(clock, limiter, 1000);
  assert.ok(store.batches.length < 80, `${store.batches.length} batches`);
  const { length } = store.batches;
  await drive(clock, limiter, 1000);
  const batches = store.batches.length - length;
  assert.ok(batches >= 8 && batches <= 45, `${batches} batches`);
  // an idle limiter gives back its permits, and starts small again
  await clock.advance(5000);
  assert.match(store.sent(), /^back /);
  const asked = store.batches.length;
  await limiter.acquire();
  const [own, run] = store.batches[asked] ?? [];
  assert.is(own?.verb, "reserve");
  assert.ok(run === undefined || (run.verb === "reserve" && run.count < 40));
});

/** The bound on all processes together, from the beginning until any instant. */
bounds("all processes never exceed the limit, and lose at most `permits`", async () => {
  const step = fc.record({
    who: fc.nat(2),
    permits: fc.constantFrom(1, 1, 1, 2, 3, 30),
    how: fc.constantFrom("acquire", "acquire", "tryAcquire", "within", "reserve", "abort"),
    afterMs: fc.constantFrom(0, 0, 0, 1, 7, 40, 300),
  });
  const cases = fc.record({
    rate: fc.constantFrom(20, 900, 7000),
    burstSeconds: fc.constantFrom(0, 0.05),
    permits: fc.constantFrom(1, 5, 40, "auto" as const),
    maxAgeMs: fc.constantFrom(10, 200),
    steps: fc.array(step, { minLength: 5, maxLength: 60 }),
  });
  await fc.assert(
    fc.asyncProperty(cases, async ({ rate, burstSeconds, permits, maxAgeMs, steps }) => {
      const policy = smoothBursty({ permitsPerSecond: rate, burstSeconds });
      const first = open(policy, permits, { maxAgeMs });
      const { clock, store } = first;
      const limiters = [first.limiter, open(policy, permits, { maxAgeMs, clock, store }).limiter];
      limiters.push(first.other);
      let used = 0;
      const piece = Math.max(1, Math.floor(rate / 1000));
      const use = (count: number) => {
        used += count;
        const most = (rate * clock.now()) / 1000 + Math.max(30, piece);
        assert.ok(used <= most + 1e-6, `${used} used after ${clock.now()} ms, at most ${most}`);
      };
      for (const { who, permits: count, how, afterMs } of steps) {
        const limiter = limiters[who] as RemoteLimiter;
        if (how === "acquire") void limiter.acquire(count).then(() => use(count));
        if (how === "tryAcquire") void limiter.tryAcquire(count).then((ok) => ok && use(count));
        if (how === "within") void limiter.tryAcquire(count, 50).then((ok) => ok && use(count));
        if (how === "reserve") {
          void limiter.reserve(count).then(async (one) => {
            await one.ready();
            use(count);
          });
        }
        if (how === "abort") {
          const controller = new AbortController();
          limiter.acquire(count, { signal: controller.signal }).then(
            () => use(count),
            () => {},
          );
          if (afterMs > 0) void clock.advance(0).then(() => controller.abort());
        }
        await clock.advance(afterMs);
      }
      await clock.advance(60_000);
      // permits that were not used came back, or were kept or lost; none was created
      const { waitMs, resetMs } = await first.other.peek();
      const stored = rate * burstSeconds - ((resetMs - waitMs) * rate) / 1000;
      const handedOut = (rate * (clock.now() + waitMs)) / 1000 - stored;
      assert.ok(used <= handedOut + 1e-6, `${used} used of ${handedOut}`);
    }),
    { numRuns: runs(150) },
  );
});

bounds("first in, first out, for any sizes and any delay of the store", async () => {
  const step = fc.record({
    permits: fc.constantFrom(1, 1, 1, 2, 5, 20),
    held: fc.boolean(),
    afterMs: fc.constantFrom(0, 0, 0, 3, 50),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      // no reply is cut short
      const { clock, store, limiter } = open(unsaving(200), 10, { maxAgeMs: 1e6 });
      const order: number[] = [];
      const all = steps.map(() => 0);
      for (const [i, { permits, held, afterMs }] of steps.entries()) {
        // (with two larger requests the store may grant the later one at once when the reply to the
        // first was late)
        if (held && permits < 20) store.held = true;
        else await store.deliver();
        void limiter.acquire(permits).then(() => order.push(i));
        await clock.advance(afterMs);
      }
      await store.deliver();
      await clock.advance(1e6);
      assert.equal(
        order,
        all.map((_, i) => i),
      );
    }),
    { numRuns: runs(150) },
  );
});

bounds("a large request made during a refill is not overtaken by later callers", async () => {
  const { clock, store, limiter } = open(unsaving(100), 10);
  await limiter.acquire();
  await clock.advance(50);
  store.held = true;
  // half of it: the next refill leaves
  const waited = Array.from({ length: 5 }, () => limiter.acquire());
  await Promise.all(waited);
  await turn();
  assert.match(store.sent(), /^reserve 1 within 1000000 x5$/);
  const order: string[] = [];
  void limiter.acquire(20).then(() => order.push("large"));
  void limiter.acquire().then(() => order.push("small"));
  void limiter.acquire(2).then(() => order.push("two"));
  // the refill arrives, and they are released
  const delivered = store.deliver();
  store.held = true;
  await delivered;
  assert.is(
    store.sent(),
    "reserve 20 within Infinity x1, reserve 1 within Infinity x1, reserve 2 within Infinity x1",
  );
  void limiter.acquire().then(() => order.push("late"));
  await turn();
  assert.equal(order, []);
  await store.deliver();
  await clock.advance(1000);
  assert.equal(order, ["large", "small", "two", "late"]);
});

bounds("the rest of a chunk goes back: fresh permits first, then stored ones", async () => {
  const policy = smoothBursty({ permitsPerSecond: 5000, burstSeconds: 0.0034, prefilled: true });
  const { clock, store, limiter } = open(policy, 20);
  await limiter.acquire();
  await turn();
  // 17 were stored: the first call took one, the first three chunks 5 each, the fourth one
  assert.is(store.sent(), "reserve 1 within Infinity x1, reserve 5 within 1000000 x4");
  await limiter.acquire(3);
  await clock.advance(2000);
  assert.is(store.sent(), "back 5 (5), back 5 (5), back 2 (2), back 5 (1)");
});

bounds.run();

const giving = suite("prefetcher, aborts");

giving("a caller that aborts its wait leaves its permits to the callers behind it", async () => {
  const { clock, store, limiter } = open(unsaving(10), 9);
  const controller = new AbortController();
  const { signal } = controller;
  await limiter.acquire();
  await turn();
  const gone = failure(() => limiter.acquire(1, { signal }));
  const behind = watch(clock, limiter.acquire());
  await turn();
  const { length } = store.batches;
  controller.abort(new Error("enough"));
  await gone;
  await turn();
  const next = watch(clock, limiter.acquire());
  await clock.advance(1000);
  assert.equal([behind.at, next.at], [100, 200]);
  assert.is(
    store.batches
      .slice(length)
      .flat()
      .filter(({ verb }) => verb === "back").length,
    0,
  );
  assert.is(getEventListeners(signal, "abort").length, 0);
});

giving("the buffer never exceeds `permits`: the last permits go back", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  await limiter.acquire();
  await turn();
  const controller = new AbortController();
  const gone = [1, 2, 3].map(() =>
    failure(() => limiter.acquire(1, { signal: controller.signal })),
  );
  await clock.advance(0);
  controller.abort();
  await Promise.all(gone);
  await turn();
  assert.is(store.sent(), "back 1 (), back 1 ()");
});

giving("permits of a cancelled reservation return to the buffer", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  await limiter.acquire();
  await turn();
  const reservation = await limiter.reserve();
  await turn();
  const { length } = store.batches;
  assert.equal([reservation.waitMs, await reservation.cancel()], [100, true]);
  assert.is((await limiter.reserve()).waitMs, 100);
  assert.is(store.batches.length, length);
  await clock.advance(0);
});

giving("a caller that aborts before it was served takes nothing", async () => {
  const { clock, store, limiter } = open(unsaving(10), 4);
  store.held = true;
  const controller = new AbortController();
  const { signal } = controller;
  const first = watch(clock, limiter.acquire());
  const gone = failure(() => limiter.acquire(1, { signal }));
  const behind = watch(clock, limiter.acquire());
  await turn();
  controller.abort(new Error("enough"));
  await gone;
  await store.deliver();
  await clock.advance(1000);
  assert.equal([first.at, behind.at], [0, 100]);
});

let timers: FakeTimers.Clock;
const away = suite("prefetcher, store unavailable");

away.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

away.after.each(() => {
  timers.uninstall();
});

away("callers that wait for a failed refill reject, and prefetched permits are used", async () => {
  const { store, limiter } = open(smoothBursty({ permitsPerSecond: 10, prefilled: true }), 4);
  await limiter.acquire();
  await timers.tickAsync(0);
  store.away = new Error("LOADING");
  const asked = [1, 1, 1, 1, 1, 1].map((permits) => limiter.acquire(permits));
  const ends = await Promise.allSettled(asked);
  const statuses = ends.map(({ status }) => status);
  assert.equal(statuses.slice(0, 4), Array(4).fill("fulfilled"));
  for (const end of ends.slice(4)) {
    assert.instance((end as PromiseRejectedResult).reason, StoreUnavailableError);
  }
  store.away = undefined;
  assert.is(await limiter.acquire(), 0);
  await timers.tickAsync(0);
  assert.is(timers.countTimers(), 0);
});

away("local: permits that a cut refill was refused do not count as taken", async () => {
  const options = { whenUnavailable: "local", instances: () => 1, maxAgeMs: 500 } as const;
  const { clock, store, limiter } = open(unsaving(10), 20, options);
  // the store reports its state, and not again with the next batch
  await limiter.peek();
  await limiter.acquire();
  await turn();
  assert.is(store.sent(), "reserve 1 within Infinity x1, reserve 1 within 500000 x20");
  await clock.advance(550);
  store.away = new Error("gone");
  assert.is(await limiter.tryAcquire(5), true, "prefetched");
  // 6 were taken, 15 refused
  assert.is((await limiter.peek()).waitMs, 600);
  const closed = limiter.close();
  await timers.tickAsync(1000);
  await closed;
});

away("no reply: callers fail in time, and a late refill is given back", async () => {
  const { store, limiter, other } = open(unsaving(10), 4, { timeoutMs: 300 });
  await limiter.acquire(5);
  const before = await other.peek();
  store.held = true;
  const told = Promise.allSettled([limiter.acquire(), limiter.acquire(), limiter.acquire(2)]);
  await timers.tickAsync(300);
  for (const end of await told) assert.is(end.status, "rejected");
  await store.deliver();
  // once the store is available again
  await timers.tickAsync(3000);
  assert.equal(await other.peek(), before);
});

away("waitForStore: callers of a refill wait for the store until their time-out", async () => {
  const { clock, store, limiter } = open(
    smoothBursty({ permitsPerSecond: 1e3, prefilled: true }),
    4,
    {
      whenUnavailable: "wait",
    },
  );
  store.away = new Error("gone");
  const first = limiter.acquire();
  const second = watch(clock, limiter.acquire());
  const soon = watch(clock, limiter.tryAcquire(1, 500));
  await timers.tickAsync(500);
  assert.equal([second.at, soon.value], [undefined, false]);
  store.away = undefined;
  await timers.tickAsync(3000);
  assert.equal([await first, second.value], [0, 0]);
});

away("waitForStore: callers behind one that is kept have their time-outs, too", async () => {
  const policy = smoothBursty({ permitsPerSecond: 1e3, prefilled: true });
  const { clock, store, limiter } = open(policy, 4, { whenUnavailable: "wait" });
  await limiter.acquire();
  await timers.tickAsync(0);
  store.away = new Error("gone");
  const large = watch(clock, limiter.acquire(50));
  const soon = watch(clock, limiter.tryAcquire(1, 500));
  await timers.tickAsync(100);
  const now = watch(clock, limiter.tryAcquire(1));
  const next = watch(clock, limiter.acquire());
  await timers.tickAsync(1);
  assert.equal([large.at, soon.at, now.value], [undefined, undefined, false]);
  await timers.tickAsync(400);
  assert.equal([large.at, soon.value, next.at], [undefined, false, undefined]);
  store.away = undefined;
  await timers.tickAsync(3000);
  assert.equal([large.value, next.value], [0, 0]);
});

away("waitForStore: a refill that has not left is discarded, and requested anew", async () => {
  const policy = smoothBursty({ permitsPerSecond: 1e3, prefilled: true });
  const { clock, store, limiter } = open(policy, 4, { whenUnavailable: "wait", timeoutMs: 300 });
  store.held = true;
  const peeked = limiter.peek();
  await timers.tickAsync(0);
  const controller = new AbortController();
  const first = watch(clock, limiter.acquire());
  const second = watch(clock, limiter.acquire());
  const gone = failure(() => limiter.acquire(1, { signal: controller.signal }));
  controller.abort();
  await gone;
  await timers.tickAsync(300);
  await store.deliver();
  await timers.tickAsync(0);
  assert.is((await peeked).allowed, true);
  assert.equal([first.value, second.value], [0, 0]);
  assert.is(store.sent(), "reserve 1 within Infinity x2");
  assert.is(timers.countTimers(), 0);
});

for (const whenUnavailable of ["allow", "local"] as const) {
  away(`${whenUnavailable}: prefetched permits are used first, then local grants`, async () => {
    const policy = smoothBursty({ permitsPerSecond: 10, prefilled: true });
    const { store, limiter } = open(policy, 4, { whenUnavailable, instances: () => 2 });
    await limiter.acquire();
    await timers.tickAsync(0);
    store.away = new Error("gone");
    let used = 0;
    while (used < 20 && (await limiter.tryAcquire())) used += 1;
    // half of the 6 that the store had left
    assert.is(used, whenUnavailable === "allow" ? 20 : 4 + 3);
  });
}

away("a refill fails in a way that no retry fixes: its waiters fail alike", async () => {
  const { store, limiter } = open(smoothBursty({ permitsPerSecond: 10, prefilled: true }), 4, {
    whenUnavailable: "allow",
  });
  store.away = new Error("WRONGTYPE Operation against a key holding the wrong kind of value");
  const errors = await Promise.all([1, 2].map(() => failure(() => limiter.acquire())));
  for (const error of errors) assert.instance(error, StoreUnavailableError);
});

giving.run();
away.run();

const sharing = suite("prefetcher, processes that share a limit");

/** Two processes with 20 callers each, the second a while after the first: how many permits each gets. */
async function share(rate: number, verb: "acquire" | "tryAcquire"): Promise<[number, number]> {
  const timers = FakeTimers.install({
    toFake: ["setTimeout", "clearTimeout", "performance", "Date"],
  });
  try {
    const store = memoryStore();
    store.delayMs = 1;
    const used: [number, number] = [0, 0];
    const limiters = [0, 1].map(() =>
      StoreRateLimiter.create(store, "name", rate, { burstSeconds: 0, prefetch: "auto" }),
    );
    let pauseMs = 1;
    // the callers do not call in step
    const pause = () => {
      pauseMs = 1 + ((5 * pauseMs) % 11);
      return new Promise((resolve) => setTimeout(resolve, pauseMs));
    };
    const caller = async (i: 0 | 1) => {
      const limiter = limiters[i] as StoreRateLimiter;
      for (;;) {
        const call = verb === "acquire" ? limiter.acquire() : limiter.tryAcquire();
        const outcome = await call.catch(() => undefined);
        if (outcome === undefined) return;
        if (outcome !== false) used[i] += 1;
        else await pause();
      }
    };
    const callers = Array.from({ length: 20 }, () => caller(0));
    await timers.tickAsync(500);
    for (let i = 0; i < 20; i++) callers.push(caller(1));
    // its refills grow
    await timers.tickAsync(1000);
    used.fill(0);
    await timers.tickAsync(3000);
    const counted: [number, number] = [...used];
    const closed = limiters.map((limiter) => limiter.close());
    await timers.tickAsync(2000);
    await Promise.all([...closed, ...callers]);
    return counted;
  } finally {
    timers.uninstall();
  }
}

for (const verb of ["acquire", "tryAcquire"] as const)
  for (const rate of [20, 1000, runs(20_000, 5000)])
    sharing(`auto: ${verb}, ${rate} a second: within a factor of two`, async () => {
      const [first, second] = await share(rate, verb);
      assert.ok(first < 2 * second && second < 2 * first, `${first} : ${second}`);
      assert.ok(first + second > 0.95 * 3 * rate, `${first} : ${second}`);
    });

sharing("auto: what an idle process has reserved is at most the permits of 100 ms", async () => {
  const { clock, limiter } = open(unsaving(1000), "auto");
  await drive(clock, limiter, 1000);
  // what is reserved becomes usable, and does not return yet
  await clock.advance(200);
  let used = 0;
  while (await limiter.tryAcquire()) used += 1;
  assert.ok(used > 50 && used <= 101, `${used} at once`);
});

sharing.run();
