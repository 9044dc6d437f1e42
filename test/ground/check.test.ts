/** Bad input: the class and the message of the error, and that nothing changes. */
import {
  type Clock,
  ConcurrencyLimiter,
  KeyedLimiter,
  Limiter,
  type LocalLimiter,
  type Permits,
  RateLimiter,
  smoothBursty,
  smoothWarmingUp,
} from "smooth-limiter";
import { RedisConcurrencyLimiter, RedisLimiter, RedisRateLimiter } from "smooth-limiter/redis";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import * as check from "../../src/ground/check.ts";
import { suite } from "../support/suite.ts";

type ErrorClass = RangeErrorConstructor | TypeErrorConstructor;

/** A value that is not a number, the class of its error, and how the error shows it. */
type Bad = readonly [value: unknown, error: ErrorClass, shown: string];

const notNumbers: readonly Bad[] = [
  ["1", TypeError, '"1"'],
  ["", TypeError, '""'],
  [null, TypeError, "null"],
  [true, TypeError, "true"],
  [5n, TypeError, "5"],
  [Symbol("five"), TypeError, "Symbol(five)"],
  [() => 1, TypeError, "a function"],
];

const objects: readonly Bad[] = [
  [{}, TypeError, "an object"],
  [[1], TypeError, "an array"],
  [new Date(0), TypeError, "an object"],
];

const notFinite: readonly Bad[] = [
  [Number.NaN, RangeError, "NaN"],
  [Infinity, RangeError, "Infinity"],
  [-Infinity, RangeError, "-Infinity"],
];

const notPositive: readonly Bad[] = [
  [0, RangeError, "0"],
  [-0, RangeError, "-0"],
  [-1, RangeError, "-1"],
  [-5e-324, RangeError, "-5e-324"],
];

const negative = notPositive.slice(2);
const absent: Bad = [undefined, TypeError, "undefined"];
const withoutInfinity = notFinite.filter(([value]) => value !== Infinity);

const badPermits = [...notNumbers, ...notFinite, ...notPositive];

/** The error that `action` throws or rejects with; `isPromised`: it must not throw. */
async function failure(action: () => unknown, isPromised = false): Promise<Error> {
  let answer: unknown;
  try {
    answer = action();
  } catch (error) {
    assert.not(isPromised, `thrown instead of rejected: ${error}`);
    return error as Error;
  }
  if (isPromised) assert.instance(answer, Promise);
  try {
    await answer;
  } catch (error) {
    return error as Error;
  }
  return new Error("it did not fail");
}

/** A limiter with a history, and everything that can be observed of it. */
interface Scene {
  readonly limiter: LocalLimiter;
  look(): unknown;
}

const scenes: Record<string, () => Promise<Scene>> = {
  "with a burst stored": async () => rateLimiter(5, 400, {}),
  "with a debt": async () => rateLimiter(5, 0, {}),
  "warming up": async () => rateLimiter(5, 700, { warmupMs: 1000 }),
  "with a waiter": async () => {
    const scene = await rateLimiter(5, 0, {});
    void scene.limiter.acquire();
    return scene;
  },
  paused: async () => {
    const scene = await rateLimiter(5, 400, {});
    scene.limiter.pause(1000);
    return scene;
  },
  "of two policies": async () => {
    const clock = new FakeClock();
    const limiter = Limiter.create(
      {
        requests: smoothBursty({ permitsPerSecond: 5 }),
        tokens: smoothWarmingUp({ permitsPerSecond: 100, warmupMs: 500 }),
      },
      { clock },
    );
    limiter.tryAcquire({ requests: 2, tokens: 30 });
    await clock.advance(100);
    return { limiter, look: () => [limiter.peek(), limiter.peek({ tokens: 500 })] };
  },
};

async function rateLimiter(rate: number, idleMs: number, numbers: object): Promise<Scene> {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(rate, { ...numbers, clock });
  limiter.tryAcquire(2);
  await clock.advance(idleMs);
  return { limiter, look: () => [limiter.getRate(), limiter.peek(), limiter.peek(3)] };
}

/** Fails with the expected error, and leaves everything as it was. */
async function refuses(
  scene: Scene,
  action: (limiter: LocalLimiter) => unknown,
  [error, message]: readonly [ErrorClass, string | RegExp],
  isPromised = false,
): Promise<void> {
  const before = scene.look();
  const thrown = await failure(() => action(scene.limiter), isPromised);
  const facts = `${thrown.name}: ${thrown.message}`;
  if (typeof message === "string") assert.is(thrown.message, message);
  else assert.match(thrown.message, message);
  assert.is(thrown.constructor, error, facts);
  assert.equal(scene.look(), before, `changed by: ${facts}`);
}

const verbs: Record<string, (limiter: LocalLimiter, permits: Permits) => unknown> = {
  acquire: (limiter, permits) => limiter.acquire(permits),
  "tryAcquire with a time-out": (limiter, permits) => limiter.tryAcquire(permits, 1000),
  "tryAcquire with options": (limiter, permits) => limiter.tryAcquire(permits, {}),
  tryAcquire: (limiter, permits) => limiter.tryAcquire(permits),
  reserve: (limiter, permits) => limiter.reserve(permits),
  decide: (limiter, permits) => limiter.decide(permits),
  peek: (limiter, permits) => limiter.peek(permits),
  charge: (limiter, permits) => limiter.charge(permits),
  refund: (limiter, permits) => limiter.refund(permits),
};

const promised = new Set(["acquire", "tryAcquire with a time-out", "tryAcquire with options"]);
const withoutDefault = new Set(["charge", "refund"]);

const permits = suite("bad permits");

for (const [where, make] of Object.entries(scenes)) {
  for (const [verb, call] of Object.entries(verbs)) {
    permits(`${verb}, ${where}`, async () => {
      const scene = await make();
      const { limiter } = scene;
      const isPromised = promised.has(verb);
      const refused = (value: unknown, error: ErrorClass, message: string | RegExp) =>
        refuses(scene, () => call(limiter, value as Permits), [error, message], isPromised);

      for (const [value, error, shown] of badPermits) {
        await refused(value, error, `permits must be a finite number above 0, got ${shown}`);
      }
      if (withoutDefault.has(verb)) {
        await refused(undefined, TypeError, /^permits must be a finite number above 0, got undef/);
      }
      for (const value of [{}, new Map([["requests", 1]])]) {
        await refused(
          value,
          RangeError,
          /^permits must name a policy: (default|requests, tokens)$/,
        );
      }
      for (const value of [[], [1]]) {
        await refused(value, TypeError, "permits must be a finite number above 0, got an array");
      }
      const unknown =
        /^permits by policy has no "(bytes|__proto__|toString)"; expected one of (default|requests)/;
      for (const value of [{ bytes: 1 }, { toString: 1 }, JSON.parse('{"__proto__":1}')]) {
        await refused(value, TypeError, unknown);
      }
      const [first = ""] = Object.keys(limiter.peek().policies);
      await refused({ [first]: 1, bytes: 1 }, TypeError, unknown);
      for (const [value, error, shown] of [...badPermits, ...objects, absent]) {
        const message = `permits.${first} must be a finite number above 0, got ${shown}`;
        await refused({ [first]: value }, error, message);
      }
      if (first === "requests") {
        const second = "permits.tokens must be a finite number above 0, got -1";
        await refused({ requests: 1, tokens: -1 }, RangeError, second);
      }
    });
  }

  permits(`settle, ${where}`, async () => {
    const scene = await make();
    for (const size of [1, 50]) {
      const reservation = scene.limiter.reserve(size);
      const refused = (value: unknown, error: ErrorClass, message: string | RegExp) =>
        refuses(scene, () => reservation.settle(value as Permits), [error, message]);
      for (const [value, error, shown] of [...notNumbers, ...notFinite, ...negative, absent]) {
        await refused(value, error, `permits must be a finite number, 0 or more, got ${shown}`);
      }
      await refused({}, RangeError, /^permits must name a policy: /);
      await refused({ bytes: 1 }, TypeError, /^permits by policy has no "bytes"; expected one of/);
      const [first = ""] = Object.keys(scene.limiter.peek().policies);
      const named = `permits.${first} must be a finite number, 0 or more, got -1`;
      await refused({ [first]: -1 }, RangeError, named);
    }
  });
}

permits("values at the edge of the allowed range", () => {
  const limiter = RateLimiter.create(5, { clock: new FakeClock() });
  for (const good of [5e-324, 1e-9, 1, 1e308, { default: 1 }]) limiter.peek(good);
  limiter.reserve(1).settle(0);
  limiter.reserve(1).settle(-0);
});

permits.run();

const others = suite("bad arguments other than permits");

const object = "must be an object, got";

for (const [where, make] of Object.entries(scenes)) {
  others(`the time-out and the options of tryAcquire, ${where}`, async () => {
    const scene = await make();
    const refused = (wait: unknown, error: ErrorClass, message: string | RegExp) =>
      refuses(scene, (l) => l.tryAcquire(1, wait as number), [error, message], true);
    const bound = "timeoutMs must be a number; what is below 0 counts as 0, got";
    await refused(Number.NaN, RangeError, `${bound} NaN`);
    for (const [value, error, shown] of [...notNumbers, [[5], TypeError, "an array"] as const]) {
      await refused(
        value,
        error,
        `wait must be ms, a number, or { timeoutMs, signal }, got ${shown}`,
      );
    }
    await refused({ timeoutMs: Number.NaN }, RangeError, `${bound} NaN`);
    for (const [timeoutMs, error, shown] of [...notNumbers, ...objects]) {
      await refused({ timeoutMs }, error, `${bound} ${shown}`);
    }
    await refused(
      { timeout: 5 },
      TypeError,
      'wait has no "timeout"; expected one of timeoutMs, signal, share, weight, priority',
    );
    await refused({ signal: 5 }, TypeError, "signal must be an AbortSignal, got 5");
    await refused(
      { timeoutMs: 5, signal: null },
      TypeError,
      /^signal must be an AbortSignal, got n/,
    );
  });

  others(`the options of acquire and of ready, ${where}`, async () => {
    const scene = await make();
    const reservation = scene.limiter.reserve();
    for (const call of [
      (options: never) => scene.limiter.acquire(1, options),
      (options: never) => reservation.ready(options),
    ]) {
      const refused = (options: unknown, message: string | RegExp) =>
        refuses(scene, () => call(options as never), [TypeError, message], true);
      for (const [value, , shown] of [...notNumbers, [[], TypeError, "an array"] as const]) {
        await refused(value, `options ${object} ${shown}`);
      }
      await refused(1000, `options ${object} 1000`);
      await refused(
        { timeoutMs: 5 },
        'options has no "timeoutMs": use tryAcquire(1, { timeoutMs }); expected one of signal, share, weight, priority',
      );
      await refused(
        { sginal: undefined },
        'options has no "sginal"; expected one of signal, share, weight, priority',
      );
      for (const [signal, , shown] of [...notNumbers, ...objects]) {
        await refused({ signal }, `signal must be an AbortSignal, got ${shown}`);
      }
      await refused(
        { signal: new AbortController() },
        "signal must be an AbortSignal, got an AbortController, not its signal",
      );
    }
  });

  others(`pause, ${where}`, async () => {
    const scene = await make();
    for (const [ms, error, shown] of [
      ...[...notNumbers, ...objects, ...notFinite, ...negative],
      absent,
    ]) {
      const message = `ms must be a finite number, 0 or more, got ${shown}`;
      await refuses(scene, (limiter) => limiter.pause(ms as number), [error, message]);
    }
  });

  others(`setRate, ${where}`, async () => {
    const scene = await make();
    for (const [rate, error, shown] of [
      ...[...notNumbers, ...objects, ...withoutInfinity, ...notPositive],
      absent,
    ]) {
      if (!(scene.limiter instanceof RateLimiter)) return;
      const message = `permitsPerSecond must be a number above 0, Infinity included, got ${shown}`;
      const set = () => (scene.limiter as RateLimiter).setRate(rate as number);
      await refuses(scene, set, [error, message]);
    }
  });

  others(`update, ${where}`, async () => {
    const scene = await make();
    const refused = (policies: unknown, error: ErrorClass, message: string | RegExp) =>
      refuses(scene, (limiter) => limiter.update(policies as never), [error, message]);
    const policy = smoothBursty({ permitsPerSecond: 1 });
    for (const [value, , shown] of [...notNumbers, absent, [[policy], 0, "an array"] as const]) {
      await refused(
        value,
        TypeError,
        `policies must be a policy, or policies by name, got ${shown}`,
      );
    }
    await refused({}, RangeError, "policies must name at least one policy");
    await refused(
      { requests: 5 },
      TypeError,
      /^policies.requests must be a policy, such as smoothBursty/,
    );
    for (const strange of [
      { bytes: policy },
      { requests: policy },
      { requests: policy, tokens: policy, bytes: policy },
      { default: policy, tokens: policy },
    ]) {
      await refused(
        strange,
        TypeError,
        /^update must keep names and algorithms \(.+\), got \(.+\)$/,
      );
    }
    const other = { ...policy, algorithm: { ...policy.algorithm, name: "other" } };
    const names = Object.keys(scene.limiter.peek().policies);
    const changed = Object.fromEntries(names.map((name) => [name, other]));
    await refused(changed, TypeError, /^update must keep names and algorithms .+other\)$/);
  });
}

others.run();

const creation = suite("bad arguments of create");

async function refusesToCreate(action: () => unknown, error: ErrorClass, message: string | RegExp) {
  const thrown = await failure(action);
  if (typeof message === "string") assert.is(thrown.message, message);
  else assert.match(thrown.message, message);
  assert.is(thrown.constructor, error, thrown.message);
}

creation("the rate", async () => {
  for (const [rate, error, shown] of [
    ...[...notNumbers, ...objects, ...withoutInfinity, ...notPositive],
    absent,
  ]) {
    const message = `permitsPerSecond must be a number above 0, Infinity included, got ${shown}`;
    for (const options of [undefined, 1000, { burstSeconds: 0 }]) {
      await refusesToCreate(() => RateLimiter.create(rate as number, options), error, message);
    }
  }
});

creation("the warm-up as a number", async () => {
  for (const [warmup, error, shown] of [...notFinite, ...negative]) {
    const message = `warmupMs must be a finite number, 0 or more, got ${shown}`;
    await refusesToCreate(() => RateLimiter.create(5, warmup as number), error, message);
  }
});

creation("the options", async () => {
  for (const [options, , shown] of [...notNumbers, [[5], 0, "an array"] as const]) {
    const message = `options ${object} ${shown}`;
    await refusesToCreate(() => RateLimiter.create(5, options as number), TypeError, message);
    const policy = smoothBursty({ permitsPerSecond: 5 });
    await refusesToCreate(() => Limiter.create(policy, options as object), TypeError, message);
  }
});

const numbers: Record<string, { bound: string; bad: readonly Bad[] }> = {
  warmupMs: { bound: "a finite number, 0 or more", bad: [...notFinite, ...negative] },
  coldFactor: {
    bound: "a finite number, 1 or more",
    bad: [...notFinite, ...notPositive, [0.999, RangeError, "0.999"]],
  },
  burstSeconds: { bound: "a finite number, 0 or more", bad: [...notFinite, ...negative] },
  maxWaiting: {
    bound: "a number, 0 or more, Infinity included",
    bad: [...withoutInfinity, ...negative],
  },
};

for (const [name, { bound, bad }] of Object.entries(numbers)) {
  // also where the limiter made of the other options would not read it
  for (const beside of [{}, { warmupMs: 1000 }, { warmupMs: 0 }]) {
    if (name in beside) continue;
    creation(`${name} beside ${JSON.stringify(beside)}`, async () => {
      for (const [value, error, shown] of [...bad, ...notNumbers, ...objects]) {
        const options = { ...beside, [name]: value };
        const message = `${name} must be ${bound}, got ${shown}`;
        await refusesToCreate(() => RateLimiter.create(5, options), error, message);
      }
    });
  }
}

creation("options that would have no effect together", () => {
  for (const [options, words] of [
    [{ warmupMs: 100, burstSeconds: 2 }, /burstSeconds has no effect with a warm-up/],
    [{ warmupMs: 100, prefilled: true }, /prefilled has no effect with a warm-up/],
    [{ coldFactor: 2 }, /coldFactor has no effect without a warm-up/],
  ] as const) {
    assert.throws(() => RateLimiter.create(5, options), words);
  }
  RateLimiter.create(5, { warmupMs: 0, coldFactor: 3, burstSeconds: 2 });
});

creation("`new` instead of `create`", () => {
  const classes = [RateLimiter, KeyedLimiter, ConcurrencyLimiter, RedisRateLimiter, RedisLimiter];
  for (const one of [...classes, RedisConcurrencyLimiter]) {
    const words = new RegExp(`${one.name} has no public constructor: write ${one.name}\\.create`);
    assert.throws(() => Reflect.construct(one as never, [5]), words);
  }
});

creation("a policy cannot have the name of an option of tryAcquire", () => {
  const policy = smoothBursty({ permitsPerSecond: 5 });
  assert.throws(() => Limiter.create({ timeoutMs: policy }), /"timeoutMs".*option of tryAcquire/);
});

creation("prefilled, and the name", async () => {
  for (const warmupMs of [0, 1000]) {
    for (const [value, , shown] of [...notNumbers, ...objects]) {
      if (value !== true) {
        const message = `prefilled must be true or false, got ${shown}`;
        const make = () => RateLimiter.create(5, { warmupMs, prefilled: value as boolean });
        await refusesToCreate(make, TypeError, message);
      }
      if (typeof value !== "string") {
        const message = `name must be a string, got ${shown}`;
        const make = () => RateLimiter.create(5, { warmupMs, name: value as string });
        await refusesToCreate(make, TypeError, message);
      }
    }
  }
});

creation("an option that does not exist", async () => {
  const message =
    /no "burst"; expected one of (?=.*maxW)(?=.*clock)(?=.*name)(?=.*warm)(?=.*cold)(?=.*burstS)(?=.*pre)/;
  const options = { burst: 1 } as object;
  await refusesToCreate(() => RateLimiter.create(5, options), TypeError, message);
  const policy = smoothBursty({ permitsPerSecond: 5 });
  for (const name of ["burst", "warmupMs"]) {
    const unknown = `options has no "${name}"; expected one of maxWaiting, onFull, order, clock, name`;
    await refusesToCreate(() => Limiter.create(policy, { [name]: 1 }), TypeError, unknown);
  }
});

creation("an option that is undefined is absent", () => {
  const limiter = RateLimiter.create(5, {
    warmupMs: undefined,
    coldFactor: undefined,
    burstSeconds: undefined,
    prefilled: undefined,
    maxWaiting: undefined,
    clock: undefined,
    name: undefined,
  });
  assert.is(limiter.peek().limit, 6);
});

creation("policies", async () => {
  const none = "policies must be a policy, or policies by name, got";
  const policy = smoothBursty({ permitsPerSecond: 5 });
  for (const [value, , shown] of [...notNumbers, absent, [[policy], 0, "an array"] as const]) {
    await refusesToCreate(() => Limiter.create(value as never), TypeError, `${none} ${shown}`);
  }
  const nameless = "policies must name at least one policy";
  await refusesToCreate(() => Limiter.create({}), RangeError, nameless);
  for (const [value] of [...notNumbers, ...objects, absent]) {
    const make = () => Limiter.create({ requests: policy, tokens: value as never });
    await refusesToCreate(
      make,
      TypeError,
      /^policies.tokens must be a policy, such as smoothBursty\(\) returns, got/,
    );
  }
});

creation("a clock", async () => {
  const timers = { wakeAt: () => ({ cancel: () => {} }) };
  const lacking = "clock must have now() and wakeAt(timeMs, wake)";
  const bad: readonly [unknown, string][] = [
    [null, lacking],
    [5, lacking],
    ["clock", lacking],
    [Date, lacking],
    [{}, lacking],
    [{ now: () => 0 }, lacking],
    [{ ...timers, now: 5 }, lacking],
    [{ now: () => 0, wakeAt: true }, lacking],
    [{ ...timers, now: () => Number.NaN }, "clock.now() must be a finite number of ms, got NaN"],
    [{ ...timers, now: () => Infinity }, "clock.now() must be a finite number of ms, got Infinity"],
    [{ ...timers, now: () => "5" }, 'clock.now() must be a finite number of ms, got "5"'],
    [{ ...timers, now: () => undefined }, /^clock.now\(\) .* got undefined/.source],
    [{ ...timers, now: () => 5n }, /^clock.now\(\) .* got 5/.source],
    [
      { ...timers, now: () => 0, epochMs: Number.NaN },
      "clock.epochMs must be a finite number of ms, got NaN",
    ],
    [
      { ...timers, now: () => 0, epochMs: "1" },
      'clock.epochMs must be a finite number of ms, got "1"',
    ],
  ];
  for (const [clock, message] of bad) {
    const expected = message.startsWith("^") ? new RegExp(message) : message;
    const options = { clock: clock as Clock };
    await refusesToCreate(() => RateLimiter.create(5, options), TypeError, expected);
    const policy = smoothBursty({ permitsPerSecond: 5 });
    await refusesToCreate(() => Limiter.create(policy, options), TypeError, expected);
  }
});

creation("a clock of a class, without own properties, is accepted", () => {
  class Still {
    readonly #now = 5;
    now() {
      return this.#now;
    }
    wakeAt() {
      return { cancel: () => {} };
    }
  }
  assert.is(RateLimiter.create(5, { clock: new Still() }).tryAcquire(), true);
});

for (const reading of [Number.NaN, Infinity, -Infinity, undefined, "soon"]) {
  creation(`a clock that returns ${reading} later on changes nothing`, async () => {
    let now: unknown = 0;
    const clock = { now: () => now as number, wakeAt: () => ({ cancel: () => {} }) };
    const limiter = RateLimiter.create(1, { clock });
    limiter.tryAcquire(5);
    now = reading;
    for (const verb of [
      () => limiter.tryAcquire(),
      () => limiter.acquire(),
      () => limiter.peek(),
    ]) {
      const thrown = await failure(verb);
      assert.is(thrown.constructor, TypeError, String(thrown));
      assert.match(thrown.message, /^clock.now\(\) must be a finite number/);
    }
    now = 0;
    assert.is(limiter.peek().waitMs, 5000);
  });
}

creation.run();

const parts = suite("checks");

parts("each bound accepts the values that its message describes", () => {
  const cases = [-Infinity, -1, -0, 0, 5e-324, 0.5, 1, 1e308, Infinity, Number.NaN];
  const table: Record<string, [bound: check.Bound, first: number, last: number]> = {
    aboveZero: [check.aboveZero, 5e-324, 1e308],
    aboveZeroOrInfinity: [check.aboveZeroOrInfinity, 5e-324, Infinity],
    atLeastZero: [check.atLeastZero, -0, 1e308],
    atLeastZeroOrInfinity: [check.atLeastZeroOrInfinity, -0, Infinity],
    atLeastOne: [check.atLeastOne, 1, 1e308],
    anyNumber: [check.anyNumber, -Infinity, Infinity],
  };
  for (const [name, [bound, first, last]] of Object.entries(table)) {
    for (const value of cases) {
      const facts = `${name}: ${value}`;
      assert.is(bound.holds(value), value >= first && value <= last, facts);
      if (bound.holds(value)) assert.is(check.checkNumber("n", value, bound), value, facts);
    }
  }
});

parts("a value is shown in short form, and remains recognizable", () => {
  const long = "x".repeat(1000);
  const values: [unknown, string][] = [
    [long, `"${"x".repeat(40)}"`],
    ['a "quoted" one', '"a \\"quoted\\" one"'],
    [0, "0"],
    [-0, "-0"],
    ["0", '"0"'],
    [null, "null"],
    [undefined, "undefined"],
    [[long], "an array"],
    [{ long }, "an object"],
    [Object.create(null), "an object"],
    [class {}, "a function"],
  ];
  for (const [value, shown] of values) assert.is(check.show(value), shown);
});

parts("a string, and one of several choices", () => {
  assert.is(check.checkText("name", ""), "");
  assert.throws(() => check.checkText("name", 5), /^name must be a string, got 5$/);
  check.checkOneOf("mode", "b", ["a", "b"]);
  const choices = /^mode must be one of a, b, got "c"$/;
  assert.throws(() => check.checkOneOf("mode", "c", ["a", "b"]), choices);
});

parts("a signal is returned as it is, and so is undefined", () => {
  const { signal } = new AbortController();
  assert.is(check.checkSignal(signal), signal);
  assert.is(check.checkSignal(undefined), undefined);
});

parts.run();
