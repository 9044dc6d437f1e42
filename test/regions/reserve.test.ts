/** The reserve in a region's store, as attackers have used it. */
import { getEventListeners } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import {
  diagnostics,
  fixedWindow,
  QueueFullError,
  slidingWindow,
  tokenBucket,
} from "smooth-limiter";
import { PacedQueue } from "smooth-limiter/p-queue";
import { LimiterClosedError, RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { failure, turn } from "../support/limiter/watch.ts";
import {
  bucket,
  busy,
  drain,
  nameOf,
  type Regional,
  withLocal,
} from "../support/regions/with-local.ts";
import { suite } from "../support/suite.ts";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

const test = suite("regions, the reserve in a store");

/** Counts what has been granted and refused since. */
function since(limiter: Regional) {
  const { granted, refused, cancelled, failed } = limiter.stats;
  return () => {
    const { stats } = limiter;
    return {
      granted: stats.granted - granted,
      refused: stats.refused - refused,
      cancelled: stats.cancelled - cancelled,
      failed: stats.failed - failed,
      waiting: stats.waiting,
    };
  };
}
const NONE = { granted: 0, refused: 0, cancelled: 0, failed: 0, waiting: 0 };

/** The part has a debt of a second, the reserve is full. */
async function inDebt(options: Partial<RegionalOptions> = {}) {
  const opened = await withLocal(options);
  await busy(opened.limiter, opened.clock, 4000);
  await opened.limiter.charge(270);
  return opened;
}

for (const hasLocal of [true, false]) {
  const title = hasLocal ? "with a local store" : "with a reserve of 0";
  test(`${title}, two regions that are busy in turns use the permits of a window that are left`, async () => {
    const clock = new FakeClock();
    const home = memoryStore({ clock });
    const regions = ["eu", "us"];
    const policy = slidingWindow({ limit: 300, windowMs: 15_000 });
    const limiters = regions.map((region) => {
      const own = hasLocal ? { local: memoryStore({ clock }) } : { reserve: 0 };
      return RegionalLimiter.create("limit", policy, { home, clock, region, regions, ...own });
    });
    for (const limiter of limiters) await limiter.peek();
    await clock.advance(60_000);
    let granted = 0;
    for (let t = 0; t < 120_000; t += 100) {
      const limiter = limiters[Math.floor(t / 6000) % 2];
      for (let i = 0; i < 5; i++) if (await limiter?.tryAcquire()) granted += 1;
      await clock.advance(100);
    }
    for (const limiter of limiters) await limiter.close();
    assert.ok(granted >= 0.7 * 2400, `${granted} of 2400`);
  });
}

test("with a reserve of 1 all reservations are served: there is no part to wait for", async () => {
  const { clock, limiter } = await withLocal({ reserve: 1 });
  let served = 0;
  for (let i = 0; i < 300; i++) {
    const ready = limiter.reserve().then((one) => one.ready());
    ready.then(
      () => {
        served += 1;
      },
      () => {},
    );
  }
  await clock.advance(3_600_000);
  await limiter.close();
  assert.is(served, 300);
});

test("a caller that the region's store failed once is served when that store is back, though the home is away", async () => {
  const { clock, home, local, limiter } = await inDebt();
  for (let i = 0; i < 9; i++) await limiter.charge(270);
  home.fail();
  local.fail();
  let result = "waits";
  void nameOf(limiter.acquire()).then((name) => {
    result = Number(name) >= 0 ? "granted" : name;
  });
  await clock.advance(100);
  local.recover();
  await clock.advance(3_600_000);
  const later = await limiter.tryAcquire();
  const before = result;
  await limiter.close();
  assert.equal([later, before], [true, "granted"]);
});

test("a caller that the reserve's line had no room for is served by the reserve, while the home is away", async () => {
  const { clock, home, limiter } = await inDebt({ maxWaiting: 2, onFull: "wait" });
  for (let i = 0; i < 9; i++) await limiter.charge(270);
  await drain(limiter);
  home.fail();
  const names: string[] = [];
  for (let i = 0; i < 5; i++) void nameOf(limiter.acquire()).then((name) => void names.push(name));
  await clock.advance(3_600_000);
  const served = names.length;
  await limiter.close();
  assert.is(served, 5);
});

test("a PacedQueue goes on with the reserve while the home is away", async () => {
  const { clock, home, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  home.fail();
  const queue = new PacedQueue({ limiter });
  let done = 0;
  for (let i = 0; i < 600; i++) {
    void queue
      .add(async () => {
        done += 1;
      })
      .catch(() => {});
  }
  await clock.advance(3_600_000);
  await limiter.close();
  assert.is(done, 600);
});

test("reservations that were made while the home was away are served as the part grows", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  await busy(limiter, clock, 1000);
  let served = 0;
  for (let i = 0; i < 300; i++) {
    const ready = limiter.reserve().then((one) => one.ready());
    ready.then(
      () => {
        served += 1;
      },
      () => {},
    );
  }
  await clock.advance(1000);
  home.recover();
  await clock.advance(10_000);
  await limiter.close();
  assert.is(served, 300);
});

test("reservations are served first in, first out within a process", async () => {
  const { clock, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await clock.advance(2000);
  // the part lets the next one through after 50 ms, and the reserve has one permit
  await limiter.charge(270);
  await limiter.charge(15);
  while ((await limiter.peek()).remaining > 1) await limiter.tryAcquire();
  const order: number[] = [];
  for (let i = 0; i < 5; i++) {
    void limiter
      .reserve()
      .then((one) => one.ready())
      .then(() => order.push(i));
  }
  await clock.advance(2000);
  await limiter.close();
  assert.equal(order, [0, 1, 2, 3, 4]);
});

test("a single error of the region's store does not stop those who wait for a whole interval", async () => {
  const { clock, home, local, limiter } = await withLocal({ everyMs: 10_000, leaseMs: 50_000 });
  home.fail();
  await drain(limiter);
  local.fail();
  const waits = [1, 2, 3].map(() => limiter.acquire());
  await clock.advance(10);
  local.recover();
  await clock.advance(2000);
  const done = await Promise.race([Promise.all(waits).then(() => true), clock.advance(0)]);
  await limiter.close();
  await Promise.allSettled(waits);
  assert.ok(done);
});

test("… also if the region's store is slow: a later one does not overtake those that ask there", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await drain(limiter);
  local.delayMs = 20;
  const order: number[] = [];
  for (let i = 0; i < 20; i++) {
    void limiter
      .reserve()
      .then((one) => one.ready())
      .then(() => order.push(i));
    await clock.advance(2);
  }
  await clock.advance(2000);
  await limiter.close();
  const inOrder = [...order].sort((a, b) => a - b);
  assert.equal(order, inOrder);
});

test("the reserve's windows are those of the calendar", async () => {
  const policy = fixedWindow({ limit: 10, windowMs: 1000, align: "first" });
  const { clock, limiter } = await withLocal({ reserve: 1, regions: ["eu"] }, policy);
  await clock.advance(400);
  await limiter.tryAcquire();
  await clock.advance(900);
  let granted = 0;
  while (await limiter.tryAcquire()) granted += 1;
  await clock.advance(200);
  while (await limiter.tryAcquire()) granted += 1;
  await limiter.close();
  assert.ok(granted <= 10, `${granted} in one window`);
});

test("update reaches the reserves of the keys in the region's store", async () => {
  const { limiter } = await withLocal();
  const { limit } = await limiter.for("ann").peek();
  await limiter.update(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }));
  const limits = [limiter, limiter.for("ann"), limiter.for("bob")].map((each) => each.peek());
  const after = (await Promise.all(limits)).map((decision) => decision.limit);
  await limiter.close();
  assert.is(limit, 10);
  assert.equal(after, [1, 1, 1]);
});

test("after an update, close ends the calls that are under way in the store, and returns their permits", async () => {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const policy = fixedWindow({ limit: 20, windowMs: 60_000 });
  const all = { home, local, clock, region: "eu", regions: ["eu"], reserve: 1 };
  const [limiter, other] = [1, 2].map(() => RegionalLimiter.create("limit", policy, all));
  assert.ok(limiter !== undefined && other !== undefined);
  local.delayMs = 100;
  const ann = limiter.for("ann");
  const calls = [ann.reserve(5), ann.tryAcquire(20), limiter.reserve(5)].map(nameOf);
  await clock.advance(1);
  await limiter.update(policy);
  const closed = limiter.close();
  local.delayMs = 0;
  await clock.advance(1000);
  await closed;
  const names = await Promise.all(calls);
  const { granted, cancelled } = limiter.stats;
  const left = await Promise.all([other.for("ann").peek(), other.peek()]);
  await other.close();
  assert.equal(names, Array(3).fill("LimiterClosedError"));
  assert.equal([granted, cancelled], [0, 3]);
  assert.equal(
    left.map(({ remaining }) => remaining),
    [20, 20],
  );
});

test("close names the limiter in the same way wherever a call of a key is", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  const [ann, bob] = [limiter.for("ann"), limiter.for("bob")];
  const reservation = await ann.reserve(10);
  const waits = ann.acquire();
  await clock.advance(10);
  local.delayMs = 100;
  const calls = [waits, ann.tryAcquire(), bob.acquire(), bob.reserve(), bob.tryAcquire()];
  const ends = calls.map((call) => failure(() => call));
  await clock.advance(1);
  const closed = limiter.close();
  local.delayMs = 0;
  await clock.advance(1000);
  await closed;
  ends.push(...[() => reservation.settle(20), () => bob.tryAcquire()].map(failure));
  for (const error of await Promise.all(ends)) {
    assert.is(String(error), 'LimiterClosedError: limiter "limit" was closed');
  }
});

test("after an update and close, a store that is away is not probed any more", async () => {
  const { local, limiter } = await withLocal();
  local.hang();
  // what a time-out would do
  const breaker = local.breakerOf();
  const first = {
    timeoutMs: 1000,
    isAwaited: false,
    isIdle: true,
    probe: () => new Promise(() => {}),
    isPermanent: () => false,
    found() {},
    forgotten() {},
  };
  breaker.join(first, new Error("away"));
  const calls = ["ann", "bob"].map((key) => nameOf(limiter.for(key).tryAcquire()));
  const names = await Promise.all(calls);
  breaker.leave(first);
  const before = breaker.size;
  await limiter.update(bucket);
  for (let round = 0; round < 3; round++) {
    await turn();
    gc();
  }
  await limiter.close();
  assert.equal(names, Array(2).fill("StoreUnavailableError"));
  assert.equal([before, breaker.size], [2, 0]);
});

for (const hasLocal of [true, false]) {
  const title = hasLocal ? "in a store" : "in the process";
  test(`a reserve of exactly one request lets one through, ${title}`, async () => {
    const clock = new FakeClock();
    const home = memoryStore({ clock });
    home.fail();
    const own = hasLocal ? { local: memoryStore({ clock }) } : {};
    const policy = tokenBucket({ capacity: 10, refill: 10, everyMs: 1000 });
    // "limit x reserve / regions >= 1": 0.3 / 3 is 0.09999999999999999
    const regions = ["eu", "us", "asia"];
    const all = { home, ...own, clock, region: "eu", regions, reserve: 0.3 };
    const limiter = RegionalLimiter.create("limit", policy, all);
    await clock.advance(10_000);
    const isGranted = await limiter.tryAcquire();
    await limiter.close();
    assert.is(isGranted, true);
  });
}

test("a call that the part refuses and that the region's store fails counts once, as failed", async () => {
  const { local, limiter } = await withLocal();
  local.fail();
  const counted = since(limiter);
  assert.is(await nameOf(limiter.tryAcquire(1, 0)), "StoreUnavailableError");
  const counts = counted();
  local.recover();
  await limiter.close();
  assert.equal(counts, { ...NONE, failed: 1 });
});

test("a reservation that the part serves while the region's store is away is none that failed", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  local.fail();
  while ((await nameOf(limiter.tryAcquire())) === "true");
  const counted = since(limiter);
  await limiter.reserve();
  const counts = counted();
  local.recover();
  await limiter.close();
  assert.equal(counts, { ...NONE, granted: 1 });
});

test("a reservation whose cancellation the region's store fails counts once", async () => {
  const clock = new FakeClock();
  const [home, inner] = [memoryStore({ clock }), memoryStore({ clock })];
  const local: Store = {
    run: (key, declared, requests, now, batchId) =>
      requests.some(({ verb }) => verb === "back")
        ? Promise.reject(new Error("away"))
        : inner.run(key, declared, requests, now, batchId),
  };
  const regions = ["eu", "us", "asia"];
  const all = { home, local, clock, region: "eu", regions };
  const limiter = RegionalLimiter.create("limit", bucket, all);
  await limiter.peek();
  await clock.advance(10_000);
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  const counted = since(limiter);
  await Promise.all(Array.from({ length: 600 }, () => limiter.reserve()));
  const counts = counted();
  await limiter.close();
  assert.equal(counts, { ...NONE, granted: 600 });
});

test("what a line gives back in vain is no call that failed", async () => {
  const clock = new FakeClock();
  const [home, inner] = [memoryStore({ clock }), memoryStore({ clock })];
  const local: Store = {
    run: (key, declared, requests, now, batchId) =>
      requests.some(({ verb }) => verb === "refund")
        ? Promise.reject(new Error("away"))
        : inner.run(key, declared, requests, now, batchId),
  };
  const regions = ["eu", "us", "asia"];
  const policy = fixedWindow({ limit: 300, windowMs: 1000 });
  const all = { home, local, clock, region: "eu", regions };
  const limiter = RegionalLimiter.create("limit", policy, all);
  await limiter.peek();
  await clock.advance(10_000);
  await busy(limiter, clock, 4000);
  await drain(limiter);
  const counted = since(limiter);
  // when the next window begins both lines serve one at the same instant
  const calls = [limiter.acquire(), limiter.tryAcquire(1, 3000), limiter.tryAcquire(1, 3000)];
  await clock.advance(5000);
  await Promise.all(calls);
  const counts = counted();
  await limiter.close();
  assert.equal(counts, { ...NONE, granted: 3 });
});

test("a reservation in the reserve that is due before it can be cancelled is not counted as cancelled", async () => {
  const { clock, local, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await clock.advance(2000);
  await limiter.charge(270);
  await limiter.charge(15);
  while ((await limiter.peek()).remaining > 1) await limiter.tryAcquire();
  local.delayMs = 300;
  const counted = since(limiter);
  const calls = Array.from({ length: 5 }, () => limiter.reserve());
  await clock.advance(2000);
  await Promise.all(calls);
  const counts = counted();
  await limiter.close();
  assert.equal(counts, { ...NONE, granted: 5 });
});

function refusals() {
  const seen: unknown[] = [];
  const see = (message: unknown) => void seen.push(message);
  diagnostics.refused.subscribe(see);
  return { seen, end: () => diagnostics.refused.unsubscribe(see) };
}

test("diagnostics.refused: nothing of a call that is granted", async () => {
  const { clock, limiter } = await inDebt();
  await clock.advance(100);
  const { seen, end } = refusals();
  const isGranted = await limiter.tryAcquire(1, 0);
  end();
  await limiter.close();
  assert.equal([isGranted, seen.length], [true, 0]);
});

test("diagnostics.refused: a call that is refused is published once", async () => {
  const { limiter } = await withLocal();
  await drain(limiter);
  const { seen, end } = refusals();
  const isGranted = await limiter.tryAcquire(1, 0);
  end();
  await limiter.close();
  assert.equal([isGranted, seen.length], [false, 1]);
});

test("diagnostics.cancelled: nothing of reservations that no caller has cancelled", async () => {
  const { clock, limiter } = await withLocal();
  await busy(limiter, clock, 4000);
  await clock.advance(1000);
  let cancelled = 0;
  const see = () => {
    cancelled += 1;
  };
  diagnostics.cancelled.subscribe(see);
  await Promise.all(Array.from({ length: 600 }, () => limiter.reserve()));
  diagnostics.cancelled.unsubscribe(see);
  await limiter.close();
  assert.is(cancelled, 0);
});

test("a signal whose reason is a QueueFullError ends a call like any other", async () => {
  const { clock, limiter } = await withLocal();
  await drain(limiter);
  const counted = since(limiter);
  const end = new AbortController();
  const call = nameOf(limiter.acquire(1, { signal: end.signal }));
  await clock.advance(10);
  end.abort(new QueueFullError("other", 1, 0, 0));
  await call;
  const counts = counted();
  await limiter.close();
  assert.equal(counts, { ...NONE, cancelled: 1 });
});

test("a signal whose reason is that another limiter was closed ends a call in the store with that reason", async () => {
  const { clock, local, limiter } = await withLocal();
  local.delayMs = 100;
  const end = new AbortController();
  const call = failure(() => limiter.tryAcquire({ signal: end.signal, timeoutMs: 0 }));
  await clock.advance(1);
  const reason = new LimiterClosedError("other");
  end.abort(reason);
  const error = await call;
  local.delayMs = 0;
  await clock.advance(1000);
  await limiter.close();
  assert.is(error, reason);
});

test("callers that share a signal share a listener: Node warns of more than ten", async () => {
  const { clock, limiter } = await withLocal();
  const end = new AbortController();
  const calls = Array.from({ length: 30 }, () =>
    nameOf(limiter.acquire(1, { signal: end.signal })),
  );
  await clock.advance(1);
  const listeners = getEventListeners(end.signal, "abort").length;
  end.abort();
  await Promise.all(calls);
  await limiter.close();
  assert.is(listeners, 1);
});

test("a caller that onFull drops learns that the queue was full, not that its request is too large", async () => {
  const { clock, limiter } = await withLocal({ maxWaiting: 25, onFull: "drop-oldest" });
  const call = nameOf(limiter.acquire(20));
  await clock.advance(10);
  void nameOf(limiter.acquire(20));
  const name = await call;
  await limiter.close();
  assert.is(name, "QueueFullError");
});

test("a permit that comes when its caller has left goes to the next one, and is used up without one", async () => {
  for (const isNextThere of [true, false]) {
    const { clock, local, limiter } = await withLocal(
      {},
      fixedWindow({ limit: 300, windowMs: 60_000 }),
    );
    const { remaining } = await limiter.peek();
    local.delayMs = 50;
    const leave = new AbortController();
    const first = nameOf(limiter.acquire(1, { signal: leave.signal }));
    await clock.advance(10);
    leave.abort();
    await clock.advance(10);
    const next = isNextThere ? nameOf(limiter.acquire()) : undefined;
    await clock.advance(200);
    assert.is(await first, "AbortError");
    assert.ok(next === undefined || Number(await next) < 50);
    local.delayMs = 0;
    await clock.advance(100);
    assert.is((await limiter.peek()).remaining, remaining - 1);
    await limiter.close();
  }
});

test("a request that is larger than the reserve, and fits into its region's share, is served beside a busy region", async () => {
  const { clock, limiter, all } = await withLocal({ regions: ["eu", "us"], reserve: 0.3 });
  const other = RegionalLimiter.create("limit", bucket, {
    ...all,
    local: memoryStore({ clock }),
    region: "us",
  });
  await busy(other, clock, 5000);
  let isServed = false;
  // the reserve holds 45 of 300, a part up to 105
  void limiter.acquire(70).then(() => {
    isServed = true;
  });
  for (let t = 0; t < 10_000 && !isServed; t += 500) await busy(other, clock, 500);
  assert.ok(isServed);
  const closed = Promise.all([limiter.close(), other.close()]);
  await clock.advance(5000);
  await closed;
});

test.run();
