import * as assert from "uvu/assert";
import { type PaceOptions, pace } from "../../../src/adapters/pace/index.ts";
import {
  ConcurrencyLimiter,
  Limiter,
  PermitsExceedCapacityError,
  RateLimiter,
  tokenBucket,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, watch } from "../../limiter/watch.ts";
import { suite } from "../../suite.ts";
import { later } from "../p-queue/later.ts";

const test = suite("pace");

function steady() {
  const clock = new FakeClock();
  return { clock, limiter: RateLimiter.create(10, { clock, burstSeconds: 0 }) };
}

test("calls start at the limiter's pace, in the order in which they were made", async () => {
  const { clock, limiter } = steady();
  for (const face of [limiter, later(limiter).limiter]) {
    const begin = clock.now();
    const starts: string[] = [];
    const paced = pace(async (name: string) => {
      starts.push(`${name} ${clock.now() - begin}`);
      return name.toUpperCase();
    }, face);
    const results = ["a", "b", "c"].map((name) => watch(clock, paced(name)));
    await clock.advance(1000);
    assert.equal(starts, ["a 0", "b 100", "c 200"]);
    assert.equal(
      results.map(({ value }) => value),
      ["A", "B", "C"],
    );
  }
});

test("this, the arguments, the name and the length are the function's", async () => {
  const { limiter } = steady();
  const counter = {
    count: 5,
    add: pace(function add(this: { count: number }, a: number, b: number) {
      return this.count + a + b;
    }, limiter),
  };
  assert.is(await counter.add(1, 2), 8);
  assert.equal([counter.add.name, counter.add.length], ["add", 2]);
});

test("permits: a number, one for each policy, or of the arguments", async () => {
  const { clock, limiter } = steady();
  const starts: number[] = [];
  const note = async (_bytes: number) => starts.push(clock.now());
  const calls = [
    pace(note, limiter, { permits: 3 }),
    pace(note, limiter, { permits: (bytes) => bytes / 100 }),
    pace(note, limiter, { permits: { default: 2 } }),
    pace(note, limiter),
  ].map((call) => call(500));
  await clock.advance(2000);
  await Promise.all(calls);
  assert.equal(starts, [0, 300, 800, 1000]);
});

test("a signal ends the waits of all, or of one; who runs is not interrupted", async () => {
  const { clock, limiter } = steady();
  const controller = new AbortController();
  const { signal } = controller;
  let called = 0;
  const call = async (_signal?: AbortSignal) => void called++;
  const all = pace(call, limiter, { signal });
  const own = pace(call, limiter, { signal: (its?: AbortSignal) => its });
  const first = watch(clock, all());
  const waits = [all(), own(signal), own()].map((promise) => watch(clock, promise));
  await clock.advance(50);
  controller.abort("enough");
  await clock.advance(50);
  assert.equal([first.at, first.error], [0, undefined]);
  assert.equal(
    waits.map(({ at, error }) => [at, error]),
    [
      [50, "enough"],
      [50, "enough"],
      [100, undefined],
    ],
  );
  assert.is(called, 2);
});

test("errors travel: the function's, thrown or rejected, the limiter's, and those of the options", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(tokenBucket({ capacity: 2, refill: 1, everyMs: 1 }), { clock });
  const wrong = new Error("no");
  const throws = () => {
    throw wrong;
  };
  assert.is(await failure(pace(throws, limiter)), wrong);
  assert.is(await failure(pace(() => Promise.reject(wrong), limiter)), wrong);
  let called = false;
  const call = () => {
    called = true;
  };
  const large = pace(call, limiter, { permits: 3 });
  assert.instance(await failure(large), PermitsExceedCapacityError);
  assert.is(await failure(pace(call, limiter, { permits: throws })), wrong);
  assert.match(`${await failure(pace(call, limiter, { permits: () => 0 }))}`, "permits must be");
  assert.is(called, false);
});

test("bad arguments are named", () => {
  const { limiter } = steady();
  const fn = () => {};
  for (const [args, words] of [
    [[5, limiter], /fn must be a function, got 5/],
    [[fn, undefined], /limiter must be a limiter, got undefined/],
    [[fn, null], /limiter must be a limiter, got null/],
    [[fn, ConcurrencyLimiter.create(2)], /limiter must be a limiter, got an object/],
    [[fn, limiter, 5], /options/],
    [[fn, limiter, { permit: 1 }], /permit/],
    [[fn, limiter, { permits: 0 }], /permits must be/],
    [[fn, limiter, { permits: {} }], /permits must name a policy$/],
    [[fn, limiter, { permits: null }], /permits must be/],
    [[fn, limiter, { signal: 5 }], /signal must be/],
  ] as [[() => void, RateLimiter, PaceOptions?], RegExp][]) {
    assert.throws(() => pace(...args), words);
  }
});

test.run();
