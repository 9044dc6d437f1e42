import * as assert from "uvu/assert";
import { MonotonicTime } from "../../src/queue/monotonic-time.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { suite } from "../support/suite.ts";

const test = suite("monotonic time");

const UNIT = 2 ** 24;
const START = 3 * UNIT + 5;

/** A clock that shows what it is set to, µs, and notes its timers. */
class SetClock extends FakeClock {
  micros = START;
  epochMs = 1_700_000_000_000;
  readonly timers: number[] = [];

  override now(): number {
    return this.micros / 1000;
  }

  override wakeAt(timeMs: number, wake: () => void) {
    this.timers.push(timeMs * 1000);
    return super.wakeAt(timeMs, wake);
  }
}

/** @param mayRebase whether the instants of the owner can be shifted */
function started(mayRebase = true) {
  const clock = new SetClock();
  const events: unknown[] = [];
  const time = new MonotonicTime(clock, {
    rearm: () => events.push("back"),
    rebase: (by) => {
      events.push(by);
      return mayRebase;
    },
  });
  /** The reading when the clock shows that. */
  const at = (micros: number) => {
    clock.micros = micros;
    return time.now();
  };
  return { clock, events, time, at };
}

test("time counts from a multiple of 2^24 µs, and its epoch is Unix time", () => {
  const { clock, time, at } = started();
  assert.is(time.last, 5);
  assert.is(time.epoch, 3 * UNIT + 1_700_000_000_000_000);
  assert.equal([at(START), at(START + 7), time.last], [5, 12, 12]);
  time.wakeAt(12, () => {});
  time.wakeAt(12.001, () => {});
  assert.equal(clock.timers.map(Math.round), [START + 7, START + 8]);
  assert.is(new MonotonicTime(new FakeClock()).epoch, 0);
});

test("a clock that steps back stands still, once, and goes on from there", () => {
  const { clock, events, time, at } = started();
  at(START + 1000);
  assert.equal([at(START + 400), at(START + 400), at(START + 500)], [1005, 1005, 1105]);
  assert.equal(events, ["back"]);
  time.wakeAt(1106, () => {});
  assert.equal(clock.timers.map(Math.round), [START + 501]);
});

test("after 2^32 µs time counts from a later multiple, as soon as its owner can follow", () => {
  const full = 3 * UNIT + 2 ** 32;
  const { clock, events, time, at } = started();
  assert.equal([at(full - 1), events.length], [2 ** 32 - 1, 0]);
  assert.equal([at(full), time.last, events], [0, 0, [2 ** 32]]);
  assert.is(at(full + UNIT + 3), UNIT + 3);
  assert.is(time.epoch, full + 1_700_000_000_000_000);
  time.wakeAt(UNIT + 4, () => {});
  assert.equal(clock.timers.map(Math.round), [full + UNIT + 4]);

  const busy = started(false);
  assert.equal([busy.at(full + UNIT + 3), busy.time.last], Array(2).fill(2 ** 32 + UNIT + 3));
  assert.equal(
    [busy.at(full + 2 * UNIT), busy.events],
    [2 ** 32 + 2 * UNIT, [2 ** 32 + UNIT, 2 ** 32 + 2 * UNIT]],
  );
});

test("time that no queue owns yet stands still and goes on in the same way, and is never shifted", () => {
  const clock = new SetClock();
  const time = new MonotonicTime(clock);
  const at = (micros: number) => {
    clock.micros = micros;
    return time.now();
  };
  const readings = [at(START + 1000), at(START + 400), at(START + 500)];
  assert.equal(readings, [1005, 1005, 1105]);
  assert.is(at(START + 2 ** 33), 2 ** 33 + 605);
});

test("a reading that is no time is an error, and changes nothing", () => {
  const { events, at } = started();
  for (const strange of [Number.NaN, Infinity, -Infinity]) {
    assert.throws(() => at(strange), /clock\.now\(\)/);
  }
  assert.equal([at(START + 1), events], [6, []]);
});

test.run();
