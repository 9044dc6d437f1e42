import { mock } from "node:test";
import FakeTimers from "@sinonjs/fake-timers";
import * as fc from "fast-check";
import { type Clock, preciseClock, RateLimiter, systemClock } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { toMicros, toMillis } from "../../src/ground/clock.ts";
import { suite } from "../support/suite.ts";

// Captured now, because the tests replace them.
const real = { setTimeout, setImmediate, MessageChannel, now: performance.now };

/** Runs everything that is ready to run. */
const turn = () => new Promise<void>((resolve) => real.setImmediate(resolve));

const sleep = (ms: number) => new Promise<void>((resolve) => real.setTimeout(resolve, ms));

async function throws(action: () => unknown, expected: RegExp): Promise<void> {
  let message = "nothing was thrown";
  try {
    await action();
  } catch (error) {
    message = String(error);
  }
  assert.match(message, expected);
}

const units = suite("microseconds and milliseconds");

units("a reading is floored to whole microseconds, a wait is rounded up", () => {
  assert.is(toMicros(1.2349999), 1234);
  assert.is(toMicros(-0.0001), -1);
  assert.is(toMillis(1234.0001), 1.235);
  assert.is(toMillis(1234), 1.234);
});

units("whole microseconds survive the conversion to ms, at any time until 2041", () => {
  const exactly = (micros: number) => assert.is(toMicros(micros / 1000), micros);
  for (const micros of [0, 1, 999, 1001, 2 ** 31, 1_750_000_000_000_001, 2 ** 51]) exactly(micros);
  for (const micros of [-1, -999, -1000, -900_000, -(2 ** 51)]) exactly(micros);
  void fc.assert(fc.property(fc.integer({ min: 0, max: 2 ** 51 }), exactly), { numRuns: 10_000 });
  void fc.assert(fc.property(fc.nat(10_000_000), exactly), { numRuns: 10_000 });
});

units.run();

const platform = suite("the platform's clocks");

/** `setTimeout`, `setImmediate` and `performance.now` under the test's control. */
class Platform {
  now = 1000;
  readonly slept: number[] = [];
  #pending: (() => void) | undefined;
  readonly #saved = { setTimeout, clearTimeout, setImmediate, clearImmediate };

  constructor() {
    performance.now = () => this.now;
    Object.assign(globalThis, {
      setTimeout: (wake: () => void, ms: number) => this.#add(wake, ms),
      clearTimeout: () => this.#clear(),
      setImmediate: (wake: () => void) => this.#add(wake, -1),
      clearImmediate: () => this.#clear(),
    });
  }

  get idle(): boolean {
    return this.#pending === undefined;
  }

  #add(wake: () => void, ms: number): number {
    assert.ok(this.idle, "one timer at a time");
    this.#pending = wake;
    this.slept.push(ms);
    return 1;
  }

  #clear(): void {
    this.#pending = undefined;
  }

  /** Fires the timer this long after it was set. */
  fire(afterMs: number): void {
    const wake = this.#pending;
    this.#pending = undefined;
    this.now += afterMs;
    wake?.();
  }

  restore(): void {
    performance.now = real.now;
    Object.assign(globalThis, this.#saved);
  }
}

function onPlatform(name: string, body: (platform: Platform) => void): void {
  platform(name, () => {
    const fake = new Platform();
    try {
      body(fake);
    } finally {
      fake.restore();
    }
  });
}

const clocks = { systemClock, preciseClock };

onPlatform(
  "a time that is over by now is waited for without a negative delay, of which Node warns",
  (at) => {
    let woken = 0;
    systemClock.wakeAt(at.now - 5, () => {
      woken += 1;
    });
    assert.equal(at.slept, [0]);
    at.fire(0);
    assert.is(woken, 1);
  },
);

for (const [name, clock] of Object.entries(clocks)) {
  platform(`${name}: monotonic ms, and their distance to Unix time`, () => {
    const before = performance.now();
    const now = clock.now();
    assert.ok(now >= before && now <= performance.now());
    assert.is(clock.epochMs, performance.timeOrigin);
    assert.ok(Math.abs(now + (clock.epochMs ?? 0) - Date.now()) < 60_000);
  });

  platform(`${name}: wakes without keeping the process alive, where requested`, async () => {
    const active = () =>
      process.getActiveResourcesInfo().filter((each) => /Timeout|Immediate/.test(each));
    const before = active().length;
    let woken = 0;
    // for the last part it polls the clock, and each poll is a new timer
    for (const ms of [1, 15]) clock.wakeAt(clock.now() + ms, () => woken++).unref?.();
    assert.is(active().length, before);
    for (let i = 0; i < 1000 && woken < 2; i++) await sleep(1);
    assert.is(woken, 2);
  });

  platform(`${name}: wakes once, not before its time, and never synchronously`, async () => {
    for (const ms of [-5, 0, 0.3, 1.7, 12.5]) {
      const due = clock.now() + ms;
      const woken: number[] = [];
      clock.wakeAt(due, () => woken.push(clock.now()));
      assert.is(woken.length, 0);
      for (let i = 0; i < 1000 && woken.length === 0; i++) await sleep(1);
      assert.is(woken.length, 1, `${ms} ms`);
      assert.ok(Number(woken[0]) >= due, `due at ${due}, woken at ${woken[0]}`);
      await sleep(3);
      assert.is(woken.length, 1);
    }
  });

  platform(`${name}: a cancelled timer does not wake`, async () => {
    let woken = 0;
    const timers = [-5, 0, 1, 2.5, 5].map((ms) => clock.wakeAt(clock.now() + ms, () => woken++));
    for (const timer of timers) timer.cancel();
    timers[0]?.cancel();
    await sleep(12);
    assert.is(woken, 0);
  });

  onPlatform(`${name}: a timer that fires early checks the clock and sleeps on`, (fake) => {
    let woken = 0;
    clock.wakeAt(1100, () => woken++);
    fake.fire(97);
    assert.is(woken, 0);
    fake.fire(2.5);
    assert.is(woken, 0);
    fake.fire(0.5);
    assert.is(woken, 1);
    assert.ok(fake.idle, "no timer is left");
  });

  onPlatform(`${name}: a wait beyond 2^31 - 1 ms is slept in parts`, (fake) => {
    const longest = 2 ** 31 - 1;
    let woken = 0;
    clock.wakeAt(1000 + 3 * longest, () => woken++);
    for (let pieces = 1; pieces <= 3; pieces++) {
      assert.is(woken, 0);
      assert.is(fake.slept.length, pieces);
      fake.fire(longest);
    }
    assert.is(woken, 1);
    assert.ok(
      fake.slept.every((ms) => ms <= longest),
      `slept ${fake.slept}`,
    );
  });

  onPlatform(`${name}: a wait is cancelled between two parts`, (fake) => {
    let woken = 0;
    const timer = clock.wakeAt(1000 + 2 ** 33, () => woken++);
    fake.fire(2 ** 31 - 1);
    timer.cancel();
    assert.ok(fake.idle);
    assert.is(woken, 0);
  });

  onPlatform(`${name}: an infinite wait`, (fake) => {
    clock.wakeAt(Number.MAX_VALUE, () => {
      throw new Error("too early");
    });
    for (let i = 0; i < 5; i++) fake.fire(2 ** 31 - 1);
    assert.not(fake.idle);
  });
}

onPlatform("systemClock sleeps until the end", (fake) => {
  systemClock.wakeAt(1020, () => {});
  assert.equal(fake.slept, [20]);
});

onPlatform("preciseClock polls the clock for the last two ms", (fake) => {
  let woken = 0;
  preciseClock.wakeAt(1020, () => woken++);
  for (const ms of [18.5, 1, 0.25, 0.25]) fake.fire(ms);
  assert.is(woken, 1);
  assert.equal(fake.slept, [18, -1, -1, -1]);
});

onPlatform("preciseClock is cancelled while it polls", (fake) => {
  let woken = 0;
  const timer = preciseClock.wakeAt(1001, () => woken++);
  assert.equal(fake.slept, [-1]);
  timer.cancel();
  assert.ok(fake.idle);
  fake.fire(5);
  assert.is(woken, 0);
});

onPlatform("preciseClock without setImmediate, as in browsers, is systemClock", (fake) => {
  Object.assign(globalThis, { setImmediate: undefined });
  let woken = 0;
  preciseClock.wakeAt(1020, () => woken++);
  fake.fire(19.5);
  fake.fire(0.5);
  assert.is(woken, 1);
  assert.equal(fake.slept, [20, 0.5]);
});

platform.run();

const faked = suite("under fake timers of other libraries");

interface Fakes {
  tick(ms: number): unknown;
  restore(): void;
}

function sinon(...args: Parameters<typeof FakeTimers.install>): Fakes {
  const fakes = FakeTimers.install(...args);
  return { tick: (ms) => fakes.tick(ms), restore: () => fakes.uninstall() };
}

function nodeTest(options?: Parameters<typeof mock.timers.enable>[0]): Fakes {
  mock.timers.enable(options);
  return { tick: (ms) => mock.timers.tick(ms), restore: () => mock.timers.reset() };
}

const timers = ["setTimeout", "clearTimeout", "setImmediate", "clearImmediate"] as const;

const kinds: Record<string, () => Fakes> = {
  "sinon, jest, vitest": () => sinon(),
  "sinon, asynchronously": () => {
    const fakes = FakeTimers.install({ now: 1_750_000_000_000 });
    return { tick: (ms) => fakes.tickAsync(ms), restore: () => fakes.uninstall() };
  },
  "vitest before 3, which leaves performance alone": () => sinon({ toFake: [...timers, "Date"] }),
  "node:test": () => nodeTest(),
  "node:test, Date and setTimeout from today": () =>
    nodeTest({ apis: ["Date", "setTimeout"], now: 1_750_000_000_000 }),
};

for (const [kind, install] of Object.entries(kinds)) {
  for (const [name, clock] of Object.entries(clocks)) {
    const under = (what: string, body: (fakes: Fakes) => Promise<void>) =>
      faked(`${kind}, ${name}: ${what}`, async () => {
        const fakes = install();
        try {
          await body(fakes);
        } finally {
          fakes.restore();
        }
      });

    for (const rate of [5, 3]) {
      under(`acquire() at ${rate}/s is released as the time is ticked on`, async ({ tick }) => {
        const limiter = RateLimiter.create(rate, { clock });
        let released = 0;
        for (let i = 0; i < 6; i++) void limiter.acquire().then(() => released++);
        await turn();
        assert.is(released, 1);
        let ticked = 0;
        for (let i = 1; i < 6; i++) {
          const due = Math.ceil((i * 1000) / rate);
          await tick(due - 1 - ticked);
          await turn();
          assert.is(released, i, "not earlier");
          await tick(1);
          await turn();
          assert.is(released, i + 1);
          ticked = due;
        }
      });
    }

    under("several releases in one tick, between which the time stands still", async ({ tick }) => {
      const limiter = RateLimiter.create(10, { clock });
      const waits: number[] = [];
      for (let i = 0; i < 4; i++) void limiter.acquire().then((waitedMs) => waits.push(waitedMs));
      await tick(1000);
      await turn();
      assert.is(waits.length, 4);
      assert.is(waits[0], 0);
      assert.ok(waits.every((ms, i) => ms >= i * 100 && ms <= 1000));
      await sleep(5);
      const now = clock.now();
      await sleep(5);
      assert.is(clock.now(), now);
    });

    under("permits are stored while the time is ticked on", async ({ tick }) => {
      const limiter = RateLimiter.create(2, { clock });
      const tries = () => [1, 2, 3, 4, 5].map(() => limiter.tryAcquire());
      assert.equal(tries(), [true, false, false, false, false]);
      await tick(5000);
      assert.equal(tries(), [true, true, true, false, false]);
    });

    under("a time-out, and an abort", async ({ tick }) => {
      const limiter = RateLimiter.create(1, { clock });
      limiter.tryAcquire();
      const abort = new AbortController();
      const first = limiter.tryAcquire(1, 1500);
      const gone = limiter.acquire(1, { signal: abort.signal }).catch((reason) => reason);
      const last = limiter.acquire();
      assert.is(await limiter.tryAcquire(1, 2500), false);
      abort.abort("enough");
      assert.is(await gone, "enough");
      await tick(1000);
      assert.is(await first, true);
      await tick(1000);
      assert.ok((await last) <= 2000);
    });

    under("a wait of forty days", async ({ tick }) => {
      const limiter = RateLimiter.create(1, { clock });
      const day = 86_400_000;
      limiter.tryAcquire((40 * day) / 1000);
      let released = false;
      void limiter.acquire().then(() => {
        released = true;
      });
      for (const days of [24, 15]) await tick(days * day);
      await tick(day - 1);
      await turn();
      assert.is(released, false);
      await tick(1);
      await turn();
      assert.is(released, true);
    });
  }

  faked(`${kind}: a limiter made before the fake timers, and used after them`, async () => {
    const limiter = RateLimiter.create(50);
    assert.is(limiter.tryAcquire(), true);
    const fakes = install();
    try {
      const acquired = limiter.acquire();
      await fakes.tick(20);
      await acquired;
    } finally {
      fakes.restore();
    }
    await limiter.acquire();
    await limiter.acquire();
  });

  faked(`${kind}: a FakeClock is independent of them`, async () => {
    const fakes = install();
    try {
      const clock = new FakeClock();
      const limiter = RateLimiter.create(5, { clock });
      await limiter.acquire();
      const acquired = limiter.acquire();
      await clock.advance(200);
      assert.is(await acquired, 200);
    } finally {
      fakes.restore();
    }
  });
}

faked("a fake of Date alone does not stop the time", async () => {
  const fakes = sinon({ toFake: ["Date"], now: 0 });
  try {
    const limiter = RateLimiter.create(100);
    await limiter.acquire();
    assert.ok((await limiter.acquire()) > 0);
    assert.is(systemClock.epochMs, performance.timeOrigin);
  } finally {
    fakes.restore();
  }
});

faked("a wrapper around setTimeout alone does not stop the time", async () => {
  Object.assign(globalThis, {
    setTimeout: (wake: () => void, ms: number) => real.setTimeout(wake, ms),
  });
  try {
    const limiter = RateLimiter.create(100);
    await limiter.acquire();
    assert.ok((await limiter.acquire()) > 0);
  } finally {
    Object.assign(globalThis, { setTimeout: real.setTimeout });
  }
});

faked("Unix time follows the fake timers", async () => {
  for (const install of [
    () => sinon({ now: 1_750_000_000_000 }),
    () => sinon({ now: 1_750_000_000_000, toFake: [...timers, "Date"] }),
    () => nodeTest({ apis: ["setTimeout", "Date"], now: 1_750_000_000_000 }),
  ]) {
    const fakes = install();
    try {
      await fakes.tick(1000);
      for (const clock of Object.values(clocks) as Clock[]) {
        const off = clock.now() + (clock.epochMs ?? 0) - 1_750_000_001_000;
        assert.ok(Math.abs(off) < 0.001, `off by ${off} ms`);
      }
    } finally {
      fakes.restore();
    }
  }
});

faked.run();

const own = suite("FakeClock");

own("a FakeClock stands still until it is advanced", async () => {
  const clock = new FakeClock();
  await sleep(5);
  assert.is(clock.now(), 0);
  await clock.advance(0);
  assert.is(clock.now(), 0);
  await clock.advance(12.5);
  assert.is(clock.now(), 12.5);
});

own("a FakeClock begins at startMs, also for Unix time", async () => {
  for (const startMs of [0, 0.001, 12.345, 1_750_000_000_000, 1_750_000_000_000.125]) {
    const clock = new FakeClock(startMs);
    assert.is(clock.now(), startMs);
    const seen: number[] = [];
    for (const ms of [0.125, 1000]) clock.wakeAt(startMs + ms, () => seen.push(clock.now()));
    await clock.advance(1000);
    assert.equal(seen, [startMs + 0.125, startMs + 1000]);
  }
});

own("wake-ups run in order, each at its own instant", async () => {
  const clock = new FakeClock();
  const seen: string[] = [];
  for (const [name, ms] of Object.entries({ c: 30, a: 10, e: 50, b: 20, d: 30 })) {
    clock.wakeAt(ms, () => seen.push(`${name} at ${clock.now()}`));
  }
  await clock.advance(40);
  assert.equal(seen, ["a at 10", "b at 20", "c at 30", "d at 30"]);
  assert.is(clock.now(), 40);
  await clock.advance(10);
  assert.is(seen.at(-1), "e at 50");
});

own("a wake-up at the very end of a move runs, one a microsecond later does not", async () => {
  const clock = new FakeClock();
  let woken = 0;
  clock.wakeAt(10, () => woken++);
  await clock.advance(9.999);
  assert.is(woken, 0);
  await clock.advance(0.001);
  assert.is(woken, 1);
  await clock.advance(100);
  assert.is(woken, 1);
});

own("a wake-up in the past runs at the next move, and the time does not go back", async () => {
  const clock = new FakeClock(100);
  const seen: number[] = [];
  clock.wakeAt(50, () => seen.push(clock.now()));
  clock.wakeAt(100, () => seen.push(clock.now()));
  assert.equal(seen, []);
  await clock.advance(0);
  assert.equal(seen, [100, 100]);
});

own("a wake-up is cancelled before, by another at the same instant, and after", async () => {
  const clock = new FakeClock();
  const seen: string[] = [];
  clock.wakeAt(10, () => seen.push("gone")).cancel();
  const late = clock.wakeAt(20, () => seen.push("first"));
  clock.wakeAt(20, () => {
    seen.push("second");
    third.cancel();
  });
  const third = clock.wakeAt(20, () => seen.push("third"));
  await clock.advance(100);
  assert.equal(seen, ["first", "second"]);
  late.cancel();
});

own("a wake-up set by another one runs in the same move, at its own instant", async () => {
  const clock = new FakeClock();
  const seen: number[] = [];
  const again = () => {
    seen.push(clock.now());
    clock.wakeAt(clock.now() + 10, again);
  };
  clock.wakeAt(10, again);
  await clock.advance(45);
  assert.equal(seen, [10, 20, 30, 40]);
  assert.is(clock.now(), 45);
});

own("a wake-up set by a promise, or before the move, runs in the same move", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1, { clock });
  const seen: number[] = [];
  const work = async () => {
    for (let i = 0; i < 4; i++) {
      await limiter.acquire();
      for (let hops = 0; hops < 100; hops++) await Promise.resolve();
      seen.push(clock.now());
    }
  };
  const working = work();
  await clock.advance(2000);
  assert.equal(seen, [0, 1000, 2000]);
  await clock.advance(1000);
  await working;
  assert.equal(seen, [0, 1000, 2000, 3000]);
});

own("overlapping moves follow one another", async () => {
  const clock = new FakeClock();
  const seen: string[] = [];
  clock.wakeAt(5, () => seen.push(`woken at ${clock.now()}`));
  clock.wakeAt(25, () => seen.push(`woken at ${clock.now()}`));
  const first = clock.advance(10).then(() => seen.push(`first at ${clock.now()}`));
  const second = clock.advance(20).then(() => seen.push(`second at ${clock.now()}`));
  await Promise.all([second, first]);
  assert.equal(seen, ["woken at 5", "first at 10", "woken at 25", "second at 30"]);
});

own("fractions add up to the microsecond", async () => {
  const clock = new FakeClock();
  for (let i = 0; i < 1000; i++) await clock.advance(0.001);
  assert.is(clock.now(), 1);
  for (let i = 0; i < 10; i++) await clock.advance(0.1);
  assert.is(clock.now(), 2);
  await clock.advance(1 / 3);
  assert.is(clock.now(), 2.333);
  const seen: number[] = [];
  clock.wakeAt(2.3335, () => seen.push(clock.now()));
  await clock.advance(0.001);
  assert.is(seen.length, 1);
});

own("a thousand days pass at once", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1, { clock });
  const days = 1000 * 86_400;
  limiter.tryAcquire(days);
  const acquired = limiter.acquire();
  await clock.advance(days * 1000);
  assert.is(await acquired, days * 1000);
});

for (const missing of [["setImmediate"], ["setImmediate", "MessageChannel"]]) {
  own(`a FakeClock works without ${missing.join(" and ")}, as in browsers`, async () => {
    for (const name of missing) Object.assign(globalThis, { [name]: undefined });
    try {
      // another copy of the module, which captures its timers when it is loaded
      const copy: string = `../../src/testing/fake-clock.ts?without=${missing}`;
      const { FakeClock: Browsers }: { FakeClock: typeof FakeClock } = await import(copy);
      assert.is.not(Browsers, FakeClock);
      const clock = new Browsers();
      const limiter = RateLimiter.create(5, { clock });
      const seen: number[] = [];
      for (let i = 0; i < 3; i++) void limiter.acquire().then(() => seen.push(clock.now()));
      await clock.advance(1000);
      assert.equal(seen, [0, 200, 400]);
    } finally {
      Object.assign(globalThis, {
        setImmediate: real.setImmediate,
        MessageChannel: real.MessageChannel,
      });
    }
  });
}

own("bad numbers change nothing", async () => {
  const numbers = "startMs must be a finite number, 0 or more, got";
  for (const startMs of [-1, -0.001, Number.NaN, Infinity]) {
    assert.throws(() => new FakeClock(startMs), new RegExp(`^${numbers} ${startMs}`));
  }
  for (const startMs of ["5", null, {}, [], true, 5n] as never[]) {
    assert.throws(() => new FakeClock(startMs), new RegExp(`^${numbers}`));
  }
  const clock = new FakeClock(7);
  for (const ms of [-1, -0.001, Number.NaN, Infinity, "5", null, undefined, {}] as number[]) {
    await throws(() => clock.advance(ms), /Error: ms must be a finite number, 0 or more, got/);
  }
  await clock.advance(1);
  assert.is(clock.now(), 8);
});

own("a wake-up that throws rejects its move, and the clock continues", async () => {
  const clock = new FakeClock();
  let woken = 0;
  clock.wakeAt(5, () => {
    throw new Error("an error of its own");
  });
  clock.wakeAt(6, () => woken++);
  await throws(() => clock.advance(10), /of its own/);
  await clock.advance(10);
  assert.is(woken, 1);
});

own.run();
