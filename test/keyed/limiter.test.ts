import fc from "fast-check";
import * as assert from "uvu/assert";
import { limitedFetch } from "../../src/adapters/fetch/index.ts";
import { pace } from "../../src/adapters/pace/index.ts";
import { throttle } from "../../src/adapters/streams/index.ts";
import {
  KeyedLimiter,
  Limiter,
  type LocalLimiter,
  type LocalReservation,
  PermitsExceedCapacityError,
  type Policies,
  QueueFullError,
  smoothBursty,
  smoothWarmingUp,
  TooManyKeysError,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { limiterSuite, localLimiterSuite } from "../local/limiter.suite.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { SteppingClock } from "../support/story.ts";
import { runs, suite } from "../support/suite.ts";

const bursty = (permitsPerSecond: number, burstSeconds = 1) =>
  smoothBursty({ permitsPerSecond, burstSeconds, prefilled: true });
const joint = (permitsPerSecond: number): Policies => ({
  requests: bursty(permitsPerSecond),
  tokens: smoothWarmingUp({ permitsPerSecond: permitsPerSecond * 10, warmupMs: 1000 }),
});

for (const [name, policies] of [
  ["one policy", bursty],
  ["two policies", joint],
] as const) {
  const kind = { policies: policies(7), faster: policies(11), slower: policies(2) };
  const make = (clock: FakeClock, options = {}) =>
    KeyedLimiter.create(policies(7), { ...options, clock }).for("alice");
  limiterSuite(`limiter of a key, ${name}`, make, kind);
  localLimiterSuite(`limiter of a key, ${name}`, make, kind);
}

const test = suite("keyed limiters");

test("each key has its own permits, whatever its name", () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), { clock });
  const names = ["a", "b", "", "__proto__", "constructor", "toString", "\u0000", "a".repeat(1e5)];
  for (const name of names) {
    const limiter = keyed.for(name);
    assert.equal(
      [1, 2, 3].map(() => limiter.tryAcquire()),
      [true, true, false],
      name,
    );
  }
  assert.is(keyed.size, names.length);
  assert.not(keyed.for("__proto__").tryAcquire(), "two handles of one key share its permits");
});

test("a key that is looked up and never used keeps no state", async () => {
  const keyed = KeyedLimiter.create(joint(1), { clock: new FakeClock() });
  const limiter = keyed.for("a");
  limiter.peek();
  assert.throws(() => limiter.peek({ request: 1 }), /has no "request"; expected one of/);
  assert.ok((await failure(() => limiter.acquire(0))) instanceof RangeError);
  assert.throws(() => keyed.for(5 as unknown as string), /key must be a string, got 5/);
  assert.is(keyed.size, 0);
});

test("no timer runs unless a caller waits", () => {
  const clock = {
    now: () => 0,
    wakeAt: () => {
      throw new Error("a timer");
    },
  };
  const keyed = KeyedLimiter.create(bursty(1), { clock });
  for (let key = 0; key < 1000; key++) {
    const limiter = keyed.for(`${key}`);
    for (let i = 0; i < 3; i++) limiter.tryAcquire();
    limiter.decide();
    limiter.charge(1);
    limiter.refund(1);
  }
});

test("calls for new keys drop keys that are full again", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), { clock });
  for (let key = 0; key < 1000; key++) keyed.for(`old ${key}`).tryAcquire();
  await clock.advance(999);
  for (let key = 0; key < 500; key++) keyed.for(`new ${key}`).tryAcquire();
  assert.is(keyed.size, 1500, "no key is full a moment before");
  await clock.advance(1);
  for (let key = 500; key < 1250; key++) keyed.for(`new ${key}`).tryAcquire();
  assert.is(keyed.size, 1250);
});

test("calls for known keys drop full keys too: every sixteenth call checks one", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), { clock });
  for (let key = 0; key < 100; key++) keyed.for(`${key}`).tryAcquire();
  await clock.advance(1000);
  for (let i = 0; i < 100 * 16; i++) keyed.for("50").tryAcquire();
  assert.is(keyed.size, 1);
  assert.not(keyed.for("50").tryAcquire());
});

test("a handle works after its key was dropped", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), { clock });
  const kept = keyed.for("a");
  kept.tryAcquire();
  await clock.advance(5000);
  keyed.for("b").tryAcquire();
  keyed.for("c").tryAcquire();
  assert.is(keyed.size, 2, "key a has been dropped");
  assert.equal(
    [1, 2, 3].map(() => kept.tryAcquire()),
    [true, true, false],
  );
});

test("a full table refuses new keys, not known ones, until one key is full again", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), {
    clock,
    maxKeys: 3,
    name: "users",
    whenFull: "refuse",
  });
  for (const key of ["a", "b", "c"]) keyed.for(key).tryAcquire();
  const late = keyed.for("d");
  assert.not(late.tryAcquire());
  assert.not(await late.tryAcquire(1, 1000));
  assert.not(late.decide().allowed);
  assert.ok(
    late.peek().allowed,
    "its permits are available, but the table has no room for its state",
  );
  for (const verb of [
    () => late.acquire(),
    () => late.reserve(),
    () => late.charge(1),
    () => late.refund(1),
    () => late.pause(1),
  ]) {
    const error = (await failure(verb)) as TooManyKeysError;
    assert.ok(error instanceof TooManyKeysError, `${verb}`);
    assert.equal(error.facts, { limiter: "users", maxKeys: 3 });
  }
  assert.ok((await failure(() => late.tryAcquire(-1, 1))) instanceof RangeError);
  assert.ok(keyed.for("a").tryAcquire());
  assert.is(keyed.size, 3);
  await clock.advance(1000);
  assert.ok(late.tryAcquire());
});

test("maxKeys may be a function: as it falls, two keys go for each new one", () => {
  let most = 10;
  const keyed = KeyedLimiter.create(bursty(1), { clock: new FakeClock(), maxKeys: () => most });
  const sizes = (keys: readonly number[]) =>
    keys.map((key) => {
      keyed.for(`${key}`).tryAcquire();
      return keyed.size;
    });
  assert.is(sizes([...Array(12).keys()]).at(-1), 10);
  most = 7;
  assert.equal(sizes([20, 21, 22, 23, 24]), [9, 8, 7, 7, 7]);
  most = 8;
  assert.equal(sizes([30, 31]), [8, 8]);
});

test("evict: the key that is nearest to full is dropped, but never one with waiters", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 10), { clock, maxKeys: 3, whenFull: "evict" });
  const waited = keyed.for("waited");
  waited.charge(11);
  const waiter = watch(clock, waited.acquire());
  keyed.for("much").charge(8);
  keyed.for("little").charge(1);
  assert.ok(keyed.for("new").tryAcquire(5));
  assert.is(keyed.size, 3);
  assert.is(keyed.for("much").peek().remaining, 3);
  assert.is(keyed.for("little").peek().remaining, 11, "forgotten");
  await clock.advance(1000);
  assert.is(waiter.at, 1000);
});

test("evict: a new key is refused while the only key is paused", () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1), { clock, maxKeys: 1, whenFull: "evict" });
  keyed.for("a").pause(1000);
  assert.not(keyed.for("b").tryAcquire());
});

test("waiters of each key are released in order, each key by itself", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 0), { clock });
  const [a, b] = [keyed.for("a"), keyed.for("b")];
  const waits = [a, a, b, a, b].map((limiter) => watch(clock, limiter.acquire()));
  await clock.advance(3000);
  assert.equal(instants(waits), [0, 1000, 0, 2000, 1000]);
  // idle again: without queues
  assert.ok(a.tryAcquire());
  assert.is(keyed.size, 2);
});

test("maxWaiting applies to each key separately", async () => {
  const keyed = KeyedLimiter.create(bursty(1, 0), {
    clock: new FakeClock(),
    maxWaiting: 1,
    name: "n",
  });
  for (const key of ["a", "b"]) {
    const limiter = keyed.for(key);
    limiter.tryAcquire();
    limiter.acquire().catch(() => {});
    assert.ok((await failure(() => limiter.acquire())) instanceof QueueFullError);
  }
});

test("a reservation can be settled after its key became idle or was dropped", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 10), { clock });
  const limiter = keyed.for("a");
  const reservation = limiter.reserve(2);
  assert.is(limiter.peek().remaining, 9);
  keyed.update(bursty(2, 5));
  reservation.settle(5);
  assert.is(limiter.peek().remaining, 6);
  reservation.settle(1);
  assert.is(limiter.peek().remaining, 10);
  const other = limiter.reserve(1);
  assert.ok(keyed.forget("a"));
  other.settle(3);
  assert.is(limiter.peek().remaining, 9);
});

test("settled while callers wait: they are re-timed", async () => {
  const clock = new FakeClock();
  const limiter = KeyedLimiter.create(bursty(1, 0), { clock }).for("a");
  const reservation = limiter.reserve(2);
  const waiter = watch(clock, limiter.acquire());
  reservation.settle(3);
  await clock.advance(2999);
  assert.is(waiter.at, undefined);
  reservation.settle(1);
  await turn();
  assert.is(waiter.at, 2999);
});

test("forget drops a key, but not one with waiters", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 0), { clock });
  assert.not(keyed.forget("a"));
  keyed.for("a").tryAcquire();
  assert.ok(keyed.forget("a"));
  assert.ok(keyed.for("a").tryAcquire());
  const waiter = watch(clock, keyed.for("a").acquire());
  assert.not(keyed.forget("a"));
  await clock.advance(1000);
  assert.is(waiter.at, 1000);
  assert.ok(keyed.forget("a"));
});

test("update applies to every key, also to those that have been idle for long", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 10), { clock });
  const [a, b, c] = ["a", "b", "c"].map((key) => keyed.for(key)) as [
    LocalLimiter,
    LocalLimiter,
    LocalLimiter,
  ];
  for (const limiter of [a, b, c]) limiter.charge(10);
  const waiter = watch(clock, c.acquire(5));
  keyed.update(bursty(10, 1));
  assert.is(a.peek().remaining, 1);
  await clock.advance(500);
  assert.equal([a.peek().remaining, b.peek().remaining], [6, 6]);
  assert.is(waiter.at, 0);
  a.update(bursty(1, 10));
  keyed.update(bursty(10, 1));
  keyed.update(bursty(1, 10));
  assert.equal(
    [a, b].map((limiter) => limiter.peek().remaining),
    [6, 6],
  );
  assert.throws(() => keyed.update(joint(1)), /must keep names and algorithms/);
});

test("keys that are older than the current policies are kept, found, updated and dropped like others", async () => {
  const clock = new FakeClock();
  const keyed = KeyedLimiter.create(bursty(1, 10), { clock });
  for (let key = 0; key < 100; key++) keyed.for(`${key}`).charge(5);
  keyed.update(bursty(1, 20));
  assert.is(keyed.size, 100);
  assert.ok(keyed.forget("7"));
  assert.not(keyed.forget("7"));
  assert.not(keyed.forget("unknown"));
  await clock.advance(30_000);
  for (let key = 0; key < 60; key++) keyed.for(`new ${key}`).tryAcquire();
  assert.is(keyed.size, 60);
});

test("a clock that steps back delays no caller", async () => {
  const clock = new SteppingClock();
  const keyed = KeyedLimiter.create(bursty(1, 0), { clock });
  const limiter = keyed.for("a");
  limiter.tryAcquire();
  const waiter = watch(clock, limiter.acquire());
  await clock.advance(400_000);
  clock.stepBack(5_000_000);
  keyed.for("b").tryAcquire();
  await turn();
  await clock.advance(999_999);
  assert.is(waiter.at, undefined);
  await clock.advance(1);
  assert.ok(waiter.at !== undefined);
});

test("requests that can never pass are errors at once", async () => {
  const algorithm = { ...bursty(1).algorithm, earliest: () => Infinity };
  const keyed = KeyedLimiter.create({ ...bursty(1), algorithm }, { clock: new FakeClock() });
  const limiter = keyed.for("a");
  for (const verb of [
    () => limiter.acquire(5),
    () => limiter.tryAcquire(5),
    () => limiter.tryAcquire(5, 10),
    () => limiter.reserve(5),
    () => limiter.decide(5),
    () => limiter.peek(5),
    () => limiter.charge(5),
    () => limiter.refund(5),
  ]) {
    assert.ok((await failure(verb)) instanceof PermitsExceedCapacityError, `${verb}`);
  }
});

for (const [option, message] of [
  [
    { maxKeys: 0 },
    /maxKeys must be a finite number, 1 or more, or a function that returns one, got 0/,
  ],
  [{ whenFull: "drop" }, /whenFull must be one of evict, refuse, got "drop"/],
  [{ maxKey: 5 }, /options has no "maxKey"/],
  [{ keyGenerator: 5 }, /options has no "keyGenerator": use for\(key\); expected/],
  [{ maxWaiting: -1 }, /maxWaiting must be/],
] as const) {
  test(`refuses ${JSON.stringify(option)}`, () => {
    assert.throws(() => KeyedLimiter.create(bursty(1), option as object), message);
  });
}

test("a call without a key is an error that says what is missing", async () => {
  const keyed = KeyedLimiter.create(bursty(1)) as unknown as LocalLimiter;
  for (const [verb, call] of Object.entries({
    acquire: () => keyed.acquire(),
    tryAcquire: () => keyed.tryAcquire("ann" as never),
    reserve: () => keyed.reserve(),
    decide: () => keyed.decide(),
    peek: () => keyed.peek(),
  })) {
    const message = `TypeError: a KeyedLimiter has no ${verb} for all keys: use limiter.for(key)`;
    assert.is(String(await failure(call)), message);
  }
  const adapters = [() => limitedFetch(keyed), () => throttle(keyed), () => pace(() => {}, keyed)];
  for (const adapt of adapters) {
    assert.match(String(await failure(adapt)), "a KeyedLimiter has no acquire for all keys: use");
  }
});

// -- one limiter for many keys behaves like one limiter for each key --

type Op =
  | { op: "advance"; ms: number }
  | { op: "update"; rate: number }
  | { op: "try" | "decide" | "peek" | "charge" | "refund"; key: number; permits: number }
  | { op: "acquire" | "reserve"; key: number; permits: number }
  | { op: "timed"; key: number; permits: number; ms: number }
  | { op: "pause"; key: number; ms: number }
  | { op: "settle" | "cancel"; which: number; permits: number };

const key = fc.nat({ max: 2 });
const permits = fc.constantFrom(1, 1, 2, 5, 0.5);
const ms = fc.constantFrom(0, 1, 99, 100, 500, 1000, 5000);
const op: fc.Arbitrary<Op> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ op: fc.constant("advance"), ms }) },
  fc.record({ op: fc.constant("advance"), ms: fc.constantFrom(5_000_000, 3_600_000) }),
  fc.record({ op: fc.constant("update"), rate: fc.constantFrom(1, 2, 10) }),
  {
    weight: 4,
    arbitrary: fc.record({
      op: fc.constantFrom("try", "decide", "peek", "charge", "refund"),
      key,
      permits,
    }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constantFrom("acquire", "reserve"), key, permits }) },
  fc.record({ op: fc.constant("timed"), key, permits, ms }),
  fc.record({ op: fc.constant("pause"), key, ms }),
  fc.record({ op: fc.constantFrom("settle", "cancel"), which: fc.nat({ max: 9 }), permits }),
);

async function play(
  ops: readonly Op[],
  clock: FakeClock,
  limiters: readonly LocalLimiter[],
  update: (policies: Policies) => void,
): Promise<unknown[]> {
  const answers: unknown[] = [];
  const reservations: LocalReservation[] = [];
  for (const one of ops) {
    if (one.op === "advance") await clock.advance(one.ms);
    else if (one.op === "update") update(bursty(one.rate, 3));
    else if ("which" in one) {
      const reservation = reservations[one.which];
      if (one.op === "settle") reservation?.settle(one.permits);
      else answers.push(reservation?.cancel());
    } else {
      const limiter = limiters[one.key] as LocalLimiter;
      if (one.op === "try") answers.push(limiter.tryAcquire(one.permits));
      else if (one.op === "decide") answers.push(limiter.decide(one.permits));
      else if (one.op === "peek") answers.push(limiter.peek(one.permits));
      else if (one.op === "charge") limiter.charge(one.permits);
      else if (one.op === "refund") limiter.refund(one.permits);
      else if (one.op === "pause") limiter.pause(one.ms);
      else if (one.op === "acquire") answers.push(watch(clock, limiter.acquire(one.permits)));
      else if (one.op === "timed") {
        answers.push(watch(clock, limiter.tryAcquire(one.permits, one.ms)));
      } else {
        const reservation = limiter.reserve(one.permits);
        reservations.push(reservation);
        answers.push(reservation.waitMs, watch(clock, reservation.ready()));
      }
    }
  }
  await clock.advance(100_000);
  return answers;
}

test("a keyed limiter behaves like one limiter for each key", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(op, { maxLength: 40, size: "max" }), async (ops) => {
      // intervals of whole microseconds: each limiter counts its time from its own beginning
      const policies = bursty(5, 3);
      const [here, there] = [new FakeClock(), new FakeClock()];
      const keyed = KeyedLimiter.create(policies, { clock: here });
      const each = [0, 1, 2].map(() => Limiter.create(policies, { clock: there }));
      const of = (all: readonly LocalLimiter[]) => (next: Policies) => {
        for (const limiter of all) limiter.update(next);
      };
      assert.equal(
        await play(
          ops,
          here,
          [0, 1, 2].map((name) => keyed.for(`${name}`)),
          (next) => keyed.update(next),
        ),
        await play(ops, there, each, of(each)),
      );
    }),
    { numRuns: runs(300) },
  );
});

test.run();
