/** What a fair limiter on a store asks about the waits of its callers. */
import * as assert from "uvu/assert";
import { reserveAwaited } from "../../../src/api/reserve-awaited.ts";
import { fairShares, fixedWindow, smoothBursty, tokenBucket } from "../../../src/index.ts";
import type { RemoteLimiter } from "../../../src/remote/remote-limiter.ts";
import { StoreLimiter } from "../../../src/store.ts";
import { FakeClock, memoryStore } from "../../../src/testing/index.ts";
import { watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("fair limiters on a store, waits of callers");

test("peek behind other callers refuses although the store would grant it", async () => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const policies = {
    bucket: tokenBucket({ capacity: 50, refill: 10, everyMs: 1000 }),
    window: fixedWindow({ limit: 1000, windowMs: 60_000 }),
  };
  const limiter = StoreLimiter.create(store, "shared", policies, { clock, order: fairShares() });
  for (let i = 0; i < 100; i++) void limiter.acquire(1, { share: "a" });
  const { allowed, remaining, policy, policies: each } = await limiter.peek(1, { share: "a" });
  assert.equal([allowed, remaining, policy], [false, 0, "bucket"]);
  assert.equal([each.bucket.allowed, each.window.allowed], [false, true]);
  await clock.advance(10_000);
});

test("reservations that are awaited for different amounts get their own waits", async () => {
  const clock = new FakeClock();
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const limiter = StoreLimiter.create(memoryStore({ clock }), "shared", policy, {
    ...{ clock, order: fairShares() },
  });
  await limiter.acquire();
  for (let i = 0; i < 4; i++) void limiter.acquire(1, { share: "a" });
  const fair = limiter as unknown as RemoteLimiter;
  const [one, five] = await Promise.all(
    [1, 5].map((permits) => fair[reserveAwaited](permits, undefined, { share: `${permits}` })),
  );
  const ready = [one, five].map((each) => watch(clock, Promise.resolve(each?.ready())));
  await clock.advance(3000);
  assert.equal([one?.waitMs, five?.waitMs], [400, 600]);
  assert.equal(
    ready.map(({ at }) => at),
    [400, 600],
  );
});

test.run();
