/** How much a fair limiter has with the store: across processes, over slow networks, and while grants come at once. */
import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  fairShares,
  fixedWindow,
  type Policy,
  smoothBursty,
  tokenBucket,
} from "../../../src/index.ts";
import { StoreLimiter, type StoreLimiterOptions } from "../../../src/store.ts";
import { FakeClock, memoryStore } from "../../../src/testing/index.ts";
import { turn } from "../../support/limiter/watch.ts";
import { runs, suite } from "../../support/suite.ts";

const paced = (permitsPerSecond: number) => smoothBursty({ permitsPerSecond, burstSeconds: 0 });

/** Limiters of several processes on one store. */
function processes(count: number, policy: Policy, options: StoreLimiterOptions = {}) {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const create = () =>
    StoreLimiter.create(store, "shared", policy, {
      clock,
      order: fairShares(),
      timeoutMs: 60_000,
      ...options,
    });
  return { clock, store, limiters: Array.from({ length: count }, create) };
}

/** Closes them; their replies come at once. */
async function end({ clock, store, limiters }: ReturnType<typeof processes>) {
  store.delayMs = 0;
  const closed = Promise.all(limiters.map((limiter) => limiter.close()));
  await clock.advance(1000);
  await closed;
}

const across = suite("fair limiters in several processes");

across("a new caller waits for at most the windows of the other processes", async () => {
  const rates = fc.constantFrom(3, 50, 400, 2000);
  const count = fc.integer({ min: 2, max: 6 });
  const sizes = fc.array(fc.constantFrom(1, 1, 1, 2, 5), { minLength: 1, maxLength: 6 });
  const prefetched = fc.constantFrom(0, 0, 7);
  await fc.assert(
    fc.asyncProperty(rates, count, sizes, prefetched, async (rate, n, permits, prefetch) => {
      const more = prefetch > 0 ? { prefetch: { permits: prefetch } } : {};
      const world = processes(n, paced(rate), more);
      const { clock, limiters } = world;
      const [own, ...others] = limiters as [StoreLimiter, ...StoreLimiter[]];
      await own.charge(1);
      let granted = 0;
      const calls = Math.ceil((20 * n * Math.max(rate, 20)) / 400) + 20;
      for (const other of others) {
        for (let i = 0; i < calls; i++) {
          const size = permits[i % permits.length] as number;
          other.acquire(size, { share: "busy" }).then(
            () => {
              granted += size;
            },
            () => {},
          );
        }
      }
      await clock.advance(7);
      const before = granted;
      let ahead: number | undefined;
      void own.acquire(1, { share: "new" }).then(() => {
        ahead = granted - before;
      });
      const bound = (n - 1) * (Math.max(rate * 0.02, 2 * Math.max(...permits)) + prefetch);
      while (ahead === undefined) await clock.advance(1000 / rate);
      assert.ok(ahead <= bound, `${ahead} of ${bound}`);
      await end(world);
    }),
    { numRuns: runs(60) },
  );
});

across("processes with callers get the same, however many tenants each has", async () => {
  const world = processes(3, paced(200));
  const { clock, limiters } = world;
  const got = limiters.map(() => 0);
  limiters.forEach((limiter, i) => {
    for (let call = 0; call < 2000; call++) {
      limiter.acquire(1, { share: `${call % (1 + 40 * i)}` }).then(
        () => {
          got[i] = Number(got[i]) + 1;
        },
        () => {},
      );
    }
  });
  await clock.advance(5000);
  const all = got.reduce((sum, each) => sum + each, 0);
  assert.ok(Math.abs(all - 1000) <= 1, `${all}`);
  assert.ok(Math.max(...got) - Math.min(...got) <= 6, `${got}`);
  await end(world);
});

across("within each process the shares are served in turn", async () => {
  const world = processes(2, paced(100));
  const { clock, limiters } = world;
  const got: Record<string, number> = {};
  for (const [i, limiter] of limiters.entries()) {
    for (const [share, calls] of Object.entries({ loud: 1000, quiet: 40 })) {
      for (let call = 0; call < calls; call++) {
        limiter.acquire(1, { share }).then(
          () => {
            got[`${share}${i}`] = (got[`${share}${i}`] ?? 0) + 1;
          },
          () => {},
        );
      }
    }
  }
  await clock.advance(1000);
  const counts = Object.values(got);
  assert.is(counts.length, 4);
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 5, JSON.stringify(got));
  await end(world);
});

across.run();

const pipe = suite("fair limiters on a store, round trips");

for (const delayMs of [0, 2, 30, 80]) {
  pipe(`no permit is lost over a round trip of ${delayMs} ms`, async () => {
    const world = processes(1, paced(500));
    const { clock, store, limiters } = world;
    const [limiter] = limiters as [StoreLimiter];
    store.delayMs = delayMs;
    let granted = 0;
    for (let call = 0; call < 2000; call++) {
      limiter.acquire(1, { share: `${call % 7}` }).then(
        () => {
          granted += 1;
        },
        () => {},
      );
    }
    await clock.advance(1000);
    const before = granted;
    await clock.advance(1000);
    assert.is(granted - before, 500);
    await end(world);
  });
}

pipe("stored permits are taken in few round trips, in fair order", async () => {
  const policy = tokenBucket({ capacity: 300, refill: 1, everyMs: 60_000 });
  const world = processes(1, policy);
  const { clock, store, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  store.delayMs = 10;
  const got: Record<string, number> = { a: 0, b: 0 };
  const call = (share: string) =>
    limiter.acquire(1, { share }).then(
      () => {
        got[share] = Number(got[share]) + 1;
      },
      () => {},
    );
  for (let i = 0; i < 1000; i++) void call("a");
  for (let i = 0; i < 1000; i++) void call("b");
  await clock.advance(80);
  assert.is(Number(got.a) + Number(got.b), 300);
  assert.ok(Math.abs(Number(got.a) - Number(got.b)) <= 4, JSON.stringify(got));
  assert.is(limiter.stats.refused, 0, "calls that are tried beside the window are not refused");
  await end(world);
});

pipe("permits that no call wants any more return to the store", async () => {
  const policy = fixedWindow({ limit: 100, windowMs: 60_000 });
  const world = processes(1, policy);
  const { clock, store, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  store.delayMs = 10;
  const controller = new AbortController();
  const { signal } = controller;
  let granted = 0;
  for (let i = 0; i < 40; i++) {
    limiter.acquire(1, { signal }).then(
      () => {
        granted += 1;
      },
      () => {},
    );
  }
  await clock.advance(15);
  assert.is(granted, 2);
  controller.abort();
  await clock.advance(100);
  assert.equal([granted, limiter.stats.waiting], [2, 0]);
  const left = limiter.peek();
  await clock.advance(10);
  assert.is((await left).remaining, 98);
  await end(world);
});

pipe("calls for other amounts wait for the window", async () => {
  const policy = fixedWindow({ limit: 30, windowMs: 60_000 });
  const world = processes(1, policy);
  const { clock, store, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  store.delayMs = 10;
  const order: string[] = [];
  const sent: string[] = [];
  const run = store.run.bind(store);
  store.run = (key, declared, requests, ...rest) => {
    sent.push(...requests.map(({ verb }) => verb));
    return run(key, declared, requests, ...rest);
  };
  const sizes = [1, 1, 1, 1, 2, 1, 2, 2];
  for (const [i, size] of sizes.entries()) {
    const call = i % 2 === 0 ? limiter.acquire(size) : limiter.tryAcquire(size, 1000);
    void call.then((answer) => order.push(`${i}${answer === false ? " refused" : ""}`));
  }
  await clock.advance(5);
  void limiter.acquire(3, { share: "new" }).then(() => order.push("new"));
  await clock.advance(300);
  assert.equal(order.length, 9);
  assert.ok(!order.join().includes("refused"), order.join(" "));
  assert.equal(order.filter((one) => one !== "new").join(" "), "0 1 2 3 4 5 6 7");
  assert.not.ok(sent.includes("refund"), `${sent}`);
  const left = limiter.peek();
  await clock.advance(10);
  assert.is((await left).remaining, 30 - 11 - 3);
  await end(world);
});

pipe("the time in the line is a wait, a round trip is not", async () => {
  const world = processes(1, fixedWindow({ limit: 30, windowMs: 60_000 }));
  const { clock, store, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  store.delayMs = 10;
  const waits = Promise.all([1, 1, 2, 3].map((permits) => limiter.acquire(permits)));
  await clock.advance(200);
  assert.equal(await waits, [0, 0, 10, 10]);
  await end(world);
});

pipe("a share is charged once for a call that is granted at once while another waits", async () => {
  const policy = tokenBucket({ capacity: 15, refill: 1, everyMs: 2 });
  const world = processes(1, policy);
  const { clock, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  const order: string[] = [];
  const call = (share: string, permits = 1, weight = 1) =>
    limiter.acquire(permits, { share, weight }).then(() => order.push(share));
  await Promise.all([call("heavy", 10), clock.advance(0)]);
  // five calls take what is left, and the sixth keeps the limiter from being idle
  for (let i = 0; i < 6; i++) void call("others");
  await clock.advance(0);
  void call("filler", 15, 1e6);
  for (const share of ["heavy", "new", "new", "new", "new"]) void call(share);
  await clock.advance(1000);
  // heavy was 10 ahead, and 6 others were served since
  const expected = ["new", "new", "new", "heavy", "new"];
  assert.equal(order.slice(-5), expected, order.join(" "));
  await end(world);
});

pipe("an outage while calls are tried beside the window loses none of them", async () => {
  const policy = fixedWindow({ limit: 30, windowMs: 60_000 });
  const world = processes(1, policy);
  const { clock, store, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  store.delayMs = 10;
  let [granted, failed] = [0, 0];
  for (let i = 0; i < 20; i++) {
    limiter.acquire().then(
      () => {
        granted += 1;
      },
      () => {
        failed += 1;
      },
    );
  }
  await clock.advance(15);
  store.fail();
  await clock.advance(1000);
  await turn();
  assert.equal([granted, failed], [2, 18]);
  store.recover();
  await end(world);
});

pipe("an unlimited rate has an unlimited window", async () => {
  const world = processes(1, paced(Infinity));
  const { clock, limiters } = world;
  const [limiter] = limiters as [StoreLimiter];
  const all = Promise.all(Array.from({ length: 100 }, () => limiter.acquire()));
  await clock.advance(0);
  assert.ok((await all).every((waitMs) => waitMs === 0));
  await end(world);
});

pipe.run();
