/**
 * What aborted callers of one process cost the callers of other processes that wait behind them.
 */
import * as assert from "uvu/assert";
import { fixedWindow, slidingLog, slidingWindow } from "../../src/index.ts";
import { StoreLimiter, StoreRateLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { suite } from "../support/suite.ts";

const RATE = 10;
const ABORTED = 20;

const test = suite("aborted callers ahead of other processes");

async function make() {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const options = { clock, burstSeconds: 0 };
  const [here, there] = [0, 1].map(() => StoreRateLimiter.create(store, "api", RATE, options));
  if (here === undefined || there === undefined) throw new Error("no limiters");
  const abort = new AbortController();
  await here.acquire();
  const aborted = Array.from({ length: ABORTED }, () =>
    here.acquire(1, { signal: abort.signal }).catch(() => {}),
  );
  await clock.advance(0);
  const leave = async () => {
    abort.abort();
    await Promise.all(aborted);
    await clock.advance(0);
  };
  /** Ms until a new caller has its permit. */
  const waitOf = async (limiter: StoreRateLimiter) => {
    const reservation = await limiter.reserve();
    return reservation.waitMs;
  };
  return { clock, here, there, leave, waitOf };
}

test("all permits come back if no other process waits behind them", async () => {
  const { there, leave, waitOf } = await make();
  await leave();
  assert.ok((await waitOf(there)) <= 1000 / RATE);
});

test("a caller behind them keeps its instant, and the next caller follows it: nothing else is lost", async () => {
  const { there, leave, waitOf } = await make();
  const behind = await waitOf(there);
  assert.is(behind, ((ABORTED + 1) * 1000) / RATE);
  await leave();
  assert.ok((await waitOf(there)) <= behind + 1000 / RATE);
});

test("windows: after all have left, the next caller waits until the last promised window", async () => {
  const second = { limit: 5, windowMs: 1000 };
  for (const policy of [fixedWindow(second), slidingWindow(second), slidingLog(second)]) {
    const clock = new FakeClock();
    const limiter = StoreLimiter.create(memoryStore({ clock }), "api", policy, { clock });
    const abort = new AbortController();
    const callers = Array.from({ length: 50 }, () =>
      limiter.acquire(1, { signal: abort.signal }).catch(() => {}),
    );
    await clock.advance(0);
    abort.abort();
    await Promise.all(callers);
    await clock.advance(0);
    const reservations = await Promise.all(Array.from({ length: 6 }, () => limiter.reserve()));
    const waits = reservations.map(({ waitMs }) => waitMs);
    assert.equal(waits, [9000, 9000, 9000, 9000, 9000, 10_000]);
  }
});

test.run();
