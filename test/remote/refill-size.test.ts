import * as assert from "uvu/assert";
import { readPolicies, writePolicies } from "../../src/algorithms/index.ts";
import {
  fixedWindow,
  gcra,
  type Policy,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { RefillSize } from "../../src/remote/refill-size.ts";
import { openPolicyState } from "../../src/stores/state/several.ts";
import { suite } from "../support/suite.ts";

const bursty = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond });

const inForce = (numbers: string) => {
  const list = readPolicies(numbers);
  return openPolicyState({ names: list.map((_, i) => `${i}`), list }, 0, 0);
};

const RATE = inForce("s1000");

const test = suite("the size of a refill");

test("a chunk is what the policies release in a millisecond, and never more than they can grant", () => {
  const rows: [policies: Policy[], permits: number, chunk: number][] = [
    [[bursty(0.1)], 100, 1],
    [[bursty(999)], 100, 1],
    [[bursty(5000)], 100, 5],
    [[bursty(1e6)], 100_000, 1000],
    [[bursty(Infinity)], 1000, 500],
    [[smoothWarmingUp({ permitsPerSecond: 20_000, warmupMs: 50 })], 1000, 20],
    [[bursty(50_000), bursty(5000)], 1000, 5],
    [[fixedWindow({ limit: 6000, windowMs: 1000 })], 1000, 6],
    // a burst of one: nothing larger is ever granted
    [[gcra({ limit: 100_000, periodMs: 1000, burst: 0 })], 1000, 1],
    [[tokenBucket({ capacity: 30, refill: 100_000, everyMs: 1000 })], 1000, 25],
    // at most half a refill, and at least one
    [[bursty(1e6)], 10, 5],
    [[bursty(1e6)], 3, 1],
    [[bursty(1e6)], 1, 1],
    [[bursty(1e6)], 0.25, 0.25],
  ];
  for (const [policies, permits, chunk] of rows) {
    assert.equal(new RefillSize(permits).of(inForce(writePolicies(policies))), { permits, chunk });
  }
});

test("a refill has at most 1024 chunks, at the rate in force", () => {
  const size = new RefillSize(1e9);
  assert.equal(size.of(inForce("s10")), { permits: 1024, chunk: 1 });
  assert.equal(size.of(inForce("s100000")), { permits: 102_400, chunk: 100 });
});

test("auto: the size grows while refills are used soon, and halves while they lie unused", () => {
  const size = new RefillSize("auto");
  const after = (...micros: number[]) => micros.map((each) => grow(size, each));
  assert.equal(after(0, 25_000, 100_000), [0, 0, 0]);
  assert.equal(after(24_999, 1, 1, 1), [1, 4, 16, 64]);
  assert.equal(after(25_000, 60_000, 100_000), [64, 64, 64]);
  assert.equal(after(100_001, 1e9, 1e9, 1e9), [32, 16, 8, 4]);
});

test("auto: the time before a refill can be used does not count", () => {
  const size = new RefillSize("auto");
  assert.equal([grow(size, 0), grow(size, 1)], [0, 1]);
  assert.is(grow(size, 500_000, 20_000), 4);
  assert.is(grow(size, 500_000, -20_000), 16);
  assert.is(grow(size, 500_000, 150_000), 8);
});

test("auto: at most what the policies let through in 100 ms, at least 1", () => {
  const rows: [policies: Policy[], most: number][] = [
    [[bursty(1000)], 100],
    [[bursty(5000), bursty(200)], 20],
    [[bursty(0.1)], 1],
    [[bursty(1e9)], 1e8],
    [[gcra({ limit: 100, periodMs: 1000, burst: 0 })], 10],
    [[fixedWindow({ limit: 6000, windowMs: 60_000 })], 10],
  ];
  for (const [policies, most] of rows) {
    const size = new RefillSize("auto");
    const state = inForce(writePolicies(policies));
    for (let i = 0; i < 40; i++) {
      assert.ok(size.fits(most, state));
      size.adapt(0, 0);
    }
    assert.is(size.of(state).permits, most);
    assert.not.ok(size.fits(most + 1, state));
  }
});

test("auto: the size shrinks by the permits that came back unused", () => {
  const size = new RefillSize("auto");
  for (let i = 0; i < 5; i++) grow(size, 1);
  assert.is(size.of(RATE).permits, 64);
  size.shrink(32);
  assert.is(size.of(RATE).permits, 16);
  size.shrink(16);
  assert.is(size.of(RATE).permits, 0);
});

test("a fixed number stays what it is", () => {
  const size = new RefillSize(10);
  for (const each of [0, 1, 1e9]) grow(size, each);
  size.shrink(10);
  assert.is(size.of(RATE).permits, 10);
  const fits = [10, 10.5, Infinity].map((permits) => size.fits(permits, RATE));
  assert.equal(fits, [true, false, false]);
});

const clocks = new WeakMap<RefillSize, number>();

/** The size after a refill that is requested this much later than the one before, and lay unused for so long. */
function grow(size: RefillSize, micros: number, unused = Infinity): number {
  const now = (clocks.get(size) ?? 0) + micros;
  clocks.set(size, now);
  size.adapt(now, now - unused);
  return size.of(RATE).permits;
}

test.run();
