/**
 * The behaviour of p-queue that a PacedQueue keeps. A row that `holds` runs on a PQueue and on a
 * PacedQueue whose limiter never delays a job, and must pass for both. A row that `differs` runs
 * on a PacedQueue alone, and says why it differs.
 */
import PQueue from "p-queue";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { Limiter, RateLimiter, tokenBucket } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, turn } from "../../support/limiter/watch.ts";
import { suite } from "../../support/suite.ts";

const test = suite("p-queue: behaviours");

type Queue = PQueue | PacedQueue;
interface Options {
  readonly concurrency?: number;
  readonly autoStart?: boolean;
  readonly timeout?: number;
}

const boundless = () => Limiter.create(tokenBucket({ capacity: 1e9, refill: 1e9, everyMs: 1 }));
const is10 = new PQueue() instanceof EventTarget;

function holds(behaviour: string, check: (make: (options?: Options) => Queue) => Promise<void>) {
  test(`holds: ${behaviour}`, async () => {
    await check((options) => new PQueue(options));
    await check((options) => new PacedQueue({ limiter: boundless(), ...options }));
  });
}

function differs(behaviour: string, why: string, check: () => Promise<void> | void) {
  test(`differs: ${behaviour} (${why})`, check);
}

const never = () => new Promise<void>(() => {});

function listen(queue: Queue, event: "active" | "add" | "idle" | "next" | "completed" | "error") {
  const details: unknown[] = [];
  if (queue instanceof EventTarget) {
    queue.addEventListener(event, (event) => details.push((event as CustomEvent).detail));
  } else {
    queue.on(event, (detail: unknown) => details.push(detail ?? null));
  }
  return details;
}

// starting jobs

holds("add resolves with what the job returns, sync or async", async (make) => {
  const queue = make({ concurrency: 1 });
  assert.equal(await Promise.all([queue.add(() => 1), queue.add(async () => 2)]), [1, 2]);
});

holds(
  "add rejects with what the job throws or rejects with, and the next job runs",
  async (make) => {
    const queue = make({ concurrency: 1 });
    const wrong = new Error("no");
    const sync = failure(() =>
      queue.add(() => {
        throw wrong;
      }),
    );
    const later = failure(() => queue.add(() => Promise.reject(wrong)));
    assert.equal([await sync, await later, await queue.add(() => 5)], [wrong, wrong, 5]);
  },
);

holds("a job that may start does so before add returns", async (make) => {
  let started = false;
  void make().add(() => {
    started = true;
  });
  assert.is(started, true);
});

holds("never more than concurrency jobs run", async (make) => {
  const queue = make({ concurrency: 3 });
  let running = 0;
  let most = 0;
  const job = async () => {
    running += 1;
    most = Math.max(most, running);
    await turn();
    running -= 1;
  };
  await queue.addAll(Array.from({ length: 20 }, () => job));
  assert.is(most, 3);
});

holds("the default concurrency has no bound", async (make) => {
  const queue = make();
  for (let i = 0; i < 500; i++) void queue.add(never);
  assert.equal([queue.pending, queue.size, queue.concurrency], [500, 0, Infinity]);
});

holds("a higher concurrency starts jobs at once, a lower one interrupts none", async (make) => {
  const queue = make({ concurrency: 1 });
  for (let i = 0; i < 5; i++) void queue.add(never);
  queue.concurrency = 4;
  assert.is(queue.pending, 4);
  queue.concurrency = 2;
  assert.is(queue.pending, 4);
});

holds("addAll returns the results in order", async (make) => {
  assert.equal(await make({ concurrency: 1 }).addAll([() => 1, async () => 2, () => 3]), [1, 2, 3]);
});

// order

holds("higher priorities go first, equal ones in order; the default is 0", async (make) => {
  const queue = make({ concurrency: 1 });
  const order: string[] = [];
  const run = (name: string) => () => void order.push(name);
  const jobs = [queue.add(run("first"))];
  for (const [name, priority] of [
    ["a", 1],
    ["b", undefined],
    ["c", 1],
    ["d", 2],
    ["e", -1],
  ] as const) {
    jobs.push(queue.add(run(name), priority === undefined ? {} : { priority }));
  }
  await Promise.all(jobs);
  assert.equal(order, ["first", "d", "a", "c", "b", "e"]);
});

holds("setPriority moves a job up or down, and refuses what is no finite number", async (make) => {
  const queue = make({ concurrency: 1 });
  const order: string[] = [];
  for (const id of ["first", "a", "b", "c"]) {
    void queue.add(() => void order.push(id), { id, priority: 1 });
  }
  queue.setPriority("c", 2);
  queue.setPriority("a", 0);
  assert.throws(() => queue.setPriority("b", Number.NaN), TypeError);
  assert.throws(
    () => queue.setPriority("none", 1),
    (error: Error) =>
      error instanceof ReferenceError &&
      error.message === 'No promise function with the id "none" exists in the queue.',
  );
  await queue.onIdle();
  assert.equal(order, ["first", "c", "b", "a"]);
});

holds("concurrency undefined is an error, and in PQueue 10 the default", async (make) => {
  const create = () => make({ concurrency: undefined as never });
  if (is10) assert.is(create().concurrency, Infinity);
  else
    assert.throws(create, "Expected `concurrency` to be a number from 1 and up, got `undefined`");
});

holds("sizeBy counts the jobs of a priority", async (make) => {
  const queue = make({ autoStart: false });
  for (const priority of [0, 1, 1]) void queue.add(never, { priority });
  assert.equal([queue.sizeBy({ priority: 0 }), queue.sizeBy({ priority: 1 })], [1, 2]);
});

// pausing, clearing, waiting

holds(
  "autoStart false and pause hold jobs, start runs them and returns the queue",
  async (make) => {
    const queue = make({ autoStart: false });
    let ran = 0;
    void queue.add(() => ran++);
    assert.equal([queue.isPaused, ran, queue.size], [true, 0, 1]);
    assert.is(queue.start(), queue);
    await queue.onIdle();
    queue.pause();
    void queue.add(() => ran++);
    assert.equal([queue.isPaused, ran], [true, 1]);
  },
);

holds(
  "clear removes the jobs that wait, resolves onEmpty, and leaves running jobs",
  async (make) => {
    const queue = make({ concurrency: 1 });
    let end = () => {};
    const running = queue.add(() => new Promise<void>((resolve) => (end = resolve)));
    queue.add(never).catch(() => {});
    const empty = queue.onEmpty();
    queue.clear();
    await empty;
    assert.equal([queue.size, queue.pending], [0, 1]);
    end();
    await running;
  },
);

holds("onIdle, onEmpty, onSizeLessThan, onPendingZero resolve on their condition", async (make) => {
  const queue = make({ concurrency: 1 });
  await Promise.all([
    queue.onIdle(),
    queue.onEmpty(),
    queue.onSizeLessThan(1),
    queue.onPendingZero(),
  ]);
  const seen: string[] = [];
  for (let i = 0; i < 3; i++) void queue.add(turn);
  const waits = [
    queue.onSizeLessThan(2).then(() => seen.push(`size ${queue.size}`)),
    queue.onEmpty().then(() => seen.push(`empty ${queue.size}`)),
    queue.onIdle().then(() => seen.push(`idle ${queue.pending}`)),
  ];
  await Promise.all(waits);
  assert.equal(seen, ["size 1", "empty 0", "idle 0"]);
});

holds("onError rejects with the first error of a job", async (make) => {
  const queue = make();
  const wrong = new Error("no");
  const error = failure(() => queue.onError());
  queue.add(() => Promise.reject(wrong)).catch(() => {});
  assert.is(await error, wrong);
});

// signals and time-outs

holds(
  "a job whose signal is aborted while it waits never runs, and rejects with the reason",
  async (make) => {
    const queue = make({ concurrency: 1 });
    const controller = new AbortController();
    const { signal } = controller;
    let ran = false;
    void queue.add(turn);
    const aborted = [1, 2].map(() =>
      failure(() => queue.add(() => (ran = true), { signal, id: "same" })),
    );
    controller.abort("enough");
    assert.equal(await Promise.all(aborted), ["enough", "enough"]);
    await queue.onIdle();
    assert.equal([ran, queue.size], [false, 0]);
  },
);

holds("an abort of a job that runs rejects, and frees its place", async (make) => {
  const queue = make({ concurrency: 1 });
  const controller = new AbortController();
  const aborted = failure(() => queue.add(never, { signal: controller.signal }));
  controller.abort("enough");
  assert.is(await aborted, "enough");
  assert.is(await queue.add(() => 5), 5);
});

holds("timeout counts from the start of the job; of add before that of the queue", async (make) => {
  const queue = make({ concurrency: 1, timeout: 10_000 });
  const slow = failure(() => queue.add(never, { timeout: 20 }));
  assert.is(await queue.add(() => 5, { timeout: 1 }), 5);
  assert.is(((await slow) as Error).name, "TimeoutError");
});

// what can be observed

holds("runningTasks lists id, priority and timeout of the jobs that run", async (make) => {
  const queue = make({ concurrency: 1 });
  let end = () => {};
  const job = () => new Promise<void>((resolve) => (end = resolve));
  void queue.add(job, { id: "a", priority: 3, timeout: 5000 });
  void queue.add(never);
  const [task, ...others] = queue.runningTasks;
  assert.equal([task?.id, task?.priority, task?.timeout, others], ["a", 3, 5000, []]);
  end();
});

holds("isSaturated: all places are taken and jobs wait", async (make) => {
  const queue = make({ concurrency: 1 });
  void queue.add(never);
  assert.is(queue.isSaturated, false);
  void queue.add(never);
  assert.is(queue.isSaturated, true);
});

holds("events: add, active, completed, error, next and idle, once for each job", async (make) => {
  const queue = make({ concurrency: 1 });
  const wrong = new Error("no");
  const events = (["add", "active", "next", "completed", "error", "idle"] as const).map((event) =>
    listen(queue, event),
  );
  void queue.add(() => 5);
  queue.add(() => Promise.reject(wrong)).catch(() => {});
  await queue.onIdle();
  await turn();
  const [add, active, next, completed, error, idle] = events;
  assert.equal([add?.length, active?.length, next?.length], [2, 2, 2]);
  assert.equal([completed, error], [[5], [wrong]]);
  assert.ok((idle?.length ?? 0) >= 1);
});

holds("concurrency and timeout are checked", async (make) => {
  for (const concurrency of [0, -1, Number.NaN])
    assert.throws(() => make({ concurrency }), TypeError);
  for (const timeout of [0, -1, Infinity]) assert.throws(() => make({ timeout }), TypeError);
  assert.instance(await failure(() => make().add(() => 5, { timeout: -1 })), TypeError);
});

// what differs

holds("when a job ends, the next one is active before the event `next`", async (make) => {
  const queue = make({ concurrency: 1 });
  const order: string[] = [];
  for (const event of ["active", "next"] as const) {
    const note = () => order.push(event);
    if (queue instanceof EventTarget) queue.addEventListener(event, note);
    else queue.on(event, note);
  }
  await Promise.all([queue.add(turn), queue.add(turn)]);
  await queue.onIdle();
  await turn();
  assert.equal(order, ["active", "active", "next", "next"]);
});

differs(
  "interval, intervalCap, strict, carryoverIntervalCount, queueClass",
  "the limiter sets the pace",
  () => {
    for (const name of [
      "interval",
      "intervalCap",
      "strict",
      "carryoverIntervalCount",
      "queueClass",
    ]) {
      const options = { limiter: boundless(), [name]: 5 };
      assert.throws(() => new PacedQueue(options), new RegExp(`options has no "${name}"`));
    }
  },
);

differs(
  "options that p-queue would ignore are refused",
  "a misspelt option does nothing there",
  async () => {
    const queue = new PacedQueue({ limiter: boundless() });
    assert.match(`${await failure(() => queue.add(() => 5, { permit: 2 } as object))}`, '"permit"');
  },
);

differs(
  "isRateLimited is false while paused or full of running jobs",
  "no permits are requested then",
  async () => {
    const limiter = RateLimiter.create(10, { clock: new FakeClock(), burstSeconds: 0 });
    const queue = new PacedQueue({ limiter });
    void queue.add(() => {});
    void queue.add(() => {});
    assert.is(queue.isRateLimited, true);
    queue.pause();
    assert.is(queue.isRateLimited, false);
  },
);

differs(
  "a limiter's error is the error of the job that is next",
  "p-queue has no limiter that can fail",
  async () => {
    const limiter = Limiter.create(tokenBucket({ capacity: 1, refill: 1, everyMs: 1 }));
    const queue = new PacedQueue({ limiter });
    assert.match(`${await failure(() => queue.add(() => 5, { permits: 2 }))}`, "can never pass");
  },
);

differs(
  "`empty` also comes when the last job that waited starts",
  "p-queue is started for each job",
  async () => {
    const queue = new PacedQueue({ limiter: boundless(), concurrency: 1 });
    const empty = queue.onEmpty();
    void queue.add(never);
    await empty;
    assert.equal([queue.size, queue.pending, is10], [0, 1, is10]);
  },
);

test.run();
