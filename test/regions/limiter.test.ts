import * as assert from "uvu/assert";
import {
  diagnostics,
  fixedWindow,
  leakyBucket,
  PermitsExceedCapacityError,
  type Policies,
  type QueueFullError,
  slidingLog,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import {
  LimiterClosedError,
  RegionalLimiter,
  type RegionalOptions,
} from "../../src/regions/index.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { mapIterations } from "../support/map-iterations.ts";
import { World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const REGIONS = ["eu", "us", "asia"];
const bucket: Policies = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });
const test = suite("RegionalLimiter");

function open(options: Partial<RegionalOptions> = {}, policy = bucket) {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const all = { home, clock, region: "eu", regions: REGIONS, ...options };
  return { clock, home, limiter: RegionalLimiter.create("limit", policy, all) };
}

/** How many of that many requests of one permit are granted now. */
async function granted(limiter: { tryAcquire(): Promise<boolean> }, requests: number) {
  let count = 0;
  for (let i = 0; i < requests; i++) if (await limiter.tryAcquire()) count += 1;
  return count;
}

test("an idle region starts with its part of the reserve, at once and without the home", async () => {
  const { limiter, home } = open();
  home.fail();
  assert.is(await granted(limiter, 100), 10);
  assert.ok(Math.abs(limiter.fraction - 0.1 / 3) < 1e-8);
});

test("a busy region gets the rest of the limit, and gives it back when it is idle", async () => {
  const { limiter, clock } = open();
  await limiter.peek();
  await clock.advance(10_000);
  for (let i = 0; i < 100; i++) {
    await granted(limiter, 50);
    await clock.advance(50);
  }
  assert.ok(Math.abs(limiter.fraction - (0.9 + 0.1 / 3)) < 1e-8, String(limiter.fraction));
  await clock.advance(10_000);
  assert.ok(Math.abs(limiter.fraction - 0.1 / 3) < 1e-8, String(limiter.fraction));
});

test("the cost of a new key does not grow with the number of keys", async () => {
  const { limiter } = open();
  const begun = await mapIterations(async () => {
    for (let i = 0; i < 2000; i++) await limiter.for(`key ${i}`).tryAcquire();
  });
  assert.ok(begun < 100, `${begun} iterations for 2000 keys`);
});

test("a region that is cut off uses its part until its lease ends, and then its reserve", async () => {
  const world = new World(bucket, { regions: REGIONS });
  const [eu] = world.regions;
  assert.ok(eu);
  await eu.limiter.peek();
  await world.clock.advance(10_000);
  const busy = async (ms: number) => {
    for (let t = 0; t < ms; t += 50) {
      await granted(eu.limiter, 50);
      await world.clock.advance(50);
    }
  };
  await busy(5000);
  assert.ok(eu.limiter.fraction > 0.9);
  eu.isCut = true;
  await busy(3500);
  assert.ok(eu.limiter.fraction > 0.9);
  await busy(2000);
  assert.ok(eu.limiter.fraction < 0.04);
  eu.isCut = false;
  await busy(6000);
  assert.ok(eu.limiter.fraction > 0.9);
  await world.close();
});

test("a lease counts from when its message was sent, however long the reply takes", async () => {
  for (const offsetMs of [0, 500, 1000, 1500]) {
    const world = new World(bucket, { regions: REGIONS });
    const [eu] = world.regions;
    assert.ok(eu);
    await eu.limiter.peek();
    await world.clock.advance(10_000);
    world.home.latencyMs = 900;
    const busy = async (ms: number) => {
      for (let t = 0; t < ms; t += 50) {
        await granted(eu.limiter, 50);
        await world.clock.advance(50);
      }
    };
    await busy(10_000 + offsetMs);
    assert.ok(eu.limiter.fraction > 0.9);
    // replies that are under way still come
    world.home.losesMessages = true;
    await busy(5050);
    assert.ok(eu.limiter.fraction < 0.04, `${eu.limiter.fraction} with ${offsetMs}`);
    await world.close();
  }
});

test("a region whose reservations find the line full gets the rest of the limit, too", async () => {
  const leaky = leakyBucket({ capacity: 1000, permitsPerSecond: 1000 });
  const world = new World(leaky, { regions: ["eu", "us"] });
  const [eu] = world.regions.map(({ limiter }) => limiter);
  await eu?.peek();
  await world.clock.advance(20_000);
  let granted = 0;
  const count = () => {
    granted += 1;
  };
  for (let n = 0; n < 40; n++) {
    eu?.reserve(100).then(count, () => {});
    await world.clock.advance(500);
  }
  assert.ok(granted > 30, `${granted} of 40`);
  await world.close();
});

test("a caller of acquire waits for as long as its region's part says, and no longer", async () => {
  const { limiter, clock } = open({ reserve: 1 }, smoothBursty({ permitsPerSecond: 3 }));
  assert.is(await limiter.acquire(), 0);
  const waited = limiter.acquire();
  await clock.advance(999);
  assert.is(limiter.stats.waiting, 1);
  await clock.advance(1);
  assert.is(await waited, 1000);
});

test("a waiting caller goes sooner when the region's part grows", async () => {
  const { limiter, clock } = open({}, smoothBursty({ permitsPerSecond: 3 }));
  await limiter.peek();
  await clock.advance(10_000);
  await limiter.acquire(3);
  const waited = limiter.acquire();
  await clock.advance(29_000);
  const ms = await waited;
  assert.ok(ms > 1000 && ms < 10_000, `${ms}`);
});

test("a request that fits the limit and not the region's part waits for a larger part", async () => {
  const { limiter, clock } = open({}, fixedWindow({ limit: 30, windowMs: 1000 }));
  await limiter.peek();
  await clock.advance(10_000);
  assert.is(await limiter.tryAcquire(20), false);
  assert.is((await limiter.decide(20)).waitMs, Infinity);
  const waited = limiter.acquire(20);
  await clock.advance(5000);
  assert.ok((await waited) > 0);
});

test("a request that exceeds the whole limit is an error", async () => {
  const { limiter } = open({}, fixedWindow({ limit: 30, windowMs: 1000 }));
  for (const verb of ["acquire", "tryAcquire", "peek"] as const) {
    const error = await limiter[verb](31).then(
      () => undefined,
      (reason) => reason,
    );
    assert.instance(error, PermitsExceedCapacityError);
    assert.match(error.message, /31 permits .* in the largest part of a region: .* reserve/);
  }
});

test("each key has a limit of its own, and only hot keys talk to the home", async () => {
  const world = new World(bucket, { regions: REGIONS });
  const [eu] = world.regions;
  assert.ok(eu);
  await eu.limiter.peek();
  await world.clock.advance(10_000);
  const before = world.home.messages;
  for (let key = 0; key < 500; key++)
    assert.is(await eu.limiter.for(`key ${key}`).tryAcquire(), true);
  await world.clock.advance(5000);
  assert.is(world.home.messages, before);
  const hot = eu.limiter.for("hot");
  for (let t = 0; t < 5000; t += 50) {
    await granted(hot, 50);
    await world.clock.advance(50);
  }
  assert.ok(hot.fraction > 0.9);
  assert.ok(eu.limiter.for("key 1").fraction < 0.04);
  await world.close();
});

test("with a local store, the processes of a region share its reserve, and each has a part of its own", async () => {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const options = { home, local, clock, region: "eu", regions: ["eu", "us"], reserve: 0.2 };
  const one = RegionalLimiter.create("limit", bucket, options);
  const other = RegionalLimiter.create("limit", bucket, options);
  assert.is((await granted(one, 20)) + (await granted(other, 20)), 30);
  await clock.advance(10_000);
  for (let t = 0; t < 6000; t += 50) {
    await Promise.all([granted(one, 10), granted(other, 10)]);
    await clock.advance(50);
  }
  assert.ok(Math.abs(one.fraction - 0.4) < 0.02, String(one.fraction));
  assert.ok(Math.abs(other.fraction - 0.4) < 0.02, String(other.fraction));
  await one.close();
  await other.close();
});

test("without its local store a region goes on with its own part", async () => {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const limiter = RegionalLimiter.create("limit", bucket, {
    ...{ home, local, clock, region: "eu", regions: ["eu", "us"] },
  });
  await limiter.peek();
  await clock.advance(10_000);
  for (let t = 0; t < 3000; t += 50) {
    await granted(limiter, 30);
    await clock.advance(50);
  }
  local.fail();
  const waited = limiter.acquire();
  await clock.advance(100);
  assert.ok((await waited) >= 0);
  await limiter.close();
});

for (const [title, pace] of [
  ["an even pace", smoothBursty({ permitsPerSecond: 333, burstSeconds: 0 })],
  ["an infinite rate", smoothBursty({ permitsPerSecond: Number.POSITIVE_INFINITY })],
] as const) {
  test(`a window beside ${title}: a new home gives parts, and those of a killed region, as soon as with the window alone`, async () => {
    const policies = { window: fixedWindow({ limit: 100, windowMs: 1000 }), pace };
    const world = new World(policies, { regions: ["eu", "us"] });
    const { clock } = world;
    const [eu, us] = world.regions;
    assert.ok(eu && us);
    const secondsUntilBusy = async ({ limiter }: typeof eu) => {
      const startMs = clock.now();
      while (limiter.fraction < 0.5 && clock.now() < startMs + 60_000) {
        await granted(limiter, 4);
        await clock.advance(20);
      }
      return (clock.now() - startMs) / 1000;
    };
    const first = await secondsUntilBusy(eu);
    assert.ok(first < 10, `a new home gave none for ${first} s`);
    eu.isCut = true;
    const next = await secondsUntilBusy(us);
    assert.ok(next < 13, `the part of a killed region was unused for ${next} s`);
    await world.close();
  });
}

test("a warm-up holds in each region: one that grows while it is cold is paced", async () => {
  const policy = smoothWarmingUp({ permitsPerSecond: 100, warmupMs: 4000 });
  const { limiter, clock } = open({}, policy);
  await limiter.peek();
  await clock.advance(20_000);
  const count = async (ms: number) => {
    let sum = 0;
    for (let t = 0; t < ms; t += 5) {
      sum += await granted(limiter, 2);
      await clock.advance(5);
    }
    return sum;
  };
  await count(1000);
  const cold = await count(1000);
  await count(6000);
  const warm = await count(1000);
  assert.ok(cold < 0.7 * warm, `${cold} cold, ${warm} warm`);
});

test("close gives the part back at once, and ends callers", async () => {
  const world = new World(bucket, { regions: REGIONS });
  const [eu, us] = world.regions;
  assert.ok(eu && us);
  await eu.limiter.peek();
  await us.limiter.peek();
  await world.clock.advance(10_000);
  for (let t = 0; t < 3000; t += 50) {
    await granted(eu.limiter, 50);
    await world.clock.advance(50);
  }
  const waits = eu.limiter.acquire(250).then(
    () => undefined,
    (error) => error,
  );
  await eu.limiter.close();
  assert.instance(await waits, LimiterClosedError);
  assert.is(eu.limiter.state, "closed");
  assert.is(eu.limiter.fraction, 0);
  for (let t = 0; t < 2500; t += 50) {
    await granted(us.limiter, 50);
    await world.clock.advance(50);
  }
  assert.ok(us.limiter.fraction > 0.9, String(us.limiter.fraction));
  await world.close();
});

test("a home that answers nonsense, throws or never answers costs no caller anything", async () => {
  const answers: readonly (() => unknown)[] = [
    () => "",
    () => "nonsense",
    () => 7,
    () => undefined,
    () => "1e99 0\n1 1 1 1 1\n",
    () => "-5 0\n1 1 1 1 1\n",
    () => "5 0\n1 1 1 1 1\nx",
    () => Promise.reject(undefined),
    () => new Promise(() => {}),
    () => {
      throw new Error("down");
    },
  ];
  for (const exchange of answers) {
    const { limiter, clock } = open({ home: { run: () => {}, exchange } as never });
    for (let t = 0; t < 5000; t += 100) {
      await granted(limiter, 10);
      await clock.advance(100);
    }
    assert.ok(limiter.fraction < 0.04);
    const closed = limiter.close();
    // no longer than for any other message
    await clock.advance(2000);
    await closed;
  }
});

test("a caller that waits for a larger part and is refused leaves no more than the burst to those behind it", async () => {
  const options = { regions: ["eu", "us"], reserve: 0.5 };
  const world = new World(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }), options);
  const [region] = world.regions;
  assert.ok(region);
  const { limiter } = region;
  while (await limiter.tryAcquire());
  // the home is new: the part is a quarter
  const large = limiter.tryAcquire(12, 3000);
  await world.clock.advance(50);
  let done = 0;
  for (let i = 0; i < 60; i++)
    void limiter.tryAcquire(1, 4000).then(
      (isGranted) => {
        if (isGranted) done += 1;
      },
      () => {},
    );
  await world.clock.advance(2960);
  assert.is(await large, false);
  // 20 if they start in the past
  assert.ok(done >= 7 && done <= 8, `${done}`);
  await world.close();
});

test("an outage of the home is a state, a number and a message; the part is published as it changes", async () => {
  const { limiter, clock, home } = open();
  const parts: number[] = [];
  const see = ({ fraction }: { readonly fraction: number }) => parts.push(fraction);
  diagnostics.fraction.subscribe(see);
  try {
    await limiter.peek();
    await clock.advance(10_000);
    for (let t = 0; t < 3000; t += 50) {
      await granted(limiter, 50);
      await clock.advance(50);
    }
    assert.is(limiter.state, "ready");
    home.fail();
    await granted(limiter, 500);
    await clock.advance(2000);
    assert.is(limiter.state, "unavailable");
    assert.is(limiter.stats.outages, 1);
    await clock.advance(5000);
    assert.ok(parts.length >= 2);
    assert.ok(Math.max(...parts) > 0.9);
    assert.ok((parts.at(-1) ?? 1) < 0.04);
  } finally {
    diagnostics.fraction.unsubscribe(see);
  }
});

test("a home that hangs is an outage, and its late messages do not close the ledger", async () => {
  const { limiter, clock, home } = open();
  const busy = async (ms: number) => {
    for (let t = 0; t < ms; t += 50) {
      await granted(limiter, 50);
      await clock.advance(50);
    }
  };
  await limiter.peek();
  await clock.advance(10_000);
  await busy(4000);
  assert.ok(limiter.fraction > 0.9);
  home.hang();
  await busy(20_000);
  assert.is(limiter.state, "unavailable");
  assert.ok(limiter.fraction < 0.04);
  home.recover();
  await busy(5000);
  assert.is(limiter.state, "ready");
  assert.ok(limiter.fraction > 0.9, String(limiter.fraction));
});

const outages: Record<string, [policy: Policies, backMs: number]> = {
  "a bucket": [bucket, 3000],
  "a window of 1 s": [fixedWindow({ limit: 300, windowMs: 1000 }), 4500],
  "a log of 5 s": [slidingLog({ limit: 1500, windowMs: 5000 }), 4500],
};

for (const [name, [policy, backMs]] of Object.entries(outages))
  for (const awayMs of [5500, 8000, 10_000, 12_000])
    test(`${name}: ${backMs} ms after an outage of ${awayMs} ms all regions have their parts again`, async () => {
      const clock = new FakeClock();
      const home = memoryStore({ clock });
      const limiters = REGIONS.map((region) =>
        RegionalLimiter.create("limit", policy, { home, clock, region, regions: REGIONS }),
      );
      const call = async (ms: number) => {
        for (let t = 0; t < ms; t += 20) {
          for (const limiter of limiters) await granted(limiter, 8);
          await clock.advance(20);
        }
      };
      await call(20_000);
      home.fail();
      await call(awayMs);
      home.recover();
      await call(backMs);
      for (const { fraction } of limiters)
        assert.ok(Math.abs(fraction - 1 / 3) < 0.01, String(fraction));
      for (const limiter of limiters) await limiter.close();
    });

test("a look is no demand", async () => {
  const world = new World(bucket, { regions: REGIONS });
  const [eu] = world.regions;
  assert.ok(eu);
  await eu.limiter.peek();
  await world.clock.advance(10_000);
  const before = world.home.messages;
  for (let i = 0; i < 100; i++) await eu.limiter.peek(250);
  await world.clock.advance(5000);
  assert.is(world.home.messages, before);
  await world.close();
});

test("other numbers apply to the parts that the process holds, and to its reserve", async () => {
  const { limiter, clock } = open({ reserve: 1 });
  assert.is(await granted(limiter, 200), 100);
  await limiter.update(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }));
  await clock.advance(10_000);
  assert.is(await granted(limiter, 200), 10);
  await limiter.resetPolicies();
  await clock.advance(10_000);
  assert.is(await granted(limiter, 200), 100);
});

test("the only region can grant the whole limit, whatever its reserve", async () => {
  for (const reserve of [0, 0.1, 0.57, 0.8, 0.9, 1]) {
    const policy = tokenBucket({ capacity: 1e12, refill: 1e12, everyMs: 1000 });
    const { limiter } = open({ regions: ["eu"], reserve }, policy);
    await limiter.tryAcquire(1e12);
    await limiter.close();
  }
});

test("a request that fitted the limit is an error after update has made it too large, and no more when that is undone", async () => {
  const { limiter } = open({ reserve: 1 });
  const isTooLarge = () =>
    limiter.tryAcquire(100).then(
      () => false,
      (error) => error instanceof PermitsExceedCapacityError,
    );
  assert.is(await isTooLarge(), false);
  await limiter.update(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }));
  assert.is(await isTooLarge(), true);
  await limiter.resetPolicies();
  assert.is(await isTooLarge(), false);
});

test("a key that only its reserve has served follows update, also after hours", async () => {
  const of = (capacity: number) => tokenBucket({ capacity, refill: 1, everyMs: 1000 });
  const { limiter, clock, home } = open({ reserve: 0.375 }, of(64));
  home.fail();
  const user = limiter.for("ann");
  assert.is(await granted(user, 4), 4);
  await limiter.update(of(24));
  assert.is((await user.peek()).limit, 3);
  const other = limiter.for("bob");
  assert.is(await granted(other, 2), 2);
  await clock.advance(5 * 3_600_000);
  await limiter.update(of(40));
  await clock.advance(60_000);
  assert.is(await granted(other, 10), 5);
});

test("a full leaky bucket names the bound of its part, not that of the whole limit", async () => {
  const { limiter } = open({ reserve: 1 }, leakyBucket({ permitsPerSecond: 10, capacity: 90 }));
  const calls = Array.from({ length: 40 }, () => limiter.acquire());
  const late = calls.at(-1)?.then(
    () => "granted",
    (error: QueueFullError) => error.facts.maxWaiting,
  );
  for (const call of calls) call.catch(() => {});
  assert.is(await late, 30);
  await limiter.close();
  // without a part and a reserve nobody may wait
  const none = open({ reserve: 0 }, leakyBucket({ permitsPerSecond: 10, capacity: 90 })).limiter;
  const first = await none.acquire().catch((error: QueueFullError) => error.facts.maxWaiting);
  assert.is(first, 0);
  await none.close();
});

test("bad options are refused with what is wrong", () => {
  const rows: readonly [Readonly<Record<string, unknown>>, RegExp][] = [
    [{ home: {} }, /home must be what postgresStore, casStore .* returns, or a client of ioredis/],
    [{ home: { query() {} } }, /home must be .*; got a client of PostgreSQL: postgresStore makes/],
    [
      { local: {} },
      /local must be what postgresStore, casStore .* returns, or a client of ioredis/,
    ],
    [{ home: { run() {}, exchange: 5 } as never }, /home must be a client of Redis, or what/],
    [{ regions: Object.assign(["eu"], { length: 2 }) }, /each name in regions must be a string/],
    [{ home: { run() {} } }, /home must be a client of Redis, or what .* returns, got an object/],
    [{ region: "mars" }, /region must be one of regions \(eu, us, asia\), got "mars"/],
    [{ region: "eu", regions: ["Nürnberg 2"] }, /one of regions \(Nürnberg 2\), got "eu"/],
    [{ regions: [] }, /got none/],
    [{ reserve: null }, /reserve must be a number from 0 to 1, got null/],
    [{ leaseMs: null }, /leaseMs must be .*, got null/],
    [
      { regions: new Map([["eu", 1]]) },
      /regions must be an array .* or a plain object .*, got an object/,
    ],
    [{ regions: ["eu", "eu"] }, /each region once, got eu,eu/],
    [{ regions: "eu" }, /regions must be/],
    [{ regions: { eu: 0 } }, /regions.eu must be a finite number above 0/],
    [{ regions: ["eu", 7] }, /each name in regions must be a string, got 7/],
    [{ reserve: 1.1 }, /reserve must be a number from 0 to 1/],
    [{ reserve: NaN }, /reserve/],
    [{ everyMs: 0 }, /everyMs/],
    [{ everyMs: 1e12 }, /everyMs must be a number above 0 and at most 1e11/],
    [{ everyMs: 10n }, /everyMs must be a number .*, got 10/],
    [{ everyMs: Symbol("s") }, /everyMs must be a number .*, got Symbol\(s\)/],
    [{ everyMs: Object.create(null) }, /everyMs must be a number .*, got an object/],
    [{ everyMs: 1000, leaseMs: 1999 }, /leaseMs must be 2 x everyMs \(2000\) or more/],
    [{ everyMs: 0.1 * 3, leaseMs: 0 }, /leaseMs must be 2 x everyMs \(0\.6\) or more/],
    [{ limit: 5 }, /options has no "limit"/],
  ];
  for (const [options, message] of rows) {
    assert.throws(() => open(options as Partial<RegionalOptions>), message);
  }
  // @ts-expect-error there are options that have no default
  assert.throws(() => RegionalLimiter.create("api", bucket), /options must be an object/);
  assert.throws(
    () => RegionalLimiter.create("", bucket, { home: memoryStore(), region: "a", regions: ["a"] }),
    /name must not be empty/,
  );
});

test.run();
