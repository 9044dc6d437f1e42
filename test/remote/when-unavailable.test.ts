import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  PermitsExceedCapacityError,
  QueueFullError,
  slidingLog,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "../../src/index.ts";
import { LimiterClosedError, StoreUnavailableError } from "../../src/redis/index.ts";
import type { RemoteOptions } from "../../src/remote/remote-options.ts";
import { Breaker } from "../../src/stores/breaker.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { HandStore, onHand } from "../support/limiter/remote.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

// The store is unavailable while `store.away` is set. The limiter's clock is `clock`; the timers
// determine when the store is probed, and both move together in `pass`.
let timers: FakeTimers.Clock;

function make(
  policies: Parameters<typeof onHand>[0],
  options: Partial<RemoteOptions> & { store?: HandStore } = {},
) {
  const made = onHand(policies, {
    ...{ whenUnavailable: "local", instances: () => 4 },
    ...options,
  });
  const pass = async (ms: number) => {
    await made.clock.advance(ms);
    await timers.tickAsync(ms);
    await turn();
  };
  const leave = () => {
    made.store.away = new Error("gone");
  };
  const comeBack = async () => {
    made.store.away = undefined;
    await timers.tickAsync(1000);
    await turn();
  };
  return { ...made, pass, leave, comeBack };
}

const away = suite("when unavailable");

away.before.each(() => {
  timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});

away.after.each(() => {
  timers.uninstall();
});

const ten = smoothBursty({ permitsPerSecond: 10 });

async function grantedOf(answers: readonly Promise<boolean>[]): Promise<number> {
  return (await Promise.all(answers)).filter((granted) => granted).length;
}

/** A limiter that has been idle since its first call. */
async function idle(policies: Parameters<typeof onHand>[0], options?: Partial<RemoteOptions>) {
  const made = make(policies, options);
  await made.limiter.charge(1);
  await made.pass(60_000);
  return made;
}

away("an outage right after a burst allows no second burst", async () => {
  const { limiter, pass, leave } = await idle(ten);
  await limiter.acquire(11);
  leave();
  assert.is(await limiter.tryAcquire(), false);
  // its share is 2.5 a second, and its deficit is a quarter of a permit; the last one is lent
  await pass(1000);
  const asked = Array.from({ length: 10 }, () => limiter.tryAcquire());
  assert.is(await grantedOf(asked), 3);
});

away("an outage allows no second burst after one since the last report", async () => {
  const { limiter, store, pass, leave } = await idle(ten);
  await limiter.peek();
  assert.is(store.sent(), "peek 1, deficit");
  await limiter.acquire(11);
  assert.is(store.sent(), "reserve 11 within Infinity x1", "reported a moment ago");
  leave();
  // the process pays alone for what it took: 11 permits at 2.5 a second, 2.5 were available
  const { waitMs } = await limiter.peek();
  assert.is(waitMs, 3400);
  await pass(3400);
  assert.is(await limiter.tryAcquire(), true);
});

away("the last report is recent: a last batch asks for it when no call does", async () => {
  const { limiter, store, pass } = await idle(ten);
  await limiter.peek();
  await limiter.acquire(11);
  const { length } = store.batches;
  await pass(50);
  assert.equal([store.sent(), store.batches.length], ["deficit", length + 1]);
  await pass(10_000);
  assert.is(store.batches.length, length + 1);
  assert.is(timers.countTimers(), 0);
});

away("stored permits are shared out; the rate is that of the share", async () => {
  const { limiter, pass, leave } = await idle(smoothBursty({ permitsPerSecond: 40 }));
  await limiter.tryAcquire(20);
  await pass(60);
  await limiter.peek(); // which makes the store report
  leave();
  // 22.4 of 40 permits are left, the share is a quarter of them; the last one is lent
  const asked = Array.from({ length: 20 }, () => limiter.tryAcquire());
  assert.is(await grantedOf(asked), 6);
  const { waitMs, limit } = await limiter.peek();
  assert.is(limit, 11);
  assert.is(waitMs, 40);
});

away("a share without any report starts like a new limiter", async () => {
  const { limiter, leave, pass } = make(ten);
  leave();
  assert.equal(await Promise.all([limiter.tryAcquire(), limiter.tryAcquire()]), [true, false]);
  await pass(400);
  assert.is(await limiter.tryAcquire(), true);
});

away("a process that starts in an outage has a new share, one that ends pays nothing", async () => {
  const policy = tokenBucket({ capacity: 40, refill: 40, everyMs: 1000 });
  const { clock, store, limiter, pass, leave, comeBack } = await idle(policy);
  await limiter.tryAcquire(30); // 10 are left, and 2 more soon
  await pass(50);
  leave();
  const open = () => make(policy, { clock, store }).limiter;
  const all = (of: typeof limiter) => grantedOf(Array.from({ length: 30 }, () => of.tryAcquire()));
  assert.is(await all(limiter), 3, "a quarter of what was left");
  let last = limiter;
  for (let i = 0; i < 3; i++) {
    const closed = last.close();
    await pass(0);
    await closed;
    last = open();
    assert.is(await all(last), 10, "a quarter of the capacity");
  }
  await comeBack();
  await pass(0);
  const { remaining } = await open().peek();
  assert.is(remaining, 12 - 10, "of these 33 the last 10 are charged");
});

away("only calls in flight wait for the time-out: later ones are answered at once", async () => {
  const { limiter, store, pass } = await idle(ten);
  store.held = true;
  const first = watch({ now: () => timers.now } as never, limiter.tryAcquire());
  const asked = timers.now;
  await pass(1000);
  assert.equal([first.value, Number(first.at) - asked], [true, 1000]);
  const { length } = store.batches;
  for (let i = 0; i < 100; i++) await limiter.tryAcquire();
  assert.is(store.batches.length, length);
});

away("waiters are released at the share's rate, in order; one that leaves makes room", async () => {
  const { limiter, clock, pass, leave } = await idle(ten);
  await limiter.acquire(11);
  leave();
  const controller = new AbortController();
  const reason = new Error("enough");
  const waiting = [
    watch(clock, limiter.acquire()),
    watch(clock, limiter.acquire(1, { signal: controller.signal })),
    watch(clock, limiter.acquire()),
    watch(clock, limiter.tryAcquire(1, 5000)),
    watch(clock, limiter.tryAcquire(1, 100)),
  ];
  const start = clock.now();
  await turn();
  controller.abort(reason);
  await pass(3000);
  assert.is(waiting[1]?.error, reason);
  assert.equal(
    waiting.map(({ at }) => Number(at) - start),
    [100, 0, 500, 900, 0],
  );
  assert.equal([waiting[3]?.value, waiting[4]?.value], [true, false]);
});

away("during a known outage an answer takes few microtasks", async () => {
  for (const whenUnavailable of ["local", "allow", "throw"] as const) {
    const { limiter, store, pass } = make(gcra({ limit: 1000, periodMs: 1000 }), {
      whenUnavailable,
    });
    store.held = true;
    await Promise.all([limiter.tryAcquire().catch(() => {}), pass(1000)]);
    const { length } = store.batches;
    for (const verb of ["acquire", "tryAcquire", "reserve", "decide", "peek", "charge"] as const) {
      const steps = await stepsOf(limiter[verb](1));
      assert.ok(steps <= 3, `${whenUnavailable}: ${verb} takes ${steps} steps`);
    }
    assert.is(store.batches.length, length);
  }
});

/** In how many microtasks an answer arrives; each lets other code run first. */
async function stepsOf(answer: Promise<unknown>): Promise<number> {
  let isThere = false;
  const end = () => {
    isThere = true;
  };
  answer.then(end, end);
  let steps = 0;
  for (; !isThere && steps < 100; steps++) await undefined;
  return steps;
}

away("after recovery, use is charged and waiting callers ask the store in order", async () => {
  const { limiter, clock, store, pass, leave, comeBack } = await idle(ten);
  await limiter.acquire(11);
  leave();
  await pass(4000);
  const taken = await grantedOf(Array.from({ length: 10 }, () => limiter.tryAcquire()));
  assert.is(taken, 3);
  const waiting = [watch(clock, limiter.acquire(2)), watch(clock, limiter.tryAcquire(1, 5000))];
  await turn();
  const { length } = store.batches;
  await comeBack();
  assert.equal(
    store.batches.slice(length).map((_, i) => store.sent(length + i - store.batches.length)),
    ["pause 0", "settle 3, reserve 2 within Infinity x1, reserve 1 within 5000000 x1, deficit"],
  );
  // 10 were available: the charge, then the two, then the one
  assert.equal(
    waiting.map(({ value }) => value),
    [0, true],
  );
  assert.is((await limiter.peek()).remaining, 5);
  assert.is(timers.countTimers(), 0);
});

away("a local waiter with a later instant from the store is re-timed, not early", async () => {
  const { limiter, clock, store, pass, leave, comeBack } = await idle(ten);
  await limiter.acquire(11);
  leave();
  const start = clock.now();
  const waiting = [1, 2, 3].map((n) => watch(clock, limiter.acquire(n)));
  const leaving = new AbortController();
  const left = watch(clock, limiter.acquire(1, { signal: leaving.signal }));
  await pass(50);
  // other processes have used what was available
  store.transition.runBatch("key", "s10", [{ verb: "charge", amount: 20 }], (start + 50) * 1000);
  await comeBack();
  leaving.abort();
  await pass(5000);
  assert.equal(
    waiting.map(({ at }) => Number(at) - start),
    [2100, 2200, 2400],
  );
  assert.ok(left.error);
});

away("unavailable again before use was charged: the charge is not lost", async () => {
  const { limiter, store, pass, leave, comeBack } = await idle(ten);
  leave();
  assert.is(await limiter.tryAcquire(3), true);
  // the probe gets through, and nothing else
  const { run } = store;
  store.away = undefined;
  store.run = (key, declared, requests, now) => {
    if (requests[0]?.verb !== "pause") leave();
    return run.call(store, key, declared, requests, now);
  };
  await timers.tickAsync(100);
  assert.ok(store.batches.some(([first]) => first?.verb === "settle" && first.amount === 3));
  Object.assign(store, { run });
  const { remaining } = await limiter.peek();
  await comeBack();
  assert.ok(remaining < 1, `${remaining}`);
  const { policies } = await limiter.peek();
  assert.equal([policies.default?.remaining, store.sent(-2)], [8, "settle 3, deficit"]);
  await pass(100);
});

away("callers with instants promised by the store go first, and at these instants", async () => {
  const { limiter, clock, pass, leave } = await idle(ten, { instances: () => 1 });
  await limiter.acquire(11);
  const promised = [watch(clock, limiter.acquire()), watch(clock, limiter.acquire())];
  await turn();
  const start = clock.now();
  leave();
  const later = watch(clock, limiter.acquire());
  await pass(1000);
  assert.equal(
    [...promised, later].map(({ at }) => Number(at) - start),
    [100, 200, 300],
  );
});

away("a request larger than the share is lent, and the next callers pay", async () => {
  const log = slidingLog({ limit: 2, windowMs: 1000 });
  const { limiter, clock, pass, leave } = await idle(log);
  leave();
  // half a permit every second: one request takes two seconds' worth
  const waiting = [1, 2, 1].map((n) => watch(clock, limiter.acquire(n)));
  const start = clock.now();
  await pass(10_000);
  assert.equal(
    waiting.map(({ at }) => Number(at) - start),
    [0, 2000, 6000],
  );
  assert.instance(await failure(() => limiter.acquire(3)), PermitsExceedCapacityError);
  assert.instance(await failure(() => limiter.decide(3)), PermitsExceedCapacityError);
});

away("maxWaiting counts local waiters and callers with an instant of the store", async () => {
  const { limiter, leave } = await idle(ten, { maxWaiting: 2 });
  await limiter.acquire(11);
  const first = limiter.acquire();
  await turn();
  leave();
  const second = limiter.acquire();
  await turn();
  const error = (await failure(() => limiter.acquire())) as QueueFullError;
  assert.instance(error, QueueFullError);
  assert.equal([error.facts.waiting, error.facts.maxWaiting], [2, 2]);
  assert.is(await limiter.tryAcquire(1, 1e6), false);
  assert.instance(await failure(() => limiter.reserve()), QueueFullError);
  for (const waiting of [first, second]) waiting.catch(() => {});
});

away("a bounded policy bounds local waiters to its share", async () => {
  const { limiter, leave } = await idle(leakyBucket({ permitsPerSecond: 4, capacity: 8 }));
  leave();
  assert.is(await limiter.tryAcquire(), true);
  const waiting = Array.from({ length: 3 }, () => limiter.acquire());
  const outcomes: unknown[] = [];
  for (const one of waiting) one.then(outcomes.push, (error) => outcomes.push(error));
  await turn();
  assert.equal(
    // the request that was granted at once was lent most of it
    outcomes.map((error) => (error as Error).name),
    ["QueueFullError", "QueueFullError"],
  );
  assert.match(`${outcomes[0]}`, "1 waiting, maxWaiting is 2");
});

away("close: permits that return let a caller go, which then leaves once", async () => {
  const bucket = tokenBucket({ capacity: 10, refill: 1, everyMs: 1000 });
  const { clock, limiter, leave, pass } = make(bucket, { instances: () => 1 });
  await limiter.acquire(10);
  const reservation = await limiter.reserve(8);
  await pass(2000);
  const ready = watch(clock, reservation.ready());
  leave();
  await limiter.peek();
  // the permits that are left return to the fallback without a receipt
  await reservation.settle(7);
  const waiting = watch(clock, limiter.acquire());
  await turn();
  assert.is(waiting.at, undefined);
  const closed = limiter.close();
  await timers.tickAsync(1000);
  await closed;
  assert.instance(ready.error, LimiterClosedError);
  assert.is(limiter.stats.waiting, 0);
});

away("a pause of an outage that the store rejects afterwards ends no process", async () => {
  const { store, limiter, leave, comeBack } = make(ten);
  await limiter.peek();
  leave();
  await limiter.pause(60_000);
  const run = store.run.bind(store);
  store.run = (key, declared, requests, ...rest) => {
    const isPause = requests.some((request) => request.verb === "pause" && request.micros > 0);
    return isPause ? Promise.reject(new Error("WRONGTYPE")) : run(key, declared, requests, ...rest);
  };
  await comeBack();
  assert.is(limiter.state, "ready");
});

away("decide and peek show the state of the share", async () => {
  const { limiter, leave } = await idle(gcra({ limit: 40, periodMs: 1000 }));
  leave();
  const decision = await limiter.decide(4);
  assert.equal(
    [decision.allowed, decision.limit, decision.remaining, decision.resetMs],
    [true, 10, 6, 400],
  );
  const refused = await limiter.decide(8);
  assert.equal([refused.allowed, refused.waitMs, refused.remaining], [false, 200, 6]);
  assert.equal((await limiter.peek(6)).allowed, true);
});

away("charges, refunds and pauses apply locally, and at the store after recovery", async () => {
  // 4 are used, and 1.25 have been refilled when the store recovers
  const { limiter, store, pass, leave, comeBack } = await idle(ten);
  leave();
  await limiter.charge(5);
  await limiter.refund(1);
  await limiter.pause(3000);
  const { waitMs } = await limiter.peek();
  assert.is(waitMs, 3000);
  await pass(500);
  const { length } = store.batches;
  await comeBack();
  assert.equal(
    store.batches.slice(length).map((_, i) => store.sent(length + i - store.batches.length)),
    ["pause 0", "pause 2500000, settle 2.75, deficit"],
  );
});

away("a pause that the store does not accept after recovery ends no process", async () => {
  class PauselessStore extends HandStore {
    override run(...args: Parameters<HandStore["run"]>) {
      const pauses = args[2].some((request) => request.verb === "pause" && request.micros > 0);
      if (pauses && this.away === undefined) return Promise.reject(new Error("WRONGTYPE"));
      return super.run(...args);
    }
  }
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("unhandledRejection", note);
  const { limiter, leave, comeBack } = make(ten, { store: new PauselessStore(new FakeClock()) });
  leave();
  await limiter.pause(60_000);
  await comeBack();
  await turn();
  process.off("unhandledRejection", note);
  assert.equal(unhandled, []);
});

away("a pause in an outage reaches the store although the limiter is being closed", async () => {
  const { limiter, store, leave, comeBack } = make(ten);
  await limiter.acquire();
  const reservation = await limiter.reserve();
  leave();
  await limiter.tryAcquire();
  // kept for the store: the limiter is not closed before the store is back
  assert.is(await reservation.cancel(), true);
  await limiter.pause(60_000);
  const closed = limiter.close();
  await turn();
  await comeBack();
  await closed;
  const sent = store.batches.map((_, i) => store.sent(i - store.batches.length));
  assert.match(sent.at(-1) ?? "", /^back .*pause [1-9]/);
});

away("an outage after an update is under the new numbers", async () => {
  const { limiter, leave } = make(fixedWindow({ limit: 8, windowMs: 60_000 }));
  assert.instance(await failure(() => limiter.acquire(12)), PermitsExceedCapacityError);
  await limiter.update(fixedWindow({ limit: 16, windowMs: 60_000 }));
  leave();
  assert.equal([await limiter.tryAcquire(12), await limiter.tryAcquire()], [true, false]);
});

away("an outage of two hours charges what is used at its end", async () => {
  const { limiter, clock, store, leave, comeBack } = await idle(
    fixedWindow({ limit: 8, windowMs: 3600_000 }),
  );
  assert.is(await limiter.tryAcquire(7), true);
  leave();
  assert.is(await limiter.tryAcquire(), false);
  await clock.advance(2 * 3600_000);
  assert.is(await limiter.tryAcquire(), true);
  const { length } = store.batches;
  await comeBack();
  assert.equal(
    store.batches.slice(length).map((_, i) => store.sent(length + i - store.batches.length)),
    ["pause 0", "settle 1, deficit"],
  );
});

away("reservations keep their instants; corrections reach the state, wherever it is", async () => {
  const { limiter, clock, store, pass, leave, comeBack } = await idle(ten);
  await limiter.acquire(11);
  leave();
  const [used, kept, cancelled, aborted] = await Promise.all([
    limiter.reserve(),
    limiter.reserve(2),
    limiter.reserve(3),
    limiter.reserve(4),
  ]);
  assert.equal([used?.waitMs, kept?.waitMs, cancelled?.waitMs], [100, 500, 1300]);
  const ready = watch(clock, kept?.ready() as Promise<number>);
  const controller = new AbortController();
  const gone = watch(clock, aborted?.ready({ signal: controller.signal }) as Promise<number>);
  await pass(150);
  await used?.settle(2);
  assert.is(await limiter.tryAcquire(), false);
  await comeBack();
  // 1 + 1 more, 2, 3 and 4
  assert.match(store.sent(), "settle 11");
  const before = await limiter.peek();
  assert.is(await cancelled?.cancel(), true);
  controller.abort(new Error("enough"));
  await kept?.settle(1);
  await used?.settle(5);
  await turn();
  assert.ok(gone.error);
  assert.is(Math.round(before.waitMs - (await limiter.peek()).waitMs), 500);
  await pass(1000);
  assert.is(ready.value, 500);
});

away("a reservation that is cancelled in an outage leaves no gap behind it", async () => {
  const { limiter, clock, pass, leave, comeBack, store } = await idle(ten);
  await limiter.acquire(11);
  leave();
  const start = clock.now();
  const [first, second] = [await limiter.reserve(), await limiter.reserve(4)];
  assert.equal([first.waitMs, second.waitMs], [100, 500]);
  const behind = watch(clock, limiter.acquire());
  await turn();
  assert.is(await second.cancel(), true);
  assert.is(await second.cancel(), false);
  await pass(600);
  assert.is(Number(behind.at) - start, 500);
  await comeBack();
  assert.match(store.sent(), "settle 2");
});

away("a pause in an outage delays its reservations, and closing rejects ready()", async () => {
  const { limiter, clock, pass, leave } = await idle(ten);
  await limiter.acquire(11);
  leave();
  const [first, second] = [await limiter.reserve(), await limiter.reserve()];
  const start = clock.now();
  const ready = watch(clock, first.ready());
  await limiter.pause(1000);
  await pass(1000);
  assert.is(Number(ready.at) - start, 1000);
  await limiter.reserve(30);
  const [late, closed] = [await limiter.reserve(), limiter.close()];
  assert.instance(await failure(() => late.ready()), LimiterClosedError);
  await pass(1000);
  await closed;
  assert.is(await second.ready(), second.waitMs);
});

away("a grant of the store is corrected locally during an outage", async () => {
  const { limiter, store, leave, comeBack } = await idle(ten);
  await limiter.acquire(11);
  const [small, large] = await Promise.all([limiter.reserve(), limiter.reserve()]);
  leave();
  await small?.settle(3);
  assert.is(await large?.cancel(), true);
  await comeBack();
  assert.match(store.sent(), /back 1.*settle 2/);
});

away("the number of processes is read every second; invalid numbers change nothing", async () => {
  let instances = 4;
  const { limiter, pass, leave } = await idle(ten, { instances: () => instances });
  leave();
  assert.is((await limiter.peek()).limit, 3);
  instances = 1;
  await pass(999);
  assert.is((await limiter.peek()).limit, 3);
  await pass(1);
  await limiter.peek();
  assert.is((await limiter.peek()).limit, 11);
});

away("keys that are used once do not pile up during an outage", async () => {
  const breaker = new Breaker();
  const policy = gcra({ limit: 10, periodMs: 1000 });
  const clock = new FakeClock();
  const store = new HandStore(clock, breaker);
  const open = (whenUnavailable: RemoteOptions["whenUnavailable"]) =>
    onHand(policy, { clock, store, whenUnavailable, instances: () => 1 }).limiter;
  store.away = new Error("gone");
  const [busy, ...others] = Array.from({ length: 300 }, () => open("local"));
  const refusing = open("throw");
  for (const limiter of others) await limiter.acquire();
  assert.is(await busy?.acquire(10), 0);
  await failure(() => refusing.acquire());
  const count = () => breaker.size;
  assert.is(count(), 301);
  await clock.advance(500);
  await timers.tickAsync(500);
  assert.is(count(), 2, "the busy key, and one to probe the store");
  // a key that was dropped is not granted a second burst, and can be used again
  assert.is(await busy?.tryAcquire(6), false);
  assert.is(await others[0]?.tryAcquire(10), true);
  assert.is(await others[0]?.tryAcquire(), false);
  assert.instance(await failure(() => refusing.acquire()), StoreUnavailableError);
  store.away = undefined;
  await timers.tickAsync(1000);
  // all keys have one name, and what they used is charged
  assert.is(await refusing.tryAcquire(), false);
  assert.is(count(), 0);
});

away("allow: every call is granted, and nothing is charged; pauses hold", async () => {
  const { limiter, clock, store, pass, leave, comeBack } = await idle(ten, {
    whenUnavailable: "allow",
  });
  leave();
  for (let i = 0; i < 100; i++) assert.is(await limiter.tryAcquire(5), true);
  assert.is(await limiter.acquire(1000), 0);
  const decision = await limiter.decide(3);
  assert.equal([decision.allowed, decision.waitMs], [true, 0]);
  assert.is((await limiter.reserve()).waitMs, 0);
  await limiter.charge(3);
  await limiter.refund(3);
  await limiter.pause(100);
  const paused = watch(clock, limiter.acquire());
  const start = clock.now();
  await pass(200);
  assert.is(Number(paused.at) - start, 100);
  await comeBack();
  assert.is(store.sent(), "pause 0");
  assert.is((await limiter.peek()).remaining, 11);
});

for (const whenUnavailable of ["local", "allow"] as const) {
  away(`${whenUnavailable}: shared settings cannot be changed in an outage`, async () => {
    const { limiter, store, leave } = await idle(ten, { whenUnavailable });
    leave();
    assert.instance(await failure(() => limiter.update(ten)), StoreUnavailableError);
    assert.instance(await failure(() => limiter.reset()), StoreUnavailableError);
    store.away = new Error("WRONGTYPE");
  });

  away(`${whenUnavailable}: an error that waiting cannot fix rejects the call`, async () => {
    const { limiter, store } = await idle(ten, { whenUnavailable });
    store.away = new Error("WRONGTYPE");
    for (const action of [
      () => limiter.acquire(),
      () => limiter.decide(),
      () => limiter.charge(1),
    ]) {
      assert.instance(await failure(action), StoreUnavailableError);
    }
  });
}

away("several policies: each has its share, and is charged for its own use", async () => {
  const { limiter, store, leave, comeBack } = await idle(
    { requests: ten, bytes: gcra({ limit: 4000, periodMs: 1000 }) },
    { instances: () => 2 },
  );
  await limiter.acquire({ requests: 4, bytes: 1000 });
  leave();
  assert.is(await limiter.tryAcquire({ requests: 1, bytes: 1500 }), true);
  assert.is(await limiter.tryAcquire({ bytes: 1 }), false);
  assert.is(await limiter.tryAcquire({ requests: 3 }), true);
  const { policies } = await limiter.peek({ requests: 1 });
  assert.equal([policies.requests?.limit, policies.bytes?.limit], [6, 2000]);
  await comeBack();
  assert.is(store.sent(), "settle 4,1500, deficit");
});

away("a warm limiter stays warm through an outage", async () => {
  const { limiter, pass, leave, comeBack } = await idle(
    smoothWarmingUp({ permitsPerSecond: 10, warmupMs: 4000 }),
    { instances: () => 1 },
  );
  const pace = async (permits: number) => {
    let ms = 0;
    for (let i = 0; i < permits; i++) {
      const { waitMs } = await limiter.reserve();
      ms = waitMs;
      await pass(waitMs);
    }
    return ms;
  };
  assert.is(await pace(100), 100);
  leave();
  assert.is(await pace(50), 100);
  await comeBack();
  assert.ok((await pace(50)) <= 101);
});

for (const [verb, isAnswered, remaining] of [
  ["refund", true, 3],
  ["refund", false, 3],
  ["charge", true, 7],
  // it is unknown whether it ran: running it twice is better than not at all
  ["charge", false, 4],
] as const) {
  const end = isAnswered ? "its reply comes late" : "its reply is lost";
  away(`a ${verb} that is in flight when the store falls silent; ${end}`, async () => {
    const window = fixedWindow({ limit: 10, windowMs: 1e6, align: "first" });
    const { limiter, store, pass, comeBack } = make(window, { instances: () => 1 });
    if (verb === "refund") await limiter.charge(10);
    else await limiter.peek();
    await pass(100);
    store.held = true;
    const done = limiter[verb](3);
    await pass(1000);
    await done;
    if (isAnswered) await store.deliver();
    else store.held = false;
    await comeBack();
    await pass(100);
    assert.is((await limiter.peek()).remaining, remaining);
  });
}

for (const whenUnavailable of ["local", "allow"] as const) {
  away(`${whenUnavailable}: a cancel that is in flight applies in this process`, async () => {
    const { limiter, store, pass } = make(ten, { whenUnavailable });
    await limiter.charge(10);
    const reservation = await limiter.reserve(5);
    store.held = true;
    const cancelled = reservation.cancel();
    await pass(1000);
    assert.is(await cancelled, true);
    assert.is(await reservation.cancel(), false);
  });
}

away("decide and peek offer no wait where the queue is full", async () => {
  const { clock, limiter, leave } = await idle(ten, { maxWaiting: 3 });
  leave();
  while (await limiter.tryAcquire());
  assert.ok((await limiter.peek()).waitMs < Infinity);
  watch(clock, limiter.acquire(3));
  await turn();
  for (const { allowed, waitMs } of [await limiter.peek(), await limiter.decide()]) {
    assert.equal([allowed, waitMs], [false, Infinity]);
  }
});

away("less used than reserved: others can use the rest, locally and at the store", async () => {
  const { limiter, pass, leave, comeBack, store } = await idle(ten);
  leave();
  while (await limiter.tryAcquire());
  const [here, there] = [await limiter.reserve(5), await limiter.reserve(5)];
  await pass(500);
  const before = (await limiter.peek()).waitMs;
  await here.settle(1);
  assert.ok((await limiter.peek()).waitMs < before);
  await pass(60_000);
  await comeBack();
  await there.settle(1);
  await turn();
  assert.match(store.sent(), "refund 4");
});

away("a prefetching limiter charges the store for what was used during an outage", async () => {
  const { limiter, leave, comeBack, store } = await idle(ten, {
    prefetch: { permits: 2, maxAgeMs: 1000 },
  });
  leave();
  const used = await grantedOf(Array.from({ length: 30 }, () => limiter.tryAcquire()));
  const batches = store.batches.length;
  await comeBack();
  const charged = store.batches
    .slice(batches)
    .flat()
    .reduce((sum, one) => sum + (one.verb === "settle" ? Number(one.amount) : 0), 0);
  assert.ok(used > 0);
  assert.is(charged, used);
});

away("a caller that waited for an event-loop turn asks a recovered store", async () => {
  const { limiter, leave, store } = await idle(ten);
  leave();
  assert.is(await limiter.tryAcquire(), true);
  await turn();
  const first = limiter.tryAcquire();
  // the turn takes too long
  timers.tick(11);
  const second = limiter.tryAcquire();
  store.away = undefined;
  timers.tick(1000);
  for (let i = 0; i < 50; i++) await Promise.resolve();
  const batches = store.batches.length;
  await Promise.all([first, second]);
  assert.equal(
    store.batches
      .slice(batches)
      .flat()
      .map(({ verb }) => verb),
    ["reserve"],
  );
});

away("a caller that leaves while it waits for an event-loop turn uses no permits", async () => {
  const { limiter, leave } = await idle(ten);
  leave();
  assert.is(await limiter.tryAcquire(), true);
  const { remaining } = await limiter.peek();
  await turn();
  const leaving = new AbortController();
  const first = limiter.peek();
  // the turn takes too long
  timers.tick(11);
  const left = failure(() => limiter.acquire(1, { signal: leaving.signal }));
  leaving.abort(new Error("enough"));
  assert.match(`${await left}`, "enough");
  assert.is((await first).remaining, remaining);
  assert.is((await limiter.peek()).remaining, remaining);
});

away.run();

const turns = suite("when unavailable, turns of the event loop");

for (const whenUnavailable of ["local", "allow"] as const) {
  turns(`${whenUnavailable}: callers that retry at once let timers fire`, async () => {
    const { limiter, store } = onHand(smoothBursty({ permitsPerSecond: 1e9 }), {
      ...{ whenUnavailable, instances: () => 2 },
    });
    store.away = new Error("gone");
    let isOver = false;
    setTimeout(() => {
      isOver = true;
    }, 20);
    const end = performance.now() + 10_000;
    const order: number[] = [];
    while (!isOver && performance.now() < end) {
      await Promise.all([0, 1].map((i) => limiter.tryAcquire().then(() => order.push(i))));
    }
    assert.ok(isOver, "no timer has fired for 10 s");
    assert.ok(order.every((who, i) => who === i % 2));
    // its probes would go on in later tests
    await limiter.close();
  });
}

turns("without setImmediate, timers still fire", async () => {
  const { setImmediate: immediate } = globalThis;
  Reflect.deleteProperty(globalThis, "setImmediate");
  try {
    const { limiter, store } = onHand(ten, { whenUnavailable: "allow" });
    store.away = new Error("gone");
    for (let i = 0; i < 3; i++) {
      assert.is(await limiter.tryAcquire(), true);
      await new Promise((resolve) => {
        setTimeout(resolve, 0);
      });
    }
    await limiter.close();
  } finally {
    globalThis.setImmediate = immediate;
  }
});

turns.run();
