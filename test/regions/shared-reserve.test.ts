/** Regions with a store: many processes share the reserve of their region. */
import { tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { seeded } from "../support/random.ts";
import { Home } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, processes that share a reserve");

const REGIONS = ["eu", "us"];
const PROCESSES = 10;
/** Permits a second, all in portions of 10 ms. */
const LIMIT = tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 });

function regionsOf() {
  const clock = new FakeClock();
  const home = new Home(clock);
  const store = {
    run: () => Promise.reject(new Error("a home runs no requests")),
    exchange: (key: string, message: readonly string[]) => home.exchange(key, message, () => false),
  };
  const limiters = REGIONS.flatMap((region) => {
    const local = memoryStore({ clock });
    const options = { home: store as Store, local, region, regions: REGIONS, clock };
    return Array.from({ length: PROCESSES }, () => RegionalLimiter.create("limit", LIMIT, options));
  });
  return { clock, home, limiters };
}

/** @param demands of each process, requests in each 100 ms. @returns how many are granted, by process */
async function askFor(
  { clock, limiters }: ReturnType<typeof regionsOf>,
  demands: readonly number[],
  forMs: number,
): Promise<readonly number[]> {
  const granted = limiters.map(() => 0);
  for (let ms = 0; ms < forMs; ms += 100) {
    for (const [i, limiter] of limiters.entries()) {
      for (let k = 0; k < (demands[i] ?? 0); k++) {
        void limiter.tryAcquire(1, 300).then((isGranted) => {
          if (isGranted) granted[i] = (granted[i] ?? 0) + 1;
        });
      }
    }
    await clock.advance(100);
  }
  return granted;
}

/** Each process asks for a permit in every `everyMs`. Returns which part is granted. */
async function ask(
  { clock, limiters }: ReturnType<typeof regionsOf>,
  everyMs: number,
  forMs: number,
): Promise<number> {
  let asked = 0;
  let granted = 0;
  for (let ms = 0; ms < forMs; ms += everyMs) {
    for (const limiter of limiters) {
      asked += 1;
      limiter.tryAcquire().then((isGranted) => {
        if (isGranted) granted += 1;
      });
    }
    await clock.advance(everyMs);
  }
  return granted / asked;
}

test("processes that each ask for less than the reserve, but together for more, get leases", async () => {
  const world = regionsOf();
  // 40 a second each: 400 a region, whose reserve is 50
  await ask(world, 25, 10_000);
  const part = await ask(world, 25, 10_000);
  assert.ok(part > 0.97, `${part} of what was asked for is granted`);
});

test("a process that the reserve of its region serves sends the home one message, its greeting", async () => {
  const world = regionsOf();
  // 2 a second each: 20 a region
  const part = await ask(world, 500, 20_000);
  assert.is(part, 1);
  assert.is(world.home.messages, REGIONS.length * PROCESSES);
});

test("the reserve goes by the time of its store, not by the clocks of the processes, which differ", async () => {
  const clock = new FakeClock();
  const local = memoryStore({ clock });
  const home = { run: () => {}, exchange: () => Promise.reject(new Error("away")) };
  const limiters = [0, 50].map((aheadMs) =>
    RegionalLimiter.create("limit", LIMIT, {
      home: home as unknown as Store,
      local,
      region: "eu",
      regions: ["eu"],
      reserve: 1,
      clock: {
        now: () => clock.now() + aheadMs,
        wakeAt: (timeMs, wake) => clock.wakeAt(timeMs - aheadMs, wake),
      },
    }),
  );
  let granted = 0;
  for (let ms = 0; ms < 5000; ms += 5) {
    for (const limiter of limiters) if (await limiter.tryAcquire(10)) granted += 10;
    await clock.advance(5);
  }
  assert.ok(granted <= 1000 + 5000, `${granted} of 6000`);
  await Promise.all(limiters.map((limiter) => limiter.close()));
});

test("what the quiet processes of a region leave goes to its busy one first, and then to other regions", () =>
  seeded(1, async () => {
    const world = regionsOf();
    // one process asks for twice the limit; those of the other region together for less than its half
    const demands = Array.from({ length: PROCESSES }, () => 0).concat(36);
    for (let i = 1; i < PROCESSES; i++) demands.push(1);
    demands[0] = 200;
    await askFor(world, demands, 15_000);
    const granted = await askFor(world, demands, 10_000);
    const part = (granted[PROCESSES] ?? 0) / 3600;
    assert.ok(part > 0.95, `${part} of what it asks for`);
    const all = granted.reduce((sum, each) => sum + each, 0);
    assert.ok(all > 0.9 * 10_000, `${all} of 10 000`);
  }));

test.run();
