import PQueue, { TimeoutError } from "p-queue";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import type { Limiter as Face } from "../../../src/api/limiter-api.ts";
import { StoreUnavailableError } from "../../../src/ground/errors.ts";
import {
  type Clock,
  gcra,
  KeyedLimiter,
  Limiter,
  PermitsExceedCapacityError,
  QueueFullError,
  RateLimiter,
  smoothBursty,
  tokenBucket,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { cpuMs } from "../../support/cpu.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { later } from "../../support/p-queue/later.ts";
import { runs, suite } from "../../support/suite.ts";

const test = suite("p-queue: PacedQueue");

test("PacedQueue is an instance of the installed p-queue", () => {
  assert.is(new PQueue() instanceof EventTarget, process.env.P_QUEUE === "10");
  assert.instance(new PacedQueue({ limiter: RateLimiter.create(1) }), PQueue);
});

/** One permit every 100 ms, and only the first at once. */
function steady({ concurrency = Infinity, autoStart = true } = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const queue = new PacedQueue({ limiter, concurrency, autoStart });
  const starts: string[] = [];
  const run = (name: string) => () => void starts.push(`${name} ${clock.now()}`);
  return { clock, limiter, queue, starts, run };
}

function once(action: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    action();
  };
}

const sleep = (clock: FakeClock, ms: number) =>
  new Promise<void>((resolve) => {
    clock.wakeAt(clock.now() + ms, resolve);
  });

test("1000 jobs at 200 a second, 20 at once: the bound, the order and the concurrency hold", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(200, { clock });
  const queue = new PacedQueue({ limiter, concurrency: 20 });
  const starts: { at: number; priority: number }[] = [];
  let most = 0;
  for (let i = 0; i < 1000; i++) {
    const priority = i % 3;
    void queue.add(
      async () => {
        starts.push({ at: clock.now(), priority });
        most = Math.max(most, queue.pending);
        await sleep(clock, (i * 37) % 90);
      },
      { priority },
    );
  }
  const done = queue.onIdle();
  await clock.advance(5200);
  await done;
  assert.is(starts.length, 1000);
  assert.ok(most <= 20);
  for (const [i, { at }] of starts.entries()) {
    assert.is(at, i * 5, "evenly spaced, since a place is always free in time");
  }
  // the first job was the only one when it came
  const order = starts.slice(1).map(({ priority }) => priority);
  assert.equal(
    order,
    order.toSorted((a, b) => b - a),
  );
});

test("low concurrency: no more jobs at once, and no place waits with permits already taken", async () => {
  const { clock, limiter, queue, starts, run } = steady({ concurrency: 1 });
  void queue.add(async () => {
    run("a")();
    await sleep(clock, 350);
  });
  void queue.add(run("b"));
  void queue.add(run("c"));
  await clock.advance(349);
  assert.equal([queue.pending, queue.size, starts.length], [1, 2, 1]);
  assert.is(limiter.tryAcquire(), true, "nothing was taken ahead of its time");
  await clock.advance(251);
  assert.equal(starts, ["a 0", "b 449", "c 549"]);
});

test("a job that waits for permits holds no place", async () => {
  const { clock, queue, run } = steady({ concurrency: 1 });
  void queue.add(run("a"));
  void queue.add(run("b"));
  await clock.advance(50);
  assert.equal([queue.pending, queue.size], [0, 1]);
});

test("a job of high priority that is added late goes before waiting jobs", async () => {
  const { clock, queue, starts, run } = steady();
  for (const name of ["a", "b", "c"]) void queue.add(run(name));
  await clock.advance(99);
  void queue.add(run("urgent"), { priority: 1 });
  await clock.advance(300);
  assert.equal(starts, ["a 0", "urgent 100", "b 200", "c 300"]);
});

test("setPriority moves a waiting job", async () => {
  const { clock, queue, starts, run } = steady();
  for (const name of ["a", "b", "c"]) void queue.add(run(name), { id: name });
  queue.setPriority("c", 1);
  assert.throws(() => queue.setPriority("a", 1), /"a"/);
  await clock.advance(200);
  assert.equal(starts, ["a 0", "c 100", "b 200"]);
});

test("permits: each job pays for itself, as the limiter lends", async () => {
  const { clock, queue, starts, run } = steady();
  for (const permits of [3, 2, 0.5, 1]) void queue.add(run(`${permits}`), { permits });
  await clock.advance(1000);
  assert.equal(starts, ["3 0", "2 300", "0.5 500", "1 550"]);
});

test("the queue waits for a heavy job of high priority that is added late, and loses no permit", async () => {
  const clock = new FakeClock();
  const policy = tokenBucket({ capacity: 10, refill: 1, everyMs: 100 });
  const limiter = Limiter.create(policy, { clock });
  const queue = new PacedQueue({ limiter });
  const starts: string[] = [];
  const run = (name: string) => () => void starts.push(`${name} ${clock.now()}`);
  void queue.add(run("all"), { permits: 10 });
  void queue.add(run("light"));
  await clock.advance(50);
  void queue.add(run("heavy"), { permits: 5, priority: 1 });
  await clock.advance(600);
  assert.equal(starts, ["all 0", "heavy 500", "light 600"]);
  void queue.add(run("heavy"), { permits: 5 });
  await clock.advance(50);
  void queue.add(run("light"), { priority: 1 });
  await clock.advance(1000);
  assert.equal(starts.slice(3), ["light 700", "heavy 1200"]);
});

test("permits of several policies, by name", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(
    {
      requests: tokenBucket({ capacity: 2, refill: 1, everyMs: 100 }),
      tokens: tokenBucket({ capacity: 100, refill: 1, everyMs: 1 }),
    },
    { clock },
  );
  const queue = new PacedQueue({ limiter });
  const starts: string[] = [];
  const run = (name: string) => () => void starts.push(`${name} ${clock.now()}`);
  void queue.add(run("a"), { permits: { requests: 1, tokens: 90 } });
  void queue.add(run("b"), { permits: { requests: 1, tokens: 90 } });
  void queue.add(run("c"), { permits: { requests: 1 } });
  await clock.advance(10);
  void queue.add(run("d"), { permits: { requests: 1, tokens: 30 }, priority: 1 });
  await clock.advance(300);
  assert.equal(starts, ["a 0", "d 20", "b 110", "c 200"]);
  const wrong = queue.add(run("e"), { permits: { requets: 1 } });
  assert.match(`${await failure(() => wrong)}`, "requets");
  await queue.onIdle();
});

test("add refuses bad jobs, permits and options at once", async () => {
  const { queue, starts, run, limiter } = steady({ autoStart: false });
  for (const [permits, words] of [
    [0, "permits must be a finite number above 0, got 0"],
    [Number.NaN, "permits must be"],
    ["1", "permits must be"],
    [null, "permits must be"],
    [{}, "permits must name a policy"],
    [{ a: -1 }, "permits.a must be"],
  ] as [number, string][]) {
    assert.match(`${await failure(() => queue.add(run("a"), { permits }))}`, words);
  }
  for (const [options, words] of [
    [
      { permit: 5 },
      'options has no "permit"; expected one of permits, priority, id, signal, timeout',
    ],
    [{ priority: Number.NaN }, "priority must be a number, got NaN"],
    [{ priority: "5" }, 'priority must be a number, got "5"'],
    [null, "options must be an object, got null"],
  ] as [object, string][]) {
    assert.match(`${await failure(() => queue.add(run("a"), options))}`, words);
  }
  const none = await failure(() => queue.add(undefined as never));
  assert.match(`${none}`, "job must be a function, got undefined");
  assert.equal([queue.size, starts, limiter.peek().allowed], [0, [], true]);
});

test("error messages name bad options", () => {
  const limiter = RateLimiter.create(1);
  for (const [options, words] of [
    [undefined, /options/],
    [{}, /limiter must be a rate limiter, got undefined/],
    [{ limiter: 5 }, /limiter must be a rate limiter, got 5/],
    [{ limiter: null }, /limiter/],
    [{ limiter, interval: 5 }, /interval/],
    [{ limiter, queueClass: Array }, /queueClass/],
    [{ limiter, autoStart: 1 }, /autoStart/],
    [{ limiter, concurrency: 0 }, /concurrency/],
    [{ limiter, timeout: -1 }, /timeout/],
  ] as [never, RegExp][]) {
    assert.throws(() => new PacedQueue(options), words);
  }
});

test("an abort ends the wait: other users of the limiter move up", async () => {
  const { clock, limiter, queue, starts, run } = steady();
  const controller = new AbortController();
  void queue.add(run("a"));
  const aborted = watch(clock, queue.add(run("b"), { signal: controller.signal }));
  const other = watch(clock, limiter.acquire());
  await clock.advance(50);
  controller.abort("enough");
  await clock.advance(50);
  assert.equal([aborted.error, aborted.at, other.at], ["enough", 50, 100]);
  assert.equal([starts, queue.size, queue.pending], [["a 0"], 0, 0]);
});

test("an abort of a heavy job lets the light one behind it start", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(tokenBucket({ capacity: 10, refill: 1, everyMs: 100 }), { clock });
  const queue = new PacedQueue({ limiter });
  limiter.charge(8);
  const controller = new AbortController();
  const { signal } = controller;
  const heavy = watch(
    clock,
    queue.add(() => {}, { permits: 9, signal }),
  );
  const light = watch(
    clock,
    queue.add(() => {}),
  );
  await clock.advance(10);
  assert.equal([heavy.at, light.at], [undefined, undefined]);
  controller.abort();
  await clock.advance(0);
  assert.equal([heavy.at, light.at], [10, 10]);
});

test("a job whose signal is aborted already never waits", async () => {
  const { clock, limiter, queue, run } = steady({ autoStart: false });
  const signal = AbortSignal.abort("no");
  assert.is(await failure(() => queue.add(run("a"), { signal })), "no");
  queue.start();
  await clock.advance(0);
  assert.is(limiter.peek().allowed, true);
});

test("the job gets its signal, and an abort while it runs rejects", async () => {
  const { queue } = steady();
  const controller = new AbortController();
  let seen: unknown;
  const result = queue.add(
    ({ signal }) => {
      seen = signal;
      return new Promise(() => {});
    },
    { signal: controller.signal },
  );
  assert.is(seen, controller.signal);
  controller.abort("stop");
  assert.is(await failure(() => result), "stop");
  await queue.onIdle();
});

test("a job whose signal is being aborted does not start, and the next job gets its permit", async () => {
  for (const permits of [1, 2]) {
    const { clock, limiter, queue, starts, run } = steady({ autoStart: false });
    const controller = new AbortController();
    // before the PQueue's own listener
    controller.signal.addEventListener("abort", () => queue.start());
    const { signal } = controller;
    const aborted = watch(clock, queue.add(run("a"), { signal, permits }));
    const next = watch(clock, queue.add(run("b")));
    controller.abort("enough");
    await clock.advance(0);
    assert.equal([aborted.error, next.at, starts], ["enough", 0, ["b 0"]]);
    assert.is(limiter.peek().waitMs, 100);
  }
});

test("the same where that makes a listener add a job", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(tokenBucket({ capacity: 10, refill: 1, everyMs: 100 }), { clock });
  const queue = new PacedQueue({ limiter, autoStart: false });
  const controller = new AbortController();
  const { signal } = controller;
  signal.addEventListener("abort", () => queue.start());
  queue.add(() => {}, { signal }).catch(() => {});
  const addOnce = once(() => void queue.add(() => {}));
  if (queue instanceof EventTarget) queue.addEventListener("next", addOnce);
  else queue.on("error", addOnce);
  controller.abort();
  await clock.advance(0);
  assert.equal([queue.size, limiter.peek().remaining], [0, 9]);
});

test("timeout counts from the start, not while the job waits", async () => {
  const limiter = RateLimiter.create(20, { burstSeconds: 0 });
  const queue = new PacedQueue({ limiter, timeout: 5 });
  void queue.add(() => {});
  assert.is(await queue.add(() => "in time"), "in time");
  const stuck = () => new Promise(() => {});
  assert.instance(await failure(() => queue.add(stuck)), TimeoutError);
  assert.instance(await failure(() => queue.add(stuck, { timeout: 1 })), TimeoutError);
  await queue.onIdle();
});

test("pause holds jobs and takes no permits; start continues", async () => {
  const { clock, limiter, queue, starts, run } = steady();
  for (const name of ["a", "b", "c"]) void queue.add(run(name));
  await clock.advance(50);
  queue.pause();
  const other = watch(clock, limiter.acquire());
  await clock.advance(350);
  assert.equal([queue.isPaused, queue.size, starts, other.at], [true, 2, ["a 0"], 100]);
  assert.is(queue.start(), queue);
  assert.is(queue.isPaused, false);
  await clock.advance(100);
  assert.equal(starts, ["a 0", "b 400", "c 500"]);
});

test("autoStart: false waits for start", async () => {
  const { clock, queue, starts, run } = steady({ autoStart: false });
  void queue.add(run("a"));
  await clock.advance(50);
  assert.equal([queue.isPaused, queue.size, starts], [true, 1, []]);
  queue.start();
  assert.equal(starts, ["a 50"]);
});

test("clear ends the wait", async () => {
  const { clock, limiter, queue, starts, run } = steady();
  for (const name of ["a", "b", "c"]) queue.add(run(name)).catch(() => {});
  const idle = watch(clock, queue.onIdle());
  await clock.advance(50);
  queue.clear();
  await clock.advance(50);
  assert.equal([queue.size, starts, idle.at], [0, ["a 0"], 50]);
  assert.is(limiter.tryAcquire(), true);
  void queue.add(run("d"));
  await clock.advance(100);
  assert.equal(starts, ["a 0", "d 200"]);
});

test("onIdle, onEmpty, onSizeLessThan, sizeBy: jobs that wait for permits count", async () => {
  const { clock, queue, run } = steady();
  for (const priority of [0, 0, 1, 0]) void queue.add(run("a"), { priority });
  const waits = [queue.onIdle(), queue.onEmpty(), queue.onSizeLessThan(3), queue.onSizeLessThan(2)];
  const watched = waits.map((promise) => watch(clock, promise));
  assert.equal([queue.sizeBy({ priority: 0 }), queue.sizeBy({ priority: 1 })], [2, 1]);
  await clock.advance(1000);
  assert.equal(
    watched.map(({ at }) => at),
    [300, 300, 100, 200],
  );
});

test("addAll works, and jobs can add jobs", async () => {
  const { clock, queue, starts, run } = steady();
  const all = watch(
    clock,
    queue.addAll([() => 1, async () => queue.add(() => 2, { priority: 1 }), () => 3]),
  );
  void queue.add(() => queue.add(run("inner")));
  await clock.advance(1000);
  assert.equal([all.value, all.at, starts], [[1, 2, 3], 300, ["inner 500"]]);
});

test("a higher concurrency starts jobs that have permits at once", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(gcra({ limit: 10, periodMs: 1000 }), { clock });
  const queue = new PacedQueue({ limiter, concurrency: 1 });
  for (let i = 0; i < 5; i++) void queue.add(() => sleep(clock, 1000));
  assert.equal([queue.pending, queue.concurrency], [1, 1]);
  queue.concurrency = 3;
  assert.equal([queue.pending, queue.concurrency], [3, 3]);
  assert.throws(() => {
    queue.concurrency = 0;
  }, /concurrency/);
  await clock.advance(2000);
  assert.equal([queue.pending, queue.size], [0, 0]);
});

test("a lower concurrency gives up the wait for permits", async () => {
  const { clock, limiter, queue } = steady({ concurrency: 2 });
  for (let i = 0; i < 3; i++) void queue.add(() => sleep(clock, 1000));
  queue.concurrency = 1;
  await clock.advance(900);
  assert.equal([queue.pending, queue.size, limiter.tryAcquire()], [1, 2, true]);
  await clock.advance(100);
  assert.is(queue.pending, 1);
});

test("a job's error rejects its add, and the next job starts", async () => {
  const { clock, queue, starts, run } = steady({ concurrency: 1 });
  const wrong = new Error("no");
  const sync = queue.add(() => {
    throw wrong;
  });
  assert.is(await failure(() => sync), wrong);
  const late = watch(
    clock,
    queue.add(() => Promise.reject(wrong)),
  );
  void queue.add(run("b"));
  await clock.advance(200);
  assert.equal([late.error, starts], [wrong, ["b 200"]]);
});

test("a job whose permits can never be granted fails, uncalled, and the others continue", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(tokenBucket({ capacity: 2, refill: 1, everyMs: 100 }), { clock });
  const queue = new PacedQueue({ limiter, concurrency: 1 });
  const failed = failure(() => queue.onError());
  const called: string[] = [];
  const never = watch(
    clock,
    queue.add(() => called.push("never"), { permits: 3 }),
  );
  const after = watch(
    clock,
    queue.add(() => called.push("after")),
  );
  await clock.advance(0);
  assert.instance(never.error, PermitsExceedCapacityError);
  assert.is(await failed, never.error);
  assert.equal([after.at, called, queue.pending, queue.size], [0, ["after"], 0, 0]);
});

test("a limiter whose queue is full refuses the next job", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0, maxWaiting: 1 });
  const queue = new PacedQueue({ limiter });
  limiter.tryAcquire();
  void limiter.acquire();
  assert.instance(await failure(() => queue.add(() => {})), QueueFullError);
});

test("a PacedQueue works on one key of a keyed limiter", async () => {
  const clock = new FakeClock();
  const users = KeyedLimiter.create(gcra({ limit: 1, periodMs: 100 }), { clock });
  const [ann, bob] = ["ann", "bob"].map((key) => new PacedQueue({ limiter: users.for(key) }));
  const jobs = [ann, ann, bob].map((queue) => watch(clock, queue?.add(() => {}) ?? turn()));
  await clock.advance(100);
  assert.equal(
    jobs.map(({ at }) => at),
    [0, 100, 0],
  );
});

test("an abort before a slow limiter has answered takes nothing", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const remote = later(limiter);
  const queue = new PacedQueue({ limiter: remote.limiter });
  const called: string[] = [];
  void queue.add(() => called.push("a"));
  queue.pause();
  await remote.settled();
  assert.equal([called, limiter.peek().allowed], [[], true]);
  queue.start();
  void queue.add(() => called.push("heavy"), { priority: 1, permits: 2 });
  await remote.settled();
  assert.equal([called, limiter.peek().waitMs], [["heavy"], 300]);
  await clock.advance(200);
  assert.equal(called, ["heavy", "a"]);
});

test("a store that is unavailable: the next job rejects, and the one behind it asks anew", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const remote = later(limiter);
  const queue = new PacedQueue({ limiter: remote.limiter, concurrency: 2 });
  const called: string[] = [];
  const away = new StoreUnavailableError("jobs", 1000, new Error("away"));
  remote.failures.push(away);
  const first = watch(
    clock,
    queue.add(() => called.push("first")),
  );
  const second = watch(
    clock,
    queue.add(() => called.push("second")),
  );
  await queue.onIdle();
  assert.is(first.error, away);
  assert.equal([called, second.value, queue.pending], [["second"], 1, 0]);
});

test("a store that fails before permits are given back: only those permits are lost", async () => {
  const clock = new FakeClock();
  const remote = later(RateLimiter.create(10, { clock, burstSeconds: 0 }));
  const queue = new PacedQueue({ limiter: remote.limiter });
  void queue.add(() => {});
  await clock.advance(0);
  const waits = watch(
    clock,
    queue.add(() => "ran"),
  );
  await clock.advance(0);
  remote.failures.push(new StoreUnavailableError("jobs", 1000, new Error("away")));
  queue.pause();
  await remote.settled();
  queue.start();
  await clock.advance(200);
  assert.is(waits.at, 200);
});

test("a job that is aborted after the grant: its permits do not go to the next job", async () => {
  const asked: unknown[] = [];
  let grant = () => {};
  let givenBack = 0;
  const limiter = {
    acquire: () => assert.unreachable(),
    reserve: (permits: number) => {
      asked.push(permits);
      return {
        waitMs: 1,
        ready: () =>
          new Promise<void>((resolve) => {
            grant = resolve;
          }),
        undo: () => {
          givenBack += permits;
        },
      };
    },
  } as unknown as Face;
  const queue = new PacedQueue({ limiter });
  const controller = new AbortController();
  const { signal } = controller;
  const heavy = failure(() => queue.add(() => {}, { permits: 3, signal }));
  const light = queue.add(() => "ran");
  await turn();
  grant();
  queueMicrotask(() => controller.abort("enough"));
  assert.is(await heavy, "enough");
  await turn();
  assert.equal([asked, givenBack, queue.size], [[3, 1], 3, 1]);
  grant();
  assert.is(await light, "ran");
  assert.is(givenBack, 3);
});

/**
 * A clock that jobs advance, like jobs that block the event loop; `run` advances to each timer
 * that is set.
 */
class BusyClock implements Clock {
  ms = 0;
  #timer: { at: number; wake: () => void } | undefined;

  now(): number {
    return this.ms;
  }

  wakeAt(at: number, wake: () => void) {
    const timer = { at, wake };
    this.#timer = timer;
    return {
      cancel: () => {
        if (this.#timer === timer) this.#timer = undefined;
      },
    };
  }

  async run(): Promise<void> {
    for (await turn(); this.#timer !== undefined; await turn()) {
      const { at, wake } = this.#timer;
      this.#timer = undefined;
      this.ms = Math.max(this.ms, at);
      wake();
    }
  }
}

const paced = {
  RateLimiter: (clock: Clock) => RateLimiter.create(1000, { burstSeconds: 0, clock }),
  "one key of a KeyedLimiter": (clock: Clock) =>
    KeyedLimiter.create(smoothBursty({ permitsPerSecond: 1000, burstSeconds: 0 }), { clock }).for(
      "a",
    ),
};

for (const [name, create] of Object.entries(paced)) {
  test(`a blocked event loop costs waiting jobs no permits, and gives later jobs none: ${name}`, async () => {
    const clock = new BusyClock();
    const queue = new PacedQueue({ limiter: create(clock) });
    const starts: number[] = [];
    const job = (busyMs: number) => () => {
      starts.push(clock.now());
      clock.ms += busyMs;
    };
    for (let i = 0; i < 200; i++) void queue.add(job(i === 50 ? 60.5 : 0));
    await clock.run();
    const expected = Array.from({ length: 200 }, (_, i) => (i <= 50 || i > 110 ? i : 110.5));
    assert.equal(starts, expected);
    clock.ms += 1000;
    for (let i = 0; i < 3; i++) void queue.add(job(0));
    await clock.run();
    assert.equal(
      starts.slice(200),
      [0, 1, 2].map((ms) => (expected[199] ?? 0) + 1000 + ms),
    );
  });
}

test("thousands of jobs whose permits are available start without a pause in between", async () => {
  const clock = new FakeClock();
  const limiter: Face = Limiter.create(tokenBucket({ capacity: 1e6, refill: 1, everyMs: 1 }), {
    clock,
  });
  const queue = new PacedQueue({ limiter, concurrency: 100, autoStart: false });
  const all = runs(100_000, 20_000);
  let count = 0;
  for (let i = 0; i < all; i++) void queue.add(() => void count++, { priority: i % 5 });
  const startedAt = cpuMs();
  queue.start();
  await queue.onIdle();
  assert.is(count, all);
  assert.ok(cpuMs() - startedAt < 0.18 * all);
});

test.run();
