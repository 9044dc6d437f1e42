import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { WaitingJobs } from "../../../src/adapters/p-queue/waiting-jobs.ts";
import { cpuMs } from "../../support/cpu.ts";
import { runs, suite } from "../../support/suite.ts";

const test = suite("p-queue: waiting jobs");

const job = () => async (): Promise<unknown> => undefined;

test("the highest priority first, then first in first out", () => {
  const waiting = new WaitingJobs();
  const jobs = [0, 5, 0, 5, -1].map((priority) => {
    const run = job();
    waiting.enqueue(run, { priority, id: `${priority}`, permits: priority + 2 });
    return run;
  });
  assert.is(waiting.nextPermits, 7);
  assert.equal(waiting.filter({ priority: 5 }).length, 2);
  assert.equal(
    jobs.map(() => jobs.indexOf(waiting.take()?.run ?? job())),
    [1, 3, 0, 2, 4],
  );
  assert.equal([waiting.size, waiting.take(), waiting.nextPermits], [0, undefined, undefined]);
});

test("without options: priority 0, one permit", () => {
  const waiting = new WaitingJobs();
  waiting.enqueue(job());
  assert.is(waiting.nextPermits, 1);
  assert.is(waiting.filter({ priority: 0 }).length, 1);
});

test("of several jobs with one id, the one whose signal was aborted is removed", () => {
  const waiting = new WaitingJobs();
  const controllers = [1, 2, 3].map(() => new AbortController());
  for (const [i, { signal }] of controllers.entries()) {
    waiting.enqueue(job(), { id: "same", permits: i + 1, signal });
  }
  waiting.remove("same");
  waiting.remove("unknown");
  assert.is(waiting.size, 3);
  controllers[1]?.abort();
  waiting.remove("same");
  const left: unknown[] = [];
  for (; waiting.size > 0; waiting.take()) left.push(waiting.nextPermits);
  assert.equal(left, [1, 3]);
});

test("of several jobs with one id, setPriority moves the next one, as in p-queue", () => {
  const waiting = new WaitingJobs();
  for (const priority of [0, 2, 1])
    waiting.enqueue(job(), { id: "same", priority, permits: priority + 1 });
  waiting.setPriority("same", -1);
  const order = [0, 1, 2].map(() => waiting.take()?.options.permits);
  assert.equal(order, [2, 1, 3]);
});

test("jobs that leave from the middle: the others keep their order, new ones go to the end", () => {
  const waiting = new WaitingJobs();
  const controller = new AbortController();
  const { signal } = controller;
  for (const id of ["a", "b", "c", "d", "e"]) {
    waiting.enqueue(job(), "bde".includes(id) ? { id, signal } : { id });
  }
  controller.abort();
  for (const id of ["b", "e"]) waiting.remove(id);
  waiting.enqueue(job(), { id: "f" });
  assert.equal(waiting.filter({ priority: 0 }).length, 4);
  waiting.remove("d");
  waiting.enqueue(job(), { id: "g" });
  const order = [0, 1, 2, 3, 4].map(() => waiting.take()?.options.id);
  assert.equal(order, ["a", "c", "f", "g", undefined]);
});

test("setPriority of an unknown job is an error", () => {
  const waiting = new WaitingJobs();
  waiting.enqueue(job(), { id: "gone" });
  waiting.take();
  assert.throws(
    () => waiting.setPriority("gone", 1),
    (error: unknown) => error instanceof ReferenceError && /id "gone"/.test(error.message),
  );
});

const step = fc.record({
  action: fc.constantFrom("enqueue", "enqueue", "dequeue", "remove", "setPriority"),
  pick: fc.nat(1000),
  priority: fc.integer({ min: -2, max: 2 }),
});

test("random histories agree with a sorted list", async () => {
  await fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const waiting = new WaitingJobs();
      let list: { id: string; priority: number; run: () => Promise<unknown>; abort(): void }[] = [];
      const insert = (element: (typeof list)[number]) => {
        list = [...list, element].sort((a, b) => b.priority - a.priority);
      };
      for (const [i, { action, pick, priority }] of steps.entries()) {
        const chosen = list[pick % list.length];
        if (action === "enqueue") {
          const controller = new AbortController();
          const element = { id: `${i}`, priority, run: job(), abort: () => controller.abort() };
          waiting.enqueue(element.run, { id: element.id, priority, signal: controller.signal });
          insert(element);
        } else if (action === "dequeue") {
          assert.is(waiting.take()?.options.id, list.shift()?.id);
        } else if (chosen && action === "remove") {
          chosen.abort();
          waiting.remove(chosen.id);
          list.splice(list.indexOf(chosen), 1);
        } else if (chosen) {
          waiting.setPriority(chosen.id, priority);
          if (chosen.priority !== priority) {
            list.splice(list.indexOf(chosen), 1);
            insert({ ...chosen, priority });
          }
        }
        assert.is(waiting.size, list.length);
      }
      while (list.length > 0) assert.is(waiting.take()?.options.id, list.shift()?.id);
      assert.is(waiting.take(), undefined);
    }),
    { numRuns: runs(300) },
  );
});

test("100 000 jobs of 10 000 priorities, a third of them removed: no quadratic time", () => {
  const all = 3 * runs(33_334, 10_000);
  const waiting = new WaitingJobs();
  const controller = new AbortController();
  for (let i = 0; i < all; i++) {
    const signal = i % 3 === 0 ? controller.signal : undefined;
    waiting.enqueue(job(), { id: `${i}`, priority: (i * 7919) % 10_007, signal });
  }
  controller.abort();
  const startedAt = cpuMs();
  for (let i = 0; i < all; i += 3) waiting.remove(`${i}`);
  let count = 0;
  while (waiting.take()) count++;
  assert.is(count, (all / 3) * 2);
  assert.ok(cpuMs() - startedAt < 5000);
});

test.run();
