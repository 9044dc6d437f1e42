import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fixedWindow,
  gcra,
  KeyedLimiter,
  type Limiter,
  Limiter as Limiters,
  type LocalLimiter,
  leakyBucket,
  type Permits,
  QueueFullError,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("combinations that take several steps");

const window = (limit: number) => fixedWindow({ limit, windowMs: 1000 });

/**
 * A limiter that is not this library's and answers later; `before` runs before each of its verbs.
 */
function foreign(
  limiter: LocalLimiter,
  before: (verb: string) => void | Promise<void> = () => {},
): Limiter {
  const later = async <T>(verb: string, action: () => T | PromiseLike<T>): Promise<T> => {
    await before(verb);
    return action();
  };
  return {
    acquire: (...args) => later("acquire", () => limiter.acquire(...args)),
    tryAcquire: () => later("tryAcquire", () => limiter.tryAcquire()),
    reserve: (permits?: Permits) => later("reserve", () => limiter.reserve(permits)),
    decide: (permits?: Permits) => later("decide", () => limiter.decide(permits)),
    peek: (permits?: Permits) => later("peek", () => limiter.peek(permits)),
    charge: (permits) => later("charge", () => limiter.charge(permits)),
    refund: (permits) => later("refund", () => limiter.refund(permits)),
    pause: (ms) => later("pause", () => limiter.pause(ms)),
    reset: () => later("reset", () => limiter.reset()),
    update: (policies) => later("update", () => limiter.update(policies)),
  };
}

function world() {
  const clock = new FakeClock();
  const one = Limiters.create(window(3), { clock });
  const two = Limiters.create(window(3), { clock });
  const pace = Limiters.create(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), { clock });
  const left = () => [one.peek().remaining, two.peek().remaining];
  return { clock, one, two, pace, left };
}

test("options in place of permits request one permit, with a time-out", async () => {
  const { clock, one, pace, left } = world();
  const limiter = allOf(one, pace);
  assert.ok(await limiter.tryAcquire({ timeoutMs: 0 }));
  assert.not(await limiter.tryAcquire({ timeoutMs: 500 }));
  const waiting = watch(clock, limiter.tryAcquire({ timeoutMs: 1000 }));
  await clock.advance(1000);
  assert.equal([waiting.value, left()[0]], [true, 3]);
  await limiter.reset();
  assert.ok(limiter.tryAcquire());
});

test("a full table of keys refuses, and the refusal says so", async () => {
  const { clock, one, left } = world();
  const keys = KeyedLimiter.create(window(1), { clock, maxKeys: 1, whenFull: "refuse" });
  keys.for("a").charge(1);
  const limiter = allOf(one, keys.for("b"));
  assert.not(limiter.tryAcquire());
  assert.not(limiter.decide().allowed);
  assert.instance(await failure(() => limiter.reserve()), Error);
  assert.is(left()[0], 3);
});

test("the same limiter twice: one free permit is not enough", async () => {
  const { clock, one, two, left } = world();
  two.charge(2);
  assert.not(allOf(one, two, two).tryAcquire());
  assert.equal(left(), [3, 1]);
  const line = Limiters.create(leakyBucket({ permitsPerSecond: 1, capacity: 2 }), { clock });
  line.tryAcquire();
  assert.not(await allOf(one, line, line).tryAcquire(1, 1500), "2000 ms for the second");
  line.reserve();
  assert.instance(await failure(() => allOf(one, line, line).reserve()), QueueFullError);
  assert.equal([left()[0], line.peek().waitMs], [3, 2000]);
  const places = ConcurrencyLimiter.create(1, { clock });
  assert.is(allOf(one, places, places).tryAcquire(), undefined);
  assert.equal([left()[0], places.active], [3, 0]);
});

test("an error in one of several steps gives back what the other limiters took", async () => {
  const { one, two, left } = world();
  const failsAt = (verb: string, isAtOnce: boolean) => (called: string) => {
    if (called !== verb) return;
    if (isAtOnce) throw new Error("broken");
    return Promise.reject(new Error("broken"));
  };
  for (const isAtOnce of [true, false]) {
    const limiter = allOf(foreign(one), foreign(two, failsAt("decide", isAtOnce)));
    assert.match(`${await failure(() => limiter.tryAcquire())}`, "broken");
    await turn();
    assert.equal(left(), [3, 3]);
  }
  const broken = (): never => {
    throw new Error("broken");
  };
  const throwing = { ...foreign(two), decide: broken };
  assert.match(`${await failure(() => allOf(foreign(one), throwing).tryAcquire())}`, "broken");
  assert.equal(left(), [3, 3], "an error that is thrown synchronously");
  const full = Limiters.create(window(1));
  full.tryAcquire();
  const blind = { ...foreign(two), peek: broken };
  assert.not(
    await allOf(full, blind).tryAcquire(),
    "the refusal is known without asking the limiter",
  );
});

test("a local limiter that runs out meanwhile: the others get their permits back", async () => {
  const { one, two, left } = world();
  one.charge(2);
  const limiter = allOf(one, foreign(two));
  const answers = await Promise.all([1, 2, 3].map(() => limiter.tryAcquire()));
  assert.is(answers.filter(Boolean).length, 1);
  assert.equal(left(), [0, 2]);
});

test("an abort between two steps leaves nothing behind", async () => {
  for (const verb of ["decide", "reserve"]) {
    const { clock, one, two, left } = world();
    const controller = new AbortController();
    const { signal } = controller;
    if (verb === "reserve") one.charge(3);
    const limiter = allOf(
      foreign(one),
      foreign(two, (called) => {
        if (called === "decide") controller.abort(new Error("enough"));
      }),
    );
    const waiting = watch(clock, limiter.acquire(1, { signal }));
    await clock.advance(1000);
    await turn();
    assert.equal([`${waiting.error}`, ...left()], ["Error: enough", 3, 3], verb);
  }
});

test("a foreign limiter that promises a later instant than its peek showed", async () => {
  const { clock, one, pace, left } = world();
  pace.tryAcquire();
  const other = foreign(pace, (verb) => {
    if (verb === "reserve") pace.reserve();
  });
  assert.not(await allOf(one, other).tryAcquire(1, 500));
  assert.not(await allOf(one, other).tryAcquire(1, 1500));
  assert.equal([left()[0], pace.peek().waitMs], [3, 2000], "its reservation is given back");
  const line = Limiters.create(leakyBucket({ permitsPerSecond: 1, capacity: 1 }), { clock });
  for (let i = 0; i < 2; i++) line.reserve();
  assert.instance(await failure(() => allOf(one, foreign(line)).reserve()), QueueFullError);
  const fast = Limiters.create(gcra({ limit: 9, periodMs: 1000 }), { clock });
  assert.not(await allOf(foreign(fast), other).tryAcquire(1, 2500));
  assert.is(fast.peek().remaining, 9, "permits that could be used at once are given back too");
});

test.run();
