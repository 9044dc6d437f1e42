/** The behaviour that users expect first: Guava's, and where this library differs on purpose. */
import { RateLimiter, type RateLimiterOptions } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

/** Acquires permits and waits this long for them, ms; or idles, or changes the rate. */
type Row =
  | { readonly acquire: number; readonly waits: number }
  | { readonly idles: number }
  | { readonly setRate: number };

interface Table {
  readonly rate: number;
  readonly options?: RateLimiterOptions | number;
  readonly rows: readonly Row[];
}

/** One permit each, repeatedly. */
function ones(...waits: readonly number[]): Row[] {
  return waits.map((ms) => ({ acquire: 1, waits: ms }));
}

const tables: Record<string, Table> = {
  "create(5), acquire() repeatedly": { rate: 5, rows: ones(0, 200, 200, 200) },
  "create(5), acquire(5), then acquire() twice": {
    rate: 5,
    rows: [{ acquire: 5, waits: 0 }, ...ones(1000, 200)],
  },
  "create(2), acquire, 5 s idle, acquire four times": {
    rate: 2,
    rows: [...ones(0), { idles: 5000 }, ...ones(0, 0, 0, 500)],
  },
  "create(5, 1000 ms), acquire six times, 1 s idle, acquire ten times": {
    rate: 5,
    options: 1000,
    rows: [
      ...ones(0, 520, 360, 220, 200, 200),
      { idles: 1000 },
      ...ones(0, 360, 220, 200, 200, 200, 200, 200, 200, 200),
    ],
  },
  "resync only when idle: a debt that is not yet due stores nothing": {
    rate: 5,
    rows: [{ acquire: 5, waits: 0 }, { idles: 800 }, ...ones(200, 200)],
  },
  "price: the warm half of the store costs the stable interval": {
    rate: 5,
    options: { warmupMs: 1000, coldFactor: 3 },
    rows: [{ acquire: 5, waits: 0 }, ...ones(1500), { idles: 700 }, ...ones(0, 200)],
  },
  "setRate: granted permits are owed at the old rate": {
    rate: 1,
    rows: [{ acquire: 10, waits: 0 }, { setRate: 1000 }, ...ones(10_000, 1)],
  },
  "setRate: the store keeps its share": {
    rate: 10,
    rows: [{ idles: 500 }, { setRate: 20 }, { acquire: 10, waits: 0 }, ...ones(0, 50)],
  },
  "an infinite rate never waits": {
    rate: Infinity,
    rows: [{ acquire: 1e9, waits: 0 }, ...ones(0), { idles: 1 }, { acquire: 1e9, waits: 0 }],
  },
  "after an infinite rate a bursty limiter starts full": {
    rate: Infinity,
    rows: [{ acquire: 1e9, waits: 0 }, { setRate: 2 }, ...ones(0, 0, 0, 500)],
  },
  "after an infinite rate a warming-up limiter starts warm": {
    rate: Infinity,
    options: 10_000,
    rows: [{ acquire: 1e9, waits: 0 }, { setRate: 1 }, ...ones(0, 1000, 1000)],
  },
  "after a change to an infinite rate only the last debt is waited for": {
    rate: 2,
    rows: [...ones(0), { setRate: Infinity }, ...ones(500, 0, 0)],
  },
  "a warm-up of 0 means none, and limits after idle time too (the original does not)": {
    rate: 1,
    options: 0,
    rows: [...ones(0, 1000), { idles: 2001 }, { acquire: 1000, waits: 0 }, ...ones(999_000)],
  },
  "prefilled starts with a full store (the original starts empty only)": {
    rate: 2,
    options: { prefilled: true },
    rows: ones(0, 0, 0, 500),
  },
  "three seconds of burst": {
    rate: 2,
    options: { burstSeconds: 3 },
    rows: [{ idles: 60_000 }, ...ones(0, 0, 0, 0, 0, 0, 0, 500)],
  },
  "no burst": {
    rate: 2,
    options: { burstSeconds: 0 },
    rows: [{ idles: 60_000 }, ...ones(0, 500, 500)],
  },
};

const fake = suite("seed tables on the fake clock");

for (const [name, { rate, options, rows }] of Object.entries(tables)) {
  fake(name, async () => {
    const clock = new FakeClock();
    const numbers = typeof options === "number" ? { warmupMs: options } : options;
    const limiter = RateLimiter.create(rate, { ...numbers, clock });
    for (const [index, row] of rows.entries()) {
      if ("idles" in row) await clock.advance(row.idles);
      else if ("setRate" in row) limiter.setRate(row.setRate);
      else {
        const start = clock.now();
        const facts = `row ${index + 1}: ${JSON.stringify(row)}`;
        assert.is(limiter.peek(row.acquire).waitMs, row.waits, facts);
        let released = -1;
        const acquired = limiter.acquire(row.acquire).then((waitedMs) => {
          released = clock.now();
          return waitedMs;
        });
        await clock.advance(row.waits);
        assert.is(released, start + row.waits, facts);
        assert.is(await acquired, row.waits, facts);
      }
    }
  });
}

for (const [name, { rate, options, rows }] of Object.entries(tables)) {
  // the same as reservations, made at once: each shows its wait
  if (rows.some((row) => !("acquire" in row))) continue;
  fake(`${name}: reserved all at once`, () => {
    const clock = new FakeClock();
    const numbers = typeof options === "number" ? { warmupMs: options } : options;
    const limiter = RateLimiter.create(rate, { ...numbers, clock });
    let expected = 0;
    for (const row of rows) {
      if (!("acquire" in row)) continue;
      expected += row.waits;
      assert.is(limiter.reserve(row.acquire).waitMs, expected);
    }
  });
}

fake("getRate returns the number that was set", () => {
  const limiter = RateLimiter.create(7);
  assert.is(limiter.getRate(), 7);
  for (const rate of [1 / 3, 0.1, 999_999.9, 1e-300, 1e300, Infinity, 5e-324, 3]) {
    limiter.setRate(rate);
    assert.is(limiter.getRate(), rate);
  }
  assert.throws(() => limiter.setRate(0), RangeError);
  assert.is(limiter.getRate(), 3);
});

fake("tryAcquire refuses if the wait exceeds the time-out, for any number of permits", async () => {
  for (const permits of [1, 1000]) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(5, { clock });
    assert.is(limiter.tryAcquire(), true);
    assert.is(limiter.tryAcquire(permits), false);
    for (const timeoutMs of [0, -1, -Infinity, 199, 199.999]) {
      assert.is(await limiter.tryAcquire(permits, timeoutMs), false, `${timeoutMs} ms`);
    }
    // none of the refusals has changed anything
    assert.is(limiter.peek().waitMs, 200);
    const tried = limiter.tryAcquire(permits, 200);
    await clock.advance(200);
    assert.is(await tried, true);
    assert.is(limiter.peek().waitMs, permits * 200);
  }
});

fake.run();

// Tolerant of a busy machine, but never early.
const real = suite("seed tables in real time");

/** How late a release may be, ms. */
const LATENESS = 2000;

const quick = [
  "create(5), acquire() repeatedly",
  "create(5), acquire(5), then acquire() twice",
  "create(5, 1000 ms), acquire six times, 1 s idle, acquire ten times",
];

for (const name of quick) {
  real(name, async () => {
    const { rate, options, rows = [] } = tables[name] ?? { rate: Number.NaN };
    // started before the limiter: it stores permits from its creation on
    const start = performance.now();
    const limiter = RateLimiter.create(rate, options);
    let earliest = 0;
    let late = 0;
    for (const [index, row] of rows.entries()) {
      if (!("acquire" in row)) break;
      const waitedMs = await limiter.acquire(row.acquire);
      const passed = performance.now() - start;
      earliest += row.waits;
      const facts = `row ${index + 1} is due at ${earliest}, released at ${passed}`;
      // the clock is read in whole microseconds
      assert.ok(passed >= earliest - 0.001, facts);
      assert.ok(passed < earliest + late + LATENESS, facts);
      assert.ok(waitedMs >= 0 && waitedMs <= passed, `reported ${waitedMs}, passed ${passed}`);
      late = passed - earliest;
    }
  });
}

real.run();
