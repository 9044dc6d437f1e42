import * as assert from "uvu/assert";
import { type LocalLimiter, RateLimiter, smoothBursty } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { suite } from "../support/suite.ts";

/**
 * How long each of these requests waits if it is made as soon as the one before was granted, ms.
 */
async function waits(clock: FakeClock, limiter: LocalLimiter, ...permits: number[]) {
  const waited: number[] = [];
  for (const n of permits) {
    const { waitMs } = limiter.reserve(n);
    await clock.advance(waitMs);
    waited.push(waitMs);
  }
  return waited;
}

const creating = suite("RateLimiter, creating");

creating("without a warm-up it is bursty, with one it warms up", () => {
  const clock = new FakeClock();
  const wait = (limiter: RateLimiter) => {
    limiter.tryAcquire();
    return limiter.peek().waitMs;
  };
  assert.is(wait(RateLimiter.create(5, { clock })), 200);
  assert.is(wait(RateLimiter.create(5, { clock, warmupMs: 0 })), 200);
  assert.is(wait(RateLimiter.create(5, { clock, warmupMs: 1000 })), 520);
  assert.is(wait(RateLimiter.create(5, { clock, warmupMs: 1000, coldFactor: 1 })), 200);
  assert.is(wait(RateLimiter.create(5, 1000)) > 500, true);
  assert.is(wait(RateLimiter.create(5, 0)) <= 200, true);
  assert.is(wait(RateLimiter.create(5)) <= 200, true);
});

creating("burstSeconds and prefilled determine what is stored", async () => {
  for (const [options, first, later] of [
    [{}, 1, 6],
    [{ prefilled: true }, 6, 6],
    [{ burstSeconds: 0 }, 1, 1],
    [{ burstSeconds: 0, prefilled: true }, 1, 1],
    [{ burstSeconds: 2.5, prefilled: true }, 13, 13],
  ] as const) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(5, { ...options, clock });
    const burst = () => {
      let granted = 0;
      while (limiter.tryAcquire()) granted += 1;
      return granted;
    };
    const atFirst = burst();
    await clock.advance(60_000);
    assert.equal([atFirst, burst()], [first, later], JSON.stringify(options));
  }
});

creating("an option that is undefined counts as absent", () => {
  const clock = new FakeClock();
  const options = { warmupMs: undefined, coldFactor: undefined, burstSeconds: undefined };
  const rest = { prefilled: undefined, maxWaiting: undefined, name: undefined };
  assert.equal(
    RateLimiter.create(5, { ...options, ...rest, clock }).peek(),
    RateLimiter.create(5, { clock }).peek(),
  );
});

creating("an error message names the bad argument, its bound and the value it got", () => {
  const cases: [args: unknown[], words: RegExp, type: typeof RangeError | typeof TypeError][] = [
    [[0], /permitsPerSecond.*above 0.*got 0/, RangeError],
    [[-0], /permitsPerSecond.*got -0/, RangeError],
    [[-1], /permitsPerSecond.*got -1/, RangeError],
    [[Number.NaN], /permitsPerSecond.*got NaN/, RangeError],
    [["5"], /permitsPerSecond.*got "5"/, TypeError],
    [[undefined], /permitsPerSecond.*got undefined/, TypeError],
    [[5, -1], /warmupMs.*got -1/, RangeError],
    [[5, Infinity], /warmupMs.*got Infinity/, RangeError],
    [[5, "1000"], /options.*got "1000"/, TypeError],
    [[5, null], /options.*got null/, TypeError],
    [[5, []], /options.*got an array/, TypeError],
    [[5, 1, "SECONDS"], /unit must be left out: the warm-up is in ms, got "SECONDS"/, TypeError],
    [[5, { windowMs: 1000 }], /options has no "windowMs": use fixedWindow; expected/, TypeError],
    [[5, { toString: 1 }], /options has no "toString"; expected/, TypeError],
    [[5, { warmupMs: "1" }], /warmupMs.*got "1"/, TypeError],
    [[5, { warmup: 1000 }], /"warmup".*warmupMs/, TypeError],
    [[5, { warmupMs: 1000, coldFactor: 0.5 }], /coldFactor.*1 or more.*got 0\.5/, RangeError],
    [[5, { burstSeconds: -1 }], /burstSeconds.*got -1/, RangeError],
    [[5, { prefilled: 1 }], /prefilled.*got 1/, TypeError],
    [[5, { maxWaiting: Number.NaN }], /maxWaiting.*got NaN/, RangeError],
    [[5, { clock: { now: () => 1 } }], /clock.*wakeAt/, TypeError],
    [[5, { clock: { now: () => Number.NaN, wakeAt() {} } }], /clock\.now.*got NaN/, TypeError],
    [[5, { name: 7 }], /name.*got 7/, TypeError],
  ];
  for (const [args, words, type] of cases) {
    const create = RateLimiter.create as (...args: unknown[]) => unknown;
    assert.throws(
      () => create(...args),
      (error: unknown) => error instanceof type && words.test(error.message),
      String(words),
    );
  }
});

creating("bad numbers are refused even where they would have no effect", () => {
  for (const [options, words] of [
    [{ warmupMs: 1000, burstSeconds: -1 }, /burstSeconds/],
    [{ coldFactor: 0 }, /coldFactor/],
    [{ warmupMs: 1000, prefilled: "yes" }, /prefilled/],
  ] as const) {
    assert.throws(() => RateLimiter.create(5, options as never), words);
  }
});

creating.run();

const pace = suite("RateLimiter, rate");

pace("getRate returns exactly the number that was set", () => {
  const limiter = RateLimiter.create(0.1 + 0.2, { clock: new FakeClock() });
  assert.is(limiter.getRate(), 0.1 + 0.2);
  for (const rate of [1 / 3, 1e-9, 123_456_789.123, Infinity, Number.MIN_VALUE, 7]) {
    limiter.setRate(rate);
    assert.is(limiter.getRate(), rate);
  }
});

pace("an invalid rate is refused, and the rate stays", () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(5, { clock });
  limiter.tryAcquire();
  for (const bad of [0, -0, -5, Number.NaN, -Infinity, "5", null, undefined]) {
    assert.throws(() => limiter.setRate(bad as number), /permitsPerSecond/);
  }
  assert.equal([limiter.getRate(), limiter.peek().waitMs], [5, 200]);
});

pace("update sets the rate too, and getRate returns it", () => {
  const limiter = RateLimiter.create(5, { clock: new FakeClock() });
  limiter.update(smoothBursty({ permitsPerSecond: 20 }));
  assert.is(limiter.getRate(), 20);
  assert.throws(() => limiter.update({ other: smoothBursty({ permitsPerSecond: 1 }) }), /other/);
  assert.is(limiter.getRate(), 20);
});

pace("setRate: stored permits keep their share, bursty and warming up", async () => {
  for (const [options, expected] of [
    [{}, [0, 0, 0, 0, 0, 0, 100]],
    [{ warmupMs: 1000 }, [0, 0, 0, 0, 0, 0, 0]],
  ] as const) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(5, { ...options, clock });
    await clock.advance(500);
    limiter.setRate(10);
    const actual = expected.map(() => limiter.reserve().waitMs);
    if ("warmupMs" in options)
      assert.ok(actual.every((waitMs, i) => waitMs >= (actual[i - 1] ?? 0)));
    else assert.equal(actual, expected);
  }
});

pace("update to another burst: the store keeps its share of the new capacity", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock });
  await clock.advance(500);
  limiter.update(smoothBursty({ permitsPerSecond: 10, burstSeconds: 2 }));
  assert.is(limiter.peek().remaining, 11);
  limiter.update(smoothBursty({ permitsPerSecond: 10, burstSeconds: 0.5 }));
  assert.is(limiter.peek().remaining, 3);
  await clock.advance(1000);
  assert.is(limiter.peek().remaining, 6);
});

pace("setRate: a deficit stays at the old rate, later permits cost the new rate", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(5, { clock, burstSeconds: 0 });
  limiter.charge(5);
  limiter.setRate(1);
  assert.equal(await waits(clock, limiter, 1, 1), [1000, 1000]);
  limiter.setRate(100);
  assert.equal(await waits(clock, limiter, 1, 1), [1000, 10]);
});

pace.run();
