import fc from "fast-check";
import * as assert from "uvu/assert";
import {
  allOf,
  ConcurrencyLimiter,
  fairShares,
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  QueueFullError,
  RateLimiter,
  smoothBursty,
} from "../../src/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { foreign } from "../support/limiter/foreign.ts";
import { failure, instants, turn, watch } from "../support/limiter/watch.ts";
import { runs, suite } from "../support/suite.ts";

const HOUR = 3_600_000;
const test = suite("how a combination waits");

test("callers that wait for a window go at the pace of the other limiter when it opens", async () => {
  const clock = new FakeClock();
  const pace = Limiter.create(smoothBursty({ permitsPerSecond: 10, burstSeconds: 0 }), { clock });
  const window = Limiter.create(fixedWindow({ limit: 1000, windowMs: 60_000 }), { clock });
  for (const used of [1000, 950]) {
    window.tryAcquire(used);
    const opensAt = Math.ceil((clock.now() + 1) / 60_000) * 60_000;
    const waits = Array.from({ length: 300 }, () => watch(clock, allOf(pace, window).acquire()));
    await clock.advance(opensAt - clock.now() + 45_000);
    const at = instants(waits) as number[];
    assert.ok(at.every((each) => each !== undefined));
    const sorted = at.toSorted((a, b) => a - b);
    sorted.forEach((each, i) => {
      if (i > 0) assert.ok(each - Number(sorted[i - 1]) >= 99.999, `${sorted[i - 1]}, ${each}`);
    });
    const inWindow = at.filter((each) => each < opensAt).length;
    assert.is(inWindow, 1000 - used);
    assert.is(window.peek().remaining, 1000 - (300 - inWindow));
    await clock.advance(2 * 60_000 - (clock.now() % 60_000));
  }
});

test("a caller that waits for its own limiter does not hold the common one", async () => {
  const clock = new FakeClock();
  const common = Limiter.create(fixedWindow({ limit: 5, windowMs: HOUR }), { clock });
  const devices = KeyedLimiter.create(gcra({ limit: 1, periodMs: HOUR, burst: 0 }), { clock });
  const of = (device: string) => allOf(common, devices.for(device));
  assert.ok(of("slow").tryAcquire());
  const waits = Array.from({ length: 20 }, () => watch(clock, of("slow").acquire()));
  await clock.advance(1000);
  assert.is(common.peek().remaining, 4);
  for (const device of ["a", "b", "c", "d"]) assert.ok(of(device).tryAcquire());
  await clock.advance(3 * HOUR - 1000);
  assert.equal(instants(waits).slice(0, 4), [HOUR, 2 * HOUR, 3 * HOUR, undefined]);
});

test("callers keep their order, and one that leaves does not hold up the others", async () => {
  const clock = new FakeClock();
  const pace = RateLimiter.create(1, { clock, burstSeconds: 0 });
  const other = Limiter.create(fixedWindow({ limit: 100, windowMs: HOUR }), { clock });
  const controller = new AbortController();
  const limiter = allOf(other, pace);
  const waits = [
    watch(clock, limiter.acquire()),
    watch(clock, limiter.acquire(1, { signal: controller.signal })),
    watch(clock, limiter.acquire()),
    watch(clock, limiter.acquire()),
  ];
  await clock.advance(500);
  controller.abort(new Error("enough"));
  await clock.advance(5000);
  assert.equal(instants(waits), [0, 500, 1000, 2000]);
  assert.is(other.peek().remaining, 97);
});

test("setRate moves the callers that wait", async () => {
  const clock = new FakeClock();
  const pace = RateLimiter.create(1, { clock, burstSeconds: 0 });
  const other = Limiter.create(fixedWindow({ limit: 100, windowMs: HOUR }), { clock });
  const waits = [1, 2, 3].map(() => watch(clock, allOf(pace, other).acquire()));
  await clock.advance(0);
  pace.setRate(10);
  await clock.advance(5000);
  assert.equal(
    instants(waits).map((at) => Math.round(Number(at))),
    [0, 1000, 1100],
  );
});

test("a caller gets through although other callers keep both limiters busy", async () => {
  const clock = new FakeClock();
  const make = () => RateLimiter.create(10, { clock, burstSeconds: 0 });
  const [one, two] = [make(), make()];
  let isOver = false;
  const busy = async (limiter: RateLimiter) => {
    while (!isOver) await limiter.acquire();
  };
  const crowd = [one, two].flatMap((limiter) => [1, 2, 3, 4, 5].map(() => busy(limiter)));
  const waited = watch(clock, allOf(one, two).acquire());
  await clock.advance(20_000);
  assert.ok(waited.at !== undefined);
  isOver = true;
  await clock.advance(2000);
  await Promise.all(crowd);
});

test("an error in one limiter gives back what the others took", async () => {
  const clock = new FakeClock();
  const full = Limiter.create(smoothBursty({ permitsPerSecond: 1, burstSeconds: 0 }), {
    ...{ clock, maxWaiting: 0 },
  });
  const places = ConcurrencyLimiter.create(1, { clock });
  full.charge(1);
  assert.match(`${await failure(() => allOf(places, full).acquire())}`, "QueueFullError");
  assert.is(places.active, 0);
});

test.run();

const places = suite("combinations with concurrency limiters", { timeoutMs: 240_000 });

function world() {
  const clock = new FakeClock();
  const running = ConcurrencyLimiter.create(2, { clock });
  const pace = Limiter.create(fixedWindow({ limit: 3, windowMs: 1000 }), { clock });
  return { clock, running, pace, limiter: allOf(running, pace) };
}

places("release returns the place; the permits stay used", () => {
  const { running, pace, limiter } = world();
  const first = limiter.tryAcquire();
  const second = limiter.tryAcquire();
  assert.equal([running.active, pace.peek().remaining], [2, 1]);
  assert.is(limiter.tryAcquire(), undefined, "no free place");
  assert.equal([running.active, pace.peek().remaining], [2, 1], "and no permit is taken");
  first?.release();
  first?.release();
  assert.equal([running.active, second?.signal.aborted], [1, false]);
  limiter.tryAcquire()?.[Symbol.dispose]();
  assert.is(limiter.tryAcquire(), undefined, "no permit left");
  assert.equal([running.active, running.stats.granted], [1, 3], "and no place is taken");
  assert.equal([running.stats.refused, pace.stats.refused], [1, 1]);
});

places(
  "a refusal counts at each limiter that is a reason for it, with a time-out of 0 too",
  async () => {
    const { running, pace, limiter } = world();
    pace.tryAcquire(3);
    running.tryAcquire(2);
    assert.is(limiter.tryAcquire(), undefined);
    assert.is(await limiter.tryAcquire({ timeoutMs: 0 }), undefined);
    assert.equal([running.stats.refused, pace.stats.refused], [2, 2]);
  },
);

places("takes a place only when it also gets its permits", async () => {
  const { clock, running, pace, limiter } = world();
  const leases = await Promise.all([limiter.acquire(), limiter.acquire()]);
  const third = watch(clock, limiter.acquire());
  const fourth = watch(clock, limiter.acquire());
  await clock.advance(100);
  assert.equal([third.at, pace.peek().remaining, running.waiting], [undefined, 1, 2]);
  for (const lease of leases) lease.release();
  await clock.advance(2000);
  assert.equal([third.at, fourth.at], [100, 1000]);
  await third.value?.[Symbol.asyncDispose]();
  fourth.value?.release();
  assert.is(running.active, 0);
});

places(
  "holds no place while it waits for permits, and an abort leaves nothing behind",
  async () => {
    const { clock, running, pace, limiter } = world();
    pace.tryAcquire(3);
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = watch(clock, limiter.acquire(1, { signal }));
    await turn();
    assert.is(running.active, 0);
    controller.abort(new Error("enough"));
    await turn();
    assert.equal([running.active, `${waiting.error}`], [0, "Error: enough"]);
    assert.match(`${await failure(() => limiter.acquire(1, { signal }))}`, "enough");
  },
);

places("tryAcquire with a time-out waits for the place, then for the permits", async () => {
  const { clock, running, pace, limiter } = world();
  assert.ok(await limiter.tryAcquire(1, 0));
  const first = await limiter.tryAcquire({ timeoutMs: 10 });
  assert.is(await limiter.tryAcquire(1, 0), undefined);
  const third = watch(clock, limiter.tryAcquire({ timeoutMs: 300 }));
  const tooLate = watch(clock, limiter.tryAcquire(1, 50));
  const fourth = watch(clock, limiter.tryAcquire(1, 1000));
  await clock.advance(100);
  assert.equal([tooLate.at, tooLate.value, tooLate.error], [50, undefined, undefined]);
  first?.release();
  await clock.advance(0);
  assert.is(third.at, 100);
  third.value?.release();
  await clock.advance(400);
  assert.equal(
    [fourth.at, running.active],
    [undefined, 1],
    "it holds no place while it waits for a permit",
  );
  await clock.advance(1000);
  assert.is(fourth.at, 1000);
  fourth.value?.release();
  assert.equal([running.active, running.waiting, pace.peek().remaining], [1, 0, 2]);
});

places("the time-out covers the wait for the place and the wait for the permits", async () => {
  const { clock, running, pace, limiter } = world();
  await clock.advance(5000);
  pace.tryAcquire(3);
  const leases = [running.tryAcquire(), running.tryAcquire()];
  const waiting = watch(clock, limiter.tryAcquire(1, 1050));
  const short = watch(clock, limiter.tryAcquire(1, 950));
  await clock.advance(60);
  for (const lease of leases) lease?.release();
  await clock.advance(0);
  const { at, value, error } = short;
  assert.equal([at, value, error], [5060, undefined, undefined], "the window opens too late");
  assert.equal([running.active, pace.stats.refused, pace.stats.cancelled], [0, 1, 0]);
  await clock.advance(1000);
  assert.is(waiting.at, 6000);
  waiting.value?.release();
  assert.equal([running.active, pace.peek().remaining], [0, 2]);
});

places(
  "a caller that waits for a place leaves with its signal, or if no more may wait",
  async () => {
    const { clock, running, pace, limiter } = world();
    const leases = [running.tryAcquire(), running.tryAcquire()];
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = [
      watch(clock, limiter.acquire(1, { signal })),
      watch(clock, limiter.tryAcquire({ signal })),
    ];
    await clock.advance(10);
    assert.is(running.waiting, 2);
    controller.abort(new Error("enough"));
    await clock.advance(0);
    for (const { at, error } of waiting) assert.equal([at, `${error}`], [10, "Error: enough"]);
    assert.equal([running.waiting, pace.peek().remaining], [0, 3]);
    for (const lease of leases) lease?.release();
    const strict = ConcurrencyLimiter.create(1, { clock, maxWaiting: 0 });
    strict.tryAcquire();
    const full = allOf(strict, pace);
    assert.instance(await failure(() => full.acquire()), QueueFullError);
    assert.is(await full.tryAcquire(1, 5), undefined);
    assert.is(pace.peek().remaining, 3);
  },
);

places("permits that are promised too late are given back, and the place is free", async () => {
  const { clock, running } = world();
  const pace = RateLimiter.create(1, { clock, burstSeconds: 0 });
  pace.tryAcquire();
  const hope = async () => ({ ...pace.peek(), waitMs: 100 });
  const hopeful = { ...foreign(pace), peek: hope, decide: hope };
  const tried = watch(clock, allOf(running, hopeful).tryAcquire(1, 500));
  await clock.advance(0);
  assert.equal([tried.at, tried.value, tried.error], [0, undefined, undefined]);
  assert.equal([running.active, pace.peek().waitMs], [0, 1000]);
});

places("a wait with a time-out that ends in an error leaves nothing behind", async () => {
  const { clock, running, pace, limiter } = world();
  pace.tryAcquire(3);
  const controller = new AbortController();
  const { signal } = controller;
  const waiting = watch(clock, limiter.tryAcquire({ signal }));
  await clock.advance(10);
  assert.is(running.active, 0);
  controller.abort(new Error("enough"));
  await clock.advance(0);
  assert.equal([running.active, `${waiting.error}`], [0, "Error: enough"]);
  assert.match(`${await failure(() => limiter.tryAcquire({ signal }))}`, "enough");
  assert.match(`${await failure(() => limiter.tryAcquire({ timeout: 5 } as never))}`, "timeoutMs");
  for (const verb of [
    () => limiter.tryAcquire("5" as never),
    () => limiter.tryAcquire(0),
    () => limiter.tryAcquire(0, 0),
    () => limiter.tryAcquire(0, 5),
    () => limiter.acquire(0),
  ]) {
    assert.match(`${await failure(verb)}`, "slots must be", `${verb}`);
  }
  await clock.advance(1000);
  assert.is(pace.peek().remaining, 3);
  const none = watch(clock, allOf(running).tryAcquire(1, 5));
  await clock.advance(0);
  assert.equal([none.at, running.active], [1010, 1]);
});

for (const [lacks, fastOnes] of [
  ["a place", 0],
  ["a permit", 0],
  ["a permit", 1],
] as const) {
  const title = `a caller that lacks ${lacks} and loses out again and again keeps its place, and no permit`;
  places(`${title}${fastOnes > 0 ? ", beside a limiter that never refuses" : ""}`, async () => {
    const clock = new FakeClock();
    const running = ConcurrencyLimiter.create(2, { clock });
    const pace = RateLimiter.create(10, { clock, burstSeconds: 0 });
    const fast = Array.from({ length: fastOnes }, () => RateLimiter.create(1e6, { clock }));
    const limiter = allOf(running, pace, ...fast);
    const uses: number[] = [];
    const used = () => void uses.push(clock.now());
    let isOver = false;
    const holdPlaces = async () => {
      while (!isOver) {
        const lease = await running.acquire();
        await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 70, resolve));
        lease.release();
      }
    };
    const usePermits = async () => {
      while (!isOver) await pace.acquire().then(used);
    };
    const five = [1, 2, 3, 4, 5];
    const crowd = lacks === "a place" ? five.map(holdPlaces) : [];
    crowd.push(...five.map(usePermits));
    const leases = Array.from({ length: 3 }, () => {
      const waiting = limiter.acquire();
      void waiting.then((lease) => {
        used();
        lease.release();
      });
      return watch(clock, waiting);
    });
    if (lacks === "a permit") crowd.push(...five.map(holdPlaces));
    for (let i = 0; i < 3000 && leases.some(({ at }) => at === undefined); i++) {
      await clock.advance(10);
    }
    assert.ok(leases.every(({ at }) => at !== undefined));
    isOver = true;
    await clock.advance(5000);
    await Promise.all(crowd);
    assert.is(running.active, 0);
    // a permit that was kept would be used out of step
    uses.forEach((at, i) => {
      assert.ok(i === 0 || at - Number(uses[i - 1]) > 99.9, `${uses}`);
    });
  });
}

places("no caller holds a place while it waits, whatever the jobs, rates and places", async () => {
  const jobs = fc.array(fc.constantFrom(0, 1, 20, 90, 110, 300), { minLength: 1, maxLength: 40 });
  const world = fc.record({
    jobs,
    limit: fc.integer({ min: 1, max: 4 }),
    rate: fc.constantFrom(5, 10, 50),
    burstSeconds: fc.constantFrom(0, 1),
    fair: fc.boolean(),
    gapMs: fc.constantFrom(0, 0, 30),
  });
  await fc.assert(
    fc.asyncProperty(world, async ({ jobs, limit, rate, burstSeconds, fair, gapMs }) => {
      const clock = new FakeClock();
      const running = ConcurrencyLimiter.create(limit, {
        clock,
        order: fair ? fairShares() : undefined,
      });
      const pace = RateLimiter.create(rate, {
        clock,
        burstSeconds,
        order: fair ? fairShares() : undefined,
      });
      const limiter = allOf(running, pace);
      let active = 0;
      const starts: number[] = [];
      const done: Promise<unknown>[] = [];
      const check = () => {
        assert.ok(active <= limit, `${active} of ${limit}`);
      };
      for (const [i, ms] of jobs.entries()) {
        const job = async () => {
          active += 1;
          starts.push(clock.now());
          check();
          await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + ms, resolve));
          active -= 1;
        };
        done.push(limiter.run(job, fair ? { share: `${i % 3}` } : {}));
        await clock.advance(gapMs);
        check();
      }
      for (let i = 0; i < 4000 && starts.length < jobs.length; i++) {
        await clock.advance(5);
        check();
        assert.is(running.active, active, "no waiting caller holds a place");
      }
      await clock.advance(400);
      await Promise.all(done);
      assert.equal([active, running.active, starts.length], [0, 0, jobs.length]);
      // the pace is kept from any start to any later one
      const stored = 1 + burstSeconds * rate;
      starts.forEach((at, i) => {
        const before = starts[i - stored];
        if (before !== undefined) assert.ok(at - before >= 1000 / rate - 0.01, `${starts}`);
      });
    }),
    { numRuns: runs(150) },
  );
});

places("a caller that looks does not take the place from one that has its permit", async () => {
  const clock = new FakeClock();
  const running = ConcurrencyLimiter.create(2, { clock });
  const pace = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const starts: string[] = [];
  const done: Promise<void>[] = [];
  for (const [i, ms] of [300, 0, 300, 0, 0, 0, 0, 0, 0].entries()) {
    const job = async () => {
      starts.push(`${i} at ${Math.round(clock.now())}`);
      await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + ms, resolve));
    };
    done.push(allOf(running, pace).run(job));
    await clock.advance(30);
  }
  await clock.advance(2000);
  await Promise.all(done);
  assert.equal(
    starts,
    [0, 1, 2, 3, 4, 5, 6, 7, 8].map((i) => `${i} at ${100 * i}`),
  );
});

places("a place that thousands of callers cannot use passes through all of them", async () => {
  const { clock, running, pace, limiter } = world();
  const leases = [running.tryAcquire(), running.tryAcquire()];
  const waits = Array.from({ length: runs(10_000, 1000) }, () => watch(clock, limiter.acquire()));
  await clock.advance(10);
  pace.tryAcquire(3);
  leases[0]?.release();
  await clock.advance(10);
  assert.is(running.active, 1);
  leases[1]?.release();
  await clock.advance(980);
  assert.equal([running.active, waits.filter(({ at }) => at !== undefined).length], [2, 2]);
});

places("an abort at the instant of the place leaves nothing behind", async () => {
  const clock = new FakeClock();
  const controller = new AbortController();
  const { signal } = controller;
  const aborting = {
    now: () => {
      if (running.active > 0 && lease === undefined) controller.abort(new Error("enough"));
      return clock.now();
    },
    wakeAt: clock.wakeAt.bind(clock),
  };
  const running = ConcurrencyLimiter.create(1, { clock });
  const pace = RateLimiter.create(10, { clock: aborting, burstSeconds: 0 });
  let lease = running.tryAcquire();
  const aborted = watch(clock, allOf(running, pace).acquire(1, { signal }));
  await turn();
  const next = watch(clock, running.acquire());
  await clock.advance(10);
  const release = lease?.release.bind(lease);
  lease = undefined;
  release?.();
  await turn();
  assert.match(`${aborted.error}`, "enough");
  assert.is(next.at, 10);
  next.value?.release();
  assert.equal([running.active, pace.peek().waitMs], [0, 0]);
});

places("run releases the place however the function ends; combinations can be nested", async () => {
  const { running, pace, limiter } = world();
  const nested = allOf(limiter, allOf(pace));
  assert.is(await allOf(running).run(({ signal }) => (signal.aborted ? 0 : 7)), 7);
  assert.match(
    `${await failure(() =>
      nested.run(() => {
        throw new Error("broken");
      }),
    )}`,
    "broken",
  );
  assert.equal(
    [running.active, pace.peek().remaining],
    [0, 1],
    "the nested combination contains the pace twice",
  );
  assert.is(nested.tryAcquire(), undefined);
  assert.match(`${await failure(() => nested.run(1 as never))}`, "fn must be a function");
});

const caller = fc.record({
  places: fc.shuffledSubarray([0, 1, 2], { minLength: 2 }),
  afterMs: fc.nat(30),
});

places("callers get slots that others keep busy, and never wait in a circle", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(caller, { minLength: 1, maxLength: 8 }),
      fc.tuple(...[0, 1, 2].map(() => fc.integer({ min: 1, max: 4 }))),
      fc.integer({ min: 1, max: 2 }),
      fc.nat(12),
      async (wanted, more, slots, pauseMs) => {
        const clock = new FakeClock();
        const limiters = more.map((places) =>
          ConcurrencyLimiter.create(slots - 1 + places, { clock }),
        );
        const sleep = (ms: number) =>
          new Promise<void>((resolve) => clock.wakeAt(clock.now() + ms, resolve));
        let isOver = false;
        const crowd = limiters.flatMap((limiter, i) =>
          Array.from({ length: Math.floor(limiter.limit / slots) + 1 }, async (_, n) => {
            await sleep(3 * i + n);
            while (!isOver) {
              await limiter.run(() => sleep(10), { slots });
              await sleep(pauseMs);
            }
          }),
        );
        const calls = wanted.map(async ({ places, afterMs }) => {
          await sleep(afterMs);
          const [first, ...others] = places.map((place) => limiters[place] as ConcurrencyLimiter);
          const limiter = allOf(first as ConcurrencyLimiter, ...others);
          await limiter.run(() => sleep(10), { slots });
        });
        const waited = watch(clock, Promise.all(calls));
        await clock.advance(5000);
        assert.ok(waited.at !== undefined);
        isOver = true;
        await clock.advance(1000);
        await Promise.all(crowd);
        assert.equal(
          limiters.map(({ active, waiting }) => active + waiting),
          [0, 0, 0],
        );
      },
    ),
    {
      numRuns: runs(300),
      examples: [
        // slots that were kept in any order: each caller lacked what the other one kept
        [
          [
            { places: [1, 0, 2], afterMs: 3 },
            { places: [2, 0, 1], afterMs: 3 },
            { places: [2, 1, 0], afterMs: 16 },
          ],
          [4, 1, 1],
          1,
          3,
        ],
        // the first limiter in the order has the most slots left, though too few
        [[{ places: [0, 1, 2], afterMs: 5 }], [2, 4, 1], 2, 0],
      ],
    },
  );
});

places.run();
