import { AsyncLocalStorage } from "node:async_hooks";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { Limiter, RateLimiter, tokenBucket } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { turn, watch } from "../../support/limiter/watch.ts";
import { later } from "../../support/p-queue/later.ts";
import { suite } from "../../support/suite.ts";

const test = suite("p-queue: rate limited, context, requests");

/** One permit every 100 ms. */
function steady(options: { concurrency?: number } = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  return { clock, limiter, queue: new PacedQueue({ limiter, ...options }) };
}

/** The events of the queue about its limit, in order. */
function listen(queue: PacedQueue): string[] {
  const events: string[] = [];
  for (const event of ["rateLimit", "rateLimitCleared"] as const) {
    const note = () => events.push(event);
    if (queue instanceof EventTarget) queue.addEventListener(event, note);
    else queue.on(event, note);
  }
  return events;
}

test("a wait for permits is rate limited and saturated; events and promises follow", async () => {
  const { clock, queue } = steady();
  const events = listen(queue);
  const limited = watch(clock, queue.onRateLimit());
  assert.equal([queue.isRateLimited, queue.isSaturated], [false, false]);
  for (let i = 0; i < 3; i++) void queue.add(() => {});
  await clock.advance(0);
  assert.equal([queue.isRateLimited, queue.isSaturated, limited.at], [true, true, 0]);
  await queue.onRateLimit();
  const cleared = watch(clock, queue.onRateLimitCleared());
  await clock.advance(199);
  assert.equal([events, cleared.at], [["rateLimit"], undefined]);
  await clock.advance(1);
  assert.equal([events, cleared.at], [["rateLimit", "rateLimitCleared"], 200]);
  assert.equal([queue.isRateLimited, queue.isSaturated], [false, false]);
  await queue.onRateLimitCleared();
});

test("a queue that is paused, cleared or full of running jobs is not rate limited", async () => {
  const { clock, queue } = steady({ concurrency: 1 });
  const events = listen(queue);
  void queue.add(() => {});
  queue.add(() => {}).catch(() => {});
  await clock.advance(1);
  assert.is(queue.isRateLimited, true);
  queue.pause();
  assert.is(queue.isRateLimited, false);
  queue.start();
  await clock.advance(0);
  queue.clear();
  await clock.advance(0);
  assert.equal(events, ["rateLimit", "rateLimitCleared"]);
  await clock.advance(1000);
  void queue.add(() => new Promise(() => {}));
  void queue.add(() => {});
  await clock.advance(0);
  assert.equal([queue.isRateLimited, queue.isSaturated], [false, true]);
});

test("a change that is undone within a turn causes no event", async () => {
  const { clock, queue } = steady();
  const events = listen(queue);
  void queue.add(() => {});
  void queue.add(() => {});
  queue.pause();
  await clock.advance(0);
  assert.equal(events, []);
});

test("clear ends a rate limit at once, and its event follows", async () => {
  const { clock, queue } = steady();
  const events = listen(queue);
  for (let i = 0; i < 3; i++) queue.add(() => {}).catch(() => {});
  await clock.advance(0);
  queue.clear();
  assert.equal([queue.isRateLimited, queue.size], [false, 0]);
  assert.equal(events, ["rateLimit", "rateLimitCleared"]);
  await clock.advance(0);
  assert.is(events.length, 2);
});

test("a job runs in the async context of its add call, whatever it waited for", async () => {
  const { clock, queue } = steady({ concurrency: 1 });
  const storage = new AsyncLocalStorage<number>();
  const seen: unknown[] = [];
  const jobs = [0, 1, 2, 3].map((i) =>
    storage.run(i, () =>
      queue.add(async () => {
        seen.push(storage.getStore());
        await turn();
        seen.push(storage.getStore());
      }),
    ),
  );
  for (let i = 0; i < 10; i++) {
    await clock.advance(100);
    await turn();
    await turn();
  }
  await Promise.all(jobs);
  assert.equal(seen, [0, 0, 1, 1, 2, 2, 3, 3]);
});

test("the context is kept where a listener of the add event adds a job", async () => {
  const { clock, queue } = steady();
  const storage = new AsyncLocalStorage<string>();
  const seen: unknown[] = [];
  const see = () => void seen.push(storage.getStore());
  let nested = false;
  const onAdd = () => {
    if (nested) return;
    nested = true;
    void storage.run("inner", () => queue.add(see));
  };
  void queue.add(() => {});
  if (queue instanceof EventTarget) queue.addEventListener("add", onAdd);
  else queue.on("add", onAdd);
  void storage.run("outer", () => queue.add(see));
  await clock.advance(1000);
  assert.equal(seen, ["outer", "inner"]);
});

test("a limiter that replies later is asked for all free places at once, and no more", async () => {
  const clock = new FakeClock();
  const local = Limiter.create(tokenBucket({ capacity: 100, refill: 1, everyMs: 1 }), { clock });
  const remote = later(local);
  let asked = 0;
  const limiter = {
    ...remote.limiter,
    reserve: (permits: number) => {
      asked += 1;
      return remote.limiter.reserve(permits);
    },
  };
  const queue = new PacedQueue({ limiter, concurrency: 20 });
  let started = 0;
  for (let i = 0; i < 50; i++) {
    void queue.add(() => {
      started += 1;
      return new Promise(() => {});
    });
  }
  assert.equal([asked, started], [20, 0]);
  await remote.settled();
  assert.equal([asked, started, queue.pending, local.peek().remaining], [20, 20, 20, 80]);
});

test("a limiter that refuses a later request permanently: that job fails, the others run", async () => {
  const clock = new FakeClock();
  const local = Limiter.create(tokenBucket({ capacity: 10, refill: 1, everyMs: 1 }), { clock });
  const remote = later(local);
  const limiter = {
    ...remote.limiter,
    reserve: (permits: number) => {
      if (permits > 10) throw new RangeError("more than it can ever grant");
      return remote.limiter.reserve(permits);
    },
  };
  const queue = new PacedQueue({ limiter, concurrency: 3 });
  const jobs = [1, 11, 2].map((permits) => queue.add(() => permits, { permits }));
  const results = Promise.allSettled(jobs);
  await remote.settled();
  assert.equal(
    (await results).map((result) =>
      result.status === "fulfilled" ? result.value : result.reason.message,
    ),
    [1, "more than it can ever grant", 2],
  );
});

test("without a concurrency bound, at most 100 requests are open at once", async () => {
  const clock = new FakeClock();
  const local = Limiter.create(tokenBucket({ capacity: 1000, refill: 1, everyMs: 1 }), { clock });
  const remote = later(local);
  let open = 0;
  let most = 0;
  const limiter = {
    ...remote.limiter,
    reserve: async (permits: number) => {
      open += 1;
      most = Math.max(most, open);
      const reservation = await remote.limiter.reserve(permits);
      open -= 1;
      return reservation;
    },
  };
  const queue = new PacedQueue({ limiter });
  for (let i = 0; i < 300; i++) void queue.add(() => {});
  while (queue.size > 0) await remote.settled();
  assert.is(most, 100);
  assert.is(local.peek().remaining, 700);
});

test("permits are requested in the order of the jobs, except for an urgent job of another cost", async () => {
  const clock = new FakeClock();
  const local = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const remote = later(local);
  const asked: unknown[] = [];
  const limiter = {
    ...remote.limiter,
    reserve: (permits: number) => {
      asked.push(permits);
      return remote.limiter.reserve(permits);
    },
  };
  const queue = new PacedQueue({ limiter, concurrency: 3, autoStart: false });
  const starts: string[] = [];
  for (const [permits, priority] of [
    [1, 0],
    [2, 0],
    [3, 5],
    [4, 1],
  ] as const) {
    void queue.add(() => void starts.push(`${permits} ${clock.now()}`), { permits, priority });
  }
  queue.start();
  assert.equal(asked, [3, 4, 1]);
  for (let i = 0; i < 20; i++) {
    await remote.settled();
    await clock.advance(100);
  }
  assert.equal(
    starts.map((start) => start.split(" ")[0]),
    ["3", "4", "1", "2"],
  );
  assert.equal(queue.isRateLimited, false);
});

test.run();
