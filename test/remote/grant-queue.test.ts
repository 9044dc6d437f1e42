import * as assert from "uvu/assert";
import type { Clock, Timer } from "../../src/ground/clock.ts";
import { Waiter } from "../../src/queue/waiter.ts";
import { GrantQueue } from "../../src/remote/grant-queue.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { cpuMs } from "../support/cpu.ts";
import { turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

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
    let isPending = true;
    const end = () => {
      if (isPending) this.pending -= 1;
      isPending = false;
    };
    const timer = this.fake.wakeAt(timeMs - this.#originMs + this.#offMs(), () => {
      end();
      wake();
    });
    return {
      cancel: () => {
        end();
        timer.cancel();
      },
    };
  }
}

/** Waits until the instant of its grant and records when it was woken, ms. */
class TestCaller extends Waiter {
  readonly isPromised = true;
  gone = false;
  wokenAt: number | undefined;
  readonly #onWake: () => void;

  constructor(queue: GrantQueue, size = 1, onWake: () => void = () => {}) {
    super(queue.now(), size);
    this.#onWake = onWake;
  }

  override release(_at: number, now: number): void {
    this.wokenAt = now / 1000;
    this.#onWake();
  }

  override abort(): void {}
}

/** The instants that were given up, ms. */
const returned: number[] = [];

function make(clock = new CarelessClock()) {
  const queue = new GrantQueue(clock);
  queue.open(({ instant }) => returned.push(instant / 1000));
  return { clock, queue };
}

function enter(queue: GrantQueue, dueMs: number, caller = new TestCaller(queue)): TestCaller {
  const { amount } = caller;
  queue.enter(caller, { amount, instant: Math.round(dueMs * 1000), receipts: [] });
  return caller;
}

/** One caller for each instant, ms. */
function addCallers(queue: GrantQueue, ...dueMs: number[]): TestCaller[] {
  return dueMs.map((due) => enter(queue, due));
}

/** Callers that leave in one turn. Returns the instants that they gave up, ms, the latest first. */
async function leave(queue: GrantQueue, ...callers: readonly TestCaller[]): Promise<number[]> {
  returned.length = 0;
  for (const caller of callers) {
    caller.gone = true;
    queue.remove(caller);
  }
  await turn();
  return returned.slice().sort((a, b) => b - a);
}

const wokenAt = (callers: readonly TestCaller[]) => callers.map((caller) => caller.wokenAt);

const test = suite("grant queue");

test("each waiter wakes at its instant and not before, with one timer for all", async () => {
  const { clock, queue } = make();
  const callers = addCallers(queue, 10, 20, 20, 30.001);
  assert.equal([clock.set, clock.pending], [1, 1]);
  await clock.fake.advance(10 - MICRO);
  assert.equal(wokenAt(callers), [undefined, undefined, undefined, undefined]);
  await clock.fake.advance(MICRO);
  assert.is(clock.pending, 1);
  await clock.fake.advance(100);
  assert.equal(wokenAt(callers), [10, 20, 20, 30.001]);
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
  ["earlier by no more than the jitter of replies", [30, 29, 28.999], [1, 1, 1], [28.999, 30, 30]],
  ["earlier by less than that", [30, 29.001, 29], [1, 1, 1], [30, 30, 30]],
] as const) {
  test(`first in, first out where instants arrive out of order: ${hazard}`, async () => {
    const { clock, queue } = make();
    const order: number[] = [];
    const callers = told.map((due, i) =>
      enter(queue, due, new TestCaller(queue, sizes[i] ?? 1, () => order.push(i))),
    );
    await clock.fake.advance(100);
    assert.equal(
      order,
      told.map((_, i) => i),
    );
    assert.equal(wokenAt(callers), expected);
    const [later] = addCallers(queue, 110);
    await clock.fake.advance(10);
    assert.is(later?.wokenAt, 110);
    assert.is(clock.pending, 0);
  });
}

test("instants that arrive out of order, each in a turn of its own", async () => {
  const { clock, queue } = make();
  const callers = addCallers(queue, 30);
  for (const due of [10, 20, 40]) {
    await turn();
    callers.push(...addCallers(queue, due));
  }
  await clock.fake.advance(100);
  assert.equal(wokenAt(callers), [10, 20, 30, 40]);
});

test("a waiter that leaves is not woken, and the last one cancels the timer", async () => {
  const { clock, queue } = make();
  const [first, second, third] = addCallers(queue, 10, 20, 30) as [
    TestCaller,
    TestCaller,
    TestCaller,
  ];
  await leave(queue, first);
  assert.is(queue.permits, 2);
  await clock.fake.advance(10);
  assert.equal(wokenAt([first, second, third]), [undefined, 10, undefined]);
  await leave(queue, third);
  assert.equal([clock.pending, queue.permits], [0, 0]);
  await clock.fake.advance(100);
  assert.is(third.wokenAt, undefined);
});

test("a waiter that leaves at the moment when it is due is not woken", async () => {
  const { clock, queue } = make(new CarelessClock(() => 5));
  const [first, second] = addCallers(queue, 10, 20) as [TestCaller, TestCaller];
  await clock.fake.advance(12);
  first.gone = true;
  queue.remove(first);
  queue.catchUp();
  assert.equal(wokenAt([first, second]), [undefined, 12]);
});

test("a timer that fires early wakes no waiter", async () => {
  const early = [-3, -0.001];
  const clock = new CarelessClock(() => early.shift() ?? 0);
  const { queue } = make(clock);
  const [caller] = addCallers(queue, 10);
  await clock.fake.advance(7);
  assert.equal([caller?.wokenAt, clock.set], [undefined, 2]);
  await clock.fake.advance(2.999);
  assert.equal([caller?.wokenAt, clock.set], [undefined, 3]);
  await clock.fake.advance(MICRO);
  assert.is(caller?.wokenAt, 10);
});

test("a late timer wakes all waiters that are due, and its lateness is credited once, up to 10 ms", async () => {
  let late = 4;
  const clock = new CarelessClock(() => late);
  const { queue } = make(clock);
  const order: number[] = [];
  for (const [i, due] of [10, 11, 12].entries()) {
    enter(queue, due, new TestCaller(queue, 1, () => order.push(i)));
  }
  assert.is(queue.lateBy, 0);
  await clock.fake.advance(14);
  assert.equal(order, [0, 1, 2]);
  // the lateness of the waiter that was released last
  assert.is(queue.lateBy, 2000);
  await clock.fake.advance(2 - MICRO);
  assert.is(queue.lateBy, 2000);
  await clock.fake.advance(MICRO);
  assert.is(queue.lateBy, 0);

  addCallers(queue, 20);
  await clock.fake.advance(8);
  assert.is(queue.lateBy, 4000);
  late = 1000;
  addCallers(queue, 25);
  await clock.fake.advance(1100);
  assert.is(queue.lateBy, 0);
  addCallers(queue, 1200);
  await clock.fake.advance(1075.999);
  assert.is(queue.lateBy, 0);
  await clock.fake.advance(MICRO);
  assert.is(queue.lateBy, 10_000);
});

test("a punctual timer gives no credit", async () => {
  const { clock, queue } = make();
  addCallers(queue, 10);
  await clock.fake.advance(10);
  assert.is(queue.lateBy, 0);
});

test("hold: no waiter wakes before its end, and a shorter hold does not end a longer one", async () => {
  const { clock, queue } = make();
  const callers = addCallers(queue, 10, 200);
  queue.pause(100_000);
  queue.pause(50_000);
  await clock.fake.advance(100 - MICRO);
  assert.equal(wokenAt(callers), [undefined, undefined]);
  await clock.fake.advance(MICRO);
  assert.equal(wokenAt(callers), [100, undefined]);
  assert.is(queue.lateBy, 0);
  await clock.fake.advance(100);
  assert.equal(wokenAt(callers), [100, 200]);
  queue.pause(100_000);
  assert.is(clock.pending, 0);
  const [caller] = addCallers(queue, 250);
  await clock.fake.advance(100);
  assert.is(caller?.wokenAt, 300);
});

test("a reset ends the holds before it, not those after it", async () => {
  const { clock, queue } = make();
  queue.pause(100_000);
  const end = queue.reset();
  queue.pause(50_000);
  const callers = addCallers(queue, 10, 60);
  const rung: number[] = [];
  queue.alarm(10_000, () => rung.push(clock.now()));
  await clock.fake.advance(5);
  end();
  await clock.fake.advance(200);
  assert.equal(wokenAt(callers), [50, 60]);
  assert.equal(rung, [50]);
  assert.is(clock.pending, 0);
});

test("a pause that is ended alone leaves the others, longer or shorter, before or after it", async () => {
  for (const [others, expected] of [
    [[[], []], 20],
    [[[50], []], 50],
    [[[], [50]], 50],
    [[[200], [50]], 200],
    [[[30], [40]], 40],
  ] as const) {
    const { clock, queue } = make();
    const pause = (ms: number) => queue.confirm(queue.pause(ms * 1000));
    others[0].forEach(pause);
    const ended = queue.pause(100_000);
    others[1].forEach(pause);
    const [caller] = addCallers(queue, 20);
    await clock.fake.advance(10);
    queue.endPauses([ended]);
    await clock.fake.advance(300);
    assert.is(caller?.wokenAt, expected);
  }
});

test("an alarm beside the queue: a hold defers it, and it can be cancelled", async () => {
  const { clock, queue } = make();
  const rung: [string, number][] = [];
  const ring = (name: string) => () => rung.push([name, clock.now()]);
  queue.alarm(10_000, ring("a"));
  queue.alarm(20_000, ring("b"));
  const out = queue.alarm(20_000, ring("cancelled"));
  await clock.fake.advance(10);
  queue.pause(40_000);
  await clock.fake.advance(20);
  out.cancel();
  const second = queue.alarm(60_000, ring("cancelled"));
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
  const { queue } = make(clock);
  const fromMs = queue.now() / 1000;
  const callers = addCallers(queue, fromMs + 10, fromMs + 20);
  const rung: number[] = [];
  queue.alarm((fromMs + 15) * 1000, () => rung.push(clock.now()));
  await clock.fake.advance(30);
  assert.equal(wokenAt(callers), [fromMs + 10, fromMs + 20]);
  assert.equal(rung, [1.8e12 + 15]);
});

for (const isReset of [false, true]) {
  test(`many callers with earlier grants cost one look at each waiter, not one each; reset: ${isReset}`, async () => {
    const { clock, queue } = make();
    let looks = 0;
    class Counted extends TestCaller {
      override get deadline(): number {
        looks += 1;
        return 1e9;
      }
    }
    const enterMany = (count: number, dueMs: number) =>
      Array.from({ length: count }, () => enter(queue, dueMs, new Counted(queue)));
    const waiting = enterMany(500, 100);
    await turn();
    looks = 0;
    if (isReset) queue.forget();
    enterMany(400, 0);
    await turn();
    assert.is(waiting.filter(({ wokenAt }) => wokenAt === 0).length, 400);
    assert.ok(looks <= 900, `${looks}`);
    enterMany(100, 0);
    await clock.fake.advance(100);
    assert.is(clock.pending, 0);
  });
}

test("thousands of waiters join and leave in linear time", async () => {
  const { clock, queue } = make();
  const callers = addCallers(
    queue,
    ...Array.from({ length: runs(100_000, 20_000) }, (_, i) => 10 + i / 1000),
  );
  const started = cpuMs();
  await leave(queue, ...callers.filter((_, i) => i % 2 === 0));
  await clock.fake.advance(9.999);
  await leave(queue, ...callers.filter(({ gone }) => !gone));
  assert.ok(cpuMs() - started < 5000);
  assert.is(clock.pending, 0);
});

const closing = suite("grant queue, callers that leave");

for (const [hazard, gone, after, givenUp] of [
  ["the first", [0], [10, 20, 30, 40], [50]],
  ["the last", [4], [10, 20, 30, 40], [50]],
  ["two in the middle", [1, 2], [10, 20, 30], [50, 40]],
  ["two apart", [0, 3], [10, 20, 30], [50, 40]],
  ["all but one", [0, 1, 3, 4], [10], [50, 40, 30, 20]],
  ["all, in the wrong order", [4, 2, 0, 1, 3], [], [50, 40, 30, 20, 10]],
] as const) {
  closing(`waiters behind it move up, and the last instants are given up: ${hazard}`, async () => {
    const { clock, queue } = make();
    const callers = addCallers(queue, 10, 20, 30, 40, 50);
    const told = await leave(queue, ...gone.map((i) => callers[i] as TestCaller));
    assert.equal(told, givenUp);
    const rest = callers.filter((one) => !one.gone);
    await clock.fake.advance(100);
    assert.equal(wokenAt(rest), after);
    assert.equal(clock.pending, 0);
  });
}

closing("no waiter takes over the instant of a different request, or overtakes one", async () => {
  const { clock, queue } = make();
  const callers = [1, 1, 5, 1, 1, 1].map((size, i) =>
    enter(queue, 10 * (i + 1), new TestCaller(queue, size)),
  );
  const [first, , large] = callers as [TestCaller, TestCaller, TestCaller];
  assert.equal(await leave(queue, first), [20]);
  assert.is(queue.end, 60_000);
  assert.equal(await leave(queue, large), [30]);
  await clock.fake.advance(100);
  assert.equal(wokenAt(callers), [undefined, 10, undefined, 40, 50, 60]);
});

closing("a newcomer is behind those that moved up, and no later than necessary", async () => {
  const { clock, queue } = make();
  const [first] = addCallers(queue, 10, 20, 30) as [TestCaller];
  await leave(queue, first);
  const [late, large] = [25, 5].map((due, i) =>
    enter(queue, due, new TestCaller(queue, i === 0 ? 1 : 3)),
  );
  await clock.fake.advance(100);
  assert.equal([late?.wokenAt, large?.wokenAt], [25, 25]);
});

closing("thousands of waiters leave one by one, and all at once, in linear time", async () => {
  const { queue } = make();
  const half = runs(50_000, 15_000);
  const many = addCallers(queue, ...Array.from({ length: 2 * half }, (_, i) => 1000 + i));
  const start = cpuMs();
  await leave(queue, ...many.slice(0, half));
  assert.is(queue.end, 1000 * (999 + half));
  await leave(queue, ...many.slice(half));
  const took = cpuMs() - start;
  assert.ok(took < 5000, `${took} ms`);
});

closing.run();

test.run();
