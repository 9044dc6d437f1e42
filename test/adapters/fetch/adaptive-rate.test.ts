import * as assert from "uvu/assert";
import { AdaptiveRate, checkAdaptive } from "../../../src/adapters/fetch/adaptive-rate.ts";
import { failure } from "../../limiter/watch.ts";
import { suite } from "../../suite.ts";

const test = suite("adaptive rate");

const setRate = () => {};
const make = (more: Partial<Parameters<typeof checkAdaptive>[0]> = {}) =>
  new AdaptiveRate(checkAdaptive({ min: 10, max: 100, setRate, ...more }), 0);

test("one decrease for each round, within the bounds", () => {
  const rate = make();
  assert.is(rate.rate, 100);
  assert.ok(rate.refused(0, 50));
  assert.is(rate.rate, 70);
  for (const sentAt of [1, 49]) assert.not(rate.refused(sentAt, 60));
  assert.is(rate.rate, 70);
  assert.ok(rate.refused(50, 100));
  assert.is(rate.rate, 49);
  for (let at = 200; at < 3000; at += 100) rate.refused(at, at);
  assert.is(rate.rate, 10);
});

test("rises once a second, and not beyond the highest", () => {
  const rate = make({ start: 98.5, increase: 1 });
  assert.not(rate.accepted(999));
  assert.ok(rate.accepted(1000));
  assert.not(rate.accepted(1999));
  assert.is(rate.rate, 99.5);
  assert.ok(rate.accepted(2000));
  assert.not(rate.accepted(3000));
  assert.is(rate.rate, 100);
});

test("rises slowly near the rate that was refused, and fast again beyond it", () => {
  const rate = make({ start: 50, increase: 4, decrease: 0.8 });
  rate.refused(0, 0);
  const seen = Array.from({ length: 64 }, (_, i) => {
    rate.accepted(1000 * (i + 1));
    return Number(rate.rate.toFixed(6));
  });
  assert.equal(seen.slice(0, 5), [44, 47.5, 47.6, 47.7, 47.8]);
  assert.equal(seen.slice(24, 26), [49.8, 49.9]);
  assert.equal(seen.slice(27, 30), [54, 58, 62]);
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
    [{ rate: 5 }, 'adaptive has no "rate"; it knows min, max, start, increase, decrease, setRate'],
  ];
  for (const [options, message] of rows) {
    assert.match(String(await failure(() => make(options))), message);
  }
});

test.run();
