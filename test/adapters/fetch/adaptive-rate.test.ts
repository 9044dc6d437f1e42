import * as assert from "uvu/assert";
import { AdaptiveRate, checkAdaptive } from "../../../src/adapters/fetch/adaptive-rate.ts";
import { failure } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("adaptive rate");

const setRate = () => {};
const make = (more: Partial<Parameters<typeof checkAdaptive>[0]> = {}) =>
  new AdaptiveRate(checkAdaptive({ min: 10, max: 100, setRate, ...more }), 0);

/** Grants a request at each of these seconds, and returns the rate after each. */
function inUse(rate: AdaptiveRate, fromMs: number, seconds: number): number[] {
  return Array.from({ length: seconds }, (_, i) => {
    const at = fromMs + 1000 * (i + 1);
    rate.accepted(at, at, true);
    return rate.rate;
  });
}

const close = (actual: number | undefined, expected: number) =>
  assert.ok(Math.abs((actual ?? Number.NaN) - expected) < 1e-9, `${actual} is not ${expected}`);

test("a refusal lowers the rate to what was sustained since the last pause", () => {
  // the ms since the last pause, the ms of the requested pause, and the share of the rate that
  // results
  const rows: [number, number, number][] = [
    [500, 1000, 0.5],
    [29_500, 30_000, 0.5],
    [375, 500, 0.6],
    [10, 1000, 0.4 / 0.98],
    // a bucket that the pause has filled
    [1000, 1000, 0.5],
    [3000, 1000, 0.75],
    [12_000, 4000, 0.75],
    // long after
    [4500, 1000, 0.9],
    [99_500, 1000, 0.995],
    [500, 0, 1],
  ];
  for (const [tookMs, pauseMs, borne] of rows) {
    const rate = make();
    rate.accepted(0, 0, false);
    assert.ok(rate.refused(tookMs, tookMs + 5, pauseMs));
    close(rate.rate, 100 * 0.98 * borne);
  }
});

test("one decrease for each burst of refusals", () => {
  const rate = make();
  rate.accepted(0, 20, true);
  assert.ok(rate.refused(500, 520, 1000));
  close(rate.rate, 49);
  for (const sentAt of [501, 510, 1519]) assert.not(rate.refused(sentAt, sentAt + 20, 1000));
  close(rate.rate, 49);
  // the last refusal asked for a pause until then
  assert.not(rate.refused(2538, 2558, 1000));
  rate.accepted(3558, 3578, true);
  assert.ok(rate.refused(4058, 4078, 1000));
  close(rate.rate, 49 * 0.98 * 0.5);
});

test("a pause that was too short does not change the rate", () => {
  const rate = make();
  rate.accepted(0, 0, true);
  assert.ok(rate.refused(500, 500, 1000));
  for (const at of [1500, 2500, 3500]) {
    // a request that was sent before does not prove that the server grants again
    rate.accepted(at - 1001, at, true);
    assert.not(rate.refused(at, at, 1000));
  }
  close(rate.rate, 49);
});

test("the rate stays within the bounds", () => {
  const rate = make();
  for (let at = 0; at < 20_000; at += 2000) {
    rate.accepted(at, at, true);
    rate.refused(at + 1, at + 1, 1000);
  }
  assert.is(rate.rate, 10);
  assert.is(Math.max(...inUse(rate, 20_000, 1000)), 100);
});

test("before the first refusal the rate rises once a second by `increase`, up to the highest", () => {
  const rate = make({ start: 98.5, increase: 1 });
  assert.not(rate.accepted(999, 999, true));
  assert.not(rate.accepted(1000, 1000, false));
  assert.ok(rate.accepted(1000, 1000, true));
  assert.not(rate.accepted(1999, 1999, true));
  assert.is(rate.rate, 99.5);
  assert.ok(rate.accepted(2000, 2000, true));
  assert.not(rate.accepted(3000, 3000, true));
  assert.is(rate.rate, 100);
});

test("after a refusal the rate stays, then rises slowly, then fast", () => {
  const rate = make({ max: 1000, start: 100 });
  rate.accepted(0, 0, true);
  rate.refused(99_500, 99_500, 1000);
  const seen = [rate.rate, ...inUse(rate, 100_500, 120)];
  const growth = seen.slice(1).map((to, i) => to / (seen[i] ?? 0) - 1);
  for (const i of growth.slice(0, 45)) close(i, 0);
  for (const [i, by] of [0.0005, 0.001, 0.0015].entries()) close(growth[45 + i], by);
  for (const i of growth.slice(85)) close(i, 0.02);
  assert.ok((seen[45 + 56] ?? 0) > 2 * (seen[0] ?? 0), "twice as much within a minute");
});

test("after an inaccurate measurement the rate does not stay as long", () => {
  for (const [tookMs, holds] of [
    [500, 20],
    [3999, 20],
    [4000, 45],
  ] as const) {
    const rate = make();
    rate.accepted(0, 0, true);
    rate.refused(tookMs, tookMs, 1000);
    const seen = inUse(rate, tookMs + 1000, 60);
    assert.is(
      seen.findIndex((now) => now > (seen[0] ?? 0)),
      holds,
    );
  }
});

test("the rate never rises by more than `increase` in a second", () => {
  const rate = make({ increase: 0.1 });
  rate.accepted(0, 0, true);
  rate.refused(500, 500, 1000);
  const seen = inUse(rate, 1500, 100);
  close((seen[99] ?? 0) - (seen[98] ?? 0), 0.1);
});

test("a refusal while the rate rises takes back the increases of the last two seconds", () => {
  const rate = make({ start: 50, increase: 10 });
  const [, before = 0, , now = 0] = inUse(rate, 0, 4);
  assert.equal([before, now], [70, 90]);
  rate.refused(100_000, 100_000, 0);
  close(rate.rate, 70 * 0.98);
});

test("bad options are refused", async () => {
  const rows: [object, string][] = [
    [{ min: 0 }, "adaptive.min must be a finite number above 0, got 0"],
    [{ max: 5 }, "adaptive.max must be a finite number, 10 or more, got 5"],
    [{ max: Infinity }, "adaptive.max must be a finite number, 10 or more, got Infinity"],
    [{ start: 101 }, "adaptive.start must be a number from 10 to 100, got 101"],
    [{ increase: 0 }, "adaptive.increase must be a finite number above 0, got 0"],
    [{ decrease: 1 }, "adaptive.decrease must be a number above 0 and below 1, got 1"],
    [{ setRate: 5 }, "adaptive.setRate must be a function, got 5"],
    [
      { rate: 5 },
      'adaptive has no "rate"; expected one of min, max, start, increase, decrease, setRate',
    ],
  ];
  for (const [options, message] of rows) {
    assert.match(String(await failure(() => make(options))), message);
  }
});

test.run();
