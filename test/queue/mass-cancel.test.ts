import * as assert from "uvu/assert";
import { RateLimiter } from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { cpuMs } from "../support/cpu.ts";
import { turn } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

/** A limiter with `count` waiters, of which one in `share` has no signal. */
function crowd(count: number, makeSignal: () => AbortController, share = 2) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1_000_000, { burstSeconds: 0, clock });
  limiter.charge(1000);
  const controllers = new Set<AbortController>();
  let rejected = 0;
  /** The released callers and their instants, in order: two numbers each. */
  const released: number[] = [];
  for (let place = 0; place < count; place++) {
    if (place % share === 0) {
      limiter.acquire().then(
        () => released.push(place, clock.now()),
        () => assert.unreachable(),
      );
    } else {
      const controller = makeSignal();
      controllers.add(controller);
      limiter.acquire(1, { signal: controller.signal }).catch(() => {
        rejected += 1;
      });
    }
  }
  const abort = () => {
    for (const controller of controllers) controller.abort();
  };
  return { clock, limiter, released, abort, rejected: () => rejected };
}

/** How much processor time it takes to cancel half of `count` waiters, ms. */
async function timeToCancel(count: number): Promise<number> {
  const shared = new AbortController();
  const { abort, rejected } = crowd(count, () => shared);
  const start = cpuMs();
  abort();
  await turn();
  const ms = cpuMs() - start;
  assert.is(rejected(), count / 2);
  return ms;
}

const test = suite("thousands of waiters");

test("one signal cancels half of many thousands: the others go in order, at earlier instants", async () => {
  const half = runs(100_000, 10_000);
  const shared = new AbortController();
  const { clock, limiter, released, abort, rejected } = crowd(2 * half, () => shared);
  await clock.advance(0.5);
  abort();
  assert.is(limiter.peek().waitMs, half / 1000 + 0.5);
  await clock.advance(0);
  assert.is(rejected(), half);
  await clock.advance(120);
  assert.is(released.length, 2 * half);
  for (let i = 0; i < half; i++) {
    if (released[2 * i] !== 2 * i || Math.abs((released[2 * i + 1] ?? 0) - (1 + i / 1000)) > 1e-9) {
      assert.unreachable(`the ${i}th was ${released[2 * i]} at ${released[2 * i + 1]}`);
    }
  }
});

/**
 * Checks that sixteen times as many waiters take at most 128 times as long; a quadratic cost would make
 * it 256. (With others on the processor, memory that leaves its caches makes it 30, and a large heap 70.) The best of several attempts
 * counts: a garbage collection may spoil one attempt, a quadratic cost spoils all.
 */
async function checkLinear(count: number, time: (count: number) => Promise<number>): Promise<void> {
  await time(count / 16);
  const ratios: number[] = [];
  while (ratios.length < 8) {
    const few = await time(count / 16);
    const many = await time(count);
    ratios.push(many / Math.max(few, 0.5));
    if (Math.min(...ratios) <= 128) return;
  }
  const found = ratios.map((ratio) => ratio.toFixed(1));
  assert.unreachable(`sixteen times as many waiters took ${found} times as long`);
}

test("the cost of cancelling waiters by one signal is linear", () =>
  checkLinear(runs(100_000, 40_000), timeToCancel));

test("the cost of cancelling most waiters, each by its own signal, is linear", () =>
  checkLinear(runs(32_000, 16_000), async (count) => {
    const { abort, rejected } = crowd(count, () => new AbortController(), 10);
    const start = cpuMs();
    abort();
    await turn();
    assert.is(rejected(), count * 0.9);
    return cpuMs() - start;
  }));

test("the cost of cancelling reservations one by one, with a setRate behind them, is linear", async () => {
  for (const how of ["cancel", "ready"] as const) {
    for (const order of ["first to last", "last to first"]) {
      await checkLinear(16_000, async (count) => {
        const limiter = RateLimiter.create(1_000_000, { clock: new FakeClock() });
        limiter.charge(1000);
        const reservations = Array.from({ length: count }, () => limiter.reserve());
        limiter.setRate(1);
        if (order === "last to first") reservations.reverse();
        const start = cpuMs();
        for (const reservation of reservations) {
          if (how === "cancel") reservation.cancel();
          else reservation.ready().catch(assert.unreachable);
        }
        return cpuMs() - start;
      });
    }
  }
});

test("the cost of joining a queue behind a reservation and a setRate is linear", () =>
  checkLinear(16_000, async (count) => {
    const limiter = RateLimiter.create(1_000_000, { clock: new FakeClock() });
    limiter.charge(1000);
    limiter.reserve();
    limiter.setRate(1);
    const start = cpuMs();
    for (let i = 0; i < count; i++) limiter.acquire().catch(assert.unreachable);
    return cpuMs() - start;
  }));

test.run();
