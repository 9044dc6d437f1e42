/** The verbs of a region, with and without a store of its own: what each test names should happen. */
import { getEventListeners } from "node:events";
import {
  allOf,
  ConcurrencyLimiter,
  diagnostics,
  fairShares,
  fixedWindow,
  Limiter,
  leakyBucket,
  type Policies,
  RateLimiter,
  ReservationCancelledError,
  type ShareOptions,
  smoothBursty,
  tokenBucket,
} from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { StoreLimiter } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { Part } from "../../src/regions/part.ts";
import {
  bucket,
  busy,
  drain,
  nameOf,
  type Regional,
  withLocal,
} from "../support/regions/with-local.ts";
import { suite } from "../support/suite.ts";

const test = suite("regions, verbs");

const HOUR_MS = 3_600_000;

// -- settle and undo of a reservation that need not wait ---------------------------------------

test("with a local store, settle of a reservation that need not wait is paid by the reserve that served it", async () => {
  const { clock, home, limiter } = await withLocal();
  // so that the reserve, 10 a second, is all that there is
  home.fail();
  let used = 0;
  for (let i = 0; i < 100; i++) {
    const reservation = await limiter.reserve();
    if (reservation.waitMs === 0) {
      await reservation.settle(5);
      used += 5;
    } else {
      await reservation.cancel();
    }
    await clock.advance(200);
  }
  await limiter.close();
  // 500: a part that does not exist pays for four of five
  assert.ok(used <= 10 + 20 * 10 + 5, `${used} were used in 20 s`);
});

test("with a local store, what settle adds is no debt that is there for ever", async () => {
  const { clock, limiter } = await withLocal();
  for (let i = 0; i < 1000; i++) {
    const reservation = await limiter.reserve();
    if (reservation.waitMs === 0) await reservation.settle(10);
    await clock.advance(200);
  }
  await clock.advance(24 * HOUR_MS);
  const { granted } = limiter.stats;
  await busy(limiter, clock, 20_000);
  const after = limiter.stats.granted - granted;
  await limiter.close();
  // 209 of 8000: a day later the debt of 9000 still takes all that the lease has, and the reserve goes on alone
  assert.ok(after > 4000, `a busy region is granted ${after} of 8000`);
});

test("with a local store, undo of a reservation that need not wait gives back to the reserve that served it", async () => {
  const { home, limiter } = await withLocal();
  home.fail();
  let served = 0;
  for (let i = 0; i < 20; i++) {
    const reservation = await limiter.reserve();
    if (reservation.waitMs === 0) served += 1;
    await reservation.undo();
  }
  await limiter.close();
  // 10: the reserve is empty, though nothing was used
  assert.is(served, 20);
});

test("with a local store, keys whose reservations were settled are forgotten", async () => {
  const { clock, limiter } = await withLocal();
  let kept = 0;
  const isForgettable = Part.prototype.isForgettable;
  try {
    for (let i = 0; i < 200; i++) {
      const reservation = await limiter.for(`key ${i}`).reserve();
      await reservation.settle(2);
      await clock.advance(100);
    }
    await clock.advance(24 * HOUR_MS);
    Part.prototype.isForgettable = function (now) {
      const is = isForgettable.call(this, now);
      if (!is && this.key?.startsWith("key ")) kept += 1;
      return is;
    };
    for (let i = 0; i < 400; i++) await limiter.for(`other ${i}`).tryAcquire();
  } finally {
    Part.prototype.isForgettable = isForgettable;
  }
  await limiter.close();
  assert.is(kept, 0, "keys of yesterday were kept");
});

// A caller that reserves by an estimate, works for a minute, and then says what it has used must pay for it: `KeyedLimiter`
// does so as well.
for (const others of [0, 10]) {
  test(`settle charges the key of the reservation, also if ${others} other keys came meanwhile`, async () => {
    const clock = new FakeClock();
    const home = memoryStore({ clock });
    const regions = ["eu", "us", "asia"];
    const limiter = RegionalLimiter.create("limit", bucket, { home, clock, region: "eu", regions });
    const reservation = await limiter.for("ann").reserve();
    await clock.advance(60_000);
    for (let i = 0; i < others; i++) await limiter.for(`key ${i}`).tryAcquire();
    await reservation.settle(200);
    const isGranted = await limiter.for("ann").tryAcquire();
    await limiter.close();
    assert.is(isGranted, false);
  });
}

test("several policies: what a caller has used that waited for the reserve is settled there", async () => {
  const policies = {
    second: tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 }),
    hour: tokenBucket({ capacity: 3000, refill: 1, everyMs: HOUR_MS }),
  };
  const { clock, home, limiter } = await withLocal({}, policies);
  home.fail();
  for (let i = 0; i < 10; i++) await limiter.tryAcquire({ second: 1, hour: 1 });
  const reservation = await limiter.reserve({ second: 1, hour: 5 });
  const ready = reservation.ready();
  await clock.advance(100);
  await ready;
  await reservation.settle({ hour: 1 });
  const { policies: left } = await limiter.peek({ hour: 1 });
  await limiter.close();
  // of the reserve's 100
  assert.is(Math.floor(left.hour?.remaining ?? 0), 89);
});

// -- changes while callers wait for the reserve ------------------------------------------------

/** A reserve of 3 an hour that is used up, in a store with a round trip of 50 ms. */
async function slow() {
  const policy = tokenBucket({ capacity: 3, refill: 3, everyMs: HOUR_MS });
  const opened = await withLocal({ reserve: 1, regions: ["eu"] }, policy);
  await drain(opened.limiter);
  opened.local.delayMs = 50;
  return opened;
}

for (const afterMs of [0, 20, 200]) {
  test(`update reaches a caller that has asked the reserve ${afterMs} ms before`, async () => {
    const { clock, limiter } = await slow();
    const call = nameOf(limiter.acquire());
    let result = "waits";
    void call.then((name) => {
      result = name;
    });
    await clock.advance(afterMs);
    await limiter.update(tokenBucket({ capacity: 3000, refill: 3000, everyMs: 1000 }));
    await clock.advance(10_000);
    const name = result;
    await limiter.close();
    // it waits for 20 minutes, as the old numbers say, though 3000 a second are free
    assert.not.equal(name, "waits");
  });
}

test("pause: what the reserve has promised a caller before counts in the window in which it goes", async () => {
  const policy = fixedWindow({ limit: 3, windowMs: 1000 });
  const { clock, limiter } = await withLocal({ reserve: 1, regions: ["eu"] }, policy);
  const grantedMs: number[] = [];
  const granted = () => void grantedMs.push(clock.now());
  await limiter.acquire(3);
  // it has the next window; the pause ends in the one after that
  void limiter.acquire(3).then(granted);
  await clock.advance(100);
  await limiter.pause(2000);
  await clock.advance(2000);
  if (await limiter.tryAcquire(3)) granted();
  await clock.advance(500);
  await limiter.close();
  const windows = grantedMs.map((ms) => Math.floor(ms / 1000));
  // 6 permits in one window of 3
  assert.is(new Set(windows).size, windows.length, `in the windows ${windows}`);
});

test("a waiting reservation that needs fewer permits by now waits for those only", async () => {
  const policy = tokenBucket({ capacity: 10, refill: 10, everyMs: HOUR_MS });
  const { clock, limiter } = await withLocal({ reserve: 1, regions: ["eu"] }, policy);
  await drain(limiter);
  const reservation = await limiter.reserve(10);
  let result = "waits";
  void nameOf(reservation.ready()).then((name) => {
    result = name;
  });
  await reservation.settle(1);
  await clock.advance(HOUR_MS / 5);
  const name = result;
  await limiter.close();
  // one permit is back after 6 minutes; it waits for an hour
  assert.not.equal(name, "waits");
});

test("a caller goes with the reserve as soon as the one in front of it, which needs more than that holds, has left", async () => {
  const { clock, home, limiter } = await withLocal({ everyMs: 60_000, leaseMs: 600_000 });
  home.fail();
  const end = new AbortController();
  void nameOf(limiter.acquire(20, { signal: end.signal }));
  await clock.advance(10);
  let result = "waits";
  void nameOf(limiter.acquire()).then((name) => {
    result = name;
  });
  await clock.advance(10);
  end.abort();
  await clock.advance(1000);
  const name = result;
  await limiter.close();
  // the reserve is full, and the caller waits for an interval, here a minute
  assert.not.equal(name, "waits");
});

// -- fair order --------------------------------------------------------------------------------

test("fair order: a caller that goes first waits for what it needs, not for what the one that it overtakes needs", async () => {
  const order = fairShares({ priorities: ["high", "low"] });
  const { clock, home, limiter } = await withLocal({ order });
  home.fail();
  await drain(limiter);
  const startMs = clock.now();
  const afterMs = new Map<string, number>();
  const ask = (permits: number, priority: string) =>
    limiter.acquire(permits, { priority }).then(() => {
      afterMs.set(priority, clock.now() - startMs);
    });
  void ask(10, "low");
  await clock.advance(5);
  void ask(1, "high");
  await clock.advance(5000);
  await limiter.close();
  // of 10 a second: 1000 and 2000 ms, and 9 permits are lost
  const { high = Infinity, low = Infinity } = Object.fromEntries(afterMs);
  assert.ok(high <= 200 && low <= 1200, `${high} and ${low} ms`);
});

test("fair order: permits that come just after a larger caller has overtaken are not lost", async () => {
  const order = fairShares({ priorities: ["high", "low"] });
  const { clock, home, limiter } = await withLocal({ order });
  home.fail();
  await drain(limiter);
  const startMs = clock.now();
  void nameOf(limiter.acquire(9, { priority: "low" }));
  await clock.advance(850);
  let afterMs = Infinity;
  void limiter.acquire(10, { priority: "high" }).then(() => {
    afterMs = clock.now() - startMs;
  });
  await clock.advance(5000);
  await limiter.close();
  // the 9 permits of the first 900 ms are gone: 1900
  assert.ok(afterMs <= 1200, `${afterMs} ms`);
});

// -- a full line, answers and channels ---------------------------------------------------------

for (const onFull of ["reject", "drop-oldest", "wait"] as const) {
  test(`a reservation that finds the line full is made in the reserve, with onFull: "${onFull}"`, async () => {
    const { clock, home, limiter } = await withLocal({ maxWaiting: 20, onFull });
    home.fail();
    // larger than the reserve: it waits for a part, and the reserve is full
    void nameOf(limiter.acquire(20));
    await clock.advance(10);
    const made = await limiter.reserve().then(
      ({ waitMs }) => waitMs,
      (error: Error) => error.name,
    );
    await limiter.close();
    assert.is(made, 0);
  });
}

test("waitMs of a refusal knows the callers that wait for the reserve", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  for (let i = 0; i < 8; i++) void nameOf(limiter.acquire());
  await clock.advance(1);
  const { waitMs } = await limiter.peek();
  if (waitMs < Infinity) await clock.advance(waitMs);
  const { allowed } = await limiter.peek();
  await limiter.close();
  // "a request is refused at every earlier instant, and granted exactly then", or Infinity where it is not known
  assert.ok(waitMs === Infinity || allowed, `refused again after ${waitMs} ms`);
});

for (const name of ["wait", "refused"] as const) {
  test(`diagnostics.${name}: a wait that is not known is no number`, async () => {
    const { clock, home, limiter } = await withLocal();
    home.fail();
    await drain(limiter);
    const seen: (number | undefined)[] = [];
    const see = ({ waitMs }: { readonly waitMs?: number }) => void seen.push(waitMs);
    diagnostics[name].subscribe(see);
    if (name === "wait") {
      const ready = (await limiter.reserve()).ready();
      await clock.advance(1000);
      await ready;
    } else await limiter.tryAcquire();
    await new Promise<void>((resolve) => queueMicrotask(resolve));
    diagnostics[name].unsubscribe(see);
    await limiter.close();
    // a reservation is published when it is over, a refusal without it
    assert.equal(seen, [name === "wait" ? 100 : undefined]);
  });
}

test("leakyBucket: without a part as many callers wait as the reserve has room for", async () => {
  const policy = leakyBucket({ capacity: 300, permitsPerSecond: 300 });
  const { clock, home, limiter } = await withLocal({}, policy);
  home.fail();
  const calls = Array.from({ length: 15 }, () => nameOf(limiter.acquire()));
  await clock.advance(3000);
  const outcomes = await Promise.all(calls);
  assert.is(outcomes.filter((outcome) => outcome === "QueueFullError").length, 4);
  assert.equal(
    outcomes.slice(0, 3).map((waitedMs) => Math.round(Number(waitedMs))),
    [0, 100, 200],
  );
  await limiter.close();
});

test("calls with a time-out that come together are served in one trip to the reserve", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  local.delayMs = 5;
  const calls = Array.from({ length: 20 }, () => limiter.tryAcquire(1, 20));
  await clock.advance(30);
  const granted = (await Promise.all(calls)).filter(Boolean);
  await limiter.close();
  assert.is(granted.length, 10);
});

test("a call that the reserve has refused waits for what is left of its time-out", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  local.delayMs = 60;
  const start = clock.now();
  const refused = limiter.tryAcquire(1, 80).then((is) => [is, clock.now() - start]);
  await clock.advance(500);
  await limiter.close();
  assert.equal(await refused, [false, 80]);
});

test("reservations that come together are made in one trip to the reserve, and settled there", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  local.delayMs = 50;
  const start = clock.now();
  const made = Array.from({ length: 12 }, async () => {
    const reservation = await limiter.reserve();
    return { reservation, afterMs: clock.now() - start };
  });
  await clock.advance(500);
  const all = await Promise.all(made);
  local.delayMs = 0;
  assert.ok(all.every(({ afterMs }) => afterMs <= 150));
  assert.is(all.filter(({ reservation }) => reservation.waitMs === 0).length, 10);
  await clock.advance(2000);
  await drain(limiter);
  const [first] = all;
  assert.is(first?.reservation.cancel() instanceof Promise, false);
  assert.is(await first?.reservation.ready(), 0);
  await first?.reservation.settle(3);
  assert.is((await limiter.decide()).waitMs, 300);
  await first?.reservation.undo();
  assert.is(await limiter.tryAcquire(), true);
  await limiter.close();
});

test("reset: what was on its way from the reserve before does not come back to it", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  local.delayMs = 100;
  const leave = new AbortController();
  const left = nameOf(limiter.acquire(8, { signal: leave.signal }));
  await clock.advance(10);
  leave.abort();
  const reset = limiter.reset();
  await clock.advance(500);
  await reset;
  local.delayMs = 0;
  let granted = 0;
  while (await limiter.tryAcquire()) granted += 1;
  await limiter.close();
  assert.equal([await left, granted], ["AbortError", 10]);
});

test("reservations for which the reserve has no room are refused, and counted", async () => {
  const policy = leakyBucket({ capacity: 300, permitsPerSecond: 300 });
  const { clock, home, limiter } = await withLocal({ reserve: 0.3 }, policy);
  home.fail();
  await limiter.tryAcquire();
  const { refused } = limiter.stats;
  const names: string[] = [];
  for (let i = 0; i < 8; i++) {
    const made = limiter.reserve(12).then((reservation) => reservation.ready());
    void nameOf(made).then((name) => names.push(name));
  }
  await clock.advance(20_000);
  const error = await Promise.all([20, 20, 20].map((permits) => limiter.reserve(permits))).catch(
    (error: unknown) => error,
  );
  assert.is(names.filter((name) => name === "QueueFullError").length, 6);
  assert.is(limiter.stats.refused - refused, 7);
  assert.match((error as Error).message, /maxWaiting is 30$/);
  await limiter.close();
});

test("a reservation that comes just after the place was used does not know its wait", async () => {
  const order = fairShares({ priorities: ["high", "low"] });
  const { clock, home, local, limiter } = await withLocal({ order });
  home.fail();
  await drain(limiter);
  local.delayMs = 200;
  const leave = new AbortController();
  void nameOf(limiter.acquire(10, { priority: "low", signal: leave.signal }));
  await clock.advance(800);
  for (const permits of [9.9, 8]) void nameOf(limiter.acquire(permits, { priority: "low" }));
  leave.abort();
  await clock.advance(399.9);
  const made = limiter.reserve(10, { priority: "high" });
  await clock.advance(400);
  assert.is((await made).waitMs, Infinity);
  await limiter.close();
});

test("waitMs of a reservation knows the reserve, and a combination waits for it", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  const before = limiter.stats;
  const granted = allOf(limiter).tryAcquire(1, 1000);
  await clock.advance(100);
  assert.is(await granted, true);
  assert.equal([limiter.stats.granted - before.granted, limiter.stats.cancelled], [1, 0]);
  await clock.advance(0);
  const first = await limiter.reserve();
  const second = await limiter.reserve();
  assert.equal([first.waitMs, second.waitMs], [100, Infinity]);
  await limiter.close();
});

test("a combination waits for a time that is not known, until the caller's time is over", async () => {
  const { clock, home, limiter } = await withLocal();
  const local = RateLimiter.create(1000, { clock });
  const both = allOf(limiter, local);
  const slots = allOf(limiter, ConcurrencyLimiter.create(5, { clock }));
  home.fail();
  await drain(limiter);
  // due in 1 s; the others wait behind it
  const first = limiter.acquire(10);
  await clock.advance(1);
  assert.is((await both.peek()).waitMs, Infinity);
  const start = clock.now();
  const answer = async (call: Promise<unknown>) => [
    (await call) !== undefined && (await call),
    Math.round((clock.now() - start) / 10) * 10,
  ];
  const answers = [both.tryAcquire(1, 600), both.tryAcquire(1, 3000), slots.tryAcquire(1, 600)].map(
    answer,
  );
  await clock.advance(5000);
  await first;
  assert.equal(await Promise.all(answers), [
    [false, 600],
    [true, 1100],
    [false, 600],
  ]);
  // nothing is left of those that were late: the burst of a second is there, and what is lent
  assert.is(local.peek().remaining, 1001);
  assert.is((await limiter.peek()).remaining, 10);
  await limiter.close();
});

test("a combination ends in time though the part for which it waits has shrunk", async () => {
  for (const local of [undefined, memoryStore()]) {
    const policy = tokenBucket({ capacity: 10, refill: 10, everyMs: 1000 });
    const { clock, home, limiter } = await withLocal({ local, leaseMs: 2000 }, policy);
    await busy(limiter, clock, 6000);
    const before = Array.from({ length: 25 }, () => nameOf(limiter.acquire()));
    const other = Limiter.create(tokenBucket({ capacity: 9, refill: 1, everyMs: 1e9 }), { clock });
    const start = clock.now();
    // due in less than 4 s
    const granted = allOf(other, limiter).tryAcquire(1, 4000);
    home.fail();
    let endMs = 0;
    const end = granted.then(() => {
      endMs = clock.now() - start;
    });
    await clock.advance(60_000);
    await end;
    assert.is(await granted, false);
    assert.is(endMs, 4000);
    assert.is(other.peek().remaining, 9);
    void limiter.close();
    await clock.advance(5000);
    await Promise.all(before);
  }
});

test("a combination with a time-out is refused where no more callers may wait", async () => {
  const { clock, home, limiter } = await withLocal({ maxWaiting: 2 });
  home.fail();
  await drain(limiter);
  const waiting = [limiter.acquire(), limiter.acquire()].map(nameOf);
  await clock.advance(1);
  const slots = ConcurrencyLimiter.create(5, { clock });
  assert.is(await allOf(limiter).tryAcquire(1, 50), false);
  assert.is(await allOf(limiter, slots).tryAcquire(1, 50), undefined);
  await limiter.close();
  await Promise.all(waiting);
});

test("a combination whose trips are long is late by no more than these", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  local.delayMs = 200;
  const both = allOf(limiter, RateLimiter.create(2, { clock }));
  const start = clock.now();
  const ends: number[] = [];
  for (let i = 0; i < 60; i++) {
    const call = both.tryAcquire(1, 1000);
    void call.then(() => ends.push(clock.now() - start));
  }
  await clock.advance(20_000);
  assert.is(ends.length, 60);
  // a trip and another one to give back
  assert.ok(Math.max(...ends) <= 1500, `${Math.max(...ends)}`);
  await limiter.close();
});

test("a combination with a region grants what the other limiter has promised, as without the region", async () => {
  const { clock, limiter } = await withLocal({ local: undefined, reserve: 1, regions: ["eu"] });
  const granted: number[] = [];
  const elsewhere = StoreLimiter.create(memoryStore({ clock }), "plenty", bucket, { clock });
  for (const first of [limiter, elsewhere]) {
    const store = memoryStore({ clock });
    const rate = tokenBucket({ capacity: 10, refill: 100, everyMs: 1000 });
    const both = allOf(first, StoreLimiter.create(store, "rate", rate, { clock }));
    store.delayMs = 40;
    const answers: string[] = [];
    for (let t = 0; t < 5000; t += 20) {
      // half as many again as there are permits, and a store that is away at times: nothing is rejected unseen
      for (let i = 0; i < 3; i++) {
        void nameOf(both.tryAcquire(1, 500)).then((answer) => answers.push(answer));
      }
      if (t === 4000) store.fail();
      if (t === 4200) store.recover();
      await clock.advance(20);
    }
    await clock.advance(2000);
    assert.is(answers.length, 750);
    granted.push(answers.filter((answer) => answer === "true").length);
  }
  const [withRegion = 0, without = 0] = granted;
  assert.ok(withRegion >= 0.9 * without && without > 400, `${withRegion} and ${without}`);
  await limiter.close();
});

test("with a local store each of several callers of a combination waits as long as it may", async () => {
  const { clock, home, limiter } = await withLocal({ reserve: 1 });
  home.fail();
  const slots = ConcurrencyLimiter.create(100, { clock });
  for (const other of [RateLimiter.create(1000, { clock }), slots]) {
    const both = allOf(limiter, other as RateLimiter);
    await drain(limiter);
    const granted: unknown[] = [];
    for (let i = 0; i < 20; i++) void both.tryAcquire(1, 3000).then((got) => granted.push(got));
    await clock.advance(3000);
    assert.is(granted.filter((got) => got).length, 20);
  }
  await limiter.close();
});

test("a combination that a region refuses is counted there, and published", async () => {
  for (const local of [undefined, memoryStore()]) {
    const { clock, home, limiter } = await withLocal({ local });
    home.fail();
    const both = allOf(limiter, RateLimiter.create(1e6, { clock }));
    await drain(limiter);
    const seen: unknown[] = [];
    const see = (message: { waitMs?: number }) => seen.push(message.waitMs);
    diagnostics.refused.subscribe(see);
    const { refused } = limiter.stats;
    assert.is(await both.tryAcquire(), false);
    assert.is((await both.decide()).allowed, false);
    assert.is(await both.tryAcquire(1, 5), false);
    diagnostics.refused.unsubscribe(see);
    assert.is(limiter.stats.refused - refused, 3);
    assert.is(seen.length, 3);
    await limiter.close();
  }
});

test("a place of a combination that is ready when it was promised is in time, by the region's own clock", async () => {
  const policy = tokenBucket({ capacity: 1, refill: 10, everyMs: 1000 });
  const whole = { local: undefined, reserve: 1, regions: ["eu"] };
  const one = await withLocal(whole, policy);
  // its clock shows another time
  await one.clock.advance(1e6);
  const { clock, limiter } = await withLocal(whole, policy);
  const signal = new AbortController().signal;
  for (const both of [allOf(one.limiter, limiter), allOf(limiter, one.limiter)]) {
    await Promise.all([drain(one.limiter), drain(limiter)]);
    const calls = [1000, 200].map((timeoutMs) => nameOf(both.tryAcquire(1, { timeoutMs, signal })));
    for (let ms = 0; ms < 250; ms += 1)
      await Promise.all([clock, one.clock].map((its) => its.advance(1)));
    assert.equal(await Promise.all(calls), ["true", "true"]);
  }
  assert.is(getEventListeners(signal, "abort").length, 0);
  await Promise.all([limiter.close(), one.limiter.close()]);
});

test("a combination whose callers find the line full together is refused, as the region alone", async () => {
  const { clock, limiter } = await withLocal({ local: undefined, maxWaiting: 2 });
  await drain(limiter);
  const both = allOf(limiter, RateLimiter.create(1e6, { clock }));
  const calls = Array.from({ length: 5 }, () => nameOf(both.tryAcquire(1, 5000)));
  await clock.advance(5000);
  assert.equal((await Promise.all(calls)).sort(), ["false", "false", "false", "true", "true"]);
  await limiter.close();
});

test("a call of a combination that the part answers alone has not failed", async () => {
  const { clock, local, limiter } = await withLocal();
  local.fail();
  const both = allOf(limiter, RateLimiter.create(1e6, { clock }));
  assert.is(await both.tryAcquire(), false);
  assert.is((await both.decide()).allowed, false);
  await both.peek();
  assert.is(limiter.stats.failed, 0);
  for (const verb of ["decide", "peek"] as const) {
    assert.is(await nameOf(limiter[verb]()), "StoreUnavailableError");
  }
  assert.is(limiter.stats.failed, 2);
  await limiter.close();
});

test("a call that waits for the region's store is counted, and so is one that is ended there", async () => {
  const { clock, home, local, limiter } = await withLocal();
  home.fail();
  await drain(limiter);
  const seen: string[] = [];
  const see = ({ reason }: { reason: unknown }) => seen.push((reason as Error).name);
  diagnostics.cancelled.subscribe(see);
  local.delayMs = 200;
  const signalled = new AbortController();
  const { signal } = signalled;
  const calls = [
    limiter.tryAcquire(),
    limiter.tryAcquire(1, 1),
    limiter.tryAcquire({ signal, timeoutMs: 0 }),
  ].map(nameOf);
  await clock.advance(10);
  assert.is(limiter.stats.waiting, 3);
  signalled.abort();
  await clock.advance(1);
  const closed = limiter.close();
  assert.equal(await Promise.all(calls), [
    "LimiterClosedError",
    "LimiterClosedError",
    "AbortError",
  ]);
  await clock.advance(2000);
  await closed;
  diagnostics.cancelled.unsubscribe(see);
  assert.equal([limiter.stats.waiting, limiter.stats.cancelled], [0, 3]);
  assert.equal(seen.sort(), ["AbortError", "LimiterClosedError", "LimiterClosedError"]);
});

test("with a local store and no caller in the line, peek and decide say how long a pause lasts", async () => {
  const { home, limiter } = await withLocal();
  home.fail();
  await limiter.pause(5000);
  assert.equal([(await limiter.peek()).waitMs, (await limiter.decide()).waitMs], [5000, 5000]);
  await limiter.close();
});

test("while the region's store is away the part answers a combination alone, as it serves those who wait", async () => {
  const { clock, local, limiter } = await withLocal();
  local.fail();
  const both = allOf(limiter, RateLimiter.create(1000, { clock }));
  assert.is(await both.tryAcquire(), false);
  const { allowed, waitMs } = await both.decide();
  assert.equal([allowed, waitMs], [false, Infinity]);
  assert.is((await both.peek()).allowed, false);
  const calls = [both.acquire(), limiter.acquire()].map((call) => nameOf(call));
  await clock.advance(3000);
  assert.equal(await Promise.all(calls.map((call) => call.then((name) => Number(name) >= 0))), [
    true,
    true,
  ]);
  // with a part, no store is needed
  assert.is(await both.tryAcquire(), true);
  await limiter.close();
});

test("a reservation with an unknown wait that was cancelled says so", async () => {
  const { limiter } = await withLocal({ local: undefined, reserve: 0 });
  const reservation = await limiter.reserve();
  await reservation.cancel();
  const error = await reservation.ready().catch((error: unknown) => error);
  assert.instance(error, ReservationCancelledError);
  assert.is((error as ReservationCancelledError).facts.waitMs, Infinity);
  await limiter.close();
});

test("each call that fails with the region's store is counted once", async () => {
  const policy = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });
  const { local, limiter: two, all } = await withLocal({ reserve: 1 }, { a: policy, b: policy });
  const full = RegionalLimiter.create("full", bucket, { ...all, maxWaiting: 0 });
  const settled = await two.reserve({ a: 2, b: 2 });
  const [served, undone] = [await full.reserve(2), await full.reserve(2)];
  local.fail();
  const calls: [limiter: Regional, call: () => unknown][] = [
    [two, () => settled.settle({ a: 5, b: 1 })],
    [two, () => two.pause(10)],
    [two, () => two.reset()],
    [full, () => full.tryAcquire()],
    [full, () => served.settle(3)],
    [full, () => undone.undo()],
  ];
  for (const [limiter, call] of calls) {
    const { failed } = limiter.stats;
    const name = await nameOf((async () => `${await call()}`)());
    assert.equal([name, limiter.stats.failed - failed], ["StoreUnavailableError", 1], `${call}`);
  }
  local.recover();
  await Promise.all([two.close(), full.close()]);
});

test("diagnostics.fraction: nothing while the part stays the same", async () => {
  const { clock, home, limiter } = await withLocal();
  home.fail();
  const fractions: number[] = [];
  const see = ({ fraction }: { readonly fraction: number }) => void fractions.push(fraction);
  diagnostics.fraction.subscribe(see);
  await busy(limiter, clock, 10_000);
  diagnostics.fraction.unsubscribe(see);
  await limiter.close();
  // 11 times 0, once in an interval
  assert.equal(fractions, []);
});

test("remaining is 0 while the region has nothing that it could grant", async () => {
  const clock = new FakeClock();
  const home = memoryStore({ clock });
  home.fail();
  const regions = ["eu", "us"];
  const options = { home, clock, region: "eu", regions, reserve: 0 };
  const policy = smoothBursty({ permitsPerSecond: 300 });
  const limiter = RegionalLimiter.create("limit", policy, options);
  const { allowed, remaining } = await limiter.peek();
  await limiter.close();
  // one permit remains, and is refused
  assert.equal([allowed, remaining], [false, 0]);
});

// -- bad arguments -----------------------------------------------------------------------------

for (const hasLocal of [false, true]) {
  const title = hasLocal ? "with a local store" : "without a local store";
  for (const verb of ["reserve", "decide"] as const) {
    test(`${title}, ${verb} refuses options that are none, as all limiters do`, async () => {
      const { limiter } = await withLocal(hasLocal ? {} : { local: undefined });
      const names: string[] = [];
      for (const options of [5, "high", [], { timeoutMs: 5 }, null]) {
        const call = limiter[verb](1, options as ShareOptions);
        const message = await call.then(
          () => "granted",
          (error: Error) => error.message,
        );
        names.push(message.startsWith("options ") ? "refused" : message);
      }
      await limiter.close();
      // granted; null: "Cannot destructure property 'share'"
      assert.equal(names, ["refused", "refused", "refused", "refused", "refused"]);
    });
  }
}

test("update refuses undefined, and does not take back the numbers that were set", async () => {
  const { limiter } = await withLocal({ local: undefined, reserve: 1, regions: ["eu"] });
  await limiter.update(tokenBucket({ capacity: 30, refill: 30, everyMs: 1000 }));
  const name = await nameOf(limiter.update(undefined as unknown as Policies));
  const { limit } = await limiter.peek();
  await limiter.close();
  assert.equal([name, limit], ["TypeError", 30]);
});

test.run();
