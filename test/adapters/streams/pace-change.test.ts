import * as assert from "uvu/assert";
import { algorithms } from "../../../src/algorithms/index.ts";
import {
  fixedWindow,
  gcra,
  Limiter,
  leakyBucket,
  type Policy,
  RateLimiter,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { counted, elsewhere, endless, forms } from "../../support/streams/forms.ts";
import { isTriedOneIn, suite } from "../../support/suite.ts";

const KB = 1000;
const MB = 1000 * KB;
/** Of the algorithms that grant permits in lumps. */
const WINDOW_MS = 100;

interface Sample {
  readonly name: string;
  at(bytesPerSecond: number): Policy;
  /** The longest silence at a steady rate, ms. */
  readonly gapMs: number;
  /** The least that passes in 3 s at 1 permit a second. */
  readonly least: number;
}

const inWindows = (rate: number) => ({ limit: (rate * WINDOW_MS) / 1000, windowMs: WINDOW_MS });
const samples: readonly Sample[] = [
  { name: "bursty", at: (rate) => smoothBursty({ permitsPerSecond: rate }), gapMs: 50, least: 3 },
  {
    name: "bursty without a burst",
    at: (rate) => smoothBursty({ permitsPerSecond: rate, burstSeconds: 0 }),
    gapMs: 50,
    least: 3,
  },
  {
    name: "warming up",
    at: (rate) => smoothWarmingUp({ permitsPerSecond: rate, warmupMs: 1000 }),
    gapMs: 250,
    least: 2.7,
  },
  {
    name: "token bucket",
    at: (rate) => tokenBucket({ capacity: rate, refill: rate, everyMs: 1000 }),
    gapMs: 50,
    least: 3,
  },
  {
    name: "small token bucket",
    at: (rate) => tokenBucket({ capacity: rate / 10, refill: rate, everyMs: 1000 }),
    gapMs: 50,
    least: 3,
  },
  {
    name: "stepped token bucket",
    at: (rate) =>
      tokenBucket({ capacity: rate / 10, refill: rate / 10, everyMs: WINDOW_MS, stepped: true }),
    gapMs: WINDOW_MS,
    least: 2.9,
  },
  { name: "gcra", at: (rate) => gcra({ limit: rate, periodMs: 1000 }), gapMs: 50, least: 3 },
  {
    name: "leaky bucket",
    at: (rate) => leakyBucket({ permitsPerSecond: rate, capacity: 1e9 }),
    gapMs: 50,
    least: 3,
  },
  {
    name: "fixed window",
    at: (rate) => fixedWindow(inWindows(rate)),
    gapMs: WINDOW_MS,
    least: 2.9,
  },
  { name: "log", at: (rate) => slidingLog(inWindows(rate)), gapMs: WINDOW_MS, least: 2.9 },
  {
    name: "sliding window",
    at: (rate) => slidingWindow(inWindows(rate)),
    gapMs: WINDOW_MS,
    least: 2.9,
  },
];

/** What comes out of streams that share a limiter, and the longest silence. */
function flow(form: string, limiter: Limiter, clock: FakeClock, streams: number) {
  const controller = new AbortController();
  const { signal } = controller;
  let passed = 0;
  let silentMs = 0;
  let lastAt = 0;
  const take = ({ length }: Uint8Array) => {
    silentMs = Math.max(silentMs, clock.now() - lastAt);
    lastAt = clock.now();
    passed += length;
    // without a limit a stream would never come to rest
    return new Promise<void>((resolve) => {
      if (clock.now() > 0) resolve();
      else clock.wakeAt(1, resolve);
    });
  };
  const pass = forms[form];
  const ends = Array.from({ length: streams }, () =>
    pass?.(endless(65_536), limiter, take, { signal }).catch((error) => {
      if (error !== signal.reason) throw error;
    }),
  );
  return {
    async during(ms: number) {
      passed = 0;
      silentMs = 0;
      lastAt = clock.now();
      await clock.advance(ms);
      return { passed, silentMs: Math.max(silentMs, clock.now() - lastAt) };
    },
    async end() {
      controller.abort(new Error("enough"));
      await clock.advance(0);
      await Promise.all(ends);
    },
  };
}

for (const [f, form] of Object.keys(forms).entries()) {
  const test = suite(`streams at another rate, ${form}`);

  for (const [s, { name, at, gapMs, least }] of samples.entries()) {
    for (const [r, rate] of [200 * KB, 10 * KB].entries()) {
      if (!isTriedOneIn(3, f, s, r)) continue;
      for (const [streams, where] of [
        [1, "here"],
        [4, "here"],
        [1, "elsewhere"],
      ] as const) {
        test(`10 MB/s to ${rate / KB} kB/s and back: ${name}, ${streams}, ${where}`, async () => {
          const clock = new FakeClock();
          const local = Limiter.create(at(10 * MB), { clock });
          const limiter = where === "here" ? local : elsewhere(local);
          const { during, end } = flow(form, limiter, clock, streams);
          await during(507);
          local.update(at(rate));
          // the windows of the lower limit pay for the surplus of the current window
          if (name === "fixed window") await during((10 * MB * WINDOW_MS) / rate);
          const slow = await during(3000);
          assert.ok(slow.silentMs <= gapMs + 1, `silent for ${slow.silentMs} ms`);
          const most = 3.2 * rate;
          assert.ok(
            slow.passed >= 0.98 * least * rate && slow.passed <= most,
            `${slow.passed} in 3 s`,
          );
          local.update(at(10 * MB));
          const fast = await during(1000);
          assert.ok(fast.silentMs <= gapMs + 1, `silent for ${fast.silentMs} ms`);
          assert.ok(fast.passed >= 9.5 * MB, `${fast.passed} in 1 s`);
          await end();
        });
      }
    }
  }

  test("from no limit to one: no more than a chunk passes at the old rate", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(Infinity, { clock });
    const { during, end } = flow(form, limiter, clock, 1);
    await during(0);
    limiter.setRate(10 * KB);
    const { passed, silentMs } = await during(3000);
    // a second's worth is stored
    assert.ok(passed > 30 * KB && passed < 41 * KB + 65_536, `${passed} in 3 s`);
    assert.ok(silentMs <= 51, `silent for ${silentMs} ms`);
    await end();
  });

  test("unused bytes that were charged at a higher rate shrink with the rate", async () => {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(10 * MB, { clock, burstSeconds: 0 });
    const at: number[] = [];
    let taken = () => {};
    const first = new Promise<void>((resolve) => {
      taken = resolve;
    });
    const source = async function* () {
      yield new Uint8Array(1000); // a piece is 500 000
      await first;
      limiter.setRate(10 * KB);
      yield new Uint8Array(1000);
    };
    const take = () => {
      at.push(clock.now());
      taken();
    };
    const done = forms[form]?.(source(), limiter, take);
    await clock.advance(1000);
    await done;
    // a piece is 500 bytes now, and 499 of 499 000 are left: the rest of the debt of 50 ms comes
    // first
    assert.equal(at, [0, 50, 100]);
  });

  test("a pause in which the rate falls ends with a piece at the new rate", async () => {
    const clock = new FakeClock();
    const policy = samples.find(({ name }) => name === "token bucket");
    if (policy === undefined) throw new Error("no such sample");
    const limiter = Limiter.create(policy.at(10 * MB), { clock });
    const { during, end } = flow(form, limiter, clock, 1);
    await during(507);
    limiter.pause(2000);
    await during(1000);
    limiter.update(policy.at(10 * KB));
    const paused = await during(999);
    assert.is(paused.passed, 0);
    const after = await during(1000);
    assert.ok(after.silentMs <= 51 && after.passed >= 9.5 * KB, JSON.stringify(after));
    await end();
  });

  test("other callers that charge again and again do not cost a stream its place for ever", async () => {
    const clock = new FakeClock();
    const policy = tokenBucket({ capacity: 1000, refill: 1000, everyMs: 1000 });
    const { limiter, calls } = counted(Limiter.create(policy, { clock }));
    await limiter.acquire(1000);
    const { during, end } = flow(form, limiter, clock, 1);
    await during(1);
    for (let i = 0; i < 20; i++) {
      void limiter.acquire(20);
      await limiter.charge(200);
      await during(1);
    }
    const { tryAcquire = 0 } = calls;
    assert.ok(tryAcquire <= 3, `${tryAcquire} orders`);
    assert.ok((await during(6000)).passed > 0);
    await end();
  });

  test.run();
}

const all = suite("streams at another rate, the samples");

all("every registered algorithm has a sample", () => {
  const sampled = new Set(samples.map(({ at }) => at(1000).algorithm));
  assert.equal(
    algorithms.filter((algorithm) => !sampled.has(algorithm)).map(({ name }) => name),
    [],
  );
});

all.run();
