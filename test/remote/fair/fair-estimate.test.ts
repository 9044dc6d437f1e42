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

/** A fair limiter, 10 a second, whose store takes 20 ms for a reply; its requests to `peek` are counted. */
async function world() {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const policy = smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 });
  const limiter = StoreLimiter.create(store, "shared", policy, {
    ...{ clock, order: fairShares(), timeoutMs: 60_000 },
  });
  await limiter.acquire();
  store.delayMs = 20;
  const fair = limiter as unknown as RemoteLimiter;
  const run = store.run.bind(store);
  const peeked = { count: 0, fails: false };
  store.run = async (key, declared, requests, ...rest) => {
    const isPeek = requests.flatMap((request) => {
      const count = request.verb === "reserve" ? request.count : 1;
      return Array.from({ length: count }, () => request.verb === "peek");
    });
    peeked.count += isPeek.filter(Boolean).length;
    const reply = await run(key, declared, requests, ...rest);
    // a reply without quotas says that the request can never pass
    const spoilt = reply.answers.map((answer, i) =>
      isPeek[i] ? { ...answer, quotas: [] } : answer,
    );
    return peeked.fails ? { ...reply, answers: spoilt } : reply;
  };
  return { clock, limiter, fair, peeked };
}

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

test("all time-outs that are checked at a time share one request to the store", async () => {
  const { clock, limiter, peeked } = await world();
  const calls = Array.from({ length: 60 }, (_, i) =>
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 2050, share: `${i % 3}` })),
  );
  await clock.advance(100);
  assert.ok(peeked.count <= 3, `${peeked.count} requests`);
  const refused = calls.filter(({ value }) => value === false).length;
  assert.ok(refused >= 36 && refused <= 42, `${refused} refused at once`);
  await clock.advance(3000);
  assert.ok(calls.filter(({ value }) => value).length >= 18);
});

test("calls for different amounts share it, and each gets its own wait", async () => {
  const { clock, fair, limiter, peeked } = await world();
  const first = Array.from({ length: 2 }, () => watch(clock, limiter.acquire(1, { share: "a" })));
  await clock.advance(0);
  const [one, five] = [1, 5].map((permits) =>
    watch(clock, fair[reserveAwaited](permits, undefined, { share: `${permits}` })),
  );
  const late = watch(clock, limiter.tryAcquire(5, { timeoutMs: 500, share: "b" }));
  const soon = watch(clock, limiter.tryAcquire(1, { timeoutMs: 1500, share: "b" }));
  await clock.advance(60);
  assert.ok(peeked.count <= 3, `${peeked.count} requests`);
  assert.equal([late.value, soon.value], [false, undefined]);
  assert.ok((one?.value?.waitMs ?? 0) < (five?.value?.waitMs ?? 0));
  await clock.advance(3000);
  assert.ok(soon.value);
  assert.equal(
    first.map(({ value }) => value !== undefined),
    [true, true],
  );
});

test("a request that fails refuses no caller, and the next check asks again", async () => {
  const { clock, limiter, peeked } = await world();
  peeked.fails = true;
  const timed = Array.from({ length: 4 }, () =>
    watch(clock, limiter.tryAcquire(1, { timeoutMs: 900, share: "a" })),
  );
  await clock.advance(10);
  await clock.advance(30);
  peeked.fails = false;
  const before = peeked.count;
  const refused = watch(clock, limiter.tryAcquire(1, { timeoutMs: 100, share: "b" }));
  await clock.advance(50);
  assert.ok(peeked.count > before);
  assert.is(refused.value, false);
  await clock.advance(1000);
  assert.ok(timed.every(({ value }) => value === true));
});

test.run();
