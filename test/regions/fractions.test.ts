/** Parts follow the demand: quickly, fully, fairly and without swinging. */
import * as assert from "uvu/assert";
import { tokenBucket } from "../../src/index.ts";
import { divide } from "../../src/regions/division.ts";
import { waterFill } from "../../src/regions/water-fill.ts";
import { World } from "../support/regions/world.ts";
import { isTried, suite } from "../support/suite.ts";

const PER_SECOND = 500;
const TICK_MS = 25;
const policy = tokenBucket({ capacity: PER_SECOND / 10, refill: PER_SECOND, everyMs: 1000 });
const test = suite("parts of regions", { timeoutMs: 120_000 });

test("water filling: rows of a pool, demands, weights and parts", () => {
  const rows: readonly [number, readonly number[], readonly number[], readonly number[]][] = [
    [90, [10, 50, 70], [1, 1, 1], [10, 40, 40]],
    [90, [10, 20, 30], [1, 1, 1], [20, 30, 40]],
    [90, [0, 0, 0], [1, 1, 1], [30, 30, 30]],
    [90, [100, 100], [2, 1], [60, 30]],
    [90, [100, 10], [1, 8], [80, 10]],
    [90, [5], [1], [90]],
    [90, [1000, 20], [1e-9, 1e9], [70, 20]],
    [90, [1000, 1000], [1e-20, 1e9], [90e-29, 90]],
    [0, [5, 5], [1, 1], [0, 0]],
    [90, [], [], []],
  ];
  for (const [pool, demands, weights, parts] of rows) {
    const vessels = demands.map((demand, i) => ({ demand, weight: weights[i] ?? 1 }));
    assert.equal(waterFill(pool, vessels), parts);
  }
});

test("a member gives away what others lack, in proportion to its excess, and no more than is missing", () => {
  const row = {
    number: 1,
    gift: 0,
    giftFresh: 0,
    promised: 0,
    promisedFresh: 0,
    lapse: 0,
  };
  const rows = [
    { ...row, id: "a", region: "eu", held: 60_000, want: 60_000, demand: 10_000 },
    { ...row, id: "b", region: "us", held: 30_000, want: 30_000, demand: 10_000 },
    { ...row, id: "c", region: "asia", held: 0, want: 70_000, demand: 70_000 },
  ];
  const weights = new Map([
    ["eu", 1],
    ["us", 1],
    ["asia", 1],
  ]);
  const of = (i: number) => divide(rows, rows[i] as (typeof rows)[number], 90_000, weights);
  assert.equal(of(0), { target: 10_000, excess: 50_000 });
  assert.equal(of(1), { target: 10_000, excess: 20_000 });
  assert.equal(of(2), { target: 70_000, excess: 0 });
  // what is free already need not be given
  const free = divide(rows, rows[0] as (typeof rows)[number], 160_000, weights);
  assert.is(free.excess, 0);
  // what is held beyond the pool is given back, although nobody lacks it
  const both = rows.slice(0, 2).map((one) => ({ ...one, held: 90_000, want: 90_000 }));
  for (const me of both) assert.is(divide(both, me, 90_000, weights).excess, 45_000);
});

/** Each region asks that many times a second, for that long. @returns what each was granted */
async function busy(world: World, demands: readonly number[], ms: number): Promise<number[]> {
  const granted = demands.map(() => 0);
  const owed = demands.map(() => 0);
  for (let t = 0; t < ms; t += TICK_MS) {
    for (const [i, demand] of demands.entries()) {
      owed[i] = (owed[i] ?? 0) + (demand * TICK_MS) / 1000;
      for (; (owed[i] ?? 0) >= 1; owed[i] = (owed[i] ?? 0) - 1) {
        if (await world.regions[i]?.limiter.tryAcquire()) granted[i] = (granted[i] ?? 0) + 1;
      }
    }
    await world.clock.advance(TICK_MS);
  }
  return granted;
}

async function open(regions: readonly string[], reserve: number, everyMs = 1000): Promise<World> {
  const world = new World(policy, { regions, reserve, everyMs, leaseMs: 5 * everyMs });
  world.home.latencyMs = 80;
  for (const { limiter } of world.regions) await limiter.peek();
  await world.clock.advance(10_000);
  return world;
}

const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

test("the parts reach their targets within two intervals of a change, and stay there", async () => {
  const world = await open(["eu", "us", "asia"], 0.1);
  await busy(world, [600, 20, 50], 6000);
  await busy(world, [100, 450, 50], 2500);
  const reached = world.regions.map(({ limiter }) => limiter.fraction);
  assert.ok(Math.abs((reached[1] ?? 0) - 0.7) < 0.05, `${reached}`);
  const seen: number[] = [];
  for (let i = 0; i < 10; i++) {
    await busy(world, [100, 450, 50], 500);
    seen.push(world.regions[1]?.limiter.fraction ?? 0);
  }
  assert.ok(Math.max(...seen) - Math.min(...seen) < 0.05, `${seen}`);
  await world.close();
});

test("demand that rises while a reply is far away does not make that reply useless", async () => {
  const world = new World(policy, { regions: ["eu", "us"], reserve: 0.1, everyMs: 500 });
  world.home.latencyMs = 150;
  for (const { limiter } of world.regions) await limiter.peek();
  await world.clock.advance(10_000);
  for (let rise = 30; rise < 600; rise += 30) await busy(world, [rise, 0], 100);
  assert.ok((world.regions[0]?.limiter.fraction ?? 0) > 0.9);
  await world.close();
});

test("regions that all ask for more get equal parts, or parts by weight", async () => {
  const world = await open(["eu", "us", "asia", "africa"], 0.1);
  await busy(world, [600, 600, 600, 600], 8000);
  const granted = await busy(world, [600, 700, 800, 900], 4000);
  const jain = sum(granted) ** 2 / (granted.length * sum(granted.map((n) => n * n)));
  assert.ok(jain > 0.999, `${granted}: ${jain}`);
  await world.close();
});

test("with demand that moves every 30 s at least 97 % of what can be granted is", async () => {
  const demands = [
    [500, 40, 60, 40, 100],
    [60, 400, 40, 200, 40],
    [40, 60, 500, 40, 40],
    [200, 40, 40, 60, 300],
    [150, 150, 150, 150, 150],
    [30, 30, 30, 600, 30],
  ];
  const world = await open(["eu", "us", "asia", "africa", "oceania"], 0.05, 500);
  let granted = 0;
  let possible = 0;
  for (const [i, demand] of demands.entries()) {
    if (!isTried(i)) continue;
    granted += sum(await busy(world, demand, 30_000));
    possible += Math.min(PER_SECOND, sum(demand)) * 30;
  }
  assert.ok(granted >= 0.97 * possible, `${granted} of ${possible}: ${granted / possible}`);
  await world.close();
});

test.run();
