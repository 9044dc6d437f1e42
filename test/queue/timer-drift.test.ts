import * as assert from "uvu/assert";
import type { Supply } from "../../src/queue/supply.ts";
import { TimerDrift } from "../../src/queue/timer-drift.ts";
import { suite } from "../support/suite.ts";

const test = suite("timer drift");

/** A supply that has its next permit at this instant. */
function freeAt(instant: number): Supply {
  return {
    earliest: (from) => Math.max(from, instant),
    take: () => {},
    copy: () => freeAt(instant),
  };
}

/** The timer was that late at 20 000 µs; a request at `now` counts as one that came at `from`. */
const rows: readonly (readonly [
  title: string,
  lateBy: number,
  now: number,
  free: number,
  from: number,
])[] = [
  ["a caller that comes back at once counts as on time", 3000, 20_000, 0, 17_000],
  ["a caller that comes back within the lateness does too", 3000, 22_999, 0, 19_999],
  ["a caller that is slower than that gains nothing", 3000, 23_000, 0, 23_000],
  ["unless it would have had to wait", 3000, 23_000, 20_001, 20_000],
  ["a permit that was free on time is no wait", 3000, 23_000, 20_000, 23_000],
  ["a blocked event loop is made up for up to 10 ms", 5e6, 20_000, 0, 10_000],
  ["a timer that was on time gives nothing", 0, 20_000, 20_001, 20_000],
];

for (const [title, lateBy, now, free, from] of rows) {
  test(title, () => {
    const drift = new TimerDrift();
    drift.grant(lateBy, 20_000);
    assert.is(drift.from(now, freeAt(free), 1), from);
    assert.is(drift.lateBy, Math.min(lateBy, 10_000));
  });
}

test("the credit ends by itself, by use, and with the next release", () => {
  const drift = new TimerDrift();
  assert.equal([drift.lateBy, drift.until], [0, 0]);
  drift.grant(3000, 20_000);
  assert.equal([drift.lateBy, drift.until], [3000, 23_000]);
  drift.lateBy = 0;
  assert.is(drift.from(20_000, freeAt(0), 1), 20_000);
  drift.grant(3000, 20_000);
  drift.grant(1000, 21_000);
  assert.equal([drift.lateBy, drift.until], [1000, 22_000]);
});

test.run();
