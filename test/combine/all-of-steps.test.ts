import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  leakyBucket,
  QueueFullError,
  smoothBursty,
} from "../../src/index.ts";
import { StoreLimiter } from "../../src/store.ts";
import type { CombiningStore, Store } from "../../src/stores/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { foreign } from "../support/limiter/foreign.ts";
import { failure, turn, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const test = suite("combinations that take several steps");

const window = (limit: number) => fixedWindow({ limit, windowMs: 1000 });

function world() {
  const clock = new FakeClock();
  const one = Limiter.create(window(3), { clock });
  const two = Limiter.create(window(3), { clock });
  const pace = Limiter.create(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), { clock });
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
  const line = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 2 }), { clock });
  line.tryAcquire();
  assert.not(await allOf(one, line, line).tryAcquire(1, 1500), "2000 ms for the second");
  line.reserve();
  assert.instance(await failure(() => allOf(one, line, line).reserve()), QueueFullError);
  assert.equal([left()[0], line.peek().waitMs], [3, 2000]);
  const places = ConcurrencyLimiter.create(2, { clock });
  const lease = places.tryAcquire();
  assert.is(allOf(one, places, places).tryAcquire(), undefined);
  assert.equal([left()[0], places.active], [3, 1]);
  lease?.release();
  const both = allOf(one, allOf(places, places)).tryAcquire();
  assert.equal([left()[0], places.active], [2, 2]);
  both?.release();
  assert.is(places.active, 0);
});

test("the same concurrency limiter twice: callers take the slots of both at once, or wait", async () => {
  const { clock, one } = world();
  const running = ConcurrencyLimiter.create(3, { clock });
  const twice = allOf(allOf(running, one), running);
  const first = await twice.acquire();
  const second = watch(clock, twice.acquire());
  await clock.advance(100);
  assert.equal([running.active, second.at], [2, undefined]);
  await first.release();
  await clock.advance(100);
  assert.equal([running.active, second.at], [2, 100]);
  const tooMany = await failure(() => allOf(twice, allOf(running, running)).acquire());
  assert.match(`${tooMany}`, /4 permits can never pass .* which holds 3 at most/);
});

test("limiters in this process and elsewhere that fail together make one error", async () => {
  const { clock, one } = world();
  const elsewhere = StoreLimiter.create(memoryStore({ clock }), "all", window(3));
  const both = allOf(elsewhere, one);
  const reservation = await both.reserve(1);
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("unhandledRejection", note);
  for (const action of [
    () => both.peek(500),
    () => both.charge(-1),
    () => both.refund(-1),
    () => both.pause(-1),
    () => reservation.settle(-1),
  ]) {
    assert.instance(await failure(action), Error);
    await turn();
  }
  process.off("unhandledRejection", note);
  assert.equal(unhandled, []);
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
  const full = Limiter.create(window(1));
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

test("a reservation elsewhere that is cancelled is not undone as well: its owner may refund twice", async () => {
  const { one, pace } = world();
  pace.tryAcquire();
  const done: string[] = [];
  const elsewhere = {
    ...foreign(pace),
    reserve: async () => ({
      permits: 1,
      waitMs: 1000,
      ready: async () => 1000,
      cancel: async () => done.push("cancel") > 0,
      undo: async () => void done.push("undo"),
      settle: async () => {},
    }),
  };
  const reservation = await allOf(one, elsewhere).reserve();
  assert.ok(await reservation.cancel());
  assert.equal([done, one.peek().remaining], [["cancel"], 3]);
});

for (const [what, free, verbs] of [
  ["one that grants", [3], "decide"],
  ["two that grant", [3, 3], "peek peek decide decide"],
  ["two of which the first refuses", [0, 3], "peek peek"],
  ["two of which the last refuses", [3, 0], "peek peek"],
] as const) {
  for (const withLocal of [false, true]) {
    test(`what is asked of limiters elsewhere: ${what}${withLocal ? ", beside a local one" : ""}`, async () => {
      const { two: local } = world();
      const limiters = free.map((left) =>
        Limiter.create(window(3 + left), { clock: new FakeClock() }),
      );
      for (const limiter of limiters) limiter.tryAcquire(3);
      const asked: string[] = [];
      const others = limiters.map((limiter) => foreign(limiter, (verb) => void asked.push(verb)));
      const passes = await allOf(...(withLocal ? [local] : []), ...others).tryAcquire();
      assert.equal([passes, asked.join(" ")], [verbs.endsWith("decide"), verbs]);
      const taken = Number(passes);
      assert.equal(
        [local, ...limiters].map((limiter) => limiter.peek().remaining),
        [withLocal ? 3 - taken : 3, ...free.map((left) => left - taken)],
      );
    });
  }
}

/** A store whose keys turn out to be in slots of their own when two of them are used in one step. */
function scattered(clock: FakeClock) {
  const inner = memoryStore({ clock });
  const steps: string[] = [];
  let isKnown = false;
  const store: Store & CombiningStore = {
    run: inner.run.bind(inner),
    breakerOf: inner.breakerOf.bind(inner),
    location: (key) => ({
      ...inner.location(key),
      store,
      get slot() {
        return isKnown ? key : "";
      },
    }),
    runTogether: async (verb, parts) => {
      steps.push(`${verb} ${parts.length}`);
      isKnown = parts.length > 1 || isKnown;
      if (parts.length > 1) throw new Error("CROSSSLOT");
      return inner.runTogether(verb, parts);
    },
  };
  return { store, steps };
}

test("limiters of one store that turn out to be in several slots are asked one by one", async () => {
  const clock = new FakeClock();
  const { store, steps } = scattered(clock);
  const limiters = ["one", "two"].map((name) =>
    StoreLimiter.create(store, name, window(3), { clock }),
  );
  const limiter = allOf(...limiters);
  const oneByOne = ["peek 1", "peek 1", "take 1", "take 1"];
  for (const expected of [["take 2", ...oneByOne], oneByOne]) {
    assert.is(await limiter.tryAcquire(), true);
    assert.equal(steps.splice(0), expected);
  }
  const left = await Promise.all(limiters.map((each) => each.peek()));
  assert.equal(
    left.map(({ remaining }) => remaining),
    [1, 1],
  );
});

test("a refusal here reports the longest wait of all", async () => {
  const { clock, one } = world();
  one.charge(3);
  const hour = Limiter.create(fixedWindow({ limit: 1, windowMs: 3_600_000 }), { clock });
  hour.charge(1);
  const { allowed, waitMs } = await allOf(one, foreign(hour)).decide();
  assert.equal([allowed, waitMs], [false, 3_600_000]);
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
  const line = Limiter.create(leakyBucket({ permitsPerSecond: 1, capacity: 1 }), { clock });
  for (let i = 0; i < 2; i++) line.reserve();
  assert.instance(await failure(() => allOf(one, foreign(line)).reserve()), QueueFullError);
  const fast = Limiter.create(gcra({ limit: 9, periodMs: 1000 }), { clock });
  assert.not(await allOf(foreign(fast), other).tryAcquire(1, 2500));
  assert.is(fast.peek().remaining, 9, "permits that could be used at once are given back too");
});

test("callers who take permits from each other at one instant keep them in the end, also beside slots", async () => {
  const clock = new FakeClock();
  const slots = ConcurrencyLimiter.create(1, { clock });
  let rounds = 0;
  // whoever looks finds that another caller has the permit, which is back when it asks for a place
  const contended = () => {
    const limiter = Limiter.create(window(1e6), { clock });
    const refuse = { ...limiter.peek(), allowed: false, waitMs: 1 };
    const { reserve } = foreign(limiter);
    return Object.assign(foreign(limiter), {
      decide: async () => refuse,
      reserve: (...args: Parameters<typeof reserve>) => {
        if (++rounds > 1000) throw new Error("for ever");
        return reserve(...args);
      },
    });
  };
  const both = allOf(slots, contended(), contended());
  const lease = await both.acquire();
  await lease?.release();
  assert.ok(slots.tryAcquire());
});

test.run();
