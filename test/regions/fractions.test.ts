/** Parts follow the demand: quickly, fully, fairly and without swinging. */
import * as assert from "uvu/assert";
import {
  fixedWindow,
  gcra,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from "../../src/index.ts";
import { Counting } from "../../src/regions/counting.ts";
import { Demand } from "../../src/regions/demand.ts";
import { divide, isLacked } from "../../src/regions/division.ts";
import type { Numbers } from "../../src/regions/numbers.ts";
import { Waiting } from "../../src/regions/waiting.ts";
import { waterFill } from "../../src/regions/water-fill.ts";
import { seeded } from "../support/random.ts";
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
    // full in the order of demand for each width: 10 / 4, then 8 / 1
    [20, [8, 10, 30], [1, 4, 2], [10 / 3, 10, 20 / 3]],
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
    keepMs: 0,
    brought: 0,
    broughtFresh: 0,
    heard: 0,
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
  // the processes of a region divide its weight
  const three = ["eu", "eu", "us"].map((region, i) => ({
    ...row,
    ...{ id: String(i), region, held: 0, want: 90_000, demand: 90_000 },
  }));
  const targets = three.map((me) => divide(three, me, 80_000, weights).target);
  assert.equal(targets, [20_000, 20_000, 40_000]);
  // and what one of them leaves is the others' first
  const unequal = [10_000, 40_000, 90_000].map((demand, i) => ({
    ...row,
    ...{ id: String(i), region: i < 2 ? "eu" : "us", held: 0, want: demand, demand },
  }));
  assert.equal(
    unequal.map((me) => divide(unequal, me, 80_000, weights).target),
    [10_000, 30_000, 40_000],
  );
  // headroom is the regions', and in each its members'
  assert.equal(
    unequal.map((me) => divide(unequal, me, 160_000, weights).target),
    [15_000, 45_000, 100_000],
  );
  // what others lack is worth a message if it is a hundredth of what this one has, or a tenth of what they have
  const lacks = (held: number, lack: number, other: number) => {
    const me = { ...row, id: "a", region: "eu", held, want: held, demand: held - lack };
    const it = { ...row, id: "b", region: "us", held: other - lack, want: other, demand: other };
    return divide([me, it], me, held + other - lack, weights).excess;
  };
  assert.is(lacks(50_000, 400, 50_000), 0);
  assert.is(lacks(50_000, 600, 50_000), 600);
  assert.is(lacks(50_000, 100, 500), 100);
  // what is on its way to a member is its own
  const coming = { ...row, id: "b", region: "us", held: 0, want: 100, demand: 100 };
  assert.is(isLacked([coming], "a"), true);
  assert.is(isLacked([coming], "b"), false);
  assert.is(isLacked([{ ...coming, held: 20, gift: 30, promised: 50 }], "a"), false);
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

async function open(
  regions: readonly string[],
  reserve: number,
  everyMs = 1000,
  whole: Policies = policy,
): Promise<World> {
  const world = new World(whole, { regions, reserve, everyMs, leaseMs: 5 * everyMs });
  world.home.latencyMs = 80;
  for (const { limiter } of world.regions) await limiter.peek();
  await world.clock.advance(10_000);
  return world;
}

const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

test("the parts reach their targets about two intervals after a change, and stay there", async () => {
  const waited: number[] = [];
  for (let i = 0; i < 40; i++) {
    const world = await open(["eu", "us", "asia"], 0.1);
    const fraction = () => world.regions[1]?.limiter.fraction ?? 0;
    await busy(world, [600, 20, 50], 6000);
    let ms = 0;
    // it gets 0.7, what the others leave, although it asks for more
    for (; fraction() < 0.63 && ms < 8000; ms += 100) await busy(world, [100, 450, 50], 100);
    waited.push(ms);
    await busy(world, [100, 450, 50], 1000);
    const seen: number[] = [];
    for (let j = 0; j < 10; j++) {
      await busy(world, [100, 450, 50], 500);
      seen.push(fraction());
    }
    assert.ok(Math.max(...seen) - Math.min(...seen) < 0.075, `${seen} in run ${i}`);
    await world.close();
  }
  waited.sort((a, b) => a - b);
  // each sees what has changed with its next message, and one more tells the other what that frees
  assert.ok((waited[34] ?? 0) <= 3000 && (waited[39] ?? 0) <= 4000, `${waited}`);
});

test("a region that has lacked a little for long is not patient when it lacks much", () =>
  seeded(3, async () => {
    for (let i = 0; i < 30; i++) {
      const world = new World(policy, { regions: ["eu", "us", "asia"] });
      for (const { limiter } of world.regions) await limiter.peek();
      await world.clock.advance(10_000);
      await busy(world, [600, 20, 50], 6000);
      await busy(world, [100, 450, 50], 2500);
      const { fraction = 0 } = world.regions[1]?.limiter ?? {};
      // what it asks for
      assert.ok(fraction > 0.44, `${fraction} in run ${i}`);
      await world.close();
    }
  }));

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

const window = { limit: 300, windowMs: 15_000 };
const second = tokenBucket({ capacity: 50, refill: 50, everyMs: 1000 });
const bucket = { capacity: 300, refill: 300, everyMs: 15_000 };
const policies: Readonly<Record<string, Policies>> = {
  "fixed window of the calendar": fixedWindow(window),
  "fixed window that opens with a request": fixedWindow({ ...window, align: "first" }),
  "sliding window": slidingWindow(window),
  "sliding log": slidingLog(window),
  "token bucket": tokenBucket(bucket),
  "stepped bucket": tokenBucket({ ...bucket, stepped: true }),
  "small steps": tokenBucket({ ...bucket, refill: 20, everyMs: 1000, stepped: true }),
  gcra: gcra({ limit: 300, periodMs: 15_000, burst: 300 }),
  smooth: smoothBursty({ permitsPerSecond: 20, burstSeconds: 15 }),
  "sliding window and a bucket": { second, window: slidingWindow(window) },
  "fixed window and a bucket": { second, window: fixedWindow(window) },
};
for (const [i, [title, whole]] of Object.entries(policies).entries()) {
  if (isTried(i, 0))
    test(`${title}: regions that are busy in turns use the permits that are left`, () =>
      seeded(1, async () => {
        const world = await open(["eu", "us"], 0.1, 1000, whole);
        let granted = 0;
        // a new home does not know what was used before, for longer than a window
        await busy(world, [40, 0], 24_000);
        for (let turn = 0; turn < 10; turn++)
          granted += sum(await busy(world, turn % 2 === 0 ? [0, 40] : [40, 0], 6000));
        assert.ok(granted >= 0.65 * 1200, `${granted} of 1200`);
        await world.close();
      }));

  if (isTried(i, 1))
    test(`${title}: one that had all gives the others their parts, although it goes on asking`, () =>
      seeded(1, async () => {
        const world = await open(["eu", "us", "asia"], 0.1, 1000, whole);
        await busy(world, [40, 0, 0], 40_000);
        await busy(world, [40, 40, 40], 30_000);
        const granted = await busy(world, [40, 40, 40], 45_000);
        const jain = sum(granted) ** 2 / (granted.length * sum(granted.map((n) => n * n)));
        assert.ok(jain > 0.98, `${granted}: ${jain}`);
        assert.ok(sum(granted) >= 0.9 * 900, `${granted}`);
        await world.close();
      }));
}

test("what was used of a log rests until it is fresh, and is then given away, while others lack it", () =>
  seeded(1, async () => {
    const world = await open(["eu", "us"], 0.1, 1000, slidingLog(window));
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    const parts = () => [eu, us].map((one) => Math.round((one?.fraction ?? 0) * 100) / 100);
    await busy(world, [40, 0], 42_000);
    assert.equal(parts(), [0.95, 0.05]);
    const [used = 0] = await busy(world, [40, 0], 6000);
    assert.ok(used > 150, `${used}`);
    // it does without what others lack at once; they have it when it is fresh
    await busy(world, [0, 40], 6500);
    assert.ok((parts()[0] ?? 1) < 0.1, `${parts()}`);
    assert.ok((parts()[1] ?? 1) < 0.6, `${parts()}`);
    await busy(world, [0, 40], 12_500);
    assert.equal(parts(), [0.05, 0.95]);
    const { messages } = world.home;
    await world.clock.advance(20_000);
    assert.ok(world.home.messages - messages < 20, "both are silent in the end");
    await world.close();
  }));

test("what one region has used of a window does not make the others wait for longer", () =>
  seeded(1, async () => {
    const hour = { limit: 10_000, windowMs: 3_600_000 };
    const world = await open(["eu", "us", "asia"], 0.1, 1000, slidingLog(hour));
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    await world.clock.advance(hour.windowMs + 60_000);
    const ask = async (limiter: typeof eu, permits: number) => {
      let granted = 0;
      for (let t = 0; t < 120; t++) {
        for (let i = 0; i < 100 && granted < permits; i++)
          if (await limiter?.tryAcquire()) granted += 1;
        await world.clock.advance(1000);
      }
      return granted;
    };
    for (let round = 0; round < 4; round++) {
      assert.is(await ask(eu, 8000), 8000);
      await world.clock.advance(hour.windowMs / 2);
      assert.is(await ask(us, 500), 500);
      await world.clock.advance(hour.windowMs / 2);
    }
    await world.close();
  }));

test("of several policies those count that may soon limit a region: a day that is hardly used does not make all equal", () =>
  seeded(1, async () => {
    const policies = {
      second: slidingWindow({ limit: 100, windowMs: 1000 }),
      day: slidingWindow({ limit: 20_000, windowMs: 24 * 3_600_000 }),
    };
    const world = await open(["eu", "us", "asia"], 0.1, 1000, policies);
    await world.clock.advance(25 * 3_600_000);
    await busy(world, [80, 5, 5], 10_000);
    const asked = [80, 5, 5].map((rate) => rate * 60);
    const granted = [0, 0, 0];
    // numbers that are set anew again and again change nothing
    for (let t = 0; t < 60_000; t += 200) {
      for (const { limiter } of world.regions) await limiter.update(policies);
      const more = await busy(world, [80, 5, 5], 200);
      for (const [i, each] of more.entries()) granted[i] = (granted[i] ?? 0) + each;
    }
    assert.ok(sum(granted) > 0.97 * sum(asked), `${granted} of ${asked}`);
    // 6300 are used by now; with 80 a second Europe uses up its part of the day, and then gets what others have not used
    const later = sum(await busy(world, [80, 0, 0], 300_000));
    const used = sum(granted) + 900 + later;
    assert.ok(used > 0.9 * 20_000 && used <= 20_000, `${used} of the day`);
    await world.close();
  }));

test("who asks only for permits of a day that is hardly used gets them beside a region that is busy otherwise", () =>
  seeded(1, async () => {
    const world = await open(["eu", "us"], 0, 1000, {
      requests: slidingWindow({ limit: 100, windowMs: 1000 }),
      images: slidingWindow({ limit: 10_000, windowMs: 24 * 3_600_000 }),
    });
    await world.clock.advance(25 * 3_600_000);
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    let granted = 0;
    for (let t = 0; t < 60_000; t += 50) {
      for (let k = 0; k < 7; k++) await us?.tryAcquire({ requests: 1 });
      if (t % 500 === 0 && (await eu?.tryAcquire({ images: 1 }))) granted += 1;
      await world.clock.advance(50);
    }
    assert.ok(granted > 110, `${granted} of 120`);
    await world.close();
  }));

test("under a second and a minute a region that asks for little of the minute gets it, beside those that ask for too much", () =>
  seeded(1, async () => {
    const world = await open(["eu", "us", "asia"], 0.1, 1000, {
      second: slidingWindow({ limit: 100, windowMs: 1000 }),
      minute: slidingWindow({ limit: 600, windowMs: 60_000 }),
    });
    await world.clock.advance(130_000);
    await busy(world, [2, 60, 40], 90_000);
    const [eu = 0] = await busy(world, [2, 60, 40], 120_000);
    assert.ok(eu > 210, `${eu} of 240`);
    await world.close();
  }));

test("policies of different permits: tokens by the hundred do not make requests few", () =>
  seeded(1, async () => {
    const world = await open(["eu", "us", "asia"], 0.1, 1000, {
      requests: slidingWindow({ limit: 100, windowMs: 1000 }),
      day: slidingWindow({ limit: 864_000, windowMs: 24 * 3_600_000 }),
      tokens: slidingWindow({ limit: 60_000, windowMs: 1000 }),
    });
    await world.clock.advance(25 * 3_600_000);
    let [asked, granted] = [0, 0];
    for (let t = 0; t < 40_000; t += 50) {
      if (t === 10_000) asked = granted = 0;
      for (const [i, { limiter }] of world.regions.entries()) {
        for (let k = 0; k < (i === 0 ? 4 : Number(t % 250 === 0)); k++) {
          asked += 1;
          if (await limiter.tryAcquire({ requests: 1, day: 1, tokens: 300 })) granted += 1;
        }
      }
      await world.clock.advance(50);
    }
    assert.ok(granted > 0.95 * asked, `${granted} of ${asked}`);
    await world.close();
  }));

test("few large requests make a long policy count until none has come for some looks", () => {
  const numbers = { rates: [0.1, 0.01], horizons: [1000, 24 * 3_600_000] } as unknown as Numbers;
  const counting = new Counting(numbers, 0);
  const left = [100, 100_000];
  // one request of 3000 in every third interval; the second policy would last for 100
  for (let interval = 1; interval <= 9; interval++) {
    if (interval % 3 === 1) counting.asked([1, 3000]);
    counting.look(1000 * interval, 1000, left);
    assert.is(counting.costOf([1, 3000]), 300_000);
  }
  for (let interval = 10; interval <= 30; interval++) counting.look(1000 * interval, 1000, left);
  assert.is(counting.costOf([1, 3000]), 10);
  // a request for that policy alone is demand all the same
  assert.is(counting.costOf([0, 3000]), 300_000);
});

test("numbers that change while pieces rest: they rest for as long as the new ones ask for", () =>
  seeded(1, async () => {
    const world = await open(["eu", "us"], 0.1, 1000, slidingLog(window));
    await busy(world, [40, 0], 30_000);
    await busy(world, [40, 0], 6000);
    await busy(world, [0, 40], 4000);
    for (const { limiter } of world.regions)
      await limiter.update(slidingLog({ ...window, windowMs: 60_000 }));
    const granted = await busy(world, [0, 40], 40_000);
    assert.ok(sum(granted) <= 60, `${granted}`);
    await world.close();
  }));

test("few requests: what chance does not explain is believed at once, what it does slowly", () => {
  // requests in an interval, and the estimate then, in requests; each costs a twentieth of the limit
  const rows: readonly [number, number][] = [
    [6, 6],
    [4, 5.7],
    [1, 5],
    [0, 0],
    [5, 5],
    [14, 6.35],
    [17, 17],
    [3, 3],
    [0, 2.55],
  ];
  let now = 0;
  const demand = new Demand(1000, now);
  for (const [requests, expected] of rows) {
    demand.asked(requests * 50, 0, requests);
    now += 1000;
    demand.measure(now, 1);
    assert.ok(Math.abs(demand.value / 5e7 - expected) < 0.01, `${demand.value} after ${requests}`);
  }
});

test("counts that are all greater, or all less, tell together what none of them tells alone", () => {
  // requests in half an interval; each costs a hundredth of the limit
  const counts: Record<string, [counts: readonly number[], expected: number]> = {
    "to and fro": [[28, 12, 28, 12, 28, 12, 28, 12], 40],
    more: [[28, 28, 28, 28], 56],
    less: [[12, 12, 12, 12], 24],
  };
  for (const [name, [requests, expected]] of Object.entries(counts)) {
    const demand = new Demand(1000, 0);
    demand.asked(400, 0, 40);
    let now = 1000;
    demand.measure(now, 1);
    for (const count of requests) {
      demand.asked(count * 10, 0, count);
      now += 500;
      demand.measure(now, 1);
    }
    const estimate = demand.value / 1e7;
    assert.ok(Math.abs(estimate - expected) < 1, `${name}: ${estimate}`);
  }
});

/**
 * Two callers wait for a part of each second, one after half of that.
 *
 * @param asked what is asked for with such a part of the limit
 * @param most the part is never larger
 */
function statedWhile(
  waitingMs: number,
  asked: (part: number) => number,
  seconds: number,
  most = 1,
) {
  const waiting = new Waiting(1000);
  let part = 0.064;
  return Array.from({ length: seconds }, (_, i) => {
    waiting.begin(1, 1000 * i);
    waiting.begin(1, 1000 * i + waitingMs / 2);
    waiting.end(1, 1000 * i + waitingMs / 2, false);
    waiting.end(1, 1000 * i + waitingMs, true);
    waiting.look(1000 * (i + 1), 1000, asked(part), part);
    waiting.restart(1000 * (i + 1));
    const stated = waiting.stated(asked(part));
    part = Math.min(most, stated);
    return Number(stated.toFixed(3));
  });
}

test("what callers who wait would ask for is found by trying", () => {
  // until they have what they can use, and a little more for a while
  const grows = statedWhile(900, (part) => Math.min(0.3, part), 10);
  assert.equal(grows, [0.096, 0.144, 0.216, 0.324, 0.45, 0.45, 0.45, 0.45, 0.3, 0.3]);
  // short waits: what is asked for, and half as much again in 4 of 34 intervals
  const tries = statedWhile(400, () => 0.064, 40);
  assert.equal(tries.slice(0, 5), [0.096, 0.096, 0.096, 0.096, 0.064]);
  assert.is(tries.filter((part) => part > 0.07).length, 8, `${tries}`);
  // hardly any waits
  const none = statedWhile(200, () => 0.064, 40);
  assert.is(Math.max(...none), 0.064);
  // … and sooner if some wait all the time by then
  const sooner = statedWhile(970, () => 0.064, 20);
  assert.is(sooner.filter((part) => part > 0.07).length, 8, `${sooner}`);
  // there is no more for them
  const goesOn = statedWhile(900, (part) => part, 40, 0.064);
  assert.is(Math.min(...goesOn), 0.096);
});

test("who hardly waits any more has enough, although others have the rest", () => {
  const waiting = new Waiting(1000);
  waiting.begin(1, 0);
  waiting.end(1, 500, true);
  const stated = Array.from({ length: 6 }, (_, i) => {
    const now = 1000 * (i + 1);
    waiting.look(now, 1000, 0.4, 0.45);
    waiting.restart(now);
    return Number(waiting.stated(0.4).toFixed(3));
  });
  assert.equal(stated, [0.6, 0.6, 0.6, 0.6, 0.4, 0.4]);
});

/** What is stated where some wait for so many ms of each second. @param looks what is asked for, and the part */
function statedAt(looks: readonly (readonly [number, number])[], waitMs = 400): readonly number[] {
  const waiting = new Waiting(1000);
  return looks.map(([asked, part], i) => {
    const now = 1000 * (i + 1);
    waiting.begin(1, now - waitMs);
    waiting.end(1, now, true);
    waiting.look(now, 1000, asked, part);
    waiting.restart(now);
    return Number(waiting.stated(asked).toFixed(3));
  });
}

test("who asks for more by chance has enough while the part is larger than that", () => {
  const counts = [0.4, 0.5, 0.4, 0.55, 0.4, 0.5] as const;
  const stated = statedAt(counts.map((asked) => [asked, 0.7]));
  // what it asked for when it began to try, or asks for now; and then that alone
  assert.equal(stated, [0.6, 0.75, 0.6, 0.825, 0.4, 0.5]);
});

test("… but a count lags behind a part that grows", () => {
  const stated = statedAt([
    [0.1, 0.1],
    [0.125, 0.14],
    [0.16, 0.18],
    [0.2, 0.23],
    [0.25, 0.28],
    [0.31, 0.35],
  ]);
  assert.equal(stated, [0.15, 0.188, 0.24, 0.3, 0.375, 0.465]);
});

test("… and a cold part lets through less than it is", () => {
  const looks = [0.02, 0.025, 0.032, 0.04, 0.05, 0.063].map((asked) => [asked, 0.2] as const);
  assert.equal(statedAt(looks, 960), [0.03, 0.038, 0.048, 0.06, 0.075, 0.095]);
});

test("who asks for less, and hardly waits any more, states no more than half as much again of that", () => {
  const waiting = new Waiting(1000);
  waiting.begin(1, 0);
  waiting.end(1, 900, true);
  waiting.look(1000, 1000, 0.5, 0.5);
  assert.is(waiting.stated(0.5), 0.75);
  waiting.restart(1000);
  waiting.look(2000, 1000, 0.1, 0.5);
  assert.is(Number(waiting.stated(0.1).toFixed(3)), 0.15);
});

test("who has had to wait, and asks for nothing any more, needs nothing", () => {
  const waiting = new Waiting(1000);
  waiting.begin(1, 0);
  waiting.look(1000, 1000, 0.5, 0.1);
  assert.is(waiting.stated(0.5), 0.75);
  waiting.end(1, 1500, true);
  waiting.look(2000, 1000, 0, 0.1);
  assert.is(waiting.stated(0), 0);
});

test("demand that differs in each third of an interval, in the same way, is their sum", () => {
  const thirds = [125, 55, 20];
  const demand = new Demand(999, 0);
  for (let i = 0; i < 30; i++) {
    demand.asked(thirds[i % 3] ?? 0, 0, thirds[i % 3]);
    demand.measure((i + 1) * 333, 1);
    if (i >= 6) assert.ok(Math.abs(demand.value / 1e6 - 200) < 2, `${demand.value} at ${i}`);
  }
});

test("demand that repeats itself a little less often than in each interval is counted over whole ones", () => {
  const demand = new Demand(1000, 0);
  let now = 0;
  let estimates = 0;
  for (let i = 0; i < 60; i++) {
    // as a member counts that finds out that it lacks something, and then that it does not
    const end = now + (i % 2 === 0 ? 925 : 333);
    for (; now < end; now += 1) {
      const requests = 1 + 0.7 * Math.sin((2 * Math.PI * now) / 1258);
      demand.asked(requests, 0, requests);
    }
    demand.measure(now, 1);
    if (i >= 6) estimates += Math.abs(demand.value / 1e9 - 1);
  }
  assert.ok(estimates / 54 < 0.2, `by ${estimates / 54} on average`);
});

test("demand that rises soon after it has begun is no burst", () => {
  const demand = new Demand(1000, 0);
  demand.begin(0);
  for (let now = 0; now < 5000; now += 50) {
    const requests = now < 3000 ? 5 : 60;
    for (let i = 0; i < requests; i++) {
      demand.asked(1, 0);
      demand.seen(now);
    }
    if (now % 1000 === 950) demand.measure(now + 50, 1);
  }
  assert.is(demand.value / 1e9, 1.2);
});

test("what few callers wait for is bounded like other demand, and what a request needs counts for more", () => {
  const demand = new Demand(1000, 0);
  demand.asked(200, 0.7);
  demand.measure(1000, 1);
  assert.is(Math.round(demand.value / 1e6), 700);
  demand.waiting.begin(1e15, 1000);
  assert.is(demand.value, 16e9);
});

test.run();
