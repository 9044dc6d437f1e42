import { getEventListeners } from "node:events";
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { writePolicies } from "../../src/algorithms/index.ts";
import type { Limiter } from "../../src/api/limiter-api.ts";
import {
  fixedWindow,
  gcra,
  PermitsExceedCapacityError,
  type Policies,
  type Policy,
  QueueFullError,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteLimiter } from "../../src/remote/remote-limiter.ts";
import { StoreLimiter } from "../../src/store.ts";
import type { Answer } from "../../src/stores/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { HandStore, onHand } from "../support/limiter/remote.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const slow = smoothBursty({ permitsPerSecond: 1 });

/** A limiter of one a second, on which the next permit is due in a second. */
async function makeUsed(options: Parameters<typeof onHand>[1] = {}) {
  const made = onHand(slow, options);
  await made.limiter.charge(1);
  return made;
}

const batches = suite("remote limiters, batches");

batches("calls of one turn share a batch, in order, equal neighbours as one", async () => {
  const { store, limiter } = onHand(smoothBursty({ permitsPerSecond: 10 }));
  const [waited, tried, told, peeked] = await Promise.all([
    limiter.acquire(),
    limiter.tryAcquire(),
    limiter.decide(),
    limiter.peek(3),
    limiter.charge(2),
    limiter.pause(1000),
    limiter.refund(1),
    limiter.update(smoothBursty({ permitsPerSecond: 20 })),
    limiter.reset(),
    limiter.tryAcquire(1, 5),
    limiter.tryAcquire(1, 5),
    limiter.tryAcquire(1, { timeoutMs: 5 }),
  ]);
  assert.is(store.batches.length, 1);
  assert.is(
    store.sent(),
    [
      "reserve 1 within Infinity x1, reserve 1 within 0 x1, decide 1, peek 3, charge 2",
      "pause 1000000, refund 1, set s20, reset, reserve 1 within 5000 x3",
    ].join(", "),
  );
  assert.equal([waited, tried, told.allowed, peeked.waitMs], [0, false, false, 100]);
});

batches("charge and refund are checked against the policies in force", async () => {
  const small = gcra({ limit: 2, periodMs: 1000 });
  const { limiter } = onHand(small);
  assert.instance(await failure(() => limiter.charge(5)), PermitsExceedCapacityError);
  await limiter.update(gcra({ limit: 10, periodMs: 1000 }));
  await limiter.charge(5);
  assert.is((await limiter.peek()).remaining, 5);
});

batches("calls during a batch take the next one together", async () => {
  const { store, limiter } = onHand(smoothBursty({ permitsPerSecond: 1000 }));
  store.held = true;
  const first = limiter.tryAcquire();
  await turn();
  const rest = [limiter.tryAcquire(2), limiter.tryAcquire(2)];
  await turn();
  rest.push(limiter.tryAcquire(2), limiter.tryAcquire());
  await turn();
  assert.is(store.batches.length, 1);
  await store.deliver();
  assert.is(store.batches.length, 2);
  assert.is(store.sent(), "reserve 2 within 0 x3, reserve 1 within 0 x1");
  assert.is(await first, true);
  assert.equal(await Promise.all(rest), [false, false, false, false]);
});

batches("a lone call leaves in the same turn", async () => {
  const { store, limiter } = onHand(slow);
  const waited = limiter.acquire();
  await Promise.resolve();
  assert.is(store.batches.length, 1);
  assert.is(await waited, 0);
});

batches("requests carry no time where the store has a clock of its own", async () => {
  const told: unknown[] = [];
  const { limiter, store } = onHand(slow, { sendsTime: false });
  const { run } = store;
  store.run = (key, declared, requests, now) => {
    told.push([key, declared, now]);
    return run.call(store, key, declared, requests, now);
  };
  await limiter.acquire();
  assert.equal(told, [["key", "s1", undefined]]);
});

batches.run();

// -- waiting --

const waiting = suite("remote limiters, waiting");

waiting("no caller is released early by the store's clock, however late the reply", async () => {
  const { clock, store, limiter } = await makeUsed({ sendsTime: false });
  store.held = true;
  const acquired = watch(clock, limiter.acquire());
  await clock.advance(400);
  assert.is(acquired.at, undefined);
  await store.deliver();
  await clock.advance(999.999);
  assert.is(acquired.at, undefined);
  await clock.advance(0.001);
  assert.equal([acquired.at, acquired.value], [1400, 1400]);
});

waiting("refunded permits go to the earliest callers, and later ones keep the pace", async () => {
  const { clock, limiter } = await makeUsed();
  const acquired = Array.from({ length: 5 }, () => watch(clock, limiter.acquire()));
  await clock.advance(0);
  await limiter.refund(3);
  for (let i = 0; i < 2; i++) acquired.push(watch(clock, limiter.acquire()));
  await clock.advance(1e6);
  assert.equal(
    acquired.map(({ at }) => at),
    [1000, 2000, 3000, 3000, 4000, 4000, 5000],
  );
});

waiting("after a delayed reply callers go in order, and no instant is lost", async () => {
  const policy = smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 });
  const { clock, store, limiter } = onHand(policy, { sendsTime: false });
  await limiter.charge(5);
  store.held = true;
  const acquired = [watch(clock, limiter.acquire())];
  await clock.advance(6000);
  for (let i = 0; i < 4; i++) acquired.push(watch(clock, limiter.acquire()));
  await store.deliver();
  await clock.advance(1e6);
  assert.equal(
    acquired.map(({ at }) => at),
    [6000, 7000, 8000, 9000, 11_000],
  );
});

waiting("with a shared clock a slow reply costs no waiting time", async () => {
  const { clock, store, limiter } = await makeUsed();
  store.held = true;
  const acquired = watch(clock, limiter.acquire());
  await clock.advance(400);
  await store.deliver();
  await clock.advance(599.999);
  assert.is(acquired.at, undefined);
  await clock.advance(0.001);
  assert.equal([acquired.at, acquired.value], [1000, 1000]);
});

waiting("first in, first out, over several batches", async () => {
  const { clock, store, limiter } = await makeUsed();
  const order: number[] = [];
  const ask = (i: number, n: number) => limiter.acquire(n).then(() => order.push(i));
  const all = [ask(0, 3), ask(1, 1)];
  await turn();
  store.held = true;
  all.push(ask(2, 1), ask(3, 2));
  await turn();
  all.push(ask(4, 1));
  await store.deliver();
  await clock.advance(1e6);
  await Promise.all(all);
  assert.equal(order, [0, 1, 2, 3, 4]);
});

waiting("a late timer costs nothing: the next request counts as made on time", async () => {
  const rate = 200;
  const pace = async (lateMs: number) => {
    const clock = new LateClock(lateMs);
    const { limiter } = onHand(smoothBursty({ permitsPerSecond: rate, burstSeconds: 0 }), {
      clock,
    });
    let count = 0;
    (async () => {
      for (;;) {
        await limiter.acquire();
        count += 1;
      }
    })().catch(() => {});
    await clock.advance(3000);
    return count;
  };
  assert.is(await pace(0), rate * 3 + 1);
  const late = await pace(3);
  assert.ok(late <= rate * 3 + 1 && late >= rate * 3 - 1, `${late}`);
  // beyond 10 ms it no longer counts as a late timer
  assert.ok((await pace(40)) < rate * 2.7);
});

class LateClock extends FakeClock {
  readonly #lateMs: number;

  constructor(lateMs: number) {
    super();
    this.#lateMs = lateMs;
  }

  override wakeAt(timeMs: number, wake: () => void) {
    return super.wakeAt(timeMs + this.#lateMs, wake);
  }
}

waiting("pause delays local waiters and new callers of every process", async () => {
  const { clock, store, limiter } = await makeUsed();
  const other = onHand(slow, { clock, store }).limiter;
  const here = watch(clock, limiter.acquire());
  const there = watch(clock, other.acquire());
  await clock.advance(0);
  await limiter.pause(5000);
  const { allowed, waitMs, remaining } = await other.peek();
  assert.equal([allowed, waitMs, remaining], [false, 5000, 0]);
  assert.is(await other.tryAcquire(1, 4999), false);
  const later = watch(clock, other.acquire());
  await clock.advance(10_000);
  // the instant that the other process was promised before stays
  assert.equal([here.at, there.at, later.at], [5000, 2000, 5000]);
});

waiting("callers whose instants lie in a pause keep their distances after it", async () => {
  const { clock, store, limiter } = onHand(smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 }));
  const controller = new AbortController();
  const sleeping = [
    ...Array.from({ length: 5 }, () => watch(clock, limiter.acquire())),
    watch(clock, limiter.acquire(1, { signal: controller.signal })),
    watch(clock, limiter.tryAcquire(1, 1200)),
    watch(clock, limiter.tryAcquire(1, 10_000)),
  ];
  await clock.advance(150);
  controller.abort(new Error("enough"));
  const { length } = store.batches;
  await limiter.pause(1000);
  assert.is(store.batches.length, length + 1, "one batch");
  await clock.advance(10_000);
  assert.equal(
    sleeping.map(({ at }) => at),
    [0, 100, 1150, 1250, 1350, 150, 150, 1450],
  );
  assert.is(sleeping[6]?.value, false, "the caller cannot wait for that long");
  assert.is((await limiter.peek()).allowed, true);
});

const second = { limit: 5, windowMs: 1000 };
const fixed = fixedWindow(second);
const rate = (capacity: number) => tokenBucket({ capacity, refill: 5, everyMs: 1000 });
/** Five a second: what returns to these leaves gaps in the schedule. */
const WITH_GAPS: Readonly<Record<string, Policies>> = {
  "a fixed window": fixed,
  "a sliding window": slidingWindow(second),
  "a sliding log": slidingLog(second),
  "two windows": { short: fixed, long: slidingLog({ limit: 60, windowMs: 60_000 }) },
  "two rates": { small: rate(5), large: rate(9) },
};

const ascending = (a: number, b: number) => a - b;

/** When 20 callers go that call at 0, if there is a pause. */
async function pausing(policies: Policies, atMs: number, ms: number, sizes = [1]) {
  const { clock, limiter } = onHand(policies);
  const callers = Array.from({ length: 20 }, (_, i) =>
    watch(clock, limiter.acquire(sizes[i % sizes.length])),
  );
  await clock.advance(atMs);
  await limiter.pause(ms);
  await clock.advance(20_000);
  return instants(callers).map(Number);
}

for (const [name, policies] of Object.entries(WITH_GAPS)) {
  waiting(`${name}: a pause that ends before the next permits defers no caller`, async () => {
    assert.equal(await pausing(policies, 100, 1), await pausing(policies, 100, 0));
    assert.ok((await pausing(policies, 100, 1)).at(-1) === 3000);
  });
}

waiting(
  "a pause costs windows what they promised for its time, and all callers move up",
  async () => {
    const five = (ms: number) => Array.from({ length: 5 }, () => ms);
    for (const policy of [fixed, slidingWindow(second), slidingLog(second)]) {
      const at = await pausing(policy, 100, 1000);
      assert.equal(at, [0, 2000, 3000, 4000].flatMap(five));
    }
  },
);

const EVERY_ALGORITHM: Readonly<Record<string, Policy>> = {
  "a rate": smoothBursty({ permitsPerSecond: 5, burstSeconds: 0 }),
  "a rate with bursts": smoothBursty({ permitsPerSecond: 5, prefilled: true }),
  "a warm-up": smoothWarmingUp({ permitsPerSecond: 5, warmupMs: 1000 }),
  gcra: gcra({ limit: 3, periodMs: 600 }),
  "a bucket": rate(5),
  "a bucket of single permits": tokenBucket({ capacity: 3, refill: 1, everyMs: 200 }),
  "a fixed window": fixed,
  "a sliding window": slidingWindow(second),
  "a sliding log": slidingLog(second),
};

for (const [name, policy] of Object.entries(EVERY_ALGORITHM)) {
  waiting(`${name}: a pause costs its time and what was promised for it`, async () => {
    const without = await pausing(policy, 0, 0);
    for (const atMs of [0, 100, 399, 400, 1000]) {
      for (const ms of [1, 20, 300, 1000, 2500, 10_000]) {
        const at = await pausing(policy, atMs, ms);
        const text = `${ms} at ${atMs}: ${at}`;
        assert.equal(at, at.toSorted(ascending), text);
        assert.not.ok(
          at.some((goes) => goes > atMs && goes < atMs + ms),
          text,
        );
        assertBound(policy, at, text);
        const lost = without.filter((goes) => goes > atMs && goes < atMs + ms).length;
        // a window grants five at once at its start
        const most = Number(without.at(-1)) + ms + lost * 200 + 1000;
        assert.ok(Number(at.at(-1)) <= most, `${text}; at most ${most}`);
      }
    }
  });

  waiting(`${name}: short pauses of several processes do not stop their callers`, async () => {
    for (const processes of [1, 2, 3]) {
      const clock = new FakeClock();
      const store = new HandStore(clock);
      const limiters = Array.from({ length: processes }, () =>
        onHand(policy, { clock, store }),
      ).map(({ limiter }) => limiter);
      const at: number[] = [];
      const work = async (limiter: RemoteLimiter) => {
        for (;;) {
          await limiter.acquire();
          at.push(clock.now());
        }
      };
      for (let i = 0; i < 24; i++) void work(limiters[i % processes] as RemoteLimiter);
      // five a second and 40 pauses: each costs at most one permit
      for (let i = 0; i < 40; i++) {
        await clock.advance(500);
        void limiters[i % processes]?.pause(20);
      }
      assert.ok(at.length >= 60, `${at.length} in 20 s for ${processes}`);
      assertBound(policy, at, `${processes} processes`);
    }
  });
}

/** Checks that at any time no more have gone than the policy may let through. */
function assertBound(policy: Policy, at: readonly number[], text: string): void {
  for (const [i, from] of at.entries()) {
    for (const [j, to] of at.entries()) {
      if (j < i) continue;
      const most = policy.algorithm.bound(policy, (to - from) * 1000, 1);
      assert.ok(j - i + 1 <= most + 1e-6, `${j - i + 1} from ${from} to ${to}; ${text}`);
    }
  }
}

/** How many of the callers, at most, go within 990 ms of each other. */
const most = (at: readonly number[]) =>
  Math.max(...at.map((from) => at.filter((ms) => ms >= from && ms < from + 990).length));

for (const [name, policies] of Object.entries({ ...WITH_GAPS, "a rate": rate(5) })) {
  waiting(
    `${name}: callers that are on their way when it pauses keep their distances`,
    async () => {
      for (const delayMs of [0, 20]) {
        const { clock, store, limiter } = onHand(policies);
        store.held = delayMs > 0;
        const callers = Array.from({ length: 20 }, () => watch(clock, limiter.acquire()));
        await clock.advance(delayMs / 2);
        void limiter.pause(2000);
        await clock.advance(delayMs / 2);
        await store.deliver();
        // a later pause that is over earlier changes nothing
        await clock.advance(1000);
        await limiter.pause(1);
        await clock.advance(20_000);
        const at = instants(callers).map(Number);
        const late = at.filter((ms) => ms > 100);
        assert.ok(late.length >= 10 && Math.min(...late) >= 2000, `${at}`);
        assert.ok(most(late) <= (name.includes("rate") ? 10 : 5), `${at}`);
        assert.equal(
          at,
          at.toSorted((a, b) => a - b),
        );
      }
    },
  );
}

waiting(
  "a pause that the store loses together with a request: callers do not go together at its end",
  async () => {
    for (const whenUnavailable of ["throw", "local"] as const) {
      const clock = new FakeClock();
      const store = memoryStore({ clock });
      const mode = { whenUnavailable, ...(whenUnavailable === "local" && { instances: 1 }) };
      const limiter = StoreLimiter.create(store, "api", rate(1), { clock, ...mode });
      const grantedMs: number[] = [];
      const call = () =>
        void limiter.acquire().then(
          () => grantedMs.push(clock.now()),
          () => {},
        );
      for (let i = 0; i < 20; i++) call();
      await clock.advance(50);
      call();
      const paused = limiter.pause(2000).catch(() => {});
      store.fail();
      await turn();
      await clock.advance(20);
      store.recover();
      await clock.advance(30_000);
      await paused;
      const gaps = grantedMs.slice(1).map((ms, i) => ms - (grantedMs[i] ?? 0));
      assert.ok(
        gaps.every((ms) => ms > 50),
        `${whenUnavailable}: ${grantedMs}`,
      );
    }
  },
);

for (const [name, policies] of Object.entries({ ...WITH_GAPS, "a rate": rate(1) })) {
  waiting(
    `${name}: callers go in the order of their calls, however they share batches with pauses`,
    async () => {
      for (const [delayMs, gapMs] of [
        [0, 0],
        [30, 0],
        [30, 10],
        [30, 29],
      ] as const) {
        const clock = new FakeClock();
        const store = memoryStore({ clock });
        const limiter = StoreLimiter.create(store, "api", policies, { clock });
        const order: number[] = [];
        let called = 0;
        const call = (count: number) => {
          for (; count > 0; count--) {
            const own = called++;
            void limiter.acquire().then(() => order.push(own));
          }
        };
        call(12);
        await clock.advance(100);
        store.delayMs = delayMs;
        call(2);
        await clock.advance(gapMs);
        call(1);
        void limiter.pause(1000);
        call(2);
        await clock.advance(gapMs);
        call(1);
        void limiter.pause(1005);
        call(1);
        await clock.advance(60_000);
        assert.equal(
          order,
          Array.from({ length: 19 }, (_, i) => i),
          `${delayMs}, ${gapMs}`,
        );
      }
    },
  );
}

const reset: readonly [string, Policies, readonly number[]][] = [
  ["a fixed window", fixed, [0, 1000, 1000, 1000, 1000, 1000]],
  ["a sliding log", slidingLog(second), [0, 1000, 1000, 1000, 1000, 1000]],
  ["a rate", rate(5), [0, 200, 400, 600, 800, 1000]],
];

for (const [name, policies, at] of reset) {
  waiting(
    `${name}: callers that are on their way at a reset wait as on a new limiter`,
    async () => {
      for (const isEarlier of [false, true]) {
        const { clock, store, limiter } = onHand(policies);
        const call = (count: number) =>
          Array.from({ length: count }, () => watch(clock, limiter.acquire()));
        const callers = call(7);
        await clock.advance(0);
        store.held = isEarlier;
        callers.push(...call(2));
        if (isEarlier) await turn();
        void limiter.reset();
        callers.push(...call(5));
        await store.deliver();
        callers.push(...call(1));
        await clock.advance(10_000);
        assert.equal(instants(callers), [...Array.from({ length: 9 }, () => 0), ...at]);
      }
    },
  );
}

waiting("callers of several sizes that are on their way at a reset keep their order", async () => {
  for (const policies of [...Object.values(WITH_GAPS), rate(5)]) {
    const { clock, limiter } = onHand(policies);
    const order: number[] = [];
    const call = (permits: number, i: number) => limiter.acquire(permits).then(() => order.push(i));
    const before = [3, 1, 2, 4, 1].map(call);
    void limiter.reset();
    const after = [1, 3, 1].map((permits, i) => call(permits, before.length + i));
    await clock.advance(60_000);
    await Promise.all([...before, ...after]);
    assert.equal(order, [0, 1, 2, 3, 4, 5, 6, 7]);
  }
});

waiting(
  "a caller that the store grants at once does not overtake one that a pause holds",
  async () => {
    const { clock, store, limiter } = onHand(tokenBucket({ capacity: 1, refill: 1, everyMs: 50 }));
    await limiter.charge(1);
    const first = watch(clock, limiter.acquire());
    await clock.advance(30);
    store.held = true;
    const peeked = limiter.peek();
    await turn();
    // sent when the reply to the peek is there, after the instant of the first caller
    const tried = watch(clock, limiter.tryAcquire());
    const second = watch(clock, limiter.acquire());
    const paused = limiter.pause(500);
    await clock.advance(120);
    await store.deliver();
    await Promise.all([peeked, paused]);
    await clock.advance(1000);
    assert.equal(instants([tried, first, second]), [150, 650, 700]);
    assert.is(tried.value, false);
  },
);

for (const [name, policy] of Object.entries(EVERY_ALGORITHM)) {
  waiting(`${name}: a caller that the store grants at once overtakes nobody`, async () => {
    for (const how of ["reset", "refund"] as const) {
      const clock = new FakeClock();
      const store = new HandStore(clock);
      const [limiter, other] = [0, 1].map(() => onHand(policy, { clock, store }).limiter);
      const order: number[] = [];
      const call = (i: number) => limiter?.acquire().then(() => order.push(i));
      const calls = Array.from({ length: 14 }, (_, i) => call(i));
      await clock.advance(100);
      if (how === "reset") await other?.reset();
      else for (let i = 0; i < 3; i++) await limiter?.refund(3);
      calls.push(call(14), call(15), call(16));
      // its permits go to the first callers, or back to the store
      const tried = await limiter?.tryAcquire(1, 0);
      await clock.advance(60_000);
      await Promise.all(calls);
      assert.equal(
        order,
        Array.from({ length: 17 }, (_, i) => i),
        how,
      );
      assert.is(tried, false, how);
      const { limit, remaining } = await (limiter as RemoteLimiter).peek();
      assert.is(remaining, limit, "nothing is lost");
    }
  });
}

for (const [name, policies] of Object.entries(WITH_GAPS)) {
  waiting(`${name}: reservations that a pause defers go beside no caller`, async () => {
    const { clock, limiter } = onHand(policies);
    const wait = () => watch(clock, limiter.acquire());
    const callers = Array.from({ length: 5 }, wait);
    const reserved = Array.from({ length: 5 }, async () => (await limiter.reserve()).ready());
    callers.push(...reserved.map((ready) => watch(clock, ready)));
    await clock.advance(0);
    callers.push(...Array.from({ length: 15 }, wait));
    await clock.advance(100);
    await limiter.pause(1800);
    await clock.advance(20_000);
    const late = instants(callers)
      .map(Number)
      .filter((ms) => ms > 100);
    assert.ok(most(late) <= (name.includes("rate") ? 10 : 5), `${late}`);
  });
}

waiting("many pauses at once queue the callers' requests once, not each", async () => {
  for (const isAsked of [false, true]) {
    let queued = 0;
    class Counted extends HandStore {
      override breakerOf() {
        queued += 1;
        return super.breakerOf();
      }
    }
    const clock = new FakeClock();
    const store = new Counted(clock);
    const { limiter } = onHand(rate(5), { clock, store });
    const call = (count: number) =>
      Array.from({ length: count }, () => watch(clock, limiter.acquire()));
    const callers = call(500);
    await clock.advance(0);
    store.held = isAsked;
    if (isAsked) callers.push(...call(1));
    await turn();
    queued = 0;
    const pauses = Array.from({ length: 100 }, (_, i) => limiter.pause(200_000 + i * 10));
    await store.deliver();
    await Promise.all(pauses);
    assert.ok(queued < 5000, `${queued}`);
    await clock.advance(1_000_000);
    const at = instants(callers).map(Number);
    assert.equal(at, at.toSorted(ascending));
    assert.is(at.filter((ms) => ms > 0 && ms < 200_990).length, 0);
  }
});

waiting("no caller of another size overtakes one whose instant lies in a pause", async () => {
  for (const policies of Object.values(WITH_GAPS)) {
    const at = await pausing(policies, 100, 1000, [1, 3, 2]);
    assert.equal(
      at,
      at.toSorted((a, b) => a - b),
    );
  }
});

waiting("a request that can never pass is an error, for every verb", async () => {
  const five = tokenBucket({ capacity: 5, refill: 5, everyMs: 1000 });
  const { store, limiter } = onHand(five);
  const verbs: (() => Promise<unknown>)[] = [
    () => limiter.charge(6),
    () => limiter.refund(6),
    async () => {
      store.run = async () => {
        const never: Answer = {
          wait: Infinity,
          receipts: [],
          slowest: 0,
          quotas: [],
          deficit: [],
        };
        return { inForce: writePolicies([five]), answers: [never] };
      };
      return limiter.acquire(6);
    },
    () => limiter.tryAcquire(6),
    () => limiter.tryAcquire(6, 100),
    () => limiter.reserve(6),
    () => limiter.decide(6),
    () => limiter.peek(6),
  ];
  for (const verb of verbs) {
    const error = await failure(verb);
    assert.instance(error, PermitsExceedCapacityError, `${verb}`);
    const { facts } = error as PermitsExceedCapacityError;
    assert.equal(facts, { policy: "default", permits: 6, capacity: 5 });
  }
});

waiting.run();

// -- aborting --

const aborting = suite("remote limiters, aborting");

/** Both verbs that wait. */
const WAITING = {
  acquire: (limiter: Limiter, signal: AbortSignal, n = 1) => limiter.acquire(n, { signal }),
  tryAcquire: (limiter: Limiter, signal: AbortSignal, n = 1) =>
    limiter.tryAcquire(n, { signal, timeoutMs: 1e6 }),
};

for (const [verb, wait] of Object.entries(WAITING)) {
  aborting(`${verb}: an abort before the batch leaves sends nothing`, async () => {
    const { clock, store, limiter } = await makeUsed();
    const { length } = store.batches;
    const controller = new AbortController();
    const waited = watch<unknown>(clock, wait(limiter, controller.signal));
    const reason = new Error("enough");
    controller.abort(reason);
    await clock.advance(0);
    assert.is(waited.error, reason);
    assert.is(store.batches.length, length);
    assert.is(getEventListeners(controller.signal, "abort").length, 0);
  });

  aborting(`${verb}: an abort in flight rejects at once, and the grant is given back`, async () => {
    const prefilled = smoothBursty({ permitsPerSecond: 1, burstSeconds: 5, prefilled: true });
    for (const [policy, n, expected] of [
      [slow, 1, "back 1 ()"],
      [prefilled, 2, "back 2 (2)"],
      [{ a: prefilled, b: slow }, 2, "back 2,2 (2,0)"],
    ] as const) {
      const { clock, store, limiter } = onHand(policy);
      await limiter.charge(policy === slow ? 3 : 1);
      const before = await limiter.peek();
      store.held = true;
      const controller = new AbortController();
      const waited = watch<unknown>(clock, wait(limiter, controller.signal, n));
      await turn();
      const reason = new Error("enough");
      controller.abort(reason);
      await turn();
      assert.is(waited.error, reason);
      await store.deliver();
      assert.is(store.sent(), expected);
      if (policy === slow) assert.equal(await limiter.peek(), before);
      assert.is(getEventListeners(controller.signal, "abort").length, 0);
    }
  });

  aborting(`${verb}: an abort while waiting moves up later callers`, async () => {
    const { clock, store, limiter } = await makeUsed();
    const controller = new AbortController();
    const first = watch(clock, limiter.acquire());
    const waited = watch<unknown>(clock, wait(limiter, controller.signal));
    const last = watch(clock, limiter.acquire());
    await clock.advance(500);
    const reason = new Error("enough");
    controller.abort(reason);
    await clock.advance(0);
    assert.equal([waited.at, waited.error === reason], [500, true]);
    assert.is(store.sent(), "back 1 ()");
    assert.is((await limiter.peek()).waitMs, 2500);
    await clock.advance(1e6);
    assert.equal([first.at, last.at], [1000, 2000]);
    assert.is(getEventListeners(controller.signal, "abort").length, 0);
  });
}

aborting("a refusal that arrives after an abort gives nothing back", async () => {
  const { store, limiter } = await makeUsed();
  store.held = true;
  const controller = new AbortController();
  const { signal } = controller;
  const refused = failure(() => limiter.tryAcquire(1, { timeoutMs: 5, signal }));
  await turn();
  controller.abort(new Error("enough"));
  await refused;
  const { length } = store.batches;
  await store.deliver();
  assert.is(store.batches.length, length);
});

aborting("one signal aborts many calls: waiting, in flight, and not sent yet", async () => {
  const { clock, store, limiter } = await makeUsed();
  const controller = new AbortController();
  const { signal } = controller;
  const waiters: Promise<unknown>[] = [];
  const ask = (count: number) => {
    for (let i = 0; i < count; i++) waiters.push(failure(() => limiter.acquire(1, { signal })));
  };
  ask(20);
  await clock.advance(0);
  store.held = true;
  ask(30);
  await turn();
  ask(50);
  assert.is(getEventListeners(signal, "abort").length, 1);
  const reason = new Error("enough");
  controller.abort(reason);
  assert.ok((await Promise.all(waiters)).every((error) => error === reason));
  await store.deliver();
  await clock.advance(0);
  assert.is((await limiter.peek()).waitMs, 1000);
  assert.is(getEventListeners(signal, "abort").length, 0);
});

aborting("a reply removes the listener from the signal", async () => {
  const { clock, limiter } = await makeUsed();
  const { signal } = new AbortController();
  const done = [
    limiter.acquire(1, { signal }),
    limiter.tryAcquire(1, { signal }),
    limiter.tryAcquire(1, { signal, timeoutMs: 0 }),
  ];
  await clock.advance(1e6);
  assert.equal(await Promise.all(done), [1000, true, false]);
  assert.is(getEventListeners(signal, "abort").length, 0);
});

aborting.run();

// -- maxWaiting --

const crowded = suite("remote limiters, maxWaiting");

crowded("maxWaiting counts the permits that are waited for, not the calls in flight", async () => {
  const { clock, limiter } = onHand(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), {
    maxWaiting: 3,
  });
  await limiter.charge(1);
  const waiters = [
    watch(clock, limiter.acquire(2)),
    watch<unknown>(clock, limiter.tryAcquire(2, 1e6)),
    watch(clock, limiter.acquire(1)),
    watch(clock, limiter.acquire(1)),
    watch<unknown>(clock, limiter.reserve(1)),
  ];
  await clock.advance(0);
  const [, tried, , full, reserved] = waiters;
  assert.equal([tried?.value, tried?.at], [false, 0]);
  for (const refused of [full, reserved]) {
    assert.instance(refused?.error, QueueFullError);
    const { facts = {} } = (refused?.error ?? {}) as QueueFullError;
    assert.equal(facts, { limiter: "test", permits: 1, waiting: 3, maxWaiting: 3 });
  }
  await clock.advance(1000);
  assert.is(waiters[0]?.at, 1000);
  // no refused caller has taken anything beyond its slot
  assert.ok((await limiter.peek()).waitMs <= 5000);
  const another = watch(clock, limiter.acquire(2));
  await clock.advance(1e6);
  assert.is(another.error, undefined);
});

crowded("a full queue still grants what is due at once", async () => {
  const { limiter } = onHand(slow, { maxWaiting: 0 });
  assert.is(await limiter.acquire(), 0);
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  assert.instance(await failure(() => limiter.reserve()), QueueFullError);
  assert.is(await limiter.tryAcquire(1, 1e6), false);
  assert.is((await limiter.peek()).waitMs, Infinity);
});

crowded("reservations count towards maxWaiting until they are due or cancelled", async () => {
  const { clock, limiter } = await makeUsed({ maxWaiting: 2 });
  const [kept, dropped] = [await limiter.reserve(), await limiter.reserve()];
  assert.instance(await failure(() => limiter.acquire()), QueueFullError);
  await dropped.cancel();
  const waited = watch(clock, limiter.acquire());
  await clock.advance(0);
  assert.instance(await failure(() => limiter.reserve()), QueueFullError);
  await clock.advance(1000);
  assert.is(await kept.cancel(), false);
  await limiter.reserve();
  await clock.advance(1e6);
  assert.is(waited.error, undefined);
});

crowded.run();

// -- the store is unavailable --

const away = suite("remote limiters, store unavailable");
let timers: FakeTimers.Clock;

away.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

away.after.each(() => {
  timers.uninstall();
});

const everyVerb = (limiter: RemoteLimiter): Promise<unknown>[] => [
  limiter.acquire(),
  limiter.tryAcquire(),
  limiter.tryAcquire(1, 5),
  limiter.reserve(),
  limiter.decide(),
  limiter.peek(),
  limiter.charge(1),
  limiter.refund(1),
  limiter.pause(1),
  limiter.update(slow),
  limiter.reset(),
];

away("every verb rejects with the cause, and the limiter works again after recovery", async () => {
  const { store, limiter } = onHand(slow);
  store.away = new Error("LOADING");
  for (const outcome of await Promise.allSettled(everyVerb(limiter))) {
    const { reason } = outcome as PromiseRejectedResult;
    assert.instance(reason, StoreUnavailableError);
    assert.is(reason.cause, store.away);
    assert.equal(reason.facts, { limiter: "test", timeoutMs: 1000 });
  }
  store.away = undefined;
  assert.is(await limiter.acquire(), 0);
  await timers.tickAsync(0);
  assert.is(timers.countTimers(), 0);
});

away("no reply: each call rejects within its time, and late grants are given back", async () => {
  const { store, limiter } = onHand(slow, { sendsTime: true });
  await limiter.charge(1);
  const before = await limiter.peek();
  store.held = true;
  const signal = new AbortController().signal;
  const asked = [
    limiter.acquire(),
    limiter.acquire(2, { signal }),
    limiter.tryAcquire(1, 1e6),
    limiter.tryAcquire(1, 5),
    limiter.reserve(3),
    limiter.decide(),
    limiter.peek(),
  ];
  const told = Promise.allSettled(asked);
  await timers.tickAsync(1000);
  for (const outcome of await told) {
    const { reason } = outcome as PromiseRejectedResult;
    assert.instance(reason, StoreUnavailableError);
    assert.match(reason.message, "no answer within 1000 ms");
  }
  assert.is(getEventListeners(signal, "abort").length, 0);
  await store.deliver();
  await timers.tickAsync(25);
  assert.is(store.sent(), "back 3 (), back 1 (), back 2 (), back 1 ()");
  assert.equal(await limiter.peek(), before);
});

away("a late reply to a peek gives no permits back", async () => {
  const { store, limiter } = onHand(tokenBucket({ capacity: 10, refill: 1, everyMs: 1000 }));
  await limiter.acquire(5);
  store.held = true;
  const asked = Promise.allSettled([limiter.peek(2), limiter.decide(3)]);
  await timers.tickAsync(1000);
  await asked;
  await store.deliver();
  await timers.tickAsync(25);
  assert.is(store.sent(), "back 3 ()");
  assert.is((await limiter.peek()).remaining, 5);
});

const losing: Readonly<Record<string, (made: ReturnType<typeof onHand>) => Promise<unknown>>> = {
  "is refused in an outage": async ({ store, limiter }) => {
    store.held = true;
    const peeked = limiter.peek().catch(() => {});
    await timers.tickAsync(1000);
    await peeked;
    return failure(() => limiter.pause(2000));
  },
  "waits behind a request that is lost": async ({ store, limiter }) => {
    store.held = true;
    const lost = limiter.acquire().catch(() => {});
    await turn();
    const error = failure(() => limiter.pause(2000));
    await timers.tickAsync(1000);
    await lost;
    return error;
  },
  "fails together with a request": async ({ store, limiter }) => {
    store.away = new Error("gone");
    const lost = limiter.acquire().catch(() => {});
    const error = failure(() => limiter.pause(2000));
    await lost;
    return error;
  },
};

for (const [how, lose] of Object.entries(losing)) {
  away(`a pause that ${how} takes nothing from callers with promised permits`, async () => {
    const made = onHand(rate(1));
    const { clock, limiter } = made;
    const callers = Array.from({ length: 6 }, () => watch(clock, limiter.acquire()));
    await clock.advance(50);
    assert.instance(await lose(made), StoreUnavailableError);
    await clock.advance(5000);
    assert.equal(instants(callers), [0, 200, 400, 600, 800, 1000]);
  });
}

away("a pause that fails releases no caller that a later, longer one holds", async () => {
  const { clock, store, limiter } = onHand(rate(1));
  const callers = Array.from({ length: 6 }, () => watch(clock, limiter.acquire()));
  await clock.advance(50);
  const { run } = store;
  let fail = (_: Error) => {};
  store.run = () => {
    store.run = run;
    return new Promise((_, reject) => {
      fail = reject;
    });
  };
  const lost = failure(() => limiter.acquire());
  const short = failure(() => limiter.pause(200));
  await turn();
  await clock.advance(10);
  const long = limiter.pause(5000);
  await clock.advance(440);
  assert.equal(instants(callers), [0, ...Array.from({ length: 5 })]);
  fail(new Error("ECONNRESET"));
  assert.instance(await lost, StoreUnavailableError);
  assert.instance(await short, StoreUnavailableError);
  await long;
  await clock.advance(20_000);
  assert.equal(instants(callers), [0, 5500, 5700, 5900, 6100, 6300]);
});

away("waitForStore: all callers wait for recovery", async () => {
  const { store, limiter } = onHand(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), {
    whenUnavailable: "wait",
  });
  await limiter.reset();
  store.away = new Error("gone");
  const told = Promise.all([
    limiter.decide(),
    limiter.peek(),
    limiter.reserve(),
    limiter.charge(1),
  ]);
  const acquired = watch(new FakeClock(), limiter.acquire());
  await timers.tickAsync(5000);
  assert.ok(store.batches.length >= 5, `${store.batches.length} batches`);
  store.away = undefined;
  await timers.tickAsync(1500);
  const [decided, peeked, reserved] = await told;
  assert.equal([decided.allowed, peeked.waitMs, reserved.waitMs], [true, 1000, 1000]);
  assert.is(acquired.error, undefined);
});

away("waitForStore: callers on their way stay in front, whoever detects the outage", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const make = (name: string, timeoutMs: number) =>
    StoreLimiter.create(store, name, rate(1), { clock, timeoutMs, whenUnavailable: "wait" });
  const [limiter, other] = [make("api", 1000), make("mail", 500)];
  const order: string[] = [];
  const call = (name: string) => void limiter.acquire().then(() => order.push(name));
  store.hang();
  const peeked = other.peek();
  call("a");
  call("b");
  await timers.tickAsync(600);
  call("c");
  store.fail();
  await timers.tickAsync(10);
  store.recover();
  await timers.tickAsync(2000);
  await peeked;
  await clock.advance(1000);
  assert.equal(order, ["a", "b", "c"]);
});

for (const verb of ["pause", "reset"] as const) {
  for (const isLate of [false, true]) {
    away(
      `waitForStore: a ${verb} whose reply is ${isLate ? "late" : "lost"} leaves callers in order`,
      async () => {
        const { clock, store, limiter } = onHand(rate(1), { whenUnavailable: "wait" });
        const order: number[] = [];
        let called = 0;
        const call = (count: number) => {
          for (; count > 0; count--) {
            const own = called++;
            void limiter.acquire().then(() => order.push(own));
          }
        };
        const pass = async (ms: number) => {
          for (; ms > 0; ms -= 10) {
            await Promise.all([timers.tickAsync(10), clock.advance(10)]);
            await turn();
          }
        };
        call(6);
        await pass(50);
        if (isLate) store.held = true;
        else store.lostReplies = 1;
        call(1);
        const done = verb === "pause" ? limiter.pause(1000) : limiter.reset();
        call(1);
        await pass(1500);
        call(1);
        await pass(500);
        await store.deliver();
        await pass(6000);
        await done;
        assert.equal(order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
      },
    );
  }
}

away("waitForStore: callers keep their distances after a pause whose reply is late", async () => {
  const { clock, store, limiter } = onHand(rate(1), { whenUnavailable: "wait" });
  store.held = true;
  const callers = Array.from({ length: 6 }, () => watch(clock, limiter.acquire()));
  const paused = watch(clock, limiter.pause(2000));
  await timers.tickAsync(1500);
  assert.is(paused.at, undefined);
  await store.deliver();
  await timers.tickAsync(100);
  await clock.advance(10_000);
  assert.equal(instants([paused, ...callers]), [0, 0, 2000, 2200, 2400, 2600, 2800]);
});

away("waitForStore: a time-out or a signal ends the wait", async () => {
  const { clock, store, limiter } = onHand(slow, { whenUnavailable: "wait" });
  store.away = new Error("gone");
  const controller = new AbortController();
  const { signal } = controller;
  const [now, soon, later, acquired, forever] = [
    watch(clock, limiter.tryAcquire()),
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 500, signal })),
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 5000, signal })),
    watch(clock, limiter.acquire(1, { signal })),
    watch(clock, limiter.tryAcquire(1, { signal })),
  ];
  await timers.tickAsync(100);
  assert.equal([now.value, soon.value], [false, undefined]);
  await timers.tickAsync(400);
  assert.equal([soon.value, later.value], [false, undefined]);
  const reason = new Error("enough");
  controller.abort(reason);
  await timers.tickAsync(0);
  for (const { error } of [later, acquired, forever]) assert.is(error, reason);
  assert.is(getEventListeners(signal, "abort").length, 0);
  // the probe that was due, and no other
  await timers.tickAsync(1000);
  const { length } = store.batches;
  await timers.tickAsync(5000);
  assert.is(store.batches.length, length);
  assert.is(timers.countTimers(), 0);
});

away("waitForStore: a time-out that was met in time stays met", async () => {
  const { store, limiter } = onHand(slow, { whenUnavailable: "wait" });
  store.away = new Error("gone");
  const tried = limiter.tryAcquire(1, 500);
  await timers.tickAsync(20);
  store.away = undefined;
  await timers.tickAsync(100);
  assert.is(await tried, true);
  assert.is(timers.countTimers(), 0);
});

away("waitForStore: a time-out of more than 2^31 ms does not end at once", async () => {
  const { clock, store, limiter } = onHand(slow, { whenUnavailable: "wait" });
  store.away = new Error("gone");
  const tried = watch(clock, limiter.tryAcquire(1, 1e10));
  await timers.tickAsync(60_000);
  assert.is(tried.at, undefined);
  store.away = undefined;
  await timers.tickAsync(2000);
  assert.is(tried.value, true);
});

away("waitForStore: a caller that aborts during a failed batch is not sent again", async () => {
  const { store, limiter } = onHand(slow, { whenUnavailable: "wait" });
  store.held = true;
  const controller = new AbortController();
  const { signal } = controller;
  const given = failure(() => limiter.tryAcquire(1, { timeoutMs: 1e6, signal }));
  await timers.tickAsync(10);
  controller.abort(new Error("enough"));
  await given;
  await timers.tickAsync(1100);
  assert.is(store.batches.length, 1);
  assert.is(timers.countTimers(), 0);
});

away.run();

const beside = suite("remote limiters, promised instants belong to one caller");

/** Two processes that share one limiter. */
function twoProcesses(policy: Policy) {
  const here = onHand(policy);
  const { clock, store } = here;
  return { clock, here: here.limiter, there: onHand(policy, { clock, store }).limiter };
}

const unsaving = smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 });
const policyStates = gcra({ limit: 1, periodMs: 1000, burst: 0 });
const steps = tokenBucket({ capacity: 1, refill: 1, everyMs: 1000, stepped: true });
for (const [name, policy, instants] of [
  // the first at once, the one of the other process at 2 s; a caller after the abort comes behind
  // it
  ["smoothBursty without stored permits: the slot is lost", unsaving, [2000, 3000, 4000]],
  [
    "smoothBursty with stored permits: the slot is stored, like unused time",
    slow,
    [2000, 3000, 3000],
  ],
  [
    "smoothWarmingUp: lost",
    smoothWarmingUp({ permitsPerSecond: 1, warmupMs: 1 }),
    [2000.5, 3000.5, 4000.5],
  ],
  ["gcra: lost", policyStates, [2000, 3000, 4000]],
  ["tokenBucket: lost", tokenBucket({ capacity: 1, refill: 1, everyMs: 1000 }), [2000, 3000, 4000]],
  ["tokenBucket, stepped: lost", steps, [2000, 3000, 4000]],
] as const) {
  beside(name, async () => {
    const { clock, here, there } = twoProcesses(policy);
    while ((await here.decide()).allowed);
    const controller = new AbortController();
    const gone = failure(() => here.acquire(1, { signal: controller.signal }));
    await turn();
    const promised = watch(clock, there.acquire());
    await turn();
    controller.abort();
    await gone;
    await turn();
    const late = [watch(clock, here.acquire()), watch(clock, there.acquire())];
    await clock.advance(10_000);
    assert.equal(
      [promised, ...late].map(({ at }) => at),
      instants,
    );
  });
}

beside("a caller of another amount does not take over a permit that was given up", async () => {
  const { clock, limiter } = onHand(unsaving);
  await limiter.acquire();
  const controller = new AbortController();
  limiter.acquire(1, { signal: controller.signal }).catch(() => {});
  const [two, one] = [watch(clock, limiter.acquire(2)), watch(clock, limiter.acquire(1))];
  await turn();
  controller.abort();
  await clock.advance(10_000);
  assert.equal([two.at, one.at], [2000, 4000]);
});

beside("when the last waiter leaves, no gap remains", async () => {
  for (const policy of [slow, policyStates]) {
    const { clock, here, there } = twoProcesses(policy);
    await here.acquire();
    const controllers: AbortController[] = [];
    for (const limiter of [here, there, here]) {
      const controller = new AbortController();
      controllers.push(controller);
      limiter.acquire(1, { signal: controller.signal }).catch(() => {});
      await turn();
    }
    for (const controller of controllers.reverse()) {
      controller.abort();
      await turn();
    }
    const next = watch(clock, there.acquire());
    await clock.advance(10_000);
    assert.is(next.at, 1000);
  }
});

beside.run();
