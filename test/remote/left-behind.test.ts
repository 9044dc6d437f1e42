/**
 * What aborted callers of one process cost the callers of other processes that wait behind them.
 */
import * as assert from "uvu/assert";
import { StoreRateLimiter } from "../../src/store.ts";
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

test.run();
