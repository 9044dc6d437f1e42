import * as assert from "uvu/assert";
import { type OnFullQueue, PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { QueueFullError, RateLimiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, watch } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("p-queue: onFull");

/** One job every 100 ms; the first starts at once, two may wait. */
function busy(onFull?: OnFullQueue) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  const queue = new PacedQueue({ limiter, maxWaiting: 2, onFull });
  const starts: string[] = [];
  const add = (
    name: string,
    options: { id?: string; priority?: number; signal?: AbortSignal } = {},
  ) =>
    watch(
      clock,
      queue.add(() => `${name} ${starts.push(`${name} ${clock.now()}`)}`, options),
    );
  add("first");
  return { clock, queue, starts, add };
}

function isDropped(error: unknown): boolean {
  return error instanceof QueueFullError && error.facts.dropped === true;
}

test("reject is the default: a job is refused while the queue is full", async () => {
  const { clock, starts, add } = busy();
  add("a");
  add("b");
  const c = add("c", { priority: 5 });
  await clock.advance(100);
  assert.instance(c.error, QueueFullError);
  assert.is(isDropped(c.error), false);
  assert.match(`${c.error}`, /maxWaiting is 2/);
  const d = add("d");
  await clock.advance(1000);
  assert.is(d.error, undefined);
  assert.equal(starts, ["first 0", "a 100", "b 200", "d 300"]);
});

test("drop-oldest drops the waiting job that was added first, whatever its priority", async () => {
  const { clock, queue, starts, add } = busy("drop-oldest");
  const a = add("a", { priority: 5 });
  add("b");
  add("c");
  assert.is(queue.size, 2);
  await clock.advance(1000);
  assert.equal([isDropped(a.error), a.at], [true, 0]);
  assert.equal(starts, ["first 0", "b 100", "c 200"]);
});

test("drop-oldest: a job that setPriority has moved keeps its age", async () => {
  const { clock, queue, starts, add } = busy("drop-oldest");
  add("moved", { id: "moved", priority: 1 });
  add("second");
  queue.setPriority("moved", 0);
  add("third");
  await clock.advance(0);
  assert.is(queue.size, 2);
  assert.throws(() => queue.setPriority("moved", 5), ReferenceError);
  await clock.advance(1000);
  assert.equal(starts, ["first 0", "second 100", "third 200"]);
});

test("drop-oldest: jobs that have started, were aborted or cleared do not count as waiting", async () => {
  const { clock, queue, add } = busy("drop-oldest");
  const leaving = new AbortController();
  const started = add("started");
  const aborted = add("aborted", { signal: leaving.signal });
  await clock.advance(100);
  leaving.abort("enough");
  const [a, b] = [add("a"), add("b")];
  add("c");
  await clock.advance(0);
  assert.equal([started.error, aborted.error, isDropped(a.error)], [undefined, "enough", true]);
  queue.clear();
  const [d] = [add("d"), add("e"), add("f")];
  await clock.advance(0);
  assert.equal([isDropped(b.error), isDropped(d?.error), queue.size], [false, true, 2]);
});

test("drop-lowest-priority drops the first of the least urgent; a job that is not more urgent is refused", async () => {
  const { clock, starts, add } = busy("drop-lowest-priority");
  const a = add("a", { priority: 1 });
  const b = add("b", { priority: 1 });
  const c = add("c", { priority: 1 });
  const d = add("d", { priority: 2 });
  await clock.advance(0);
  assert.equal(
    [a, b, c, d].map(({ error }) => isDropped(error)),
    [true, false, false, false],
  );
  assert.instance(c.error, QueueFullError);
  await clock.advance(1000);
  assert.equal(starts, ["first 0", "d 100", "b 200"]);
});

test("drop: the jobs keep their own signals", async () => {
  const { clock, queue, add } = busy("drop-oldest");
  const controller = new AbortController();
  const { signal } = controller;
  const aborted = add("a", { signal });
  const seen: unknown[] = [];
  const runs = watch(
    clock,
    queue.add(
      (options) => {
        seen.push(options.signal);
        return new Promise(() => {});
      },
      { signal: new AbortController().signal },
    ),
  );
  void queue.add((options) => void seen.push(options.signal)).catch(() => {});
  controller.abort("enough");
  await clock.advance(1000);
  assert.equal([isDropped(aborted.error), runs.at, seen[1]], [true, undefined, undefined]);
  assert.instance(seen[0], AbortSignal);
  const late = add("late", { signal });
  await clock.advance(0);
  assert.is(late.error, "enough");
});

test("drop: a signal ends the wait, and the job while it runs", async () => {
  const { clock, queue, add } = busy("drop-oldest");
  const controllers = [new AbortController(), new AbortController()] as const;
  const waits = add("a", { signal: controllers[0].signal });
  controllers[0].abort("no wait");
  const runs = watch(
    clock,
    queue.add(() => new Promise(() => {}), { signal: controllers[1].signal }),
  );
  await clock.advance(200);
  assert.equal([waits.error, runs.at, queue.pending], ["no wait", undefined, 1]);
  controllers[1].abort("no run");
  await clock.advance(0);
  assert.equal([runs.error, queue.pending], ["no run", 0]);
});

test("wait: jobs wait outside, first in first out; priorities count inside; the queue never exceeds its bound", async () => {
  const { clock, queue, starts, add } = busy("wait");
  const controller = new AbortController();
  for (const name of ["a", "b", "c"]) add(name);
  const left = add("left", { signal: controller.signal });
  add("urgent", { priority: 5, signal: new AbortController().signal });
  add("d");
  controller.abort("enough");
  let most = 0;
  for (let i = 0; i < 100; i++) {
    most = Math.max(most, queue.size);
    await clock.advance(10);
  }
  assert.equal([left.error, most], ["enough", 2]);
  assert.equal(starts, ["first 0", "a 100", "b 200", "urgent 300", "c 400", "d 500"]);
});

test("wait: clear rejects the jobs outside too, and reports no unhandled rejection", async () => {
  const { clock, queue, starts, add } = busy("wait");
  add("a");
  add("b");
  const outside = add("c");
  queue.add(() => {}).catch(() => {});
  queue.clear();
  await clock.advance(0);
  assert.is((outside.error as DOMException).name, "AbortError");
  assert.is(queue.size, 0);
  add("later");
  await clock.advance(1000);
  assert.equal(starts, ["first 0", "later 100"]);
});

test("error messages name bad options", async () => {
  const limiter = RateLimiter.create(1);
  assert.throws(
    () => new PacedQueue({ limiter, maxWaiting: 0 }),
    /maxWaiting must be a whole number, 1 or more, or Infinity, got 0/,
  );
  assert.throws(
    () => new PacedQueue({ limiter, onFull: "drop" as "wait" }),
    /onFull must be one of reject, drop-oldest, drop-lowest-priority, wait, got "drop"/,
  );
  const queue = new PacedQueue({ limiter, maxWaiting: 5 });
  assert.instance(await failure(() => queue.add(5 as never)), TypeError);
});

test.run();
