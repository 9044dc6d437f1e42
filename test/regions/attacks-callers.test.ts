/** Callers that a part and a reserve serve, a reserve of 0, and what is counted of them. */
import { fixedWindow, smoothBursty } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { bucket, busy, drain, nameOf, withLocal } from "../support/regions/with-local.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, callers of a part and a reserve");

// -- reservations ------------------------------------------------------------------------------

test("reservations that are made at once do not all go to the reserve that served one of them", async () => {
  const { clock, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  assert.ok(limiter.fraction > 0.89);
  const made = await Promise.all(Array.from({ length: 600 }, () => limiter.reserve()));
  for (const one of made) one.ready().catch(() => {});
  // the part serves 270 a second; each has looked at the same full reserve: 32 s
  const longestMs = Math.max(...made.map(({ waitMs }) => waitMs));
  assert.ok(longestMs <= 3000, `one waits for ${longestMs} ms`);
  await limiter.close();
});

test("with a reserve of 0, reservations wait for the part, not for a reserve of nothing", async () => {
  const policy = smoothBursty({ permitsPerSecond: 100 });
  const { clock, limiter } = await withLocal({ reserve: 0 }, policy);
  let done = 0;
  for (let i = 0; i < 3; i++) {
    const ready = limiter.reserve().then((one) => one.ready());
    ready.then(
      () => {
        done += 1;
      },
      () => {},
    );
  }
  await clock.advance(3_600_000);
  // 1: the others wait for 115 days
  assert.is(done, 3);
  await limiter.close();
});

test("with a reserve of 0, a caller that the part's queue has no room for does not wait for ever", async () => {
  const policy = smoothBursty({ permitsPerSecond: 100 });
  const { clock, limiter } = await withLocal({ reserve: 0, maxWaiting: 2 }, policy);
  let settled = 0;
  const calls = Array.from({ length: 5 }, () => nameOf(limiter.acquire()));
  for (const call of calls) {
    void call.then(() => {
      settled += 1;
    });
  }
  await clock.advance(3_600_000);
  // 3: one waits for 115 days, and is demand all the time
  assert.is(settled, 5);
  await limiter.close();
});

// -- what is charged ---------------------------------------------------------------------------

for (const verb of ["charge", "refund"] as const) {
  test(`a ${verb} that is larger than the reserve is none of a request that could never pass`, async () => {
    const { limiter } = await withLocal();
    // the largest request is 270, the reserve holds 10: a PermitsExceedCapacityError
    assert.is(await nameOf(limiter[verb](20)), "undefined");
    await limiter.close();
  });
}

// -- counters and channels ---------------------------------------------------------------------

test("a caller that waits for the part and for the reserve is one that waits", async () => {
  const { clock, limiter } = await withLocal();
  await drain(limiter);
  const call = limiter.acquire();
  await clock.advance(5);
  const { waiting } = limiter.stats;
  await clock.advance(5000);
  await call;
  await limiter.close();
  assert.is(waiting, 1);
});

test("a decision that the reserve makes is counted once", async () => {
  const { limiter } = await withLocal();
  await limiter.decide();
  const first = limiter.stats;
  await drain(limiter);
  const before = limiter.stats.refused;
  await limiter.decide();
  const second = limiter.stats.refused - before;
  await limiter.close();
  // the part has refused it, too
  assert.equal([first.granted, first.refused, second], [1, 0, 1]);
});

test("a call that finds one queue full is counted once", async () => {
  const { clock, limiter } = await withLocal({ maxWaiting: 2 });
  await drain(limiter);
  const before = limiter.stats;
  const calls = Array.from({ length: 5 }, () => nameOf(limiter.acquire()));
  await clock.advance(5000);
  const names = await Promise.all(calls);
  const full = names.filter((name) => name === "QueueFullError").length;
  const { granted, refused } = limiter.stats;
  await limiter.close();
  // 6 of 5 calls are refused, and 2 granted
  assert.equal([granted - before.granted, refused - before.refused], [5 - full, full]);
});

test("a caller that both lines serve at the same instant is granted once, and not cancelled", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 1000 });
  const { clock, limiter } = await withLocal({}, policy);
  await busy(limiter, clock, 4000);
  await drain(limiter);
  const before = limiter.stats;
  // when the next window begins, the first caller leaves the reserve's line, which then serves the second one
  const calls = [limiter.acquire(), limiter.tryAcquire(1, 3000), limiter.tryAcquire(1, 3000)];
  await clock.advance(5000);
  await Promise.all(calls);
  const { granted, cancelled } = limiter.stats;
  await limiter.close();
  // 5 are granted, and -2 cancelled
  assert.equal([granted - before.granted, cancelled - before.cancelled], [3, 0]);
});

test("while the region's store is away, calls that the part serves are not counted as failed", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  local.fail();
  while ((await nameOf(limiter.tryAcquire())) === "true");
  const before = limiter.stats.failed;
  const calls = Array.from({ length: 5 }, () => limiter.acquire());
  await clock.advance(1000);
  await Promise.all(calls);
  const failed = limiter.stats.failed - before;
  local.recover();
  await limiter.close();
  // 10: the look at the reserve and the wait for it, for each of them
  assert.is(failed, 0);
});

test("a key whose last message had no reply is no outage when it is busy again much later", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  let isLost = false;
  const home = {
    run: () => {},
    exchange: (key: string, message: readonly string[]) => {
      const reply = store.exchange(key, message);
      // it gives all back: `held` and `want` are 0
      const isLast = key.endsWith("[") && message[6] === "0" && message[7] === "0";
      return isLost && isLast ? new Promise<string>(() => {}) : reply;
    },
  } as unknown as Store;
  const regions = ["eu", "us", "asia"];
  const limiter = RegionalLimiter.create("limit", bucket, { home, clock, region: "eu", regions });
  await limiter.peek();
  await clock.advance(10_000);
  await busy(limiter, clock, 4000);
  isLost = true;
  await clock.advance(30_000);
  isLost = false;
  await clock.advance(60_000);
  const { outages } = limiter.stats;
  await busy(limiter, clock, 3000);
  const later = limiter.stats.outages;
  await limiter.close();
  // the lost reply is counted again
  assert.is(later, outages);
});

test("reservations that were made at once count once each", async () => {
  const { clock, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  const { granted, cancelled } = limiter.stats;
  await Promise.all(Array.from({ length: 600 }, () => limiter.reserve()));
  const { stats } = limiter;
  assert.equal([stats.granted - granted, stats.cancelled - cancelled], [600, 0]);
  await limiter.close();
});

test.run();
