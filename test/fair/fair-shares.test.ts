import * as assert from "uvu/assert";
import { type FairOptions, fairShares, RateLimiter } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("fair limiter, options");

const create = (options?: FairOptions) =>
  RateLimiter.create(10, { clock: new FakeClock(), order: fairShares(options) });

const wrong: [string, unknown, RegExp][] = [
  ["a text", "yes", /fairShares must be an object, got "yes"/],
  ["an unknown option", { tenants: 1 }, /fairShares has no "tenants"/],
  ["priorities that are no list", { priorities: "high" }, /priorities must be an array/],
  ["a priority twice", { priorities: ["a", "a"] }, /different strings/],
  ["a priority that is no text", { priorities: ["a", 1] }, /priorities\[1\] must be a string/],
  ["an aging of 0", { priorities: ["a", "b"], agingMs: 0 }, /agingMs must be a number above 0/],
  ["aging without priorities", { agingMs: 1000 }, /agingMs has no effect/],
];

for (const [title, options, message] of wrong) {
  test(`fairShares: ${title} is refused`, () => {
    assert.throws(() => fairShares(options as FairOptions), message);
  });
}

const wrongCalls: [string, object, RegExp][] = [
  ["a share that is no text", { share: 5 }, /share must be a string, got 5/],
  ["a weight of 0", { weight: 0 }, /weight must be a finite number above 0, got 0/],
  ["a priority of no list", { priority: "high" }, /fairShares\(\{ priorities \}\)/],
  ["an unknown option", { tenant: "a" }, /has no "tenant"/],
];

for (const [title, options, message] of wrongCalls) {
  test(`${title} is refused by every verb`, async () => {
    const limiter = create();
    const calls = [
      () => limiter.acquire(1, options),
      () => limiter.tryAcquire(1, { timeoutMs: 5, ...options }),
      () => limiter.reserve(1, options),
      () => limiter.decide(1, options),
      () => limiter.peek(1, options),
    ];
    for (const call of calls) assert.match(String(await failure(call)), message);
  });
}

test("an unknown priority is refused, with the known ones", async () => {
  const limiter = create({ priorities: ["high", "low"] });
  const error = await failure(() => limiter.acquire(1, { priority: "middle" }));
  assert.match(String(error), /priority must be one of high, low, got "middle"/);
});

test("a limiter that is not fair refuses shares, weights and priorities", async () => {
  const limiter = RateLimiter.create(10, { clock: new FakeClock() });
  for (const options of [{ share: "a" }, { weight: 2 }, { priority: "high" }]) {
    assert.match(String(await failure(() => limiter.acquire(1, options))), /order: fairShares\(\)/);
  }
  assert.is(await limiter.acquire(1, { share: undefined }), 0);
});

test.run();
