/** Callers who all call at once, and then pause, have the part that they ask for, as others have. */
import {
  fixedWindow,
  type Policies,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from "smooth-limiter";
import * as assert from "uvu/assert";
import { World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, callers that come in bursts");

const REGIONS = ["eu", "us", "asia"];
const policy = tokenBucket({ capacity: 100, refill: 100, everyMs: 1000 });
const STEP_MS = 10;

interface Caller {
  /** Calls of each burst, and the time from one burst to the next. */
  readonly calls: number;
  readonly periodMs: number;
  /** One call more each so many ms. */
  readonly besidesMs?: number;
  readonly verb?: "tryAcquire" | "decide" | "reserve";
}

/** A region is idle before the first of its instants and after the second. @returns calls granted a second, by region */
async function granted(
  callers: readonly Caller[],
  untilMs: readonly number[],
  seconds: number,
  policies: Policies = policy,
) {
  const names = callers.map((_, i) => `other-${i}`);
  const world = new World(policies, { regions: callers.length > 3 ? names : REGIONS });
  world.home.latencyMs = 50;
  const counts = callers.map(() => 0);
  const end = 20_000 + seconds * 1000;
  for (let ms = 0; ms < end; ms += STEP_MS) {
    for (const [i, { calls, periodMs, besidesMs, verb = "tryAcquire" }] of callers.entries()) {
      const limiter = world.regions[i]?.limiter;
      const isOver = ms >= (untilMs[i] ?? Infinity);
      const burst = isOver || (ms + 170 * i) % periodMs > 0 ? 0 : calls;
      const besides = Number(besidesMs !== undefined && ms % besidesMs === 0);
      for (let n = 0; n < burst + besides; n++) {
        const answer = await limiter?.[verb]();
        const isGranted =
          answer === true ||
          (typeof answer === "object" && "allowed" in answer && answer.allowed) ||
          (typeof answer === "object" && "undo" in answer && answer.waitMs === 0);
        if (typeof answer === "object" && "undo" in answer && !isGranted) await answer.undo();
        if (isGranted && ms >= 20_000) counts[i] = (counts[i] ?? 0) + 1;
      }
    }
    await world.clock.advance(STEP_MS);
  }
  await world.close();
  return counts.map((count) => count / seconds);
}

const flood: Caller = { calls: 2, periodMs: 10 };
/** What bursts get beside a region that floods, of a limit of 100 a second; from, to. */
const rows: readonly [Caller, number, number][] = [
  // everything, since it is less than half
  [{ calls: 40, periodMs: 1000 }, 37, 40.1],
  // half of the 90, and the reserve
  [{ calls: 40, periodMs: 500 }, 45, 50],
  [{ calls: 40, periodMs: 250 }, 45, 50],
  [{ calls: 40, periodMs: 750, verb: "decide" }, 44, 50],
  [{ calls: 40, periodMs: 750, verb: "reserve" }, 44, 50],
  // others in between do not hide them
  [{ calls: 40, periodMs: 1000, besidesMs: 100 }, 44, 50.1],
  // 40 a second, and its bucket holds 40 of the 80
  [{ calls: 80, periodMs: 3900, besidesMs: 50 }, 27, 32],
  // 20 a second, and the bucket of such a part holds 20
  [{ calls: 40, periodMs: 2000 }, 9, 20.1],
];
for (const [caller, from, to] of rows) {
  const { calls, periodMs, besidesMs, verb = "tryAcquire" } = caller;
  const besides = besidesMs === undefined ? "" : `, and one each ${besidesMs} ms`;
  test(`${calls} times ${verb} each ${periodMs} ms${besides}, beside a region that floods`, async () => {
    const [some = 0, other = 0] = await granted([caller, flood], [], 30);
    assert.ok(some >= from && some <= to, `${some} a second`);
    assert.ok(some + other > 85, `${some} and ${other} a second`);
  });
}

test("two regions that flood in bursts share the limit, and leave nothing", async () => {
  for (const periodMs of [500, 750, 1000]) {
    const caller = { calls: (240 * periodMs) / 1000, periodMs };
    const [one = 0, other = 0] = await granted([caller, caller], [], 30);
    assert.ok(one > 42 && other > 42, `${one} and ${other} a second each ${periodMs} ms`);
  }
});

test("who calls steadily after bursts has what it asks for then", async () => {
  const bursts = { calls: 400, periodMs: 1000, besidesMs: 50 };
  const [, after = 0] = await granted([bursts, flood], [15_500], 20);
  assert.ok(after > 72, `${after} a second beside 20`);
});

test("bursts that end leave their part to others after twice their pause", async () => {
  const bursts = { calls: 60, periodMs: 1000 };
  // from 20 s on the flood has the whole limit but for two reserves, 3 to 4 s after the last burst
  const [, before = 0] = await granted([bursts, flood], [], 20);
  const [, after = 0] = await granted([bursts, flood], [15_500], 20);
  assert.ok(before < 55, `${before} a second beside bursts`);
  assert.ok(after > 90, `${after} a second after them`);
});

test("bursts that their reserve serves on average have the part that they need, while others do not lack it", async () => {
  const [some = 0, other = 0, half = 0] = await granted(
    [
      { calls: 6, periodMs: 2000 },
      { calls: 10, periodMs: 3500 },
      { calls: 5, periodMs: 100 },
    ],
    [],
    35,
  );
  assert.ok(some >= 2.9 && other >= 2.7, `${some} of 3 and ${other} of 2.9 a second`);
  assert.ok(half > 49.5, `${half}`);
});

test("bursts of a key with few requests keep the part that they need through their pauses", async () => {
  const minute = tokenBucket({ capacity: 60, refill: 60, everyMs: 60_000 });
  for (const [calls, periodMs] of [
    [6, 20_000],
    [10, 30_000],
  ] as const) {
    const [got = 0] = await granted([{ calls, periodMs }], [], 240, minute);
    assert.ok(got > (0.88 * 1000 * calls) / periodMs, `${got} a second each ${periodMs} ms`);
  }
});

test("regular callers that are refused at first are known to those that flood, however their calls fall", async () => {
  const quiet: Caller = { calls: 1, periodMs: 1200 };
  const counts = await granted([...Array(10).fill(quiet), ...Array(10).fill(flood)], [], 40);
  for (const count of counts.slice(0, 10)) assert.ok(count > 0.6, `${counts}`);
});

for (const kind of [fixedWindow, slidingWindow]) {
  test(`workers who all wait for the next window count as much as those of a region that was first: ${kind.name}`, async () => {
    const world = new World(kind({ limit: 300, windowMs: 1000 }), { regions: ["eu", "us"] });
    world.home.latencyMs = 40;
    const { clock } = world;
    const counts = [0, 0];
    const work = async (region: number) => {
      for (;;) {
        await world.regions[region]?.limiter.acquire();
        counts[region] = (counts[region] ?? 0) + 1;
        await new Promise<void>((resolve) => clock.wakeAt(clock.now() + 20, resolve));
      }
    };
    const begin = (region: number) => {
      for (let n = 0; n < 20; n++) work(region).catch(() => {});
    };
    await clock.advance(10_000);
    begin(0);
    await clock.advance(10_000);
    begin(1);
    await clock.advance(5000);
    counts.fill(0);
    await clock.advance(10_000);
    const [first = 0, second = 0] = counts;
    assert.ok(second > 0.85 * first && first + second > 2900, `${first} and ${second} of 3000`);
    await world.close();
  });
}

for (const [kind, limit, windowMs] of [
  [slidingWindow, 6000, 60_000],
  [slidingLog, 6000, 60_000],
  [slidingWindow, 300, 60_000],
  [fixedWindow, 1000, 10_000],
] as const) {
  test(`workers have their half of a long window beside a region that floods: ${kind.name}, ${limit} in ${windowMs} ms`, async () => {
    const world = new World(kind({ limit, windowMs }), { regions: ["eu", "us"] });
    world.home.latencyMs = 40;
    const { clock } = world;
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    const counts = [0, 0];
    const work = async () => {
      for (;;) {
        await eu?.acquire();
        counts[0] = (counts[0] ?? 0) + 1;
        await new Promise<void>((resolve) => clock.wakeAt(clock.now() + 20, resolve));
      }
    };
    await clock.advance(70_000);
    for (let n = 0; n < 5; n++) work().catch(() => {});
    for (let ms = 0; ms < 270_000; ms += 50) {
      if (ms === 150_000) counts.fill(0);
      for (let n = 0; n < 10; n++) if (await us?.tryAcquire()) counts[1] = (counts[1] ?? 0) + 1;
      await clock.advance(50);
    }
    await world.close();
    const [waited = 0, flooded = 0] = counts;
    const due = (limit * 60_000) / windowMs;
    assert.ok(waited > 0.9 * due && flooded > 0.9 * due, `${counts}, each of ${due}`);
  });
}

test("callers who always wait for a moment state no more than others can spare for long", async () => {
  const world = new World(smoothBursty({ permitsPerSecond: 500, burstSeconds: 0 }), {
    regions: ["eu", "us"],
  });
  world.home.latencyMs = 40;
  const [eu, us] = world.regions.map(({ limiter }) => limiter);
  await world.clock.advance(10_000);
  const counts = [0, 0];
  const one = (index: number) => () => {
    counts[index] = (counts[index] ?? 0) + 1;
  };
  for (let ms = 0; ms < 120_000; ms += 20) {
    if (ms === 20_000) counts.fill(0);
    for (let n = 0; n < (ms % 100 === 0 ? 5 : 4); n++) void eu?.acquire().then(one(0), () => {});
    for (let n = 0; n < 20; n++)
      void us?.tryAcquire(1, { timeoutMs: 40 }).then(
        (isGranted) => isGranted && one(1)(),
        () => {},
      );
    await world.clock.advance(20);
  }
  await world.close();
  const [asked = 0, flooded = 0] = counts;
  assert.ok(asked > 20_900 && flooded > 0.93 * (50_000 - 21_000), `${counts}`);
});

test("callers who wait for moments, though their part is enough, cost the others little", async () => {
  const small = tokenBucket({ capacity: 100, refill: 1000, everyMs: 1000 });
  const world = new World(small, { regions: ["eu", "us"] });
  world.home.latencyMs = 40;
  const [eu, us] = world.regions.map(({ limiter }) => limiter);
  await world.clock.advance(10_000);
  let granted = 0;
  for (let ms = 0; ms < 90_000; ms += 50) {
    if (ms === 20_000) granted = 0;
    for (let n = 0; n < 10; n++) if (await eu?.tryAcquire(10)) granted += 10;
    for (let n = 0; n < 30 && ms % 1000 === 0; n++) {
      void us?.acquire(10).then(() => {
        granted += 10;
      });
    }
    await world.clock.advance(50);
  }
  assert.ok(granted > 0.96 * 70_000, `${granted} of 70 000`);
  await world.close();
});

test("callers of a demand that rises and falls slowly wait for a moment, beside a region that floods", async () => {
  const world = new World(tokenBucket({ capacity: 500, refill: 500, everyMs: 1000 }), {
    regions: ["eu", "us", "asia"],
  });
  world.home.latencyMs = 40;
  const { clock } = world;
  const [eu, , asia] = world.regions.map(({ limiter }) => limiter);
  await clock.advance(10_000);
  const waits: number[] = [];
  let asked = 0;
  for (let ms = 0; ms < 110_000; ms += 20) {
    // 60 to 240 a second, each 30 s
    asked += 3 * (1 + 0.6 * Math.sin((2 * Math.PI * ms) / 30_000));
    for (; asked >= 1; asked--) {
      const sinceMs = clock.now();
      void eu?.acquire().then(() => {
        if (sinceMs >= 30_000) waits.push(clock.now() - sinceMs);
      });
    }
    for (let n = 0; n < 20; n++) await asia?.tryAcquire();
    await clock.advance(20);
  }
  await world.close();
  const meanMs = waits.reduce((all, one) => all + one, 0) / waits.length;
  assert.ok(waits.length > 13_000 && meanMs < 300, `${waits.length} waited ${meanMs} ms`);
});

test("update with the same numbers, again and again, keeps no part from the others", async () => {
  const numbers = { limit: 600, windowMs: 20_000 };
  // whatever a rate in the same limiter is
  const rates = [100, 90].map((refill) => tokenBucket({ capacity: 100, refill, everyMs: 1000 }));
  for (const window of [slidingLog(numbers), slidingWindow(numbers), fixedWindow(numbers)]) {
    const [policy, other] = rates.map((rate): Policies => ({ window, rate })) as [
      Policies,
      Policies,
    ];
    const world = new World(policy, { regions: ["eu", "us"] });
    const [eu, us] = world.regions.map(({ limiter }) => limiter);
    await world.clock.advance(60_000);
    let got = 0;
    for (let ms = 0; ms < 160_000; ms += 50) {
      const next = ms % 10_000 === 0 ? policy : other;
      if (ms % 5000 === 0) await Promise.all([eu?.update(next), us?.update(next)]);
      if (ms < 40_000) for (let n = 0; n < 3; n++) await eu?.tryAcquire();
      else for (let n = 0; n < 3; n++) got += Number((await us?.tryAcquire()) && ms >= 100_000);
      await world.clock.advance(50);
    }
    await world.close();
    assert.ok(got >= 3 * 560, `${got} in three windows`);
  }
});

test.run();
