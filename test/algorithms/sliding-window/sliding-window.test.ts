import * as assert from "uvu/assert";
import {
  slidingWindowAlgorithm as algorithm,
  type SlidingWindowPolicy,
  type SlidingWindowState,
  slidingWindow,
} from "../../../src/algorithms/sliding-window/sliding-window.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { begin, play, type Row, SECOND } from "../../support/algorithms/play.ts";
import { instants, watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

function sliding(limit: number, seconds: number, buckets = 10): SlidingWindowPolicy {
  return algorithm.policy([limit, seconds * 1000, buckets]);
}

function started(policy: SlidingWindowPolicy, now = 0, unix = 0): SlidingWindowState {
  return begin(policy, now, unix) as SlidingWindowState;
}

const tables = suite("sliding window: waits");

const rows: Record<string, readonly [SlidingWindowPolicy, ...Row[]]> = {
  "10 in 10 s, in buckets of 1 s: old ones expire one by one": [
    sliding(10, 10),
    ...([
      [0.9, 6, 0],
      [3.2, 4, 0],
      [3.2, 1, 6.8],
      [10, 5, 0],
      [10, 1, 3],
      [13, 3, 0],
    ] as Row[]),
  ],
  "a bucket includes its start, not its end": [
    sliding(2, 10),
    ...([
      [0.999_999, 1, 0],
      [1, 1, 0],
      [9.999_999, 1, 0.000_001],
      [10, 1, 1],
    ] as Row[]),
  ],
  "no burst around an edge": [
    sliding(5, 1),
    ...([
      [0.999_999, 5, 0],
      [1, 5, 0.9],
      [1.9, 1, 1],
    ] as Row[]),
  ],
  "first in, first out: no request overtakes an earlier, larger one": [
    sliding(3, 10),
    ...([
      [0, 2, 0],
      [0, 2, 10],
      [0, 1, 10],
      [5, 1, 15],
    ] as Row[]),
  ],
  "a request above the limit is never granted": [
    sliding(3, 10),
    ...([
      [0, 3.000_001, Infinity],
      [0, 3, 0],
      [5, 4, Infinity],
    ] as Row[]),
  ],
  "a sliding window of one bucket is a fixed window": [
    sliding(2, 3, 1),
    ...([
      [1, 2, 0],
      [1, 1, 2],
      [3, 1, 0],
      [5, 1, 1],
    ] as Row[]),
  ],
  "buckets are whole microseconds, at least one": [
    sliding(1, 0.000_001),
    ...([
      [0, 1, 0],
      [0, 1, 0.000_01],
    ] as Row[]),
  ],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  tables(name, () => void play(policy, table));
}

tables("the grid is that of the calendar, wherever the time scale begins", () => {
  for (const unix of [0, 7 * SECOND, 1_700_000_000_123_456]) {
    const policy = sliding(1, 10);
    const state = started(policy, 1234, unix);
    assert.is((state.start + unix) % SECOND, 0);
    algorithm.take(policy, state, 1234, 1);
    assert.is(algorithm.earliest(policy, state, 1234, 1), state.start + 10 * SECOND);
  }
});

tables.run();

const debts = suite("sliding window: debts and give-backs");

debts("a charge goes where there is room; a charge beyond the limit goes to later windows", () => {
  const policy = sliding(2, 10);
  const state = started(policy);
  algorithm.take(policy, state, 0, 1);
  algorithm.take(policy, state, 0, 2);
  assert.is(state.start, 10 * SECOND);
  algorithm.take(policy, state, 0, 5);
  assert.is(state.start, 40 * SECOND);
  play(
    policy,
    [
      [0, 1, 50],
      [0, 1, 50],
      [0, 1, 60],
    ],
    state,
  );
});

debts("the smallest part of a permit counts from now on", () => {
  const policy = sliding(2, 10);
  assert.is(algorithm.take(policy, started(policy), 20 * SECOND, 5e-324), 30 * SECOND);
});

debts("a receipt finds its bucket as long as that is counted", () => {
  const policy = sliding(3, 10);
  const state = started(policy);
  const receipt = algorithm.take(policy, state, 0.5 * SECOND, 2);
  assert.is(receipt, 10 * SECOND);
  algorithm.take(policy, state, 2 * SECOND, 1);
  algorithm.giveBack(policy, state, 2 * SECOND, 1, receipt);
  assert.equal(state.counts.slice(0, 4), [1, 0, 1, 0]);
  algorithm.giveBack(policy, state, 2 * SECOND, 9, receipt);
  assert.equal(state.counts.slice(0, 4), [1, 0, 0, 0]);
  algorithm.take(policy, state, 10 * SECOND, 1);
  const before = algorithm.copy(state);
  for (const stranger of [receipt, receipt - 1, receipt + 1, 99 * SECOND]) {
    algorithm.giveBack(policy, state, 10 * SECOND, 1, stranger);
  }
  assert.equal(state, before);
});

debts("without a receipt: the newest first, never more than there are", () => {
  const policy = sliding(6, 10);
  const state = started(policy);
  for (const [at, n] of [
    [0, 1],
    [1, 2],
    [3, 3],
  ] as const) {
    algorithm.take(policy, state, at * SECOND, n);
  }
  algorithm.giveBack(policy, state, 3 * SECOND, 4);
  assert.equal(state.counts.slice(0, 4), [0, 0, 1, 1]);
  algorithm.giveBack(policy, state, 3 * SECOND, 4);
  assert.equal(algorithm.quota(policy, state, 3 * SECOND).remaining, 6);
});

debts("a promised slot that is given back moves no request up before it", () => {
  const policy = sliding(1, 10);
  const state = started(policy);
  algorithm.take(policy, state, 0, 1);
  const receipt = algorithm.take(policy, state, 10 * SECOND, 1);
  algorithm.giveBack(policy, state, 0, 1, receipt);
  assert.is(algorithm.earliest(policy, state, 0, 1), 10 * SECOND);
  assert.is(algorithm.quota(policy, state, 0).remaining, 0);
  assert.is(algorithm.lifetime(policy, state, 0), 10 * SECOND);
});

debts("the deficit counts down until the last bucket has expired", () => {
  const policy = sliding(2, 10);
  const state = started(policy);
  const reset = (at: number) => algorithm.quota(policy, state, at * SECOND).resetMs;
  assert.is(reset(0), 0);
  algorithm.take(policy, state, 4.5 * SECOND, 1);
  assert.equal([4.5, 13, 13.999_999, 14, 50].map(reset), [9500, 1000, 0.001, 0, 0]);
});

debts("for any request, every answer is a number, and a promised instant is kept", () => {
  const sizes = [5e-324, 1e-300, 1e-3, 1, 1e15, 1e300, Number.MAX_VALUE];
  for (const limit of sizes) {
    for (const windowMs of [1e-9, 1, 1e12]) {
      for (const charge of sizes) {
        const policy = algorithm.policy([limit, windowMs, 3]);
        const state = started(policy);
        algorithm.take(policy, state, 0, charge);
        algorithm.take(policy, state, 1e300, charge);
        const other = sliding(1, 1, 7);
        algorithm.resize(other, state, 5, policy);
        algorithm.resize(policy, state, 5, other);
        for (const from of [0, 1e6, 1e300]) {
          const at = algorithm.earliest(policy, state, from, limit);
          assert.ok(at >= from && at < Infinity, `${at}`);
          assert.is(algorithm.earliest(policy, state, at, limit), at);
        }
        const { remaining, resetMs } = algorithm.quota(policy, state, 0);
        assert.ok(remaining >= 0 && resetMs >= 0 && resetMs < Infinity);
        assert.ok(state.counts.length === 3 && !state.counts.some(Number.isNaN));
      }
    }
  }
});

debts.run();

const resizing = suite("sliding window: other numbers");

/** Counts of 1, 2, 3 … from the newest bucket, which begins at that second. */
function resized(
  after: SlidingWindowPolicy,
  start: number,
  at: number,
  before: SlidingWindowPolicy,
) {
  const counts = Array.from({ length: before.buckets }, (_, i) => i + 1);
  const state = { start: start * SECOND, counts };
  algorithm.resize(after, state, at * SECOND, before);
  algorithm.align?.(after, state, 0);
  return [state.start / SECOND, ...state.counts];
}

resizing("update, same width: the buckets stay, a shorter window keeps them in newer ones", () => {
  assert.equal(resized(sliding(9, 3, 3), 5, 5, sliding(5, 3, 3)), [5, 1, 2, 3]);
  assert.equal(resized(sliding(5, 5, 5), 5, 5, sliding(5, 3, 3)), [5, 1, 2, 3, 0, 0]);
  assert.equal(resized(sliding(5, 2, 2), 5, 5, sliding(5, 3, 3)), [5, 3, 3]);
  assert.equal(resized(sliding(5, 3, 3), 5, 7, sliding(5, 3, 3)), [7, 0, 0, 1]);
});

resizing("update, another width: permits expire no sooner, and no later than if taken now", () => {
  assert.equal(resized(sliding(5, 6, 3), 5, 6, sliding(5, 3, 3)), [6, 3, 0, 0]);
  assert.equal(resized(sliding(5, 1.5, 3), 5, 5.25, sliding(5, 3, 3)), [5, 6, 0, 0]);
});

resizing("a state in the future is never moved to an earlier instant", () => {
  assert.equal(resized(sliding(5, 6, 3), 9, 1, sliding(5, 3, 3)), [10, 1, 5, 0]);
});

resizing(
  "update, another width: at most one bucket of the new width later, to the microsecond",
  () => {
    const [before, after] = [sliding(5, 1), sliding(5, 0.5)];
    const oldest = { start: 0, counts: [0, 0, 0, 0, 0, 0, 0, 0, 0, 1] };
    assert.is(algorithm.lifetime(before, oldest, 0), 100_000);
    algorithm.resize(after, oldest, 0, before);
    assert.is(algorithm.lifetime(after, oldest, 0), 150_000);
    const promised = { start: SECOND, counts: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
    algorithm.resize(after, promised, 0, before);
    assert.is(promised.start, SECOND + 49_999);
  },
);

resizing.run();

const making = suite("slidingWindow");

making("equal policies are declared by equal numbers", () => {
  assert.equal(sliding(5, 60).numbers, [5, 60_000]);
  assert.equal(slidingWindow({ limit: 5, windowMs: 60_000 }), sliding(5, 60));
  assert.equal(sliding(5, 60, 7).numbers, [5, 60_000, 7]);
  assert.equal(algorithm.policy([5, 60_000, 7]), sliding(5, 60, 7));
  assert.equal(algorithm.policy([]), sliding(1, 1));
});

making("the window has exactly the requested length", () => {
  const windows = [0.01, 0.3, 1.1, 2.3, 1000, 60_000, 86_400_000, 1e12].map((ms) => [ms, 10]);
  for (const [windowMs = 1, buckets = 1] of [...windows, [1, 1], [1000, 8000], [1, 1000], [7, 7]]) {
    const { window } = slidingWindow({ limit: 1, windowMs, buckets });
    assert.is(window, Math.round(windowMs * 1000), `${windowMs} ms in ${buckets}`);
  }
});

making("bad arguments are refused, and the error names them", () => {
  const good = { limit: 5, windowMs: 1000 };
  const bad: [unknown, RegExp][] = [
    [null, /slidingWindow/],
    [{ ...good, align: "first" }, /"align".*buckets/],
    [{ ...good, limit: -1 }, /limit.*above 0.*got -1/],
    [{ ...good, windowMs: 0 }, /windowMs.*above 0.*got 0/],
    [{ ...good, buckets: 0 }, /buckets.*1 to 10000.*got 0/],
    [{ ...good, buckets: 1.5 }, /buckets.*whole.*1\.5/],
    [{ ...good, buckets: 10_001 }, /buckets.*1 to 10000.*got 10001/],
    [{ ...good, buckets: null }, /buckets.*null/],
    [{ ...good, buckets: 3 }, /windowMs 1000 and buckets 3: 333333\.33.* take 2 or 4 buckets$/],
    [{ ...good, buckets: 9999 }, /take 8000 or 10000 buckets$/],
    [{ limit: 5, windowMs: 1, buckets: 10_000 }, /buckets 10000: 0\.1 µs each; take 1000 buckets$/],
    [{ ...good, windowMs: 1000 / 3 }, /whole microseconds.*333\.33.*take 333\.333$/],
    [{ ...good, windowMs: 1e-9 }, /whole microseconds.*take 0\.001$/],
  ];
  for (const [numbers, words] of bad) {
    assert.throws(() => slidingWindow(numbers as never), words, String(words));
  }
});

making.run();

const limiting = suite("sliding window: limiters");

limiting("several rules at once: all policies are charged, or none", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create({ second: sliding(2, 1), minute: sliding(3, 60) }, { clock });
  assert.equal([limiter.tryAcquire(2), limiter.tryAcquire()], [true, false]);
  await clock.advance(1000);
  assert.is(limiter.tryAcquire(2), false);
  assert.is(limiter.peek().policies.second?.remaining, 2);
  assert.is(limiter.tryAcquire(), true);
  assert.equal([limiter.peek().policy, limiter.peek().waitMs], ["minute", 59_000]);
});

limiting("waiters are released as buckets expire, in order, no more than fit", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(sliding(3, 10), { clock });
  assert.is(limiter.tryAcquire(1), true);
  await clock.advance(4000);
  assert.is(limiter.tryAcquire(2), true);
  const waiting = [1, 1, 1, 2].map((n) => watch(clock, limiter.acquire(n)));
  await clock.advance(60_000);
  assert.equal(instants(waiting), [10_000, 14_000, 14_000, 24_000]);
});

limiting("a request above the limit is refused at once", () => {
  const limiter = Limiter.create(sliding(3, 1), { clock: new FakeClock() });
  assert.throws(
    () => limiter.tryAcquire(4),
    (error: unknown) => {
      return error instanceof PermitsExceedCapacityError;
    },
  );
});

limiting(
  "the error names bucket counts that fit; only a smaller one where no larger one fits",
  () => {
    const make = (windowMs: number, buckets: number) => () =>
      slidingWindow({ limit: 1, windowMs, buckets });
    assert.throws(make(1000, 3), /take 2 or 4 buckets/);
    // a prime number of microseconds
    assert.throws(make(1000.003, 2), /take 1 buckets/);
  },
);

limiting.run();
