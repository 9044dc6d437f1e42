import * as assert from "uvu/assert";
import { Budget } from "../../../src/adapters/fetch/budget.ts";
import type { ServerQuota } from "../../../src/adapters/fetch/rate-limit-fields.ts";
import { suite } from "../../support/suite.ts";

const test = suite("budget");

const quota = (remaining: number, resetMs: number | undefined, more: Partial<ServerQuota> = {}) =>
  ({
    ...{ name: undefined, limit: undefined, windowMs: undefined, gradual: false },
    ...more,
    remaining,
    resetMs,
  }) satisfies ServerQuota;

test("a quota without reports holds no request", () => {
  const budget = new Budget();
  budget.take(1000, 0);
  assert.equal([budget.left(0), budget.holdMs(1e9, 0)], [Infinity, 0]);
  budget.update(quota(3, undefined), 0, 0, 0);
  assert.is(budget.left(0), Infinity, "a number without an end predicts nothing");
});

test("the example of the essay in budget.ts", () => {
  const budget = new Budget();
  const window = { limit: 10, windowMs: 1000 };
  budget.update(quota(9, 999, window), 2, 0, 10);
  assert.is(budget.left(10), 7);
  budget.take(1, 20); // D
  budget.update(quota(2, 975, window), 0, 20, 30);
  assert.is(budget.left(30), 2);
  for (const at of [31, 32]) {
    assert.is(budget.holdMs(1, at), 0);
    budget.take(1, at);
  }
  assert.is(budget.holdMs(1, 33), 972);
  assert.is(budget.holdMs(1, 1005), 0);
  assert.is(budget.left(1005), 10);
});

test("a request that needs more than is left is held, a smaller one is not", () => {
  const budget = new Budget();
  budget.update(quota(5, 1000), 0, 0, 0);
  assert.equal(
    [1, 5, 6, 0].map((cost) => budget.holdMs(cost, 400)),
    [0, 0, 600, 0],
  );
  budget.take(5, 400);
  assert.equal(
    [1, 0].map((cost) => budget.holdMs(cost, 400)),
    [600, 600],
  );
});

test("a request that needs more than the server ever grants is not held for ever", () => {
  const budget = new Budget();
  budget.update(quota(5, 1000, { limit: 10 }), 0, 0, 0);
  assert.equal(
    [10, 11].map((cost) => budget.holdMs(cost, 0)),
    [1000, 0],
  );
});

test("a response that was overtaken by others only lowers what is left", () => {
  const budget = new Budget();
  budget.update(quota(5, 1000), 0, 100, 120);
  budget.update(quota(50, 900), 0, 90, 125);
  assert.is(budget.left(125), 5);
  budget.update(quota(40, 900), 37, 110, 130);
  assert.is(budget.left(130), 3);
  budget.update(quota(8, 900), 0, 120, 140);
  assert.is(budget.left(140), 8, "this one was sent after the first response came");
});

test("a response to a request of the previous window is ignored", () => {
  const budget = new Budget();
  budget.update(quota(3, 1000, { limit: 10 }), 0, 0, 0);
  assert.is(budget.left(1001), 10);
  budget.update(quota(0, 1000, { limit: 10 }), 0, 999, 1002);
  assert.is(budget.left(1002), 10);
  budget.update(quota(4, 990, { limit: 10 }), 0, 1000, 1010);
  assert.is(budget.left(1010), 4);
});

test("without a limit nothing is known after the reset", () => {
  const budget = new Budget();
  budget.update(quota(0, 1000), 0, 0, 0);
  assert.equal([budget.holdMs(1, 999), budget.holdMs(1, 1000)], [1, 0]);
  budget.take(100, 1000);
  assert.is(budget.holdMs(1, 1001), 0);
});

test("the next window begins with the first request, and is assumed until a response reports", () => {
  const budget = new Budget();
  const window = { limit: 10, windowMs: 1000 };
  budget.update(quota(0, 400, window), 0, 0, 0);
  assert.is(budget.left(1300), 10);
  budget.take(10, 1350);
  assert.is(budget.holdMs(1, 1390), 100, "ask again soon");
  assert.is(budget.holdMs(1, 1450), 100, "what was sent is not forgotten");
  assert.is(budget.holdMs(1, 2300), 50, "it ends at 2350");
  budget.update(quota(15, 990, { ...window, limit: 25 }), 0, 1350, 1500);
  assert.is(budget.left(1500), 15, "the limit is higher now");
  assert.is(budget.holdMs(16, 1500), 990);
});

test("windows without any request pass too", () => {
  const budget = new Budget();
  budget.update(quota(0, 400, { limit: 10, windowMs: 1000 }), 0, 0, 0);
  budget.take(10, 500);
  assert.is(budget.left(9000), 10);
});

test("resets in whole seconds: the earliest counts until a new window is certain", () => {
  const budget = new Budget();
  budget.update(quota(0, 2000), 0, 0, 900);
  budget.update(quota(0, 1000), 0, 950, 1010);
  assert.is(budget.holdMs(1, 1010), 1000);
  budget.update(quota(0, 1000), 0, 1100, 1500);
  assert.is(budget.holdMs(1, 1500), 510);
  budget.update(quota(0, 2000), 0, 1600, 1700);
  assert.is(budget.holdMs(1, 1700), 2000);
});

test("a bucket is refilled while a request is in flight", () => {
  const budget = new Budget();
  const window = { limit: 60, gradual: true };
  budget.update(quota(0, 60_000, window), 0, 0, 0);
  assert.equal(
    [1, 3].map((cost) => budget.holdMs(cost, 0)),
    [1000, 3000],
  );
  assert.equal([budget.left(30_000), budget.left(60_001)], [30, 60]);
  budget.take(60, 60_001);
  assert.ok(budget.holdMs(1, 60_002) > 0);

  const full = new Budget();
  full.update(quota(60, 0, window), 0, 0, 0);
  assert.is(full.holdMs(60, 0), 0);
});

test("numbers of a server that are too large to calculate with hold no request", () => {
  const budget = new Budget();
  // the quotient of the limit and the reset is not finite
  budget.update(quota(0, 0.01, { limit: 1e308, gradual: true }), 0, 5, 5);
  for (const cost of [0, 1]) {
    const holdMs = budget.holdMs(cost, 5);
    assert.ok(holdMs >= 0 && holdMs <= 0.01, `${holdMs}`);
  }
  assert.is(budget.left(6), 1e308);
});

test("a bucket without a reported limit is full again at the reset", () => {
  const budget = new Budget();
  budget.update(quota(0, 500, { gradual: true }), 0, 0, 0);
  assert.equal([budget.holdMs(1, 100), budget.holdMs(1, 500)], [400, 0]);
});

test.run();
