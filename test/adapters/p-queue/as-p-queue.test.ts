import * as fc from "fast-check";
import PQueue from "p-queue";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { Limiter, tokenBucket } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { turn } from "../../support/limiter/watch.ts";
import { runs, suite } from "../../support/suite.ts";

// Where the limiter never delays a job, a PacedQueue behaves like a PQueue.
const test = suite("p-queue: as PQueue");

const boundless = () =>
  Limiter.create(tokenBucket({ capacity: 1e9, refill: 1e9, everyMs: 1 }), {
    clock: new FakeClock(),
  });

interface Settlers {
  resolve(): void;
  reject(error: Error): void;
}

/** A queue under test and everything that can be observed of it. */
function observe(queue: PQueue | PacedQueue) {
  const log: string[] = [];
  const running = new Map<number, Settlers>();
  const controllers = new Map<number, AbortController>();
  const add = (id: number, priority: number | undefined, nested: boolean) => {
    const controller = new AbortController();
    controllers.set(id, controller);
    const job = ({ signal }: { signal?: AbortSignal | undefined }) => {
      log.push(`${id} starts${signal ? " with a signal" : ""}`);
      if (nested) add(id + 1000, 1, false);
      return new Promise<string>((resolve, reject) => {
        running.set(id, { resolve: () => resolve(`${id} is done`), reject });
      });
    };
    queue
      .add(job, {
        id: `${id}`,
        ...(priority === undefined ? {} : { priority }),
        signal: controller.signal,
      })
      .then(
        (result) => log.push(result),
        (error) => log.push(`${id} fails: ${error}`),
      );
  };
  const state = () => [
    queue.size,
    queue.pending,
    queue.isPaused,
    queue.concurrency,
    // within a job that adds one PQueue 9 starts only that, PQueue 10 and PacedQueue start every
    // job that may run
    [...running.keys()].sort().join(),
    [-1, 0, 1, 2].map((priority) => queue.sizeBy({ priority })).join(),
    queue.runningTasks.map(({ id, priority }) => `${id}/${priority}`).join(),
    log.slice(-8).join(),
  ];
  const onPendingZero = () => log.push("no job runs");
  if (queue instanceof EventTarget) queue.addEventListener("pendingZero", onPendingZero);
  else queue.on("pendingZero", onPendingZero);
  return { queue, log, running, controllers, add, state };
}

const step = fc.record({
  action: fc.constantFrom(
    ...["add", "add", "add", "end", "end", "fail", "abort", "setPriority", "concurrency"],
    ...["pause", "start", "clear", "onIdle", "onEmpty", "onSizeLessThan", "addNested"],
  ),
  pick: fc.nat(1000),
  priority: fc.integer({ min: -1, max: 2 }),
});

test("random histories look the same from outside, at once and a turn later", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      fc.boolean(),
      fc.array(step, { maxLength: 40 }),
      async (concurrency, autoStart, steps) => {
        const pair = [
          observe(new PQueue({ concurrency, autoStart })),
          observe(new PacedQueue({ limiter: boundless(), concurrency, autoStart })),
        ] as const;
        const same = (what: string) => {
          assert.equal(pair[1].state(), pair[0].state(), what);
        };
        for (const [i, { action, pick, priority }] of steps.entries()) {
          for (const { queue, log, running, controllers, add } of pair) {
            const ids = [...running.keys()].sort();
            const id = ids[pick % ids.length];
            const settlers = running.get(id ?? -1);
            if (action === "add" || action === "addNested") {
              add(i, pick % 2 ? priority : undefined, action === "addNested");
            } else if (action === "end" && id !== undefined) {
              running.delete(id);
              settlers?.resolve();
            } else if (action === "fail" && id !== undefined) {
              running.delete(id);
              settlers?.reject(new Error("no"));
            } else if (action === "abort") {
              const all = [...controllers.keys()];
              controllers.get(all[pick % all.length] ?? -1)?.abort("enough");
            } else if (action === "setPriority") {
              // a priority that no job has: what PQueue does where it stays the same has changed
              try {
                queue.setPriority(`${pick % (i + 1)}`, pick % 2 ? i + 10 : -i - 10);
              } catch (error) {
                log.push((error as Error).name);
              }
            } else if (action === "concurrency") queue.concurrency = 1 + (pick % 3);
            else if (action === "pause") queue.pause();
            else if (action === "start") queue.start();
            else if (action === "clear") queue.clear();
            else if (action === "onIdle") queue.onIdle().then(() => log.push(`idle ${i}`));
            else if (action === "onEmpty") {
              queue.onEmpty().then(() => queue.size > 0 && log.push("not empty"));
            } else if (action === "onSizeLessThan") {
              queue.onSizeLessThan(2).then(() => log.push(`small ${i}`));
            }
          }
          same(`${action} ${i}, at once`);
          await turn();
          same(`${action} ${i}, a turn later`);
          assert.equal(pair[1].log, pair[0].log);
        }
      },
    ),
    { numRuns: runs(300) },
  );
});

test.run();
