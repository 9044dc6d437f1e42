import * as assert from "uvu/assert";
import type { Clock, Timer } from "../../src/ground/clock.ts";
import { type PromisedPermits, type Sleeper, WaitLine } from "../../src/remote/wait-line.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { cpuMs } from "../support/cpu.ts";
import { turn } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const MICRO = 0.001;

/** A clock whose timers fire that many ms late or early, and which counts them. */
class CarelessClock implements Clock {
  readonly fake: FakeClock;
  readonly #offMs: () => number;
  readonly #originMs: number;
  set = 0;
  pending = 0;

  constructor(offMs: () => number = () => 0, originMs = 0) {
    this.fake = new FakeClock();
    this.#offMs = offMs;
    this.#originMs = originMs;
  }

  now(): number {
    return this.fake.now() + this.#originMs;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    this.set += 1;
    this.pending += 1;
    const timer = this.fake.wakeAt(timeMs - this.#originMs + this.#offMs(), () => {
      this.pending -= 1;
      wake();
    });
    return {
      cancel: () => {
        this.pending -= 1;
        timer.cancel();
      },
    };
  }
}

/** Waits until then, ms, and records when it was woken. */
class TestSleeper implements Sleeper {
  due = 0;
  promised: PromisedPermits;
  gone = false;
  size = 1;
  alarm: Timer | undefined;
  static readonly returned: number[] = [];
  readonly #onWake: (sleeper: TestSleeper, now: number) => void;
  wokenAt: number | undefined;

  constructor(dueMs: number, onWake: (sleeper: TestSleeper, now: number) => void = () => {}) {
    this.promised = { instant: Math.round(dueMs * 1000) };
    this.#onWake = onWake;
  }

  isLike(other: Sleeper): boolean {
    return other instanceof TestSleeper && other.size === this.size;
  }

  returnPromised(): void {
    TestSleeper.returned.push(this.promised.instant / 1000);
  }

  wake(now: number): void {
    this.wokenAt = now / 1000;
    this.#onWake(this, now);
  }
}

function make(clock = new CarelessClock()) {
  return { clock, line: new WaitLine(clock) };
}

/** One waiter for each instant, ms. */
function addSleepers(line: WaitLine, ...dueMs: number[]): TestSleeper[] {
  return dueMs.map((due) => {
    const sleeper = new TestSleeper(due);
    line.add(sleeper);
    return sleeper;
  });
}

/** Waiters that leave in one turn. Returns the instants that they gave up, ms, the latest first. */
async function leave(line: WaitLine, ...sleepers: readonly TestSleeper[]): Promise<number[]> {
  TestSleeper.returned.length = 0;
  for (const sleeper of sleepers) {
    sleeper.gone = true;
    line.leave(sleeper);
  }
  await turn();
  return TestSleeper.returned.slice().sort((a, b) => b - a);
}

const wokenAt = (sleepers: readonly TestSleeper[]) => sleepers.map((sleeper) => sleeper.wokenAt);

const test = suite("wait line");

test("each waiter wakes at its instant and not before, with one timer for all", async () => {
  const { clock, line } = make();
  const sleepers = addSleepers(line, 10, 20, 20, 30.001);
  assert.equal([clock.set, clock.pending], [1, 1]);
  await clock.fake.advance(10 - MICRO);
  assert.equal(wokenAt(sleepers), [undefined, undefined, undefined, undefined]);
  await clock.fake.advance(MICRO);
  assert.is(clock.pending, 1);
  await clock.fake.advance(100);
  assert.equal(wokenAt(sleepers), [10, 20, 20, 30.001]);
  assert.equal([clock.set, clock.pending], [3, 0]);
});

for (const [hazard, told, sizes, expected] of [
  [
    "of two instants the earlier one goes to the first caller",
    [30, 10, 20, 40],
    [1, 1, 1, 1],
    [10, 20, 30, 40],
  ],
  ["neighbours with equal requests", [30, 10, 40, 20], [1, 1, 5, 1], [10, 30, 40, 40]],
  ["no caller overtakes a larger request", [30, 10, 20, 40], [5, 1, 1, 1], [30, 30, 30, 40]],
  ["earlier by no more than the jitter of replies", [30, 29, 28.999], [1, 1, 1], [28.999, 29, 30]],
  ["earlier by less than that", [30, 29.001, 29], [1, 1, 1], [30, 30, 30]],
] as const) {
  test(`first in, first out where instants arrive out of order: ${hazard}`, async () => {
    const { clock, line } = make();
    const order: number[] = [];
    const sleepers = told.map((due, i) => new TestSleeper(due, () => order.push(i)));
    for (const [i, sleeper] of sleepers.entries()) {
      sleeper.size = sizes[i] ?? 1;
      line.add(sleeper);
    }
    await clock.fake.advance(100);
    assert.equal(
      order,
      told.map((_, i) => i),
    );
    assert.equal(wokenAt(sleepers), expected);
    const [later] = addSleepers(line, 110);
    await clock.fake.advance(10);
    assert.is(later?.wokenAt, 110);
    assert.is(clock.pending, 0);
  });
}

test("instants that arrive out of order, each in a turn of its own", async () => {
  const { clock, line } = make();
  const sleepers = addSleepers(line, 30);
  for (const due of [10, 20, 40]) {
    await turn();
    sleepers.push(...addSleepers(line, due));
  }
  await clock.fake.advance(100);
  assert.equal(wokenAt(sleepers), [10, 20, 30, 40]);
});

test("a waiter that leaves is not woken, and the last one cancels the timer", async () => {
  const { clock, line } = make();
  const [first, second, third] = addSleepers(line, 10, 20, 30) as [
    TestSleeper,
    TestSleeper,
    TestSleeper,
  ];
  await leave(line, first);
  assert.equal([second.due, third.due, line.permits], [10_000, 20_000, 2]);
  await clock.fake.advance(10);
  assert.equal(wokenAt([first, second, third]), [undefined, 10, undefined]);
  await leave(line, third);
  assert.equal([clock.pending, line.permits], [0, 0]);
  await clock.fake.advance(100);
  assert.is(third.wokenAt, undefined);
});

test("a waiter that leaves at the moment when it is due is not woken", async () => {
  const { clock, line } = make(new CarelessClock(() => 5));
  const [first, second] = addSleepers(line, 10, 20) as [TestSleeper, TestSleeper];
  await clock.fake.advance(12);
  first.gone = true;
  line.leave(first);
  line.catchUp();
  assert.equal(wokenAt([first, second]), [undefined, 12]);
});

test("a timer that fires early wakes no waiter", async () => {
  const early = [-3, -0.001];
  const clock = new CarelessClock(() => early.shift() ?? 0);
  const { line } = make(clock);
  const [sleeper] = addSleepers(line, 10);
  await clock.fake.advance(7);
  assert.equal([sleeper?.wokenAt, clock.set], [undefined, 2]);
  await clock.fake.advance(2.999);
  assert.equal([sleeper?.wokenAt, clock.set], [undefined, 3]);
  await clock.fake.advance(MICRO);
  assert.is(sleeper?.wokenAt, 10);
});

test("a late timer wakes all waiters that are due, and its lateness is credited once, up to 10 ms", async () => {
  let late = 4;
  const clock = new CarelessClock(() => late);
  const { line } = make(clock);
  const order: number[] = [];
  for (const [i, due] of [10, 11, 12].entries())
    line.add(new TestSleeper(due, () => order.push(i)));
  assert.is(line.lateBy(), 0);
  await clock.fake.advance(14);
  assert.equal(order, [0, 1, 2]);
  // the lateness of the waiter that was released last
  assert.is(line.lateBy(), 2000);
  await clock.fake.advance(2 - MICRO);
  assert.is(line.lateBy(), 2000);
  await clock.fake.advance(MICRO);
  assert.is(line.lateBy(), 0);

  addSleepers(line, 20);
  await clock.fake.advance(8);
  assert.is(line.lateBy(), 4000);
  late = 1000;
  addSleepers(line, 25);
  await clock.fake.advance(1100);
  assert.is(line.lateBy(), 0);
  addSleepers(line, 1200);
  await clock.fake.advance(1075.999);
  assert.is(line.lateBy(), 0);
  await clock.fake.advance(MICRO);
  assert.is(line.lateBy(), 10_000);
});

test("a punctual timer gives no credit", async () => {
  const { clock, line } = make();
  addSleepers(line, 10);
  await clock.fake.advance(10);
  assert.is(line.lateBy(), 0);
});

test("hold: no waiter wakes before its end, and a shorter hold does not end a longer one", async () => {
  const { clock, line } = make();
  const sleepers = addSleepers(line, 10, 200);
  line.holdUntil(100_000);
  line.holdUntil(50_000);
  await clock.fake.advance(100 - MICRO);
  assert.equal(wokenAt(sleepers), [undefined, undefined]);
  await clock.fake.advance(MICRO);
  assert.equal(wokenAt(sleepers), [100, undefined]);
  assert.is(line.lateBy(), 0);
  await clock.fake.advance(100);
  assert.equal(wokenAt(sleepers), [100, 200]);
  line.holdUntil(300_000);
  assert.is(clock.pending, 0);
  const [sleeper] = addSleepers(line, 250);
  await clock.fake.advance(100);
  assert.is(sleeper?.wokenAt, 300);
});

test("an alarm beside the line: a hold defers it, and it can be cancelled", async () => {
  const { clock, line } = make();
  const rung: [string, number][] = [];
  const ring = (name: string) => () => rung.push([name, clock.now()]);
  line.alarm(10_000, ring("a"));
  line.alarm(20_000, ring("b"));
  const out = line.alarm(20_000, ring("cancelled"));
  await clock.fake.advance(10);
  line.holdUntil(50_000);
  await clock.fake.advance(20);
  out.cancel();
  const second = line.alarm(60_000, ring("cancelled"));
  second.cancel();
  await clock.fake.advance(100);
  assert.equal(rung, [
    ["a", 10],
    ["b", 50],
  ]);
  assert.is(clock.pending, 0);
});

test("a clock may count from any origin", async () => {
  const clock = new CarelessClock(() => 0, 1.8e12);
  const { line } = make(clock);
  const sleepers = addSleepers(line, 1.8e12 + 10, 1.8e12 + 20);
  const rung: number[] = [];
  line.alarm((1.8e12 + 15) * 1000, () => rung.push(clock.now()));
  await clock.fake.advance(30);
  assert.equal(wokenAt(sleepers), [1.8e12 + 10, 1.8e12 + 20]);
  assert.equal(rung, [1.8e12 + 15]);
});

test("100 000 waiters join and leave in linear time", async () => {
  const { clock, line } = make();
  const sleepers = addSleepers(line, ...Array.from({ length: 100_000 }, (_, i) => 10 + i / 1000));
  const started = cpuMs();
  await leave(line, ...sleepers.filter((_, i) => i % 2 === 0));
  await clock.fake.advance(9.999);
  await leave(line, ...sleepers.filter(({ gone }) => !gone));
  assert.ok(cpuMs() - started < 5000);
  assert.is(clock.pending, 0);
});

test("a waiter with too little time for its place in line goes at its own instant", async () => {
  const clock = new FakeClock();
  const line = new WaitLine(clock);
  const first = new TestSleeper(1000);
  const hurried = new TestSleeper(100);
  const gone = new TestSleeper(200);
  const next = new TestSleeper(300);
  line.add(first);
  line.add(hurried, 500_000);
  line.add(gone, 500_000);
  line.add(next, 5_000_000);
  await leave(line, gone);
  await clock.advance(99.999);
  assert.is(hurried.wokenAt, undefined);
  await clock.advance(5000);
  const woken = [first, hurried, gone, next].map(({ wokenAt }) => wokenAt);
  assert.equal(woken, [300, 100, undefined, 1000]);
});

const closing = suite("wait line, waiters that leave");

const dues = (sleepers: readonly TestSleeper[]) => sleepers.map(({ due }) => due / 1000);

for (const [hazard, gone, after, givenUp] of [
  ["the first", [0], [10, 20, 30, 40], [50]],
  ["the last", [4], [10, 20, 30, 40], [50]],
  ["two in the middle", [1, 2], [10, 20, 30], [50, 40]],
  ["two apart", [0, 3], [10, 20, 30], [50, 40]],
  ["all but one", [0, 1, 3, 4], [10], [50, 40, 30, 20]],
  ["all, in the wrong order", [4, 2, 0, 1, 3], [], [50, 40, 30, 20, 10]],
] as const) {
  closing(`waiters behind it move up, and the last instants are given up: ${hazard}`, async () => {
    const { clock, line } = make();
    const sleepers = addSleepers(line, 10, 20, 30, 40, 50);
    const told = await leave(line, ...gone.map((i) => sleepers[i] as TestSleeper));
    assert.equal(told, givenUp);
    const rest = sleepers.filter((one) => !one.gone);
    assert.equal(dues(rest), after);
    await clock.fake.advance(100);
    assert.equal(wokenAt(rest), after);
    assert.equal(clock.pending, 0);
  });
}

closing("no waiter takes over the instant of a different request, or overtakes one", async () => {
  const { line } = make();
  const sleepers = addSleepers(line, 10, 20, 30, 40, 50, 60) as [
    TestSleeper,
    TestSleeper,
    TestSleeper,
  ];
  const [first, , large] = sleepers;
  large.size = 5;
  assert.equal(await leave(line, first), [20]);
  assert.equal(dues(sleepers.filter((one) => !one.gone)), [10, 30, 40, 50, 60]);
  assert.equal(await leave(line, large), [30]);
  assert.equal(dues(sleepers.filter((one) => !one.gone)), [10, 40, 50, 60]);
});

closing("a newcomer is behind those that moved up, and no later than necessary", async () => {
  const { line } = make();
  const [first] = addSleepers(line, 10, 20, 30) as [TestSleeper];
  await leave(line, first);
  const [late] = addSleepers(line, 25) as [TestSleeper];
  assert.is(late.due, 25_000);
  const [early] = addSleepers(line, 5) as [TestSleeper];
  assert.is(early.due, 25_000);
});

closing("a waiter beside the line gives up its own instant", async () => {
  const { line } = make();
  addSleepers(line, 1000);
  const hurried = new TestSleeper(100);
  line.add(hurried, 500_000);
  assert.equal(await leave(line, hurried), [100]);
  assert.is(hurried.wokenAt, undefined);
});

closing("100 000 waiters leave one by one, and all at once, in linear time", async () => {
  const { line } = make();
  const many = addSleepers(line, ...Array.from({ length: 100_000 }, (_, i) => 1000 + i));
  const start = cpuMs();
  await leave(line, ...many.slice(0, 50_000));
  assert.is(many[50_000]?.due, 1_000_000);
  await leave(line, ...many.slice(50_000));
  const took = cpuMs() - start;
  assert.ok(took < 5000, `${took} ms`);
});

closing.run();

test.run();
