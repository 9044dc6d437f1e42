/**
 * Callers that give up, at any moment: also while their request is on its way to the store, or while other requests
 * are. What they leave is used, or returns to the store without a gap in its schedule.
 */
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { fairShares, gcra } from "../../src/index.ts";
import { type Store, StoreLimiter } from "../../src/store.ts";
import { memoryStore } from "../../src/testing/index.ts";
import { isTriedOneIn, runs, suite } from "../support/suite.ts";

const PER_SECOND = 10;
const LOAD_MS = runs(5000, 1500);
const PATIENCE_MS = 300;
/** Each makes three calls every 10 ms: far more than the rate. */
const CALLERS = runs(5, 2);
const FAKED = ["setTimeout", "clearTimeout", "performance", "Date"] as const;

const test = suite("callers that give up");

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** A store that takes half of the latency for each direction. */
function distant(latencyMs: number): Store {
  const base = memoryStore();
  const breaker = base.breakerOf();
  return {
    breakerOf: () => breaker,
    run: async (key, declared, requests, now, batchId) => {
      await sleep(latencyMs / 2);
      const reply = await base.run(key, declared, requests, now, batchId);
      await sleep(latencyMs / 2);
      return reply;
    },
  };
}

for (const [p, prefetch] of ([undefined, { permits: 20 }, "auto"] as const).entries())
  for (const fair of [false, true])
    for (const [l, latencyMs] of [0, 5, 50, 100, 400].entries()) {
      if (!isTriedOneIn(3, p, Number(fair), l)) continue;
      const title = JSON.stringify({ prefetch, fair, latencyMs });
      test(`the rate is kept, and nothing is lost afterwards: ${title}`, async () => {
        const timers = FakeTimers.install({ toFake: [...FAKED], now: 1e12 });
        try {
          const limiter = StoreLimiter.create(
            distant(latencyMs),
            "name",
            gcra({ limit: PER_SECOND, periodMs: 1000 }),
            { prefetch, timeoutMs: 3000, order: fair ? fairShares() : undefined },
          );
          let granted = 0;
          const count = (isGranted: unknown) => {
            if (isGranted !== false) granted += 1;
          };
          for (let ms = 0; ms < LOAD_MS; ms += 10) {
            for (let i = 0; i < CALLERS; i++) {
              const abort = new AbortController();
              setTimeout(() => abort.abort("enough"), PATIENCE_MS);
              limiter.acquire(1, { signal: abort.signal }).then(count, () => {});
              void limiter.tryAcquire(1, { timeoutMs: 200 }).then(count);
              void limiter.tryAcquire().then(count);
            }
            await timers.tickAsync(10);
          }
          await timers.tickAsync(2000);
          // a call that is granted after its caller has left is lost, and nothing else
          const most = PER_SECOND * (1 + LOAD_MS / 1000) + 4;
          const least =
            fair && prefetch === undefined && latencyMs >= 50 ? PER_SECOND : 0.85 * most - 3;
          assert.ok(granted >= least && granted <= most, `${granted} granted, at most ${most}`);
          const seen = limiter.peek();
          await timers.tickAsync(latencyMs + 10);
          assert.is((await seen).waitMs, 0);
          void limiter.close();
          await timers.tickAsync(5000);
        } finally {
          timers.uninstall();
        }
      });
    }

test.run();
