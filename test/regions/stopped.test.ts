/** A process that is stopped (SIGSTOP, a paused container, a blocked loop) while its clock runs on. */
import { gcra, smoothBursty, tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { StoppableClock } from "../support/regions/stoppable-clock.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, stopped processes");

// After its lease a region should regain at the rate of its reserve: the rest of the limit is another one's by then.
for (const [title, policy] of [
  ["token bucket", tokenBucket({ capacity: 1000, refill: 10, everyMs: 1000 })],
  ["GCRA", gcra({ limit: 1000, periodMs: 100_000 })],
] as const) {
  test(`${title}: a process that was stopped beyond its lease regains after it what its reserve does`, async () => {
    const clock = new FakeClock();
    const own = new StoppableClock(clock);
    const home = memoryStore({ clock });
    const all = { home, regions: ["eu", "us"], reserve: 0.5 };
    const eu = RegionalLimiter.create("api", policy, { ...all, clock: own, region: "eu" });
    const us = RegionalLimiter.create("api", policy, { ...all, clock, region: "us" });
    for (const limiter of [eu, us]) await limiter.peek();
    await clock.advance(120_000);
    while (eu.fraction < 0.74) {
      assert.is(await eu.tryAcquire(750), false);
      await clock.advance(50);
    }
    let granted = 0;
    const ask = async (limiter: typeof eu, requests: number) => {
      for (let i = 0; i < requests; i++) granted += (await limiter.tryAcquire()) ? 1 : 0;
    };
    const startMs = clock.now();
    await ask(eu, 750);
    await ask(us, 250);
    own.stop();
    for (let t = 0; t < 30_000; t += 100) {
      await ask(us, 4);
      await clock.advance(100);
    }
    own.goOn();
    await ask(eu, 750);
    const most = 1000 + (clock.now() - startMs) / 100;
    assert.ok(granted <= most, `${granted}, at most ${most}`);
    await Promise.all([eu.close(), us.close(), clock.advance(30_000)]);
  });
}

// The same with a debt: after the lease it should be paid at the rate of the reserve.
test("smoothBursty: a process that was stopped beyond its lease pays its debt after it at the rate of its reserve", async () => {
  const clock = new FakeClock();
  const own = new StoppableClock(clock);
  const all = { home: memoryStore({ clock }), regions: ["eu", "us"] };
  const policy = smoothBursty({ permitsPerSecond: 100 });
  const eu = RegionalLimiter.create("api", policy, { ...all, clock: own, region: "eu" });
  const us = RegionalLimiter.create("api", policy, { ...all, clock, region: "us" });
  for (const limiter of [eu, us]) await limiter.peek();
  await clock.advance(10_000);
  for (let t = 0; t < 3000; t += 100) {
    for (let i = 0; i < 15; i++) await eu.tryAcquire();
    await clock.advance(100);
  }
  assert.ok(eu.fraction > 0.94, String(eu.fraction));
  await clock.advance(1000);
  let granted = 0;
  const ask = async (limiter: typeof eu, permits: number) => {
    granted += (await limiter.tryAcquire(permits)) ? permits : 0;
  };
  const startMs = clock.now();
  await ask(eu, 9000);
  own.stop();
  for (let t = 0; t < 97_000; t += 50) {
    for (let i = 0; i < 10; i++) await ask(us, 1);
    await clock.advance(50);
  }
  own.goOn();
  await ask(eu, 9000);
  await clock.advance(100);
  await ask(us, 9000);
  const burst = 100;
  const most = burst + (clock.now() - startMs) / 10 + 2 * 9000;
  assert.ok(granted <= most, `${granted}, at most ${most}`);
  await Promise.all([eu.close(), us.close(), clock.advance(30_000)]);
});

test("fraction is that of the reserve once the lease is over, also before any call or timer", async () => {
  const clock = new FakeClock();
  const own = new StoppableClock(clock);
  const home = memoryStore({ clock });
  const policy = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });
  const options = { home, clock: own, region: "eu", regions: ["eu", "us"] };
  const limiter = RegionalLimiter.create("limit", policy, options);
  await limiter.peek();
  await clock.advance(10_000);
  for (let t = 0; t < 3000; t += 50) {
    for (let i = 0; i < 20; i++) await limiter.tryAcquire();
    await clock.advance(50);
  }
  assert.ok(limiter.fraction > 0.9);
  own.stop();
  await clock.advance(6000);
  assert.is(limiter.fraction, 0.05);
  own.goOn();
  await limiter.close();
});

test.run();
