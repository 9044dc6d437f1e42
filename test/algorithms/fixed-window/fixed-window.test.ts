import * as assert from "uvu/assert";
import {
  fixedWindowAlgorithm as algorithm,
  type FixedWindowPolicy,
  type FixedWindowState,
  fixedWindow,
} from "../../../src/algorithms/fixed-window/fixed-window.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { begin, play, type Row, SECOND } from "../../support/algorithms/play.ts";
import { instants, watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

function epoch(limit: number, seconds: number): FixedWindowPolicy {
  return fixedWindow({ limit, windowMs: seconds * 1000 });
}

function first(limit: number, seconds: number): FixedWindowPolicy {
  return fixedWindow({ limit, windowMs: seconds * 1000, align: "first" });
}

function started(policy: FixedWindowPolicy, now = 0, unix = 0): FixedWindowState {
  return begin(policy, now, unix) as FixedWindowState;
}

const tables = suite("fixed window: waits");

const rows: Record<string, readonly [FixedWindowPolicy, ...Row[]]> = {
  "2 in 3 s: a new window begins on the grid": [
    epoch(2, 3),
    ...([
      [0, 1, 0],
      [0, 1, 0],
      [0, 1, 3],
      [3, 1, 0],
      [5, 1, 1],
    ] as Row[]),
  ],
  "a window includes its start, not its end": [
    epoch(2, 3),
    ...([
      [2.999_999, 2, 0],
      [2.999_999, 1, 0.000_001],
      [3, 1, 0],
      [3.000_001, 1, 2.999_999],
    ] as Row[]),
  ],
  "twice the limit around an edge": [
    epoch(5, 1),
    ...([
      [0.999_999, 5, 0],
      [1, 5, 0],
      [1, 1, 1],
    ] as Row[]),
  ],
  "first: a window opens with the first request": [
    first(2, 3),
    ...([
      [1, 1, 0],
      [2, 1, 0],
      [3, 1, 1],
      [4, 1, 0],
      [5, 1, 2],
      [10.5, 2, 0],
      [11, 1, 2.5],
    ] as Row[]),
  ],
  "first: a window includes its start, not its end": [
    first(1, 3),
    ...([
      [1, 1, 0],
      [3.999_999, 1, 0.000_001],
      [4, 1, 3],
    ] as Row[]),
  ],
  "first in, first out: no request overtakes an earlier, larger one": [
    epoch(3, 10),
    ...([
      [0, 2, 0],
      [0, 2, 10],
      [0, 1, 10],
      [0, 1, 20],
      [5, 1, 15],
    ] as Row[]),
  ],
  "a request above the limit is never granted": [
    epoch(3, 10),
    ...([
      [0, 3.000_001, Infinity],
      [0, 3, 0],
      [5, 4, Infinity],
    ] as Row[]),
  ],
  "fractions of permits": [
    epoch(1, 1),
    ...([
      [0, 0.25, 0],
      [0, 0.5, 0],
      [0, 0.5, 1],
      [1, 0.5, 0],
      [1, 0.001, 1],
    ] as Row[]),
  ],
  "a window of fractions of a millisecond": [
    epoch(1, 0.0005),
    ...([
      [0, 1, 0],
      [0, 1, 0.0005],
      [0.0005, 1, 0.0005],
    ] as Row[]),
  ],
  "the shortest window is a microsecond": [
    epoch(1, 1e-9),
    ...([
      [0, 1, 0],
      [0, 1, 0.000_001],
      [0.000_002, 1, 0],
    ] as Row[]),
  ],
};

for (const [name, [policy, ...table]] of Object.entries(rows)) {
  tables(name, () => void play(policy, table));
}

tables("the grid is that of the calendar, wherever the time scale begins", () => {
  for (const unix of [0, 7 * SECOND, 1_700_000_000_123_456]) {
    const policy = epoch(1, 10);
    const state = started(policy, 1234, unix);
    assert.is((state.start + unix) % (10 * SECOND), 0);
    assert.ok(state.start <= 1234 && 1234 < state.start + 10 * SECOND);
    algorithm.take(policy, state, 1234, 1);
    assert.is(algorithm.earliest(policy, state, 1234, 1), state.start + 10 * SECOND);
  }
});

tables.run();

const debts = suite("fixed window: debts and give-backs");

debts("each window pays back its limit", () => {
  for (const policy of [epoch(2, 10), first(2, 10)]) {
    const state = started(policy);
    algorithm.take(policy, state, 0, 5);
    const waits = [1, 2].map((n) => algorithm.earliest(policy, state, 0, n) / SECOND);
    assert.equal(waits, [20, 30]);
    // without a gap, although no request came
    play(
      policy,
      [
        [25, 2, 5],
        [25, 1, 15],
      ],
      state,
    );
  }
});

debts("a request waits for no more windows than the debt takes", () => {
  const policy = epoch(3, 10);
  const state = started(policy);
  algorithm.take(policy, state, 0, 5);
  assert.is(algorithm.earliest(policy, state, 0, 1), 10 * SECOND);
  assert.is(algorithm.earliest(policy, state, 0, 2), 20 * SECOND);
});

debts("quotients that are off by one are corrected", () => {
  const cases: [limit: number, used: number, permits: number, windows: number][] = [];
  for (const limit of [0.1, 0.3, 0.7, 1.1, 3.3, 1e-3]) {
    for (let k = 1; k < 60; k++)
      cases.push([limit, limit * k, limit / 3, k], [limit, k * 0.1, limit, k]);
  }
  for (const [limit, used, permits] of cases) {
    const policy = epoch(limit, 1);
    const state = { start: 0, used };
    const at = algorithm.earliest(policy, state, 0, permits);
    assert.is(algorithm.earliest(policy, state, at, permits), at, `${limit} ${used} ${permits}`);
    if (at > 0) assert.is(algorithm.earliest(policy, state, at - 1, permits), at);
    const fresh = algorithm.lifetime(policy, state, 0);
    assert.is(algorithm.quota(policy, state, fresh).remaining, limit);
    algorithm.take(policy, state, fresh, limit);
    assert.is(state.used, limit);
  }
});

debts("a receipt is the end of its window, and never 0", () => {
  const policy = epoch(2, 10);
  const state = started(policy);
  assert.is(algorithm.take(policy, state, 9 * SECOND, 1), 10 * SECOND);
  assert.is(algorithm.take(policy, state, 10 * SECOND, 1), 20 * SECOND);
});

debts("first: an instant with a fraction opens a window at the next whole one", () => {
  const policy = first(1, 1);
  assert.is(algorithm.take(policy, started(policy), 0.25, 1), SECOND + 1);
});

debts("permits of the latest window can be given back, those of an earlier one are lost", () => {
  const policy = epoch(2, 10);
  const state = started(policy);
  const old = algorithm.take(policy, state, 0, 2);
  algorithm.giveBack(policy, state, 0, 1, old);
  assert.is(algorithm.quota(policy, state, 0).remaining, 1);
  algorithm.take(policy, state, 0, 1);
  const promised = algorithm.take(policy, state, 10 * SECOND, 2);
  algorithm.giveBack(policy, state, 0, 1, old);
  assert.equal(state, { start: 10 * SECOND, used: 2 });
  algorithm.giveBack(policy, state, 0, 2, promised);
  assert.equal(state, { start: 10 * SECOND, used: 0 });
  // no later request moves up before it
  assert.is(algorithm.earliest(policy, state, 0, 1), 10 * SECOND);
  assert.is(algorithm.quota(policy, state, 0).remaining, 0);
  assert.is(algorithm.lifetime(policy, state, 0), 10 * SECOND);
});

debts("without a receipt: takes back from recent windows, never more than was used", () => {
  const policy = epoch(2, 10);
  const state = started(policy);
  algorithm.take(policy, state, 0, 5);
  algorithm.giveBack(policy, state, 0, 4);
  assert.is(algorithm.quota(policy, state, 0).remaining, 1);
  algorithm.giveBack(policy, state, 0, 4);
  assert.is(algorithm.quota(policy, state, 0).remaining, 2);
});

debts("the deficit counts down to 0", () => {
  const policy = epoch(2, 10);
  const state = started(policy);
  const reset = (at: number) => algorithm.quota(policy, state, at * SECOND).resetMs;
  assert.is(reset(0), 0);
  algorithm.take(policy, state, 4 * SECOND, 1);
  assert.equal([4, 9.999_999, 10, 50].map(reset), [6000, 0.001, 0, 0]);
  algorithm.take(policy, state, 4 * SECOND, 4);
  assert.equal([4, 20, 30].map(reset), [26_000, 10_000, 0]);
});

debts("for any request, every answer is a number, and a promised instant is kept", () => {
  const sizes = [5e-324, 1e-300, 1e-3, 1, 1e15, 1e300, Number.MAX_VALUE];
  for (const limit of sizes) {
    for (const windowMs of [1e-9, 1, 1e12]) {
      for (const charge of sizes) {
        for (const align of ["epoch", "first"] as const) {
          const policy = fixedWindow({ limit, windowMs, align });
          const state = started(policy);
          algorithm.take(policy, state, 0, charge);
          algorithm.take(policy, state, 1e300, charge);
          for (const from of [0, 1e6, 1e300]) {
            const at = algorithm.earliest(policy, state, from, limit);
            assert.ok(at >= from && at < Infinity, `${at}`);
            assert.is(algorithm.earliest(policy, state, at, limit), at);
          }
          const { remaining, resetMs } = algorithm.quota(policy, state, 0);
          assert.ok(remaining >= 0 && resetMs >= 0 && resetMs < Infinity);
        }
      }
    }
  }
});

debts.run();

const resizing = suite("fixed window: other numbers");

function resized(
  after: FixedWindowPolicy,
  state: FixedWindowState,
  at: number,
  before: FixedWindowPolicy,
) {
  algorithm.resize(after, state, at * SECOND, before);
  algorithm.align?.(after, state, 0);
  return { start: state.start / SECOND, used: state.used };
}

resizing("used permits stay used until the current window has ended", () => {
  const used = (start: number) => ({ start: start * SECOND, used: 2 });
  assert.equal(resized(epoch(9, 10), used(0), 4, epoch(2, 10)), { start: 0, used: 2 });
  assert.equal(resized(epoch(2, 3), used(0), 4, epoch(2, 10)), { start: 3, used: 2 });
  assert.equal(resized(epoch(2, 60), used(0), 4, epoch(2, 10)), { start: 0, used: 2 });
  assert.equal(resized(epoch(2, 3), used(0), 14, epoch(2, 10)), { start: 12, used: 0 });
});

resizing("a state in the future is never moved to an earlier instant", () => {
  const used = (start: number) => ({ start: start * SECOND, used: 2 });
  assert.equal(resized(epoch(2, 10), used(20), 4, epoch(2, 10)), { start: 20, used: 2 });
  assert.equal(resized(epoch(2, 7), used(20), 4, epoch(2, 10)), { start: 21, used: 2 });
  assert.equal(resized(epoch(2, 5), used(20), 4, epoch(2, 10)), { start: 20, used: 2 });
});

resizing("first: a longer window ends later, a shorter one has not ended yet", () => {
  const used = () => ({ start: SECOND, used: 2 });
  assert.equal(resized(first(9, 10), used(), 4, first(2, 10)), { start: 1, used: 2 });
  assert.equal(resized(first(2, 60), used(), 4, first(2, 10)), { start: 1, used: 2 });
  assert.equal(resized(first(2, 3), used(), 4.5, first(2, 10)), { start: 4.5, used: 2 });
  assert.equal(resized(first(2, 3), used(), 9.5, first(2, 10)), { start: 8, used: 2 });
  assert.equal(resized(first(2, 10), used(), 4, epoch(2, 10)), { start: 4, used: 2 });
  assert.equal(resized(epoch(2, 10), used(), 4, first(2, 10)), { start: 0, used: 2 });
});

resizing("a lower limit: the surplus becomes a debt", () => {
  const state = started(epoch(10, 1));
  algorithm.take(epoch(10, 1), state, 0, 10);
  algorithm.resize(epoch(4, 1), state, 0, epoch(10, 1));
  play(
    epoch(4, 1),
    [
      [0, 2, 2],
      [2, 1, 1],
    ],
    state,
  );
});

resizing.run();

const making = suite("fixedWindow");

making("equal policies are declared by equal numbers", () => {
  assert.equal(epoch(5, 60).numbers, [5, 60_000]);
  assert.equal(first(5, 60).numbers, [5, 60_000, 1]);
  assert.equal(algorithm.policy([5, 60_000, 1]), first(5, 60));
  assert.equal(algorithm.policy([]), epoch(1, 1));
  assert.equal([epoch(1, 1e-9).window, epoch(1, 1.5e-6).window], [1, 2]);
});

making("bad arguments are refused, and the error names them", () => {
  const good = { limit: 5, windowMs: 1000 };
  const bad: [unknown, RegExp][] = [
    [null, /fixedWindow/],
    [{ ...good, window: 5 }, /"window".*windowMs/],
    [{ ...good, limit: 0 }, /limit.*above 0.*got 0/],
    [{ ...good, limit: Infinity }, /limit.*finite.*Infinity/],
    [{ ...good, limit: "5" }, /limit.*"5"/],
    [{ ...good, windowMs: 0 }, /windowMs.*above 0.*got 0/],
    [{ ...good, windowMs: 1e13 }, /windowMs.*1e12/],
    [{ ...good, windowMs: Number.NaN }, /windowMs.*NaN/],
    [{ limit: 5 }, /windowMs.*undefined/],
    [{ ...good, align: "now" }, /align.*epoch, first.*"now"/],
  ];
  for (const [numbers, words] of bad) {
    assert.throws(() => fixedWindow(numbers as never), words, String(words));
  }
});

making.run();

const limiting = suite("fixed window: limiters");

limiting("2 in 3 s: true, true, false; 3 s later true, true; 2 s after that false", async () => {
  for (const policy of [epoch(2, 3), first(2, 3)]) {
    const clock = new FakeClock(1_700_000_001_000);
    const limiter = Limiter.create(policy, { clock });
    const tries = (times: number) => Array.from({ length: times }, () => limiter.tryAcquire());
    assert.equal(tries(3), [true, true, false]);
    await clock.advance(3000);
    assert.equal(tries(2), [true, true]);
    await clock.advance(policy.first ? 2000 : 1000);
    assert.equal(tries(1), [false]);
  }
});

limiting("10 a second and 100 a minute: all policies are charged, or none", async () => {
  const clock = new FakeClock();
  const policies = { second: epoch(10, 1), minute: epoch(100, 60) };
  const limiter = Limiter.create(policies, { clock });
  for (let second = 0; second < 10; second++) {
    for (let i = 0; i < 10; i++) assert.is(limiter.tryAcquire(), true);
    const refused = limiter.decide();
    assert.equal([refused.allowed, refused.policies.second?.remaining], [false, 0]);
    assert.is(refused.policies.minute?.remaining, 90 - 10 * second);
    assert.is(refused.policy, second === 9 ? "minute" : "second");
    await clock.advance(1000);
  }
  const { allowed, waitMs, policy, policies: stand } = limiter.decide();
  assert.equal([allowed, waitMs, policy], [false, 50_000, "minute"]);
  // the refused request was not charged to the second either
  assert.is(stand.second?.remaining, 10);
  await clock.advance(50_000);
  assert.is(limiter.tryAcquire(10), true);
});

limiting("refused requests are not counted", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(epoch(1, 1), { clock });
  assert.is(limiter.tryAcquire(), true);
  for (let i = 0; i < 100; i++) assert.is(limiter.tryAcquire(), false);
  await clock.advance(1000);
  assert.is(limiter.tryAcquire(), true);
});

limiting("waiters are released when a window opens, in order, no more than the limit", async () => {
  const clock = new FakeClock(500);
  const limiter = Limiter.create(epoch(3, 1), { clock });
  assert.is(limiter.tryAcquire(3), true);
  const waiting = [2, 1, 1, 3, 1].map((n) => watch(clock, limiter.acquire(n)));
  await clock.advance(10_000);
  assert.equal(instants(waiting), [1000, 1000, 2000, 3000, 4000]);
  assert.equal(
    waiting.map(({ value }) => value),
    [500, 500, 1500, 2500, 3500],
  );
});

limiting("a request above the limit is refused at once", async () => {
  const limiter = Limiter.create(epoch(3, 1), { clock: new FakeClock() });
  const error = await limiter.acquire(4).catch((reason: unknown) => reason);
  assert.instance(error, PermitsExceedCapacityError);
  assert.equal((error as PermitsExceedCapacityError).facts, {
    policy: "default",
    permits: 4,
    capacity: 3,
  });
});

limiting("windows lie on the grid of Unix time, which the clock returns", async () => {
  const clock = Object.assign(new FakeClock(), { epochMs: 59_000 });
  const limiter = Limiter.create(epoch(1, 60), { clock });
  assert.is(limiter.tryAcquire(), true);
  assert.is(limiter.peek().waitMs, 1000);
});

limiting.run();
