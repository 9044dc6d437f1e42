import FakeTimers from "@sinonjs/fake-timers";
import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fairShares,
  fixedWindow,
  gcra,
  KeyedLimiter,
  type LeasingLimiter,
  Limiter,
  type LocalLimiter,
  PermitsExceedCapacityError,
  QueueFullError,
  smoothBursty,
} from "../../src/index.ts";
import { RedisConcurrencyLimiter } from "../../src/redis/index.ts";
import { casStore, LimiterClosedError, StoreLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { MapBackend } from "../support/stores/map-backend.ts";
import { runs, suite } from "../support/suite.ts";

const HOUR = 3_600_000;
const window = (limit: number, windowMs = 1000) => fixedWindow({ limit, windowMs });
const steady = smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 });

/** Its timers are 300 ms late. */
class LateClock extends FakeClock {
  override wakeAt(timeMs: number, wake: () => void) {
    return super.wakeAt(timeMs + 300, wake);
  }
}

function inProcess(options: { maxWaiting?: number } = {}) {
  const clock = new FakeClock();
  const common = Limiter.create(window(3), { clock });
  const users = KeyedLimiter.create({ user: gcra({ limit: 2, periodMs: 1000 }) }, { clock });
  const slow = Limiter.create(steady, { clock, ...options });
  return { clock, common, users, slow };
}

const test = suite("all of several limiters");

test("either all limiters let a request pass, or none is charged", () => {
  const { common, users } = inProcess();
  const of = (user: string) => allOf(common, users.for(user));
  assert.equal(
    [1, 2, 3].map(() => of("a").tryAcquire()),
    [true, true, false],
  );
  assert.is(common.peek().remaining, 1, "the refused request was not charged");
  assert.equal(
    [1, 2].map(() => of("b").tryAcquire()),
    [true, false],
  );
  assert.is(users.for("b").peek().remaining, 1);
});

test("a refusal and a peek change nothing", () => {
  const { common, users } = inProcess();
  const limiter = allOf(common, users.for("a"));
  limiter.tryAcquire(2);
  const before = [common.peek(), users.for("a").peek(), users.size];
  limiter.peek();
  limiter.decide();
  limiter.tryAcquire();
  assert.equal([common.peek(), users.for("a").peek(), users.size], before);
});

test("a decision names the binding limiter and lists all of them", () => {
  const { common, users, slow } = inProcess();
  const limiter = allOf(common, users.for("a"), slow);
  const first = limiter.decide();
  assert.ok(first.allowed);
  assert.equal(Object.keys(first.policies), ["default", "user", "default#3"]);
  assert.equal([first.policy, first.remaining], ["default#3", 0]);
  const second = limiter.decide();
  assert.equal([second.allowed, second.waitMs, second.policy], [false, 1000, "default#3"]);
  const { policies } = limiter.peek();
  assert.equal(
    Object.values(policies).map(({ remaining }) => remaining),
    [2, 1, 0],
  );
  const ofUser = users.for("a");
  for (const both of [allOf(common, ofUser), allOf(ofUser, common)]) {
    assert.is(both.peek().policy, "user", "1 of 2 is less than 2 of 3");
  }
  const again = Limiter.create({ again: window(3) }, { clock: new FakeClock() });
  again.charge(1);
  assert.is(allOf(common, again).peek().policy, "default", "of equal ones the first");
});

test("an unlimited limiter is never the scarcest", () => {
  const open = Limiter.create(smoothBursty({ permitsPerSecond: Infinity }), {
    clock: new FakeClock(),
  });
  const { common } = inProcess();
  common.tryAcquire();
  assert.is(allOf(open, common).peek().limit, 3);
  open.pause(10);
  assert.is(allOf(open, common).peek().limit, Infinity);
  common.pause(10);
  assert.is(
    allOf(open, common).peek().limit,
    Infinity,
    "as scarce as the other one while it is paused",
  );
});

test("a waiter goes when the last of the limiters permits it", async () => {
  const { clock, common, slow } = inProcess();
  const limiter = allOf(common, slow);
  const waits = [1, 2, 3].map(() => watch(clock, limiter.acquire()));
  await clock.advance(5000);
  assert.equal(instants(waits), [0, 1000, 2000]);
  assert.equal(
    waits.map(({ value }) => value),
    [0, 1000, 2000],
  );
});

test("tryAcquire with a time-out changes nothing where the wait would be too long", async () => {
  const { clock, common, slow } = inProcess();
  const limiter = allOf(common, slow);
  assert.ok(await limiter.tryAcquire(1, 0));
  assert.not(await limiter.tryAcquire(1, 999));
  assert.is(common.peek().remaining, 2);
  const waited = watch(clock, limiter.tryAcquire(1, { timeoutMs: 1000 }));
  await clock.advance(1000);
  assert.equal([waited.at, waited.value], [1000, true]);
});

test("an abort gives all permits back", async () => {
  const { clock, common, slow } = inProcess();
  const limiter = allOf(common, slow);
  slow.charge(1);
  const controller = new AbortController();
  const { signal } = controller;
  const waits = [
    watch(clock, limiter.acquire(1, { signal })),
    watch(clock, limiter.tryAcquire(1, { signal })),
  ];
  await turn();
  assert.equal([common.peek().remaining, slow.peek().waitMs], [2, 3000]);
  const reason = new Error("enough");
  controller.abort(reason);
  await turn();
  for (const { error } of waits) assert.is(error, reason);
  assert.equal([common.peek().remaining, slow.peek().waitMs], [3, 1000]);
  assert.is(await failure(() => limiter.acquire(1, { signal })), reason);
  assert.is(await failure(() => limiter.tryAcquire(1, { signal })), reason);
});

test("undo of a reservation of all gives back what each limiter took, waiting or not", async () => {
  for (const taken of [0, 1]) {
    const { common, slow } = inProcess();
    const all = allOf(common, slow);
    for (let i = 0; i < taken; i++) assert.ok(all.tryAcquire());
    const before = [common.peek(), slow.peek()];
    const reservation = await all.reserve();
    assert.is(reservation.waitMs, taken * 1000);
    await reservation.undo();
    await reservation.undo();
    assert.equal([common.peek(), slow.peek()], before, `${taken} already taken`);
  }
});

test("a reservation of all limiters that is cancelled, settled or due", async () => {
  const { clock, common, slow } = inProcess();
  const limiter = allOf(common, slow);
  const now = limiter.reserve();
  assert.equal([now.waitMs, now.permits, now.cancel()], [0, 1, false]);
  const later = limiter.reserve();
  assert.is(later.waitMs, 1000);
  assert.equal([later.cancel(), later.cancel()], [true, false]);
  assert.equal([common.peek().remaining, slow.peek().waitMs], [2, 1000]);
  now.settle(3);
  assert.equal([common.peek().remaining, slow.peek().waitMs], [0, 3000]);
  const due = limiter.reserve();
  await clock.advance(3000);
  assert.is(due.cancel(), false);
  assert.is(await due.ready(), 3000);
});

test("a full queue in one limiter: nothing is taken from the others", async () => {
  const { common, slow } = inProcess({ maxWaiting: 0 });
  const limiter = allOf(common, slow);
  await limiter.acquire();
  assert.ok((await failure(() => limiter.acquire())) instanceof QueueFullError);
  assert.throws(
    () => limiter.reserve(),
    (error: Error) => error instanceof QueueFullError,
  );
  assert.not(await limiter.tryAcquire(1, 5000));
  assert.is(common.peek().remaining, 2);
});

test("charge, refund and pause apply to each limiter", async () => {
  const { clock, common, slow } = inProcess();
  const limiter = allOf(common, slow);
  limiter.charge(2);
  assert.equal([common.peek().remaining, slow.peek().waitMs], [1, 2000]);
  limiter.refund(1);
  assert.equal([common.peek().remaining, slow.peek().waitMs], [2, 1000]);
  limiter.pause(1500);
  assert.equal([common.peek().waitMs, slow.peek().waitMs], [1500, 1500]);
  assert.throws(() => limiter.update(window(5)), /update its limiters/);
  await clock.advance(1500);
  assert.ok(limiter.tryAcquire());
});

test("a request that can never pass one of the limiters is an error, before anything changes", async () => {
  const { common, slow } = inProcess();
  const limiter = allOf(slow, common);
  for (const verb of [
    () => limiter.acquire(4),
    () => limiter.tryAcquire(4),
    () => limiter.tryAcquire(4, 1000),
    () => limiter.reserve(4),
    () => limiter.decide(4),
    () => limiter.peek(4),
    () => limiter.charge(4),
    () => limiter.refund(4),
  ]) {
    assert.ok((await failure(verb)) instanceof PermitsExceedCapacityError, `${verb}`);
    assert.is(slow.peek().waitMs, 0, `${verb}`);
  }
});

test("a combination of combinations answers at once", () => {
  const { common, users, slow } = inProcess();
  const limiter = allOf(allOf(common, users.for("a")), slow);
  assert.equal([limiter.tryAcquire(), limiter.tryAcquire()], [true, false]);
  assert.is(common.peek().remaining, 2);
});

test("allOf refuses arguments that are no limiters", () => {
  assert.throws(() => allOf(), /allOf needs a limiter/);
  assert.throws(() => allOf(inProcess().slow, {} as LocalLimiter), /argument 2 must be a limiter/);
  assert.throws(() => allOf("a" as unknown as LocalLimiter), /argument 1 must be a limiter/);
  assert.throws(() => allOf(null as unknown as LocalLimiter), /argument 1 must be a limiter/);
  const keyed = KeyedLimiter.create(smoothBursty({ permitsPerSecond: 1 }));
  assert.throws(() => allOf(keyed as unknown as LocalLimiter), /use limiter.for\(key\)/);
});

test("the narrowest limiter bounds all requests, and its refusals charge none of the others", () => {
  const limits = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 });
  const asks = fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 12 });
  const property = fc.property(limits, asks, (each, wanted) => {
    const clock = new FakeClock();
    const limiters = each.map((limit) => Limiter.create(window(limit), { clock }));
    const limiter = allOf(...limiters);
    const least = Math.min(...each);
    let used = 0;
    for (const permits of wanted.filter((one) => one <= least)) {
      const fits = used + permits <= least;
      assert.is(limiter.tryAcquire(permits), fits);
      if (fits) used += permits;
      assert.equal(
        limiters.map((one) => one.peek().remaining),
        each.map((limit) => limit - used),
      );
    }
  });
  void fc.assert(property, { numRuns: runs(300) });
});

test("a reservation that a key's full queue refuses reports this, with or without other waiters", () => {
  const clock = new FakeClock();
  const common = Limiter.create(window(9), { clock });
  const users = KeyedLimiter.create(steady, { clock, maxWaiting: 1, name: "users" });
  const limiter = allOf(common, users.for("a"));
  const full = (facts: object, permits: number) =>
    assert.throws(
      () => limiter.reserve(permits),
      (error: unknown) => {
        assert.instance(error, QueueFullError);
        assert.equal((error as QueueFullError).facts, {
          limiter: "users",
          maxWaiting: 1,
          ...facts,
        });
        return true;
      },
    );
  users.for("a").tryAcquire();
  full({ permits: 2, waiting: 0 }, 2);
  limiter.reserve(1);
  full({ permits: 1, waiting: 1 }, 1);
  assert.is(common.peek().remaining, 8, "the refused requests were not charged");
});

test("a key whose waiter was released late grants what is due since then", async () => {
  const clock = new LateClock();
  const users = KeyedLimiter.create(smoothBursty({ permitsPerSecond: 5, burstSeconds: 0 }), {
    clock,
  });
  const limiter = allOf(Limiter.create(window(9, 60_000), { clock }), users.for("a"));
  users.for("a").tryAcquire();
  const waiting = watch(clock, users.for("a").acquire());
  await clock.advance(500);
  assert.is(waiting.at, 500);
  assert.is(limiter.decide().allowed, true);
  assert.is(limiter.decide().allowed, false);
});

test.run();

const elsewhere = suite("all of several limiters on stores");

elsewhere("local limiters and limiters on a store together", async () => {
  const { clock, common } = inProcess();
  const there = onHand(window(1, 60_000), { clock });
  const limiter = allOf(common, there.limiter);
  assert.ok(await limiter.tryAcquire());
  assert.not(await limiter.tryAcquire());
  assert.is(common.peek().remaining, 2);
  assert.not((await limiter.decide()).allowed);
  assert.is(common.peek().remaining, 2);
  await limiter.charge(1);
  await limiter.refund(1);
  await limiter.pause(10);
  assert.equal([(await limiter.peek()).waitMs, common.peek().waitMs], [60_000, 10]);
  const reservation = await limiter.reserve();
  assert.is(reservation.waitMs, 60_000);
  assert.ok(await reservation.cancel());
  await reservation.settle(0);
});

elsewhere("one after the other in one batch", async () => {
  const { clock, common } = inProcess();
  const there = onHand(window(1, 60_000), { clock });
  const limiter = allOf(common, there.limiter);
  const [first, second] = await Promise.all([limiter.decide(), limiter.decide()]);
  assert.equal([first.allowed, second.allowed], [true, false]);
  assert.is(common.peek().remaining, 2);
});

elsewhere("one limiter twice: both peeks see a permit, one reservation gets it", async () => {
  const bucket = gcra({ limit: 1, periodMs: 60_000 });
  const { limiter } = onHand(bucket);
  const twice = allOf(limiter, limiter);
  assert.not((await twice.decide()).allowed);
  assert.not(await twice.tryAcquire());
  assert.ok(await limiter.tryAcquire(), "given back");
  const here = Limiter.create(bucket, { clock: new FakeClock() });
  assert.not(allOf(here, here).tryAcquire());
  assert.ok(here.tryAcquire(), "given back");
});

elsewhere("permits are given back to the window from which they were taken", async () => {
  const clock = new FakeClock();
  const [there, other] = [onHand(window(1), { clock }), onHand(window(1, 60_000), { clock })];
  await other.limiter.acquire();
  other.store.held = true;
  const tried = watch(clock, allOf(there.limiter, other.limiter).tryAcquire(1, 0));
  await turn();
  await clock.advance(1000);
  assert.ok(await there.limiter.tryAcquire());
  await other.store.deliver();
  await turn();
  assert.is(tried.value, false);
  assert.not(await there.limiter.tryAcquire());
  const reservation = await there.limiter.reserve();
  await (reservation as unknown as { undo(): Promise<void> }).undo();
  await (reservation as unknown as { undo(): Promise<void> }).undo();
  assert.is((await there.limiter.peek()).waitMs, 1000);
});

elsewhere("an unavailable store takes nothing from the local limiters", async () => {
  const { clock, common } = inProcess();
  const there = onHand(window(5), { clock });
  there.store.away = new Error("gone");
  const limiter = allOf(common, there.limiter);
  for (const verb of [
    () => limiter.acquire(),
    () => limiter.tryAcquire(),
    () => limiter.tryAcquire(1, 10),
    () => limiter.reserve(),
    () => limiter.decide(),
    () => limiter.charge(1),
  ]) {
    assert.match(`${await failure(verb)}`, "gone", `${verb}`);
    await turn();
    assert.is(common.peek().remaining, 3, `${verb}`);
  }
  for (const verb of [() => limiter.pause(5), () => limiter.reset()]) {
    assert.match(`${await failure(verb)}`, "gone", `${verb}`);
  }
});

elsewhere("a store that is away does not hide why a local limiter refuses", async () => {
  const { clock, slow } = inProcess({ maxWaiting: 0 });
  slow.charge(1);
  const there = onHand(window(5), { clock });
  there.store.away = new Error("gone");
  const refused = await failure(() => allOf(there.limiter, slow).reserve());
  assert.instance(refused, QueueFullError);
});

elsewhere("a call waits for a store that is away no longer than it may", async () => {
  const timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const advance = async (ms: number) => {
    await timers.tickAsync(ms);
    await turn();
    await turn();
  };
  try {
    const store = memoryStore();
    const shared = StoreLimiter.create(store, "shared", window(5), { whenUnavailable: "wait" });
    store.fail();
    for (const [limiter, none] of [
      [allOf(shared), false],
      [allOf(shared, ConcurrencyLimiter.create(1)), undefined],
    ] as const) {
      const controller = new AbortController();
      const { signal } = controller;
      const ended: unknown[] = [];
      const note = (call: unknown) =>
        Promise.resolve(call).then(
          (value) => ended.push(value),
          ({ message }) => ended.push(message),
        );
      void note(limiter.tryAcquire());
      void note(limiter.tryAcquire({ timeoutMs: 50 }));
      void note(limiter.tryAcquire({ signal }));
      void note(limiter.acquire(1, { signal }));
      await advance(1);
      assert.equal(ended, [none]);
      await advance(48);
      assert.equal(ended, [none]);
      await advance(1);
      assert.equal(ended, [none, none]);
      await advance(500);
      controller.abort(new Error("enough"));
      await advance(0);
      assert.equal(ended, [none, none, "enough", "enough"]);
    }
    for (const isFreed of [true, false]) {
      const slots = ConcurrencyLimiter.create(1);
      const lease = slots.tryAcquire();
      const ended: unknown[] = [];
      void allOf(shared, slots)
        .tryAcquire({ timeoutMs: 50 })
        .then((none) => ended.push(none));
      await advance(30);
      if (isFreed) lease?.release();
      await advance(19);
      assert.equal(ended, []);
      await advance(1);
      assert.equal(ended, [undefined], `${isFreed}`);
    }
    const closed = shared.close();
    await advance(1000);
    await closed;
  } finally {
    timers.uninstall();
  }
});

/** Makes calls in an outage, and advances the time until all must have ended. */
async function outage(
  { tickAsync }: FakeTimers.Clock,
  limiter: LeasingLimiter | Limiter,
): Promise<readonly string[]> {
  const controller = new AbortController();
  const { signal } = controller;
  const ended: string[] = [];
  const since = performance.now();
  const note = (name: string, call: unknown) => {
    const at = (outcome: string) => {
      ended.push(`${name}: ${outcome}, ${Math.round(performance.now() - since)} ms`);
    };
    Promise.resolve(call).then(
      (value) => at(value ? "granted" : "refused"),
      ({ message }) => at(message),
    );
  };
  note("at once", limiter.tryAcquire());
  note("250", limiter.tryAcquire(1, 250));
  note("250 or signal", limiter.tryAcquire(1, { timeoutMs: 250, signal }));
  note("try until signal", limiter.tryAcquire({ signal }));
  note("acquire", limiter.acquire(1, { signal }));
  for (let i = 0; i < 400; i++) {
    await tickAsync(1);
    await turn();
  }
  controller.abort(new Error("enough"));
  await tickAsync(0);
  await turn();
  return ended.toSorted();
}

const ENDED = [
  "250 or signal: refused, 250 ms",
  "250: refused, 250 ms",
  "acquire: enough, 400 ms",
  "at once: refused, 0 ms",
  "try until signal: enough, 400 ms",
];

/** A test whose stores and callers wait by timers that it advances. */
function inTimers(title: string, run: (timers: FakeTimers.Clock) => Promise<void>): void {
  elsewhere(title, async () => {
    const timers = FakeTimers.install({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    try {
      await run(timers);
    } finally {
      timers.uninstall();
    }
  });
}

inTimers("a call waits no longer than it may for a store that its limiter asks", async (timers) => {
  const backend = new MapBackend();
  let back: Promise<void> | undefined;
  const once = async <T>(run: () => Promise<T>) => {
    await back;
    return run();
  };
  const store = casStore({
    get: (key) => once(() => backend.get(key)),
    compareAndSet: (...change) => once(() => backend.compareAndSet(...change)),
  });
  const limiter = StoreLimiter.create(store, "cas", window(5, HOUR), {
    ...{ whenUnavailable: "wait", timeoutMs: 100 },
  });
  for (const combination of [
    allOf(limiter),
    allOf(limiter, Limiter.create(window(5, HOUR))),
    allOf(limiter, ConcurrencyLimiter.create(5)),
  ]) {
    let recover = () => {};
    back = new Promise((resolve) => {
      recover = resolve;
    });
    assert.equal(await outage(timers, combination), ENDED.with(3, "at once: refused, 100 ms"));
    assert.equal(await outage(timers, combination), ENDED);
    back = undefined;
    recover();
    await timers.tickAsync(3000);
    await turn();
    await timers.tickAsync(1);
    assert.equal([limiter.state, (await limiter.peek()).remaining], ["ready", 5]);
  }
  const closed = limiter.close();
  await timers.tickAsync(1000);
  await closed;
});

inTimers("a call waits no longer than it may for slots of a store that is away", async (timers) => {
  const subscriber = {
    subscribe: async () => {},
    unsubscribe: async () => {},
    on() {},
    off() {},
  };
  for (const runScript of [
    () => new Promise<never>(() => {}),
    () => Promise.reject(new Error("gone")),
  ]) {
    const slots = RedisConcurrencyLimiter.create({ runScript }, "slots", 5, {
      ...{ whenUnavailable: "wait", timeoutMs: 100, subscriber },
    });
    const found = slots.tryAcquire();
    await timers.tickAsync(100);
    await found;
    for (const combination of [allOf(slots), allOf(slots, Limiter.create(window(5, HOUR)))]) {
      assert.equal(await outage(timers, combination), ENDED);
    }
    const closed = slots.close();
    await timers.tickAsync(1000);
    await closed;
  }
});

inTimers("a call waits no longer than it may for its place on a store", async (timers) => {
  for (const stop of ["hang", "fail"] as const) {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    const limiter = StoreLimiter.create(store, "place", window(5), {
      ...{ clock, whenUnavailable: "wait", timeoutMs: 100 },
    });
    await limiter.acquire(5);
    const run = store.run.bind(store);
    store.run = (...call) => {
      if (call[2].some(({ verb }) => verb === "reserve")) store[stop]();
      return run(...call);
    };
    const controller = new AbortController();
    const { signal } = controller;
    const slots = ConcurrencyLimiter.create(5);
    const aborted = watch(clock, allOf(limiter).acquire(1, { signal }));
    const timed = watch(clock, allOf(limiter, slots).tryAcquire(1, 1500));
    await timers.tickAsync(400);
    controller.abort(new Error("enough"));
    await timers.tickAsync(1099);
    await turn();
    assert.match(`${aborted.error}`, "enough");
    assert.is(timed.at, undefined);
    await timers.tickAsync(1);
    await turn();
    await timers.tickAsync(0);
    assert.equal([timed.at, timed.value], [0, undefined], stop);
    store.run = run;
    store.recover();
    await timers.tickAsync(3000);
    await turn();
    await timers.tickAsync(1);
    assert.equal([slots.active, (await limiter.peek()).waitMs], [0, 1000]);
    await clock.advance(1000);
    assert.is((await limiter.peek()).remaining, 5);
    const closed = limiter.close();
    await timers.tickAsync(1000);
    await closed;
  }
});

inTimers("a call waits no longer than it may for permits to be given back", async (timers) => {
  const clock = new FakeClock();
  const store = memoryStore({ clock });
  const there = StoreLimiter.create(store, "back", window(5, HOUR), {
    ...{ clock, whenUnavailable: "wait", timeoutMs: 100 },
  });
  const here = Limiter.create(window(1, HOUR), { clock });
  const run = store.runTogether.bind(store);
  store.runTogether = async (...call) => {
    const reply = await run(...call);
    here.charge(1);
    store.hang();
    return reply;
  };
  const limiter = allOf(there, here);
  const controller = new AbortController();
  const aborted = watch(clock, limiter.acquire(1, { signal: controller.signal }));
  await timers.tickAsync(500);
  controller.abort(new Error("enough"));
  await timers.tickAsync(0);
  assert.match(`${aborted.error}`, "enough");
  store.recover();
  await timers.tickAsync(3000);
  here.reset();
  const timed = watch(clock, limiter.tryAcquire(1, 500));
  await timers.tickAsync(499);
  await turn();
  assert.is(timed.at, undefined);
  await timers.tickAsync(1);
  await turn();
  await timers.tickAsync(0);
  assert.is(timed.value, false);
  store.recover();
  await timers.tickAsync(3000);
  assert.is((await there.peek()).remaining, 5);
  const closed = there.close();
  await timers.tickAsync(1000);
  await closed;
});

inTimers("the round trips of a call to stores that are not away are no outage", async (timers) => {
  const limiters = ["one", "two"].map((name) => {
    const store = memoryStore();
    store.delayMs = 300;
    return StoreLimiter.create(store, name, window(5), {
      ...{ whenUnavailable: "wait", timeoutMs: 500 },
    });
  });
  const slots = ConcurrencyLimiter.create(1);
  const called = allOf(slots, ...limiters).tryAcquire(1, 800);
  let lease: Disposable | undefined;
  for (let ms = 0; ms < 1800; ms += 10) {
    await timers.tickAsync(10);
    await turn();
    if (ms === 100) lease = slots.tryAcquire();
    // they were looked at, took, and gave back in one trip each
    if (ms === 1000) lease?.[Symbol.dispose]();
  }
  assert.ok(await Promise.race([called, turn()]));
  const closed = Promise.all(limiters.map((limiter) => limiter.close()));
  await timers.tickAsync(1000);
  await closed;
});

elsewhere("permits of a call return that is aborted just when its reply arrives", async () => {
  for (let microtasks = 0; microtasks < 12; microtasks++) {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    const [one, two] = ["one", "two"].map((name) =>
      StoreLimiter.create(store, name, window(5), { clock }),
    ) as [StoreLimiter, StoreLimiter];
    const controller = new AbortController();
    const { signal } = controller;
    store.hang();
    const acquired = allOf(one, two).acquire(1, { signal });
    const outcome = acquired.then(
      () => 4,
      () => 5,
    );
    await turn();
    store.recover();
    for (let i = 0; i < microtasks; i++) await undefined;
    controller.abort(new Error("enough"));
    const left = await outcome;
    await turn();
    assert.is((await one.peek()).remaining, left, `after ${microtasks} microtasks`);
    assert.is((await two.peek()).remaining, left, `after ${microtasks} microtasks`);
    await Promise.all([one.close(), two.close()]);
  }
});

elsewhere(
  "a local limiter refuses while a store is unavailable: that is reported, and waited for",
  async () => {
    const clock = new FakeClock();
    const here = Limiter.create(window(1), { clock });
    const there = onHand(window(5), { clock });
    for (const limiter of [allOf(there.limiter, here), allOf(here, there.limiter)]) {
      here.reset();
      here.tryAcquire();
      there.store.away = new Error("gone");
      assert.not(await limiter.tryAcquire());
      const { allowed, waitMs, policies } = await limiter.decide();
      assert.equal([allowed, waitMs, Object.keys(policies).length], [false, 1000, 1]);
      const [failing, waiting] = [watch(clock, limiter.acquire()), watch(clock, limiter.acquire())];
      await clock.advance(1000);
      assert.match(`${failing.error}`, "gone");
      there.store.away = undefined;
      await clock.advance(0);
      assert.is(waiting.at, clock.now());
    }
  },
);

elsewhere("a caller that waits for a fair limiter leaves once when that is closed", async () => {
  const clock = new FakeClock();
  const there = onHand(steady, { clock, order: fairShares() });
  const limiter = allOf(there.limiter, Limiter.create(window(5), { clock }));
  await limiter.acquire();
  const waiting = watch(clock, limiter.acquire());
  await clock.advance(10);
  const closed = there.limiter.close();
  await clock.advance(0);
  await closed;
  assert.match(`${waiting.error}`, "was closed");
  assert.equal([there.limiter.stats.cancelled, there.limiter.stats.waiting], [1, 0]);
});

elsewhere("limiters are closed while a combination waits for their store", async () => {
  for (const whenUnavailable of ["wait", "local", "throw"] as const) {
    const store = memoryStore();
    const options = { whenUnavailable, instances: 1, timeoutMs: 500 };
    const limiters = ["a", "b"].map((name) => StoreLimiter.create(store, name, window(5), options));
    store.hang();
    const asked = failure(() => allOf(...limiters).decide());
    await turn();
    await Promise.all(limiters.map((limiter) => limiter.close()));
    assert.instance(await asked, LimiterClosedError);
  }
});

elsewhere("a store that is back for one member before the other is asked once", async () => {
  const timers = FakeTimers.install({
    toFake: ["setTimeout", "clearTimeout", "performance", "Date"],
  });
  try {
    const store = memoryStore();
    const [waiting, local] = (["wait", "local"] as const).map((whenUnavailable) =>
      StoreLimiter.create(store, whenUnavailable, window(5), { whenUnavailable, instances: 1 }),
    ) as [StoreLimiter, StoreLimiter];
    let calls = 0;
    const run = store.run.bind(store);
    store.run = (...call) => {
      calls += 1;
      return run(...call);
    };
    store.fail();
    await local.peek();
    await timers.tickAsync(3000);
    // the one after its next probe is most of a second away
    const before = calls;
    while (calls === before) await timers.tickAsync(10);
    const first = waiting.acquire();
    await timers.tickAsync(0);
    store.recover();
    store.delayMs = 1;
    await timers.tickAsync(50);
    await first;
    assert.equal([waiting.state, local.state], ["ready", "unavailable"]);
    calls = 0;
    const decided = allOf(waiting, local).decide();
    await timers.tickAsync(100);
    assert.ok((await decided).allowed);
    assert.ok(calls < 5, `${calls} calls`);
    const closed = Promise.all([waiting.close(), local.close()]);
    await timers.tickAsync(1000);
    await closed;
  } finally {
    timers.uninstall();
  }
});

elsewhere.run();
