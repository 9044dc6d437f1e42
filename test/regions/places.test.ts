/** What attackers have found in the reserve in a region's store. */
import { fixedWindow, tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { nameOf, withLocal } from "../support/regions/with-local.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, places in the line of the reserve");

test("a caller that comes back a microtask after it was served is served by the reserve again", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  while (await limiter.tryAcquire());
  let served = 0;
  void (async () => {
    for (;;) {
      await limiter.acquire();
      served += 1;
      // as an async function around `acquire` does
      await undefined;
    }
  })().catch(() => {});
  await clock.advance(3000);
  const before = served;
  await limiter.close();
  assert.ok(before >= 25, `${before} in 3 s`);
});

test("a reservation behind a caller that waits for a minute is returned at once", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 60_000 });
  const { clock, home, limiter } = await withLocal({}, policy);
  home.fail();
  while (await limiter.tryAcquire());
  void nameOf(limiter.acquire());
  await clock.advance(100);
  let isReturned = false;
  const returned = limiter.reserve().then(() => {
    isReturned = true;
  });
  await clock.advance(100);
  const atOnce = isReturned;
  returned.catch(() => {});
  await limiter.close();
  assert.is(atOnce, true);
});

for (const verb of ["tryAcquire", "acquire", "reserve"] as const) {
  test(`${verb} that is under way while the policies are updated is no call of a closed limiter`, async () => {
    // beyond maxWaiting all three ask the reserve for what it has now
    const { clock, local, home, limiter } = await withLocal({ maxWaiting: 1 });
    home.fail();
    while (await limiter.tryAcquire());
    void nameOf(limiter.acquire());
    await clock.advance(1);
    local.delayMs = 20;
    let name = "waits";
    void nameOf(limiter[verb]()).then((result) => {
      name = result;
    });
    await clock.advance(5);
    void limiter.update(tokenBucket({ capacity: 600, refill: 600, everyMs: 1000 }));
    await clock.advance(200);
    const before = name;
    await limiter.close();
    assert.is.not(before, "LimiterClosedError");
  });
}

test("a request that is given back in the next window does not give back what others use in that window", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 1000 });
  const { clock, local, home, limiter, all } = await withLocal({}, policy);
  home.fail();
  let replyMs = 0;
  // the store runs a request at once, its reply takes a while
  const far: Store = {
    run: async (key, declared, requests, now, batchId) => {
      const reply = await local.run(key, declared, requests, now, batchId);
      if (replyMs > 0) {
        await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + replyMs, resolve));
      }
      return reply;
    },
  };
  const slow = RegionalLimiter.create("limit", policy, { ...all, local: far });
  await clock.advance(960);
  replyMs = 60;
  const leave = new AbortController();
  const call = nameOf(slow.acquire(1, { signal: leave.signal }));
  await clock.advance(10);
  leave.abort();
  await call;
  replyMs = 0;
  await clock.advance(35);
  let granted = 0;
  while (await limiter.tryAcquire()) granted += 1;
  await clock.advance(100);
  while (await limiter.tryAcquire()) granted += 1;
  await slow.close();
  await limiter.close();
  assert.is(granted, 10);
});

test("a place in the store that is given up when it is due does not bring the reserve twice in the next window", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 1000 });
  const { clock, home, limiter, all } = await withLocal({ leaseMs: 60_000 }, policy);
  await clock.advance(70_000);
  for (let t = 0; t < 5000; t += 50) {
    for (let i = 0; i < 20; i++) await limiter.tryAcquire();
    await clock.advance(50);
  }
  home.fail();
  const part = Math.floor(Math.floor(300 * limiter.fraction) / 10) * 10;
  assert.ok(part > 100, `${part}`);
  // another process in the region, which has no part
  const other = RegionalLimiter.create("limit", policy, all);
  await clock.advance(100);
  while (await limiter.tryAcquire());
  const windows: Record<number, number> = {};
  const count = () => {
    const window = Math.floor(clock.now() / 1000);
    windows[window] = (windows[window] ?? 0) + 10;
  };
  const ask = (from: typeof limiter, times: number) => {
    for (let i = 0; i < times; i++) void from.acquire(10).then(count, () => {});
  };
  // its part serves all of them in the next window, when its place in the store is due, too
  ask(limiter, part / 10);
  await clock.advance(10);
  ask(other, 1);
  await clock.advance(1000);
  ask(limiter, 2 * part);
  await clock.advance(2000);
  const most = Math.max(...Object.values(windows));
  await limiter.close();
  await other.close();
  assert.ok(most <= part + 10, `${most} of ${part} + 10: ${JSON.stringify(windows)}`);
});

for (const policy of [
  fixedWindow({ limit: 300, windowMs: 2000 }),
  tokenBucket({ capacity: 300, refill: 300, everyMs: 2000 }),
]) {
  test(`callers behind one that the reserve serves bring the part no second burst: ${policy.algorithm.name}`, async () => {
    const weights = { eu: 1, us: 4, asia: 5 };
    const { clock, home, local, limiter, all } = await withLocal(
      { reserve: 0.5, regions: weights, leaseMs: 60_000 },
      policy,
    );
    const others = ["us", "asia"].map((region) =>
      RegionalLimiter.create("limit", policy, { ...all, region, local: memoryStore({ clock }) }),
    );
    const each = [limiter, ...others];
    await clock.advance(70_000);
    for (let t = 0; t < 20_000; t += 50) {
      for (let i = 0; i < 20; i++) for (const one of each) await one.tryAcquire();
      await clock.advance(50);
    }
    home.fail();
    const part = Math.floor(300 * limiter.fraction);
    assert.ok(part > 5 && part < 40, `${part}`);
    while (await limiter.tryAcquire());
    await clock.advance(2000);
    // larger than the part, not than the reserve, whose store is away for two windows
    local.fail();
    let granted = 0;
    const count = (permits: number) => {
      granted += permits;
    };
    void limiter.acquire(40).then(() => count(40));
    for (let i = 0; i < part; i++) void limiter.acquire().then(() => count(1));
    await clock.advance(4000);
    assert.is(granted, 0);
    local.recover();
    while (granted < 40) await clock.advance(10);
    while (await limiter.tryAcquire()) granted += 1;
    for (const one of each) await one.close();
    // the burst of the part and of the reserve
    const most = part + 50;
    assert.ok(granted <= most, `${granted} of ${most}`);
  });
}

test("what is settled while a reservation waits is charged when the reserve serves it", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 60_000 });
  const { clock, home, limiter } = await withLocal({}, policy);
  home.fail();
  while (await limiter.tryAcquire());
  const reservation = await limiter.reserve();
  await reservation.settle(8);
  await clock.advance(60_000);
  let granted = 0;
  while (await limiter.tryAcquire()) granted += 1;
  await limiter.close();
  assert.is(granted, 2);
});

test("a reservation that is settled to 0 while it waits does not stop those behind it", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  while (await limiter.tryAcquire());
  const [, second] = await Promise.all([limiter.reserve(), limiter.reserve()]);
  await second.settle(0);
  let result = "waits";
  void nameOf(limiter.acquire()).then((name) => {
    result = name;
  });
  await clock.advance(60_000);
  const before = result;
  await limiter.close();
  assert.is.not(before, "waits");
});

test("a caller behind one that has left does not wait for what that one needed", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  while (await limiter.tryAcquire());
  const leave = new AbortController();
  void nameOf(limiter.acquire(10, { signal: leave.signal }));
  const call = limiter.acquire(1);
  await clock.advance(10);
  leave.abort();
  await clock.advance(300);
  let waited = -1;
  void call.then((ms) => {
    waited = ms;
  });
  await clock.advance(2000);
  await limiter.close();
  assert.ok(waited <= 400, `${waited}`);
});

test("a caller that names one of two policies is served by the reserve", async () => {
  const { clock, home, limiter } = await withLocal({}, {
    calls: tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 }),
    bytes: tokenBucket({ capacity: 3000, refill: 3000, everyMs: 1000 }),
  } as never);
  home.fail();
  while (await limiter.tryAcquire({ calls: 1 } as never));
  let result = "waits";
  void nameOf(limiter.acquire({ calls: 1 } as never)).then((name) => {
    result = name;
  });
  await clock.advance(60_000);
  const after = result;
  await limiter.close();
  assert.is.not(after, "waits");
});

test("a signal ends a call that asks the region's store at once", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  while (await limiter.tryAcquire());
  local.delayMs = 500;
  const end = new AbortController();
  let result = "waits";
  void nameOf(limiter.tryAcquire(1, { timeoutMs: 0, signal: end.signal })).then((name) => {
    result = name;
  });
  await clock.advance(10);
  end.abort();
  await clock.advance(10);
  const after = result;
  await clock.advance(1000);
  await limiter.close();
  assert.is(after, "AbortError");
});

test("reset serves those who wait from the fresh reserve", async () => {
  const policy = fixedWindow({ limit: 300, windowMs: 60_000 });
  const { clock, home, limiter } = await withLocal({}, policy);
  home.fail();
  while (await limiter.tryAcquire());
  let result = "waits";
  void nameOf(limiter.acquire()).then((name) => {
    result = name;
  });
  await clock.advance(100);
  await limiter.reset();
  await clock.advance(100);
  const after = result;
  await limiter.close();
  assert.is.not(after, "waits");
});

for (const onFull of ["wait", "drop-oldest"] as const) {
  test(`onFull ${onFull}: callers beyond maxWaiting overtake none`, async () => {
    const { clock, home, local, limiter } = await withLocal({ maxWaiting: 2, onFull });
    home.fail();
    local.delayMs = 20;
    const order: number[] = [];
    for (let i = 0; i < 6; i++) {
      void limiter.acquire().then(
        () => order.push(i),
        () => {},
      );
    }
    await clock.advance(3000);
    await limiter.close();
    assert.equal(
      order,
      [...order].sort((a, b) => a - b),
    );
  });
}

test.run();
