import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  slidingLogAlgorithm as algorithm,
  type SlidingLogPolicy,
  type SlidingLogState,
  slidingLog,
} from "../../../src/algorithms/sliding-log/sliding-log.ts";
import { Limiter, PermitsExceedCapacityError } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { begin, play, type Row, SECOND } from "../../support/algorithms/play.ts";
import { instants, watch } from "../../support/limiter/watch.ts";
import { runs, suite } from "../../support/suite.ts";

function log(limit: number, seconds: number): SlidingLogPolicy {
  return slidingLog({ limit, windowMs: seconds * 1000 });
}

function started(policy: SlidingLogPolicy): SlidingLogState {
  return begin(policy) as SlidingLogState;
}

const tables = suite("sliding log: waits");

const rows: Record<string, readonly [SlidingLogPolicy, ...Row[]]> = {
  "5 in 60 s: each entry expires a minute after it came": [
    log(5, 60),
    ...([
      [0, 1, 0],
      [1, 1, 0],
      [2, 1, 0],
      [3, 1, 0],
      [4, 1, 0],
      [5, 1, 55],
      [66, 4, 0],
      [66, 1, 54],
    ] as Row[]),
  ],
  "an entry has expired at exactly its end": [
    log(1, 10),
    ...([
      [0.5, 1, 0],
      [10.499_999, 1, 0.000_001],
      [10.5, 1, 10],
    ] as Row[]),
  ],
  "no burst around any edge": [
    log(5, 1),
    ...([
      [0.999_999, 5, 0],
      [1, 1, 0.999_999],
      [1.999_999, 4, 0],
      [1.999_999, 1, 1],
    ] as Row[]),
  ],
  "a large request is granted as soon as enough entries have expired": [
    log(5, 10),
    ...([
      [0, 1, 0],
      [1, 1, 0],
      [2, 1, 0],
      [3, 2, 0],
      [4, 3, 8],
      [12, 1, 1],
    ] as Row[]),
  ],
  "first in, first out: no request overtakes an earlier, larger one": [
    log(3, 10),
    ...([
      [0, 2, 0],
      [0, 2, 10],
      [0, 1, 10],
      [5, 1, 15],
    ] as Row[]),
  ],
  "a request above the limit is never granted": [
    log(3, 10),
    ...([
      [0, 3.000_001, Infinity],
      [0, 3, 0],
      [5, 4, Infinity],
    ] as Row[]),
  ],
  "the shortest window is a microsecond": [
    log(1, 1e-9),
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

tables("an instant with a fraction counts from the next whole one on", () => {
  const policy = log(1, 1);
  const state = started(policy);
  assert.is(algorithm.take(policy, state, 0.25, 1), SECOND + 1);
  assert.equal(state.times, [1]);
});

tables.run();

const memory = suite("sliding log: memory");

memory("requests at one instant share one entry", () => {
  const policy = log(100, 10);
  const state = started(policy);
  for (let i = 0; i < 50; i++) algorithm.take(policy, state, 5, 2);
  assert.equal(state, { times: [5], totals: [100] });
});

memory("fractions that sum up to one permit at most share one entry, at the later instant", () => {
  const policy = log(2, 10);
  const state = started(policy);
  for (const [at, n] of [
    [0, 0.5],
    [1, 0.25],
    [2, 0.25],
    [3, 0.5],
    [4, 0.25],
  ] as const) {
    algorithm.take(policy, state, at * SECOND, n);
  }
  assert.equal(state, { times: [2 * SECOND, 4 * SECOND], totals: [1, 1.75] });
});

memory("the limit bounds the number of entries, however many requests come", () => {
  const drops = fc.property(
    fc.constantFrom(1, 3, 10.5),
    fc.array(fc.tuple(fc.nat({ max: 50 }), fc.constantFrom(0.1, 0.5, 0.75, 1, 2))),
    (limit, asks) => {
      const policy = slidingLog({ limit, windowMs: 0.1 });
      const state = started(policy);
      let now = 0;
      for (const [pause, permits] of asks) {
        now += pause;
        if (algorithm.earliest(policy, state, now, permits) > now) continue;
        algorithm.take(policy, state, now, permits);
        const alive = state.times.filter((time) => time + policy.window > now);
        assert.ok(alive.length < 2 * limit + 2, `${alive.length} entries`);
        assert.ok(state.times.length < 2 * alive.length + 2, "expired entries are dropped");
      }
    },
  );
  fc.assert(drops, { numRuns: runs(300) });
});

memory("entries are dropped as soon as they are half, and counted from 0 again", () => {
  const policy = log(4, 10);
  const state = started(policy);
  for (const at of [0, 1, 2, 9]) algorithm.take(policy, state, at * SECOND, 1);
  algorithm.take(policy, state, 10 * SECOND, 1);
  assert.is(state.times.length, 5);
  algorithm.take(policy, state, 12 * SECOND, 1);
  assert.equal(state, { times: [9, 10, 12].map((at) => at * SECOND), totals: [1, 2, 3] });
  algorithm.take(policy, state, 50 * SECOND, 1);
  assert.equal(state, { times: [50 * SECOND], totals: [1] });
});

/** How many entries the answer reads. */
function readsOf(state: SlidingLogState, ask: (seen: SlidingLogState) => void): number {
  let reads = 0;
  const watched = <T extends object>(list: T) =>
    new Proxy(list, {
      get(target, key) {
        reads += 1;
        return Reflect.get(target, key);
      },
    });
  ask({ times: watched(state.times), totals: watched(state.totals) });
  return reads;
}

memory("a peek reads as few entries of a long log as of a short one", () => {
  for (const limit of [10, 100_000]) {
    const policy = log(limit, 10);
    const state = started(policy);
    for (let i = 0; i < limit; i++) algorithm.take(policy, state, i, 1);
    const reads = readsOf(state, (seen) => {
      assert.is(algorithm.earliest(policy, seen, limit, limit / 2), 10 * SECOND + limit / 2 - 1);
      algorithm.quota(policy, seen, limit);
    });
    assert.ok(reads < 100, `${reads} reads`);
    const few = readsOf(state, (seen) => {
      assert.is(algorithm.earliest(policy, seen, limit, 1), 10 * SECOND);
    });
    assert.ok(few < 12, `${few} reads where all entries are equal`);
  }
});

memory("the search finds its place among entries of all sizes", () => {
  const sizes = fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 10_000 }));
  const finds = fc.property(fc.array(sizes, { minLength: 1, maxLength: 60 }), (permits) => {
    const limit = permits.reduce((sum, size) => sum + size);
    const policy = log(limit, 10);
    const state = started(policy);
    for (const [i, size] of permits.entries()) algorithm.take(policy, state, i, size);
    let left = 0;
    for (const [i, size] of permits.entries()) {
      for (const asked of [left + 1, left + size]) {
        assert.is(algorithm.earliest(policy, state, permits.length, asked), i + 10 * SECOND);
      }
      left += size;
    }
  });
  fc.assert(finds, { numRuns: runs(200) });
});

memory.run();

const debts = suite("sliding log: debts and give-backs");

debts("a charge goes where there is room; a charge beyond the limit goes to later windows", () => {
  const policy = log(2, 10);
  const state = started(policy);
  algorithm.take(policy, state, SECOND, 1);
  algorithm.take(policy, state, 2 * SECOND, 2);
  assert.equal(state.times.at(-1), 11 * SECOND);
  algorithm.take(policy, state, 2 * SECOND, 5);
  assert.equal(state.times.at(-1), 41 * SECOND);
  play(
    policy,
    [
      [2, 1, 49],
      [2, 1, 49],
      [2, 1, 59],
    ],
    state,
  );
});

debts("a receipt finds its entry as long as that exists", () => {
  const policy = log(9, 10);
  const state = started(policy);
  const [first, second, third] = [0, 1, 2].map((at) => {
    return algorithm.take(policy, state, at * SECOND, 3);
  });
  assert.equal(
    [first, second, third],
    [10, 11, 12].map((at) => at * SECOND),
  );
  algorithm.giveBack(policy, state, 2 * SECOND, 1, second);
  assert.equal(state.totals, [3, 5, 8]);
  algorithm.giveBack(policy, state, 2 * SECOND, 9, second);
  assert.equal(state, { times: [0, 2 * SECOND], totals: [3, 6] });
  algorithm.giveBack(policy, state, 2 * SECOND, 3, first);
  assert.equal(state, { times: [2 * SECOND], totals: [3] });
  for (const stranger of [first, second, 0, 12 * SECOND + 1]) {
    algorithm.giveBack(policy, state, 2 * SECOND, 1, stranger);
  }
  assert.equal(state, { times: [2 * SECOND], totals: [3] });
  algorithm.giveBack(policy, state, 2 * SECOND, 3, third);
  assert.equal(state, started(policy));
});

debts("without a receipt: the newest first, never more than there are", () => {
  const policy = log(6, 10);
  const state = started(policy);
  for (const [at, n] of [
    [0, 1],
    [1, 2],
    [3, 3],
  ] as const) {
    algorithm.take(policy, state, at * SECOND, n);
  }
  algorithm.giveBack(policy, state, 3 * SECOND, 4);
  assert.equal(state, { times: [0, SECOND], totals: [1, 2] });
  algorithm.giveBack(policy, state, 3 * SECOND, 9);
  assert.equal(state, started(policy));
});

debts("a promise that is given back moves no request up, and drops no entry", () => {
  const policy = log(1, 10);
  const state = started(policy);
  algorithm.take(policy, state, 0, 1);
  // the entry at 0 s will have expired by then, and is dropped
  const receipt = algorithm.take(policy, state, 10 * SECOND, 1);
  assert.equal(state, { times: [10 * SECOND], totals: [1] });
  for (const [permits, known] of [
    [1, receipt],
    [1, undefined],
    [5, undefined],
  ] as const) {
    const left = algorithm.copy(state);
    algorithm.giveBack(policy, left, 0, permits, known);
    assert.is(algorithm.earliest(policy, left, 0, 1), 10 * SECOND);
    assert.is(algorithm.quota(policy, left, 5 * SECOND).remaining, 0);
    assert.is(algorithm.quota(policy, left, 10 * SECOND).remaining, 1);
    algorithm.take(policy, left, 10 * SECOND, 1);
    assert.equal(left, state);
  }
});

debts("a promise in front of others that is given back leaves no entry", () => {
  const policy = log(9, 10);
  const state = started(policy);
  const [, second] = [1, 2, 3].map((at) => algorithm.take(policy, state, at * SECOND, 3));
  algorithm.giveBack(policy, state, 0, 3, second);
  assert.equal(state, { times: [SECOND, 3 * SECOND], totals: [3, 6] });
});

debts("the smallest part of a permit counts from now on", () => {
  const policy = log(2, 10);
  assert.is(algorithm.take(policy, started(policy), SECOND, 5e-324), 11 * SECOND);
});

debts("totals never fall, whatever their last bits", () => {
  const policy = log(1e17, 10);
  const state = started(policy);
  for (const [at, n] of [
    [0, 2],
    [1, 2 ** 54],
    [2, 1.5],
  ] as const) {
    algorithm.take(policy, state, at, n);
  }
  // the small ones are lost beside the large one
  assert.equal(state.totals, [2, 2 ** 54, 2 ** 54]);
  algorithm.giveBack(policy, state, 2, 2 ** 54, 10 * SECOND + 1);
  assert.equal(state, { times: [0, 2], totals: [2, 2] });
});

debts("the deficit counts down until the last entry has expired", () => {
  const policy = log(2, 10);
  const state = started(policy);
  const reset = (at: number) => algorithm.quota(policy, state, at * SECOND).resetMs;
  assert.is(reset(0), 0);
  algorithm.take(policy, state, 4.5 * SECOND, 1);
  assert.equal([4.5, 14.499_999, 14.5, 50].map(reset), [10_000, 0.001, 0, 0]);
});

debts("for any request, every answer is a number, and a promised instant is kept", () => {
  const sizes = [5e-324, 1e-300, 1e-3, 1, 1e15, 1e300, Number.MAX_VALUE];
  for (const limit of sizes) {
    for (const windowMs of [1e-9, 1, 1e12]) {
      for (const charge of sizes) {
        const policy = slidingLog({ limit, windowMs });
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
});

debts("update: the entries stay, and expire by the new window", () => {
  const state = started(log(2, 10));
  play(
    log(2, 10),
    [
      [0, 1, 0],
      [3, 1, 0],
    ],
    state,
  );
  const before = algorithm.copy(state);
  algorithm.resize(log(2, 20), state, 4 * SECOND, log(2, 10));
  assert.equal(state, before);
  play(log(2, 20), [[4, 1, 16]], algorithm.copy(state) as SlidingLogState);
  play(
    log(2, 4),
    [
      [4, 1, 0],
      [4, 1, 3],
    ],
    algorithm.copy(state) as SlidingLogState,
  );
  play(log(1, 10), [[4, 1, 9]], state);
});

debts.run();

const making = suite("slidingLog");

making("equal policies are declared by equal numbers", () => {
  assert.equal(log(5, 60).numbers, [5, 60_000]);
  assert.equal(algorithm.policy([5, 60_000]), log(5, 60));
  const strict = slidingLog({ limit: 5, windowMs: 60_000, strict: true });
  assert.equal(strict.numbers, [5, 60_000, 1]);
  assert.equal(algorithm.policy([5, 60_000, 1]), strict);
  assert.equal(algorithm.policy([]), log(1, 1));
});

making("bad arguments are refused, and the error names them", () => {
  const good = { limit: 5, windowMs: 1000 };
  const bad: [unknown, RegExp][] = [
    [undefined, /slidingLog/],
    [{ ...good, buckets: 1 }, /"buckets".*windowMs/],
    [{ ...good, limit: 0 }, /limit.*above 0.*got 0/],
    [{ ...good, windowMs: -1 }, /windowMs.*above 0.*got -1/],
  ];
  for (const [numbers, words] of bad) {
    assert.throws(() => slidingLog(numbers as never), words, String(words));
  }
});

making.run();

const limiting = suite("sliding log: limiters");

limiting("1 a second and 5 a minute: the decision names the rule that refused", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create({ second: log(1, 1), minute: log(5, 60) }, { clock });
  const at = async (second: number) => {
    await clock.advance(second * 1000 - clock.now());
    const { allowed, policy } = limiter.decide();
    return allowed ? "pass" : policy;
  };
  const results: string[] = [];
  for (const second of [0, 0, 1, 2, 3, 4, 5, 66]) results.push(await at(second));
  const pass = "pass";
  assert.equal(results, [pass, "second", pass, pass, pass, pass, "minute", pass]);
});

limiting("refused requests are not counted", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(log(1, 1), { clock });
  assert.is(limiter.tryAcquire(), true);
  for (let i = 0; i < 10; i++) {
    await clock.advance(99.999);
    assert.is(limiter.tryAcquire(), false);
  }
  await clock.advance(0.01);
  assert.is(limiter.tryAcquire(), true);
});

limiting("waiters are released as entries expire, in order, no more than fit", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(log(3, 10), { clock });
  assert.is(limiter.tryAcquire(1), true);
  await clock.advance(4500);
  assert.is(limiter.tryAcquire(2), true);
  const waiting = [1, 1, 1, 2].map((n) => watch(clock, limiter.acquire(n)));
  await clock.advance(60_000);
  assert.equal(instants(waiting), [10_000, 14_500, 14_500, 24_500]);
});

limiting("a request above the limit is refused at once", () => {
  const limiter = Limiter.create(log(3, 1), { clock: new FakeClock() });
  assert.throws(
    () => limiter.tryAcquire(4),
    (error: unknown) => {
      return error instanceof PermitsExceedCapacityError;
    },
  );
});

limiting.run();
