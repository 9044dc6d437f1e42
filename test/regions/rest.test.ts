/** Used pieces that come back too early, and regions that are starved by moves to and fro. */
import { gcra, type Policies, slidingLog, slidingWindow, tokenBucket } from "smooth-limiter";
import { RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { seeded } from "../support/random.ts";
import { type Region, World } from "../support/regions/world.ts";
import { suite } from "../support/suite.ts";

const faults = suite("regions, used pieces and unequal requests", { timeoutMs: 60_000 });
/** Intervals are of random length: the same in each run. */
const test = (title: string, run: () => Promise<void>) => faults(title, () => seeded(3, run));

function open(policy: Policies, clock: FakeClock, options: Partial<RegionalOptions> = {}) {
  const home = memoryStore({ clock });
  const { regions = ["eu", "us"] } = options;
  const names = Array.isArray(regions) ? regions : Object.keys(regions);
  return names.map((region) =>
    RegionalLimiter.create("limit", policy, { ...options, clock, home, regions, region }),
  );
}

async function leave(limiter: RegionalLimiter, clock: FakeClock): Promise<void> {
  const closed = limiter.close();
  await clock.advance(1000);
  await closed;
}

test("what a region has used of a log is not used again, if it closes while another one lacks permits", async () => {
  const clock = new FakeClock();
  const [eu, us] = open(slidingLog({ limit: 1000, windowMs: 60_000 }), clock);
  assert.ok(eu && us);
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(130_000);
  let granted = 0;
  const startMs = clock.now();
  const ask = async (limiter: RegionalLimiter, ms: number) => {
    for (let t = 0; t < ms; t += 50) {
      for (let k = 0; k < 50; k++) if (await limiter.tryAcquire()) granted += 1;
      await clock.advance(50);
    }
  };
  await ask(eu, 5000);
  // America lacks permits, and the home knows
  await ask(us, 2000);
  await leave(eu, clock);
  await ask(us, 10_000);
  assert.ok(clock.now() < startMs + 60_000);
  assert.ok(granted <= 1000, `${granted} in a window of 1000`);
  await leave(us, clock);
});

/** Europe has more than 94 of 100 on a lease that has just begun, and is cut off. */
async function cutOff(policy: Policies, leaseMs: number): Promise<World> {
  const world = new World(policy, { regions: ["eu", "us"], leaseMs });
  const { clock, home } = world;
  const [eu, us] = world.regions as [Region, Region];
  for (const { limiter } of [eu, us]) await limiter.peek();
  await clock.advance(140_000);
  while (eu.limiter.fraction < 0.945) {
    assert.is(await eu.limiter.tryAcquire(95), false);
    await clock.advance(50);
  }
  for (const before = home.messages; home.messages === before; ) await clock.advance(1);
  eu.isCut = true;
  return world;
}

async function granted({ clock, regions }: World, ms: number): Promise<number> {
  let sum = 0;
  for (const endMs = clock.now() + ms; clock.now() < endMs; await clock.advance(50)) {
    for (const { limiter } of regions) {
      for (let i = 0; i < 10; i++) sum += (await limiter.tryAcquire()) ? 1 : 0;
    }
  }
  return sum;
}

// of any 60 s
for (const [title, policy] of [
  ["sliding window", slidingWindow({ limit: 100, windowMs: 61_000, buckets: 61 })],
  ["sliding log", slidingLog({ limit: 100, windowMs: 60_000 })],
] as const) {
  test(`${title}: what was used at the end of a lease is not used again when the home is back after a minute`, async () => {
    const world = await cutOff(policy, 5000);
    const [eu, us] = world.regions as [Region, Region];
    us.isCut = true;
    await world.clock.advance(4900);
    assert.is(await eu.limiter.tryAcquire(94), true);
    await world.clock.advance(57_100);
    for (const region of world.regions) region.isCut = false;
    const again = await granted(world, 2800);
    assert.ok(again <= 6, `94 + ${again} of 100`);
    await world.close();
  });

  test(`${title}: nor when the home has lost its data while the lease lasted`, async () => {
    const world = await cutOff(policy, 60_000);
    const [eu, us] = world.regions as [Region, Region];
    world.home.forget();
    for (let second = 0; second < 59; second++) {
      await us.limiter.tryAcquire(95);
      await world.clock.advance(1000);
    }
    assert.is(await eu.limiter.tryAcquire(94), true);
    const again = await granted(world, 59_900);
    assert.ok(again <= 6, `94 + ${again} of 100`);
    await world.close();
  });
}

test("used pieces of a bucket are not full before an empty bucket is, if their region had permits left", async () => {
  // full after 60 s
  const policy = tokenBucket({ capacity: 6000, refill: 100, everyMs: 1000 });
  const world = new World(policy, { regions: ["eu", "us", "asia"], leaseMs: 60_000 });
  const { clock } = world;
  const [eu, us, asia] = world.regions;
  assert.ok(eu && us && asia);
  for (const { limiter } of world.regions) await limiter.peek();
  await clock.advance(130_000);
  let granted = 0;
  const drain = async (limiter: RegionalLimiter) => {
    for (let permits = 3000; permits >= 5; permits /= 2) {
      while (await limiter.tryAcquire(permits)) granted += permits;
    }
  };
  for (let t = 0; t < 70_000; t += 100) {
    await eu.limiter.tryAcquire(t === 0 ? 1000 : 8);
    await clock.advance(100);
  }
  assert.ok(eu.limiter.fraction > 0.9);
  const startMs = clock.now();
  // Europe uses half of what it has, and leaves: of the pieces that it gives back half are fresh, and half are empty
  for (let i = 0; i < 300; i++) if (await eu.limiter.tryAcquire(10)) granted += 10;
  // America takes those that are fresh. Asia is cut off until Europe would have been full
  await drain(us.limiter);
  await drain(asia.limiter);
  const closed = eu.limiter.close();
  await clock.advance(150);
  asia.isCut = true;
  await clock.advance(100);
  await closed;
  for (let t = 0; t < 50_000; t += 100) {
    if (t === 33_000) asia.isCut = false;
    await drain(us.limiter);
    await drain(asia.limiter);
    await clock.advance(100);
    const seconds = (clock.now() - startMs) / 1000;
    assert.ok(granted <= 6000 + 100 * seconds, `${granted} in ${seconds} s`);
  }
  await world.close();
});

test("used pieces of a stepped bucket are not full before an empty one is, if their region has kept the permits that were left", async () => {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: 4000, refill: 400, everyMs: 1000, stepped: true });
  const [eu] = open(policy, clock, { regions: ["eu"], reserve: 0.5, everyMs: 100 });
  assert.ok(eu);
  await eu.peek();
  await clock.advance(60_001);
  let granted = 0;
  const ask = async (requests: number) => {
    for (let i = 0; i < requests; i++) granted += (await eu.tryAcquire()) ? 1 : 0;
  };
  const startMs = clock.now();
  await ask(2100);
  while (eu.fraction < 1) await clock.advance(10);
  // it is idle: what it gives back has no permit left, since all of them are in its reserve
  while (eu.fraction > 0.5) await clock.advance(10);
  await ask(2000);
  await clock.advance(60_001 + 1000 - clock.now());
  for (let second = 1; second < 6; second++) {
    await ask(200);
    await clock.advance(1000);
  }
  for (let t = 0; t < 500; t += 20) {
    await ask(200);
    await clock.advance(20);
  }
  const ms = clock.now() - startMs;
  const most = 4000 + 400 * Math.ceil(ms / 1000);
  assert.ok(granted <= most, `${granted} in ${ms} ms, at most ${most}`);
  await leave(eu, clock);
});

test("regions that ask for less than a third of 10 a minute are granted some of it, while another one asks for too much", async () => {
  const world = new World(gcra({ limit: 10, periodMs: 60_000, burst: 10 }), {
    regions: ["eu", "us", "asia"],
  });
  const { clock, regions } = world;
  for (const { limiter } of regions) await limiter.peek();
  await clock.advance(150_000);
  // Europe and America ask 2.5 times a minute each, Asia 20 times
  const granted = [0, 0, 0];
  for (let second = 0; second < 1200; second++) {
    for (const [i, { limiter }] of regions.entries()) {
      if (second % (i < 2 ? 24 : 3) !== 0) continue;
      if (await limiter.tryAcquire()) granted[i] = (granted[i] ?? 0) + 1;
    }
    await clock.advance(1000);
  }
  const [eu = 0, us = 0, asia = 0] = granted;
  // 50 each is what they ask for
  assert.ok(Math.min(eu, us) >= 25, `${eu} and ${us} of 50, while Asia has ${asia} of 200`);
  await world.close();
});

test("three regions that together ask for nine tenths of 60 a minute are granted most of it, in requests of 1 and of 10", async () => {
  const world = new World(tokenBucket({ capacity: 60, refill: 60, everyMs: 60_000 }), {
    regions: ["eu", "us", "asia"],
  });
  const { clock, regions } = world;
  for (const { limiter } of regions) await limiter.peek();
  await clock.advance(150_000);
  let [asked, granted] = [0, 0];
  // 11 permits in 36 s each; a bucket of 20 with 20 a minute for each would grant all
  for (let second = 0; second < 1800; second++) {
    for (const [i, { limiter }] of regions.entries()) {
      if ((second + 5 * i) % 18 !== 0) continue;
      const permits = (second + 5 * i) % 36 === 0 ? 1 : 10;
      asked += permits;
      if (await limiter.tryAcquire(permits)) granted += permits;
    }
    await clock.advance(1000);
  }
  assert.ok(granted > 0.7 * asked, `${granted} of ${asked}`);
  await world.close();
});

test("a message that is under way when a process closes costs no window: its successor has the part when it is back", async () => {
  const world = new World(slidingWindow({ limit: 600, windowMs: 60_000 }), {
    regions: ["eu", "us"],
  });
  const { clock, home } = world;
  const [eu] = world.regions as [Region];
  await eu.limiter.peek();
  await clock.advance(130_000);
  home.latencyMs = 100;
  for (let t = 0; t < 10_000; t += 50) {
    await eu.limiter.tryAcquire();
    await clock.advance(50);
  }
  assert.ok(eu.limiter.fraction > 0.9);
  // it wants more than there is, and uses no more
  for (let t = 0; t < 45_000; t += 500) {
    await eu.limiter.tryAcquire(570);
    await clock.advance(500);
  }
  for (const before = home.messages; home.messages === before; ) await clock.advance(1);
  await leave(eu.limiter, clock);
  world.restart(0);
  const [next] = world.regions as [Region];
  await next.limiter.tryAcquire(100);
  await clock.advance(15_000);
  await next.limiter.tryAcquire(100);
  await clock.advance(4000);
  assert.ok(next.limiter.fraction > 0.9, `${next.limiter.fraction} of the limit`);
  await world.close();
});

faults.run();
