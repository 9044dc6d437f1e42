/** Several processes at one reserve, and reservations that are settled while something else happens. */
import {
  fairShares,
  fixedWindow,
  gcra,
  leakyBucket,
  type Permits,
  type Policies,
  type Reservation,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { StoreLimiter } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { share } from "../../src/algorithms/index.ts";
import { randomFrom } from "../support/concurrency/server-model.ts";
import { StoppableClock } from "../support/regions/stoppable-clock.ts";
import { bucket, busy, drain, nameOf, withLocal } from "../support/regions/with-local.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, settled reservations");

const HOUR_MS = 3_600_000;

// -- several processes at one reserve ----------------------------------------------------------

/** Two processes of one region; its reserve has 10 a second. */
async function twoProcesses(options: Parameters<typeof withLocal>[0] = {}) {
  const opened = await withLocal(options);
  const { limiter, all, clock } = opened;
  const policy = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });
  const other = RegionalLimiter.create("limit", policy, all);
  await other.peek();
  await clock.advance(100);
  return { ...opened, both: [limiter, other] as const };
}

for (const permits of [[1], [1, 2]])
  test(`two processes whose parts serve callers of ${permits.join(" and ")} leave the reserve full`, async () => {
    const { clock, home, both } = await twoProcesses();
    const end = new AbortController();
    let calls = 0;
    let waiting = 0;
    const left = () => {
      waiting -= 1;
    };
    for (let t = 0; t < 10_000; t += 5) {
      for (; waiting < 40; waiting += 1) {
        calls += 1;
        const amount = permits[Math.floor(calls / 2) % permits.length];
        both[calls % 2 === 0 ? 0 : 1].acquire(amount, { signal: end.signal }).then(left, left);
      }
      await clock.advance(5);
    }
    home.fail();
    end.abort();
    await clock.advance(20_000);
    let granted = 0;
    for (const limiter of both) while (await limiter.tryAcquire()) granted += 1;
    for (const limiter of both) await limiter.close();
    assert.is(granted, 10);
  });

for (const permits of [[1], [1, 2, 5]])
  test(`while the home is away, two processes use their reserve, with time-outs and callers of ${permits.join(", ")}`, async () => {
    const { clock, home, both } = await twoProcesses();
    home.fail();
    for (const limiter of both) await drain(limiter);
    let used = 0;
    let calls = 0;
    for (let t = 0; t < 60_000; t += 97) {
      for (const limiter of both) {
        const amount = permits[calls % permits.length] ?? 1;
        calls += 1;
        const answered = (isGranted: boolean) => {
          if (isGranted) used += amount;
        };
        limiter.tryAcquire(amount, 1000).then(answered, () => {});
        await clock.advance(48.5);
      }
    }
    for (const limiter of both) await limiter.close();
    assert.ok(used >= 500, `${used} of 600 in a minute`);
  });

for (const seed of [1, 2, 3, 4]) {
  test(`two processes with callers of all sizes keep the bound of the reserve, seed ${seed}`, async () => {
    const random = randomFrom(seed);
    const order = seed % 2 === 0 ? fairShares({ priorities: ["high", "low"] }) : undefined;
    const { clock, home, local, both } = await twoProcesses({ order });
    local.delayMs = seed > 2 ? 150 : 0;
    home.fail();
    const grants: [ms: number, permits: number][] = [];
    const ask = (limiter: (typeof both)[number]) => {
      const permits = 1 + Math.floor(random() ** 3 * 10);
      const share = order === undefined ? {} : { priority: random() < 0.3 ? "high" : "low" };
      const leave = new AbortController();
      if (random() < 0.3) clock.wakeAt(clock.now() + random() * 2000, () => leave.abort());
      const granted = () => void grants.push([clock.now(), permits]);
      limiter.acquire(permits, { ...share, signal: leave.signal }).then(granted, () => {});
    };
    for (let i = 0; i < 400; i++) {
      for (const limiter of both) if (random() < 0.4) ask(limiter);
      await clock.advance(Math.floor(random() ** 4 * 1000));
    }
    await clock.advance(60_000);
    for (const limiter of both) await limiter.close();
    for (const [i, [from]] of grants.entries()) {
      let sum = 0;
      for (const [to, permits] of grants.slice(i)) {
        sum += permits;
        // a grant is noted a round trip late; one request in each process but one
        const most = 10 + (10 * (to - from + local.delayMs)) / 1000 + 9;
        assert.ok(sum <= most + 1e-6, `${sum} of ${most} from ${from} to ${to}`);
      }
    }
    assert.ok(grants.length > 100, `${grants.length}`);
  });
}

for (const [name, policy] of [
  ["leakyBucket", leakyBucket({ capacity: 200, permitsPerSecond: 100 })],
  ["smoothBursty", smoothBursty({ permitsPerSecond: 100, burstSeconds: 0 })],
] as const)
  test(`${name}: what the reserve lends for a caller that is served elsewhere is not lent twice`, async () => {
    const random = randomFrom(1);
    const { limiter, clock } = await withLocal({ reserve: 0.5, regions: ["eu"] }, policy);
    const grants: [ms: number, permits: number][] = [];
    for (let t = 0; t < 30_000; t += 20) {
      for (let i = 0; i < 2 && limiter.stats.waiting < 20; i++) {
        if (random() < 0.5) continue;
        const permits = random() < 0.6 ? 1 : 8;
        const granted = (is: unknown) => {
          if (is !== false) grants.push([clock.now(), permits]);
        };
        const isTimed = random() < 0.3;
        const call = isTimed ? limiter.tryAcquire(permits, 300) : limiter.acquire(permits);
        call.then(granted, () => {});
      }
      await clock.advance(20);
    }
    await limiter.close();
    let [over, most, last, used] = [0, 0, 0, 0];
    for (const [ms, permits] of grants) {
      over = Math.max(0, over - (ms - last) / 10) + permits;
      most = Math.max(most, over);
      last = ms;
      used += permits;
    }
    // the part lends once, and the reserve once
    assert.ok(most <= 16 + 1e-6, `${most}`);
    assert.ok(used > 0.9 * 3000, `${used} of 3000`);
  });

test("six processes with parts and callers of 1 and 4 use all of the limit", async () => {
  const random = randomFrom(3);
  const policy = tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 });
  const options = { regions: ["eu"], reserve: 0.2, everyMs: 500 };
  const { limiter, all, clock } = await withLocal(options, policy);
  const others = Array.from({ length: 5 }, () => RegionalLimiter.create("limit", policy, all));
  const limiters = [limiter, ...others];
  let used = 0;
  let [longestMs, from] = [0, 0];
  for (let t = 0; t < 30_000; t += 50) {
    if (t === 10_000) [used, longestMs, from] = [0, 0, clock.now()];
    for (const each of limiters) {
      for (let { waiting } = each.stats; waiting < 4; waiting += 1) {
        const permits = random() < 0.8 ? 1 : 4;
        const granted = (waitedMs: number) => {
          used += permits;
          longestMs = Math.max(longestMs, waitedMs);
        };
        each.acquire(permits).then(granted, () => {});
      }
    }
    await clock.advance(50);
  }
  const most = (clock.now() - from) / 10;
  await Promise.all([...limiters.map((each) => each.close()), clock.advance(5000)]);
  // 0.9: places in the store's line are given up, and nobody can use what they were promised
  assert.ok(used > 0.97 * most, `${used} of ${most}`);
  // 24 callers of 1.6 wait in all, some of them for a part that moves
  assert.ok(longestMs < 1500, `${longestMs} ms`);
});

test("fair order: two processes serve those that are less urgent with what the urgent ones leave of the reserve", async () => {
  const order = fairShares({ priorities: ["high", "low"] });
  const { clock, home, both } = await twoProcesses({ order });
  home.fail();
  for (const limiter of both) await drain(limiter);
  const used: Record<string, number> = { high: 0, low: 0 };
  const ask = (limiter: (typeof both)[number], permits: number, priority: string) => {
    const granted = () => {
      used[priority] = (used[priority] ?? 0) + permits;
    };
    limiter.acquire(permits, { priority }).then(granted, () => {});
  };
  for (const limiter of both) for (let i = 0; i < 60; i++) ask(limiter, 5, "low");
  for (let t = 0; t < 60_000; t += 1000) {
    for (const limiter of both) {
      ask(limiter, 1, "high");
      await clock.advance(500);
    }
  }
  const { high = 0, low = 0 } = used;
  for (const limiter of both) await limiter.close();
  assert.ok(high + low >= 500, `${high} and ${low} of 600 in a minute`);
});

// -- settle ------------------------------------------------------------------------------------

/** A reservation that a part served whose lease has ended since; the reserve is full, and holds 10. */
async function servedByPart() {
  const opened = await withLocal();
  const { clock, home, limiter } = opened;
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  const reservation = await limiter.reserve();
  assert.is(reservation.waitMs, 0);
  home.fail();
  await clock.advance(20_000);
  assert.is(limiter.fraction, 0);
  const settle = async (used: number) => reservation.settle(used);
  return { ...opened, settle };
}

test("settle that the region's store has failed is charged when it is repeated", async () => {
  const { clock, local, limiter, settle } = await servedByPart();
  local.fail();
  const names = [await nameOf(settle(9))];
  local.recover();
  await clock.advance(5000);
  names.push(await nameOf(settle(9)));
  assert.equal(names, ["StoreUnavailableError", "undefined"]);
  let left = 0;
  while (await limiter.tryAcquire()) left += 1;
  await limiter.close();
  // 10: the second one says that it is charged, and nothing is
  assert.is(left, 2);
});

test("the second of two settles of one tick does not resolve before its charge has arrived", async () => {
  const { clock, local, limiter, settle } = await servedByPart();
  local.delayMs = 100;
  const done: string[] = [];
  void settle(5).then(() => done.push("first"));
  void settle(9).then(() => done.push("second"));
  await clock.advance(10);
  const early = [...done];
  await clock.advance(1000);
  await limiter.close();
  assert.equal(early, []);
});

test("… and rejects if the region's store fails it", async () => {
  const { local, limiter, settle } = await servedByPart();
  local.fail();
  const names = await Promise.all([5, 9].map((used) => nameOf(settle(used))));
  await limiter.close();
  assert.equal(names, ["StoreUnavailableError", "StoreUnavailableError"]);
});

const two = {
  calls: tokenBucket({ capacity: 200, refill: 200, everyMs: HOUR_MS }),
  tokens: tokenBucket({ capacity: 1000, refill: 1000, everyMs: HOUR_MS }),
};
/** What happens to a reservation for 1 call while the store is away; how many of 100 tokens are used then. */
const failing: Readonly<Record<string, readonly [Permits[], Permits, number]>> = {
  "a policy that it did not name, then undo": [[{ tokens: 40 }], 0, 0],
  "a policy that it did not name, then again": [[{ tokens: 40 }], { tokens: 40 }, 40],
  "several at once, then undo": [[10, 20, 30].map((tokens) => ({ tokens })), 0, 0],
  "several at once, then the last again": [
    [10, 20, 30].map((tokens) => ({ tokens })),
    { tokens: 30 },
    30,
  ],
  "a refund and a charge, then again": [[{ calls: 0, tokens: 90 }], { calls: 0, tokens: 90 }, 90],
};

/** A limiter whose store has 100 tokens. */
function ofHundred(where: "a region" | "a store") {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const regions = { home, local, clock, region: "eu", regions: ["eu", "us"], reserve: 0.2 };
  const tenth = Object.fromEntries(
    Object.entries(two).map(([name, policy]) => [name, share(policy, 0.1)]),
  );
  home.fail();
  const limiter =
    where === "a store"
      ? StoreLimiter.create(local, "limit", tenth, { clock })
      : RegionalLimiter.create("limit", two, regions);
  return { clock, local, limiter };
}

for (const where of ["a region", "a store"] as const) {
  test(`${where}: an undo whose reply was lost refunds once, however often it is called`, async () => {
    const { clock, local, limiter } = ofHundred(where);
    assert.ok(await limiter.tryAcquire({ tokens: 50 }));
    const reservation = await limiter.reserve({ tokens: 50 });
    const run = local.run.bind(local);
    local.run = async (...request) => {
      await run(...request);
      throw new Error("read ECONNRESET");
    };
    assert.is(await nameOf(Promise.resolve(reservation.undo())), "StoreUnavailableError");
    local.run = run;
    await clock.advance(5000);
    for (let i = 0; i < 2; i++) await reservation.undo();
    const { remaining } = (await limiter.peek({ tokens: 1 })).policies.tokens ?? {};
    void limiter.close();
    await clock.advance(5000);
    assert.is(Math.round(remaining ?? 0), 50);
  });
}

/** A reservation for 20 of 100 tokens, of which 50 are used; what is sent next arrives after 50 ms, and fails. */
async function overlapping(where: "a region" | "a store") {
  const opened = ofHundred(where);
  const { clock, local, limiter } = opened;
  assert.ok(await limiter.tryAcquire({ tokens: 50 }));
  const reservation = await limiter.reserve({ tokens: 20 });
  const run = local.run.bind(local);
  local.run = async () => {
    local.run = run;
    await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 50, resolve));
    throw new TypeError("not sent");
  };
  const used = async () => {
    const { remaining = 0 } = (await limiter.peek({ tokens: 1 })).policies.tokens ?? {};
    return Math.round(50 - remaining);
  };
  return { ...opened, reservation, used };
}

for (const where of ["a region", "a store"] as const) {
  for (const [title, next, left] of [
    ["settle to less", (one: Reservation) => one.settle({ tokens: 5 }), 5],
    ["undo", (one: Reservation) => one.undo(), 0],
    [
      "two that follow",
      (one: Reservation) => {
        void one.settle({ tokens: 35 });
        return one.settle({ tokens: 10 });
      },
      10,
    ],
  ] as const)
    test(`${where}: ${title}, while a settlement is under way that fails: what that has not charged is not refunded`, async () => {
      const { clock, limiter, reservation, used } = await overlapping(where);
      const first = nameOf(Promise.resolve(reservation.settle({ tokens: 30 })));
      await clock.advance(10);
      const second = nameOf(Promise.resolve(next(reservation)));
      await clock.advance(1000);
      assert.equal([await first, await second], ["StoreUnavailableError", "undefined"]);
      const now = await used();
      void limiter.close();
      await clock.advance(5000);
      // 10 less: the second one was computed as if the first one had charged them
      assert.is(now, left);
    });

  test(`${where} refuses a bad amount at once, also while a settlement is under way`, async () => {
    const { clock, limiter, reservation } = await overlapping(where);
    void nameOf(Promise.resolve(reservation.settle({ tokens: 30 })));
    await clock.advance(10);
    const refused = nameOf((async () => reservation.settle({ tokens: -1 }))());
    assert.is(await Promise.race([refused, clock.advance(0).then(() => "late")]), "RangeError");
    void limiter.close();
    await clock.advance(5000);
  });
}

for (const where of ["a region", "a store"] as const)
  test(`${where}: a hundred settlements at once take two trips, and what the last says of each policy counts`, async () => {
    const { clock, local, limiter } = ofHundred(where);
    const reservation = await limiter.reserve({ tokens: 20 });
    const run = local.run.bind(local);
    let trips = 0;
    local.run = async (...request) => {
      trips += 1;
      await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 100, resolve));
      return run(...request);
    };
    const settled: Promise<string>[] = [];
    const settle = (used: Permits) => {
      settled.push(nameOf(Promise.resolve(reservation.settle(used))));
    };
    settle({ tokens: 21 });
    await clock.advance(1);
    settle(7);
    for (let tokens = 22; tokens <= 120; tokens++) settle({ tokens });
    settle({ tokens: 35 });
    await clock.advance(200);
    const [ended, last] = [await Promise.all(settled), trips];
    local.run = run;
    const { calls, tokens } = (await limiter.peek()).policies;
    void limiter.close();
    await clock.advance(5000);
    assert.equal([...new Set(ended)], ["undefined"]);
    assert.is(last, 2);
    assert.equal(
      [calls, tokens].map((one) => Math.round(one?.remaining ?? -1)),
      [20 - 7, 100 - 35],
    );
  });

test("a settlement after a cancellation that waits for its turn comes after it", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const policy = tokenBucket({ capacity: 100, refill: 100, everyMs: HOUR_MS });
  const limiter = StoreLimiter.create(store, "limit", policy, { clock });
  assert.ok(await limiter.tryAcquire(100));
  const reservation = await limiter.reserve(20);
  store.delayMs = 50;
  const calls = [30, 40].map((used) => reservation.settle(used));
  calls.push(Promise.resolve(reservation.cancel()).then(() => {}));
  await clock.advance(10);
  calls.push(reservation.settle(4));
  await Promise.all([clock.advance(1000), ...calls]);
  store.delayMs = 0;
  await clock.advance(HOUR_MS / 10);
  const { remaining } = await limiter.peek();
  void limiter.close();
  await clock.advance(5000);
  // 10: it was part of the one before the cancellation, which gave it back
  assert.is(Math.round(remaining), 6);
});

test("a store: a settlement that follows another one is charged although the limiter is closed", async () => {
  const { clock, local, limiter } = ofHundred("a store");
  const reservation = await limiter.reserve({ tokens: 20 });
  local.delayMs = 5;
  const settled = [30, 40].map((tokens) => nameOf((async () => reservation.settle({ tokens }))()));
  const closed = limiter.close();
  await clock.advance(1000);
  assert.equal(await Promise.all(settled), ["undefined", "undefined"]);
  await clock.advance(5000);
  await closed;
});

test("a reservation that is cancelled while its settlement fails gives back what was charged", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const policy = tokenBucket({ capacity: 100, refill: 100, everyMs: HOUR_MS });
  const limiter = StoreLimiter.create(store, "limit", policy, { clock });
  assert.ok(await limiter.tryAcquire(100));
  const reservation = await limiter.reserve(20);
  const run = store.run.bind(store);
  store.run = async () => {
    store.run = run;
    await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 50, resolve));
    throw new TypeError("not sent");
  };
  const settled = nameOf(Promise.resolve(reservation.settle(30)));
  await clock.advance(10);
  const cancelled = nameOf(Promise.resolve(reservation.cancel()));
  await clock.advance(1000);
  assert.equal([await settled, await cancelled], ["StoreUnavailableError", "true"]);
  await clock.advance(HOUR_MS / 10);
  const { remaining } = await limiter.peek();
  void limiter.close();
  await clock.advance(5000);
  // 20: the 10 that were not charged came back as well
  assert.is(Math.round(remaining), 10);
});

test("a reservation that waits is settled at once, however often", async () => {
  const policy = tokenBucket({ capacity: 10, refill: 10, everyMs: HOUR_MS });
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const options = { home, clock, region: "eu", regions: ["eu"], reserve: 1 };
  const limiter = RegionalLimiter.create("limit", policy, options);
  await limiter.acquire(10);
  const reservation = await limiter.reserve(8);
  void reservation.settle(6);
  void reservation.settle(2);
  const { waitMs } = await limiter.reserve(1);
  await limiter.close();
  assert.is(waitMs, (3 * HOUR_MS) / 10);
});

for (const [title, [failed, last, used]] of Object.entries(failing)) {
  for (const where of ["a region", "a store"] as const)
    test(`${where} fails settlements of ${title}: what was not charged is not refunded`, async () => {
      const { clock, local, limiter } = ofHundred(where);
      const reservation = await limiter.reserve({ calls: 1 });
      local.fail();
      const settled = failed.map((each) => nameOf(Promise.resolve(reservation.settle(each))));
      const names = await Promise.all(settled);
      local.recover();
      await clock.advance(5000);
      await reservation.settle(last);
      const { remaining } = (await limiter.peek({ tokens: 1 })).policies.tokens ?? {};
      void limiter.close();
      await clock.advance(5000);
      assert.equal(names, Array(failed.length).fill("StoreUnavailableError"));
      assert.is(Math.round(100 - (remaining ?? 0)), used);
    });
}

test("a reservation that was cancelled, and whose settlement failed, is not refunded", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  const reservation = await limiter.reserve(5);
  await reservation.cancel();
  local.fail();
  assert.is(await nameOf(Promise.resolve(reservation.settle(5))), "StoreUnavailableError");
  local.recover();
  await clock.advance(5000);
  await drain(limiter);
  await reservation.undo();
  assert.not.ok(await limiter.tryAcquire());
  await limiter.close();
});

test("a waiting reservation that is settled to 0, and then to more, is charged", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 60_000 });
  const { clock, home, limiter } = await withLocal({}, policy);
  home.fail();
  await drain(limiter);
  const reservation = await limiter.reserve();
  await Promise.all([reservation.settle(0), reservation.settle(8)]);
  await clock.advance(60_000);
  let granted = 0;
  while (await limiter.tryAcquire()) granted += 1;
  await limiter.close();
  // 10: it went at once with 8 of which none was charged
  assert.is(granted, 2);
});

// -- who pays ----------------------------------------------------------------------------------

const thousand = {
  tokenBucket: tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 }),
  fixedWindow: fixedWindow({ limit: 1000, windowMs: 1000 }),
  slidingLog: slidingLog({ limit: 1000, windowMs: 1000 }),
};

/** What three regions use of the limit in 30 s, if each call is charged 29 more after so many ms. */
async function usedOf(policy: Policies, afterMs: number): Promise<number> {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const regions = ["eu", "us", "asia"];
  const limiters = regions.map((region) => {
    const options = { home, local: memoryStore({ clock }), clock, region, regions };
    return RegionalLimiter.create("limit", policy, options);
  });
  for (const limiter of limiters) await limiter.peek();
  await clock.advance(10_000);
  let used = 0;
  for (let t = 0; t < 30_000; t += 100) {
    for (const limiter of limiters) {
      const granted = () => {
        used += 30;
        clock.wakeAt(clock.now() + afterMs, () => void nameOf(limiter.charge(29)));
      };
      for (let { waiting } = limiter.stats; waiting < 5; waiting += 1) {
        limiter.acquire().then(granted, () => {});
      }
    }
    await clock.advance(100);
  }
  await Promise.all([...limiters.map((limiter) => limiter.close()), clock.advance(5000)]);
  return used / 31_000;
}

for (const [name, policy] of Object.entries(thousand)) {
  for (const afterMs of [0, 1000])
    test(`${name}: calls that are charged ${afterMs} ms later use no more than the limit`, async () => {
      const used = await usedOf(policy, afterMs);
      // 2.5: the reserve grants, and the part pays; 1.5: the part grants, and the reserve pays
      assert.ok(used > 0.3 && used < 1.1, `${used} of the limit`);
    });
}

test("what the region's store does not charge for a call that it has granted, the part pays", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await limiter.charge(250);
  await limiter.charge(250);
  await limiter.charge(250);
  await clock.advance(100);
  const isGranted = await limiter.tryAcquire();
  local.fail();
  const name = await nameOf(limiter.charge(250));
  await limiter.close();
  assert.equal([isGranted, name], [true, "undefined"]);
});

/** A region without a part, whose reserve is full and holds 10. */
async function withoutPart() {
  const opened = await withLocal();
  const { clock, home, limiter } = opened;
  home.fail();
  /** How many ms pass until a call is granted. */
  const wait = async () => {
    let ms = 0;
    for (; !(await limiter.tryAcquire()); ms += 50) await clock.advance(50);
    await limiter.close();
    return ms;
  };
  return { ...opened, wait };
}

for (const [permits, waitMs] of [
  [24, 1500],
  [200, 19_100],
] as const)
  test(`without a part the reserve pays a charge of ${permits}, though it holds 10`, async () => {
    const { limiter, wait } = await withoutPart();
    await limiter.charge(permits);
    assert.is(await wait(), waitMs);
  });

test("… and a settlement", async () => {
  const { limiter, wait } = await withoutPart();
  const reservation = await limiter.reserve();
  await reservation.settle(24);
  assert.is(await wait(), 1500);
});

test("… and what a reservation that waits is settled to", async () => {
  const { clock, limiter, wait } = await withoutPart();
  await drain(limiter);
  const reservation = await limiter.reserve();
  await reservation.settle(25);
  await clock.advance(100);
  await reservation.ready();
  assert.is(await wait(), 2500);
});

for (const [title, afterMs, used] of [
  ["to less while it is under way", 0, 0],
  ["to less after that", 100, 0],
  ["to less, but more than was reserved", 100, 6],
] as const)
  test(`a charge for a reservation that has waited fails, and it is settled ${title}: as much is charged as was used`, async () => {
    const policy = tokenBucket({ capacity: 300, refill: 300, everyMs: HOUR_MS });
    const { clock, home, local, limiter } = await withLocal({}, policy);
    home.fail();
    await drain(limiter);
    const reservation = await limiter.reserve(5);
    await reservation.settle(9);
    const run = local.run.bind(local);
    local.run = async (...request) => {
      if (request[2].every(({ verb }) => verb !== "charge")) return run(...request);
      local.run = run;
      await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 50, resolve));
      throw new TypeError("not sent");
    };
    const ready = reservation.ready();
    await clock.advance(HOUR_MS / 2);
    await ready;
    await clock.advance(afterMs);
    const settled = reservation.settle(used);
    await clock.advance(HOUR_MS / 5);
    await settled;
    let left = 0;
    while (await limiter.tryAcquire()) left += 1;
    await limiter.close();
    // 3 or 4 more: the reserve gives back what it has not charged
    assert.is(left, 7 - used);
  });

test("… and gets all of it back", async () => {
  const { limiter, wait } = await withoutPart();
  const reservation = await limiter.reserve();
  await reservation.settle(25);
  await reservation.undo();
  let left = 0;
  while (await limiter.tryAcquire()) left += 1;
  await wait();
  assert.is(left, 10);
});

const ofAllKinds: Readonly<Record<string, Policies>> = {
  tokenBucket: tokenBucket({ capacity: 300, refill: 300, everyMs: HOUR_MS }),
  gcra: gcra({ limit: 300, periodMs: HOUR_MS, burst: 300 }),
  fixedWindow: fixedWindow({ limit: 300, windowMs: HOUR_MS }),
  slidingWindow: slidingWindow({ limit: 300, windowMs: HOUR_MS }),
  slidingLog: slidingLog({ limit: 300, windowMs: HOUR_MS }),
  leakyBucket: leakyBucket({ capacity: 300, permitsPerSecond: 1 / 12 }),
  smoothBursty: smoothBursty({ permitsPerSecond: 1 / 12 }),
};

for (const [name, policy] of Object.entries(ofAllKinds))
  test(`${name}: … and no more than was charged if it is settled down in steps`, async () => {
    const { home, limiter } = await withLocal({}, policy);
    home.fail();
    const reservation = await limiter.reserve();
    await drain(limiter);
    const { granted } = limiter.stats;
    for (let used = 3200; used > 160; used -= 160) {
      await reservation.settle(used);
      await drain(limiter);
    }
    const more = limiter.stats.granted - granted;
    await limiter.close();
    // 190: the reserve had charged 160 of 3200
    assert.is(more, 0);
  });

test("… of each policy as much as was charged", async () => {
  const { clock, limiter } = ofHundred("a region");
  const reservation = await limiter.reserve({ tokens: 20 });
  await reservation.settle({ calls: 1, tokens: 250 });
  const { calls, tokens } = (await limiter.peek()).policies;
  void limiter.close();
  await clock.advance(5000);
  assert.equal(
    [calls, tokens].map((one) => Math.round(one?.remaining ?? -1)),
    [19, 0],
  );
});

// -- waitMs ------------------------------------------------------------------------------------

test("waitMs of a reservation that has waited is still what it was when that was made", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  const reservation = await limiter.reserve();
  const { waitMs } = reservation;
  await clock.advance(1000);
  await reservation.ready();
  await limiter.close();
  // "as computed at that time": 0
  assert.is(reservation.waitMs, waitMs);
});

test("fair order: a reservation that goes first, and whose permits the reserve has, need not wait", async () => {
  const order = fairShares({ priorities: ["high", "low"] });
  const policy = tokenBucket({ capacity: 10, refill: 10, everyMs: HOUR_MS });
  const { clock, limiter } = await withLocal({ order, reserve: 1, regions: ["eu"] }, policy);
  await limiter.acquire(5, { priority: "high" });
  void nameOf(limiter.acquire(10, { priority: "low" }));
  await clock.advance(10);
  const reservation = await limiter.reserve(1, { priority: "high" });
  const { waitMs } = reservation;
  const ready = await nameOf(reservation.ready());
  await limiter.close();
  assert.is(ready, "0");
  // Infinity: `allOf` with a time-out gives it back
  assert.is(waitMs, 0);
});

// -- stopped processes -------------------------------------------------------------------------

/** A region that has a lease, and is stopped for 20 minutes. */
async function stopped(hasLocal: boolean, policy = bucket) {
  const clock = new FakeClock();
  const own = new StoppableClock(clock);
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const limiter = RegionalLimiter.create("limit", policy, {
    ...{ home, clock: own, region: "eu", regions: ["eu", "us", "asia"] },
    ...(hasLocal ? { local } : {}),
  });
  await limiter.peek();
  await clock.advance(10_000);
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  const reservation = await limiter.reserve();
  assert.is(reservation.waitMs, 0);
  own.stop();
  await clock.advance(1_200_000);
  return { clock, own, limiter, reservation };
}

// The first thing that runs after that may be the reply that a reservation is settled by, before any timer.
for (const hasLocal of [false, true]) {
  for (const verb of ["peek", "settle", "charge", "refund", "reset"] as const) {
    const title = hasLocal ? "with a local store" : "without a local store";
    test(`${title}, a process that was stopped and calls ${verb} first is not in debt for the time in which it was`, async () => {
      const { clock, own, limiter, reservation } = await stopped(hasLocal);
      if (verb === "settle") await reservation.settle(2);
      else if (verb === "peek" || verb === "reset") await limiter[verb]();
      else await limiter[verb](1);
      own.goOn();
      await clock.advance(10_000);
      const { granted } = limiter.stats;
      await busy(limiter, clock, 20_000);
      const after = limiter.stats.granted - granted;
      await limiter.close();
      // 0: it owes what its lease would have regained in 20 minutes
      assert.ok(after > 4000, `${after} of 8000`);
    });
  }
}

test("a process that was stopped and is updated first is not in debt for the time in which it was", async () => {
  const policy = smoothBursty({ permitsPerSecond: 300 });
  const { clock, own, limiter } = await stopped(false, policy);
  await limiter.update(policy);
  own.goOn();
  await clock.advance(10_000);
  const { granted } = limiter.stats;
  await busy(limiter, clock, 20_000);
  const after = limiter.stats.granted - granted;
  await limiter.close();
  assert.ok(after > 4000, `${after} of 8000`);
});

test("with a local store, a process that was stopped beyond its lease charges the reserve", async () => {
  const { own, limiter } = await stopped(true);
  await limiter.charge(9);
  own.goOn();
  let left = 0;
  while (await limiter.tryAcquire()) left += 1;
  await limiter.close();
  // 10: a part that is over has paid
  assert.is(left, 1);
});

test.run();
