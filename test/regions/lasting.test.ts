/** What must not last: debts that there is room for, demand that has ended, what a stopped process owes. */
import {
  type Policies,
  type Reservation,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { seeded } from "../support/random.ts";
import { StoppableClock } from "../support/regions/stoppable-clock.ts";
import { suite } from "../support/suite.ts";

const ends = suite("regions, what ends", { timeoutMs: 60_000 });
/** Intervals are of random length: the same in each run. */
const test = (title: string, run: () => Promise<void>) => ends(title, () => seeded(7, run));

/** Two regions on a home that is old enough to know what is fresh. */
async function open(policy: Policies, ageMs = 180_000) {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  const regions = ["eu", "us"];
  const create = (region: string) =>
    RegionalLimiter.create("limit", policy, { clock, home, regions, region });
  const [eu, us] = [create("eu"), create("us")];
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(ageMs);
  const close = async () => {
    const closed = Promise.all([eu.close(), us.close()]);
    await clock.advance(5000);
    await closed;
  };
  return { clock, eu, us, create, close };
}

for (const [title, policy] of [
  ["slidingLog", slidingLog({ limit: 300, windowMs: 60_000 })],
  ["slidingWindow", slidingWindow({ limit: 300, windowMs: 60_000 })],
] as const) {
  test(`${title}: one permit that is charged, or settled, beyond the reserve does not keep a region from the fresh part that it gets`, async () => {
    const { clock, eu, close } = await open(policy);
    const made = await eu.reserve();
    let granted = 1;
    while (await eu.tryAcquire()) granted += 1;
    assert.is(granted, 15);
    // as charge(1) does
    await made.settle(2);
    for (let t = 0; t < 10_000; t += 100) {
      for (let k = 0; k < 5; k++) if (await eu.tryAcquire()) granted += 1;
      await clock.advance(100);
    }
    assert.ok(eu.fraction > 0.9, `${eu.fraction} of the limit`);
    // without the charge it is granted 285 of 300 by then
    assert.ok(granted > 250, `${granted} of 300 in ten seconds`);
    await close();
  });
}

for (const [title, policy] of [
  ["slidingLog", slidingLog({ limit: 300, windowMs: 15_000 })],
  ["slidingWindow", slidingWindow({ limit: 300, windowMs: 15_000 })],
] as const) {
  test(`${title}: two regions that are busy in turns use half of the limit, also if one permit a second is charged`, async () => {
    const { clock, eu, us, close } = await open(policy);
    let used = 0;
    for (let t = 0; t < 180_000; t += 50) {
      if (t === 60_000) used = 0;
      const limiter = Math.floor(t / 6000) % 2 === 0 ? eu : us;
      if (t % 1000 === 0) {
        await limiter.charge(1);
        used += 1;
      }
      for (let k = 0; k < 4; k++) if (await limiter.tryAcquire()) used += 1;
      await clock.advance(50);
    }
    // without charges 0.8
    const part = used / (300 * (120_000 / 15_000));
    assert.ok(part > 0.5, `${part} of the limit`);
    await close();
  });
}

test("a region that has stopped asking for 10 a minute gives its part back in the time of some tens of requests", async () => {
  const { clock, eu, us, close } = await open(slidingLog({ limit: 10, windowMs: 60_000 }));
  for (let t = 0; t < 60_000; t += 100) {
    await us.tryAcquire();
    await clock.advance(100);
  }
  const stoppedMs = clock.now();
  // docs/regions.md says ten, a minute
  const tens = 40 * 6000;
  while (us.fraction > 0.051 && clock.now() < stoppedMs + tens) {
    await eu.tryAcquire();
    await clock.advance(100);
  }
  const seconds = (clock.now() - stoppedMs) / 1000;
  assert.ok(us.fraction <= 0.051, `it has ${us.fraction} of the limit after ${seconds} s`);
  await close();
});

test("a region that has asked for much once gives that part to others again, though it goes on asking for little", async () => {
  const { clock, eu, us, close } = await open(
    tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 }),
  );
  assert.is(await us.tryAcquire(400), false);
  let granted = 0;
  for (let t = 0; t < 120_000; t += 100) {
    if (t === 60_000) granted = 0;
    for (let k = 0; k < 40; k++) if (await eu.tryAcquire(5)) granted += 5;
    for (let k = 0; k < 8; k++) await us.tryAcquire();
    await clock.advance(100);
  }
  // America asks for 80 a second, so others have 920
  assert.ok(
    granted > 60 * 850,
    `${granted / 60} a second a minute later, while ${us.fraction} of the limit is kept for another request of 400`,
  );
  await close();
});

const DAY_MS = 24 * 3_600_000;
const ways: Readonly<Record<string, (eu: RegionalLimiter, clock: FakeClock) => Promise<void>>> = {
  "a pause": async (_, clock) => clock.advance(90_000),
  "the end of a process": async (eu, clock) => {
    const closed = eu.close();
    await clock.advance(90_000);
    await closed;
  },
};
for (const [title, rest] of Object.entries(ways)) {
  test(`under windows of a minute and a day ${title} costs what was used of the day, and not what was used of the minute`, async () => {
    const windows = {
      minute: slidingWindow({ limit: 600, windowMs: 60_000 }),
      day: slidingWindow({ limit: 100_000, windowMs: DAY_MS }),
    };
    const { clock, eu, create, close } = await open(windows, DAY_MS + 60_000);
    const ask = async (limiter: RegionalLimiter) => {
      let granted = 0;
      for (let t = 0; t < 120_000; t += 100) {
        for (let k = 0; k < 2; k++) if (await limiter.tryAcquire()) granted += 1;
        await clock.advance(100);
      }
      return granted;
    };
    assert.ok((await ask(eu)) > 1100);
    await rest(eu, clock);
    // a hundredth of the day was used
    const next = title === "a pause" ? eu : create("eu");
    const granted = await ask(next);
    assert.ok(next.fraction > 0.9, `${next.fraction} of the limit`);
    assert.ok(granted > 1000, `${granted} of 1200 in two minutes`);
    if (next !== eu) {
      const closed = next.close();
      await clock.advance(5000);
      await closed;
    }
    await close();
  });
}

test("messages that are lost while parts move cost no window", async () => {
  const windows = {
    minute: slidingWindow({ limit: 600, windowMs: 60_000 }),
    day: slidingWindow({ limit: 100_000, windowMs: DAY_MS }),
  };
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  let messages = 0;
  // every seventh does not come, and of every seventh the reply does not
  const exchange = async (key: string, message: readonly string[]) => {
    messages += 1;
    if (messages % 7 === 0) throw new Error("lost");
    const reply = await home.exchange?.(key, message);
    if (messages % 7 === 3) throw new Error("lost");
    return reply;
  };
  const lossy = { run: () => {}, exchange } as unknown as typeof home;
  const regions = ["eu", "us"];
  const limiters = regions.map((region) =>
    RegionalLimiter.create("limit", windows, { clock, home: lossy, regions, region }),
  );
  for (const limiter of limiters) await limiter.peek();
  await clock.advance(DAY_MS + 60_000);
  let granted = 0;
  for (let t = 0; t < 1_200_000; t += 250) {
    if (t === 600_000) granted = 0;
    // together 8 of 10 a second, in turns
    const [more, less] = Math.floor(t / 30_000) % 2 === 0 ? [0, 1] : [1, 0];
    if (t % 500 === 0)
      for (let k = 0; k < 3; k++) if (await limiters[more]?.tryAcquire()) granted += 1;
    if (t % 500 === 0) if (await limiters[less]?.tryAcquire()) granted += 1;
    await clock.advance(250);
  }
  assert.ok(granted > 0.9 * 4800, `${granted} of 4800`);
  const closed = Promise.all(limiters.map((limiter) => limiter.close()));
  await clock.advance(5000);
  await closed;
});

const bucket = tokenBucket({ capacity: 300, refill: 30, everyMs: 1000 });

// Its timers have not run yet when this call, of work that was under way, goes on.
const firstCalls: Readonly<
  Record<string, (limiter: RegionalLimiter, made: Reservation) => Promise<void> | void>
> = {
  charge: (limiter) => limiter.charge(3),
  refund: (limiter) => limiter.refund(1),
  reset: (limiter) => limiter.reset(),
  "settle of a reservation": (_, made) => made.settle(4),
};
for (const [title, call] of Object.entries(firstCalls)) {
  test(`a process that was stopped beyond its lease goes on with its reserve, though its first call is ${title}`, async () => {
    const clock = new FakeClock();
    const own = new StoppableClock(clock);
    const home = memoryStore({ clock });
    const all = { home, regions: ["eu", "us"] };
    const eu = RegionalLimiter.create("limit", bucket, { ...all, clock: own, region: "eu" });
    await eu.peek();
    await clock.advance(60_000);
    const ask = async (ms: number) => {
      let granted = 0;
      for (let t = 0; t < ms; t += 100) {
        for (let k = 0; k < 10; k++) if (await eu.tryAcquire()) granted += 1;
        await clock.advance(100);
      }
      return granted;
    };
    await ask(3000);
    assert.ok(eu.fraction > 0.9);
    const made = await eu.reserve();
    await made.ready();
    own.stop();
    await clock.advance(600_000);
    await call(eu, made);
    own.goOn();
    // the reserve has 15 permits, and its part lets 28 a second through two seconds later
    const granted = await ask(10_000);
    assert.ok(granted > 150, `${granted} in ten seconds, with ${eu.fraction} of the limit`);
    const closed = eu.close();
    await clock.advance(5000);
    await closed;
  });
}

ends.run();
