import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { Limiter, tokenBucket } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { later } from "../../support/p-queue/later.ts";
import { runs, suite } from "../../support/suite.ts";

// A queue takes exactly the permits of the jobs that it starts, whatever is added, aborted, paused
// and cleared meanwhile.
const test = suite("p-queue: accounts");

const CAPACITY = 8;
const policy = tokenBucket({ capacity: CAPACITY, refill: 1, everyMs: 10 });

const step = fc.record({
  action: fc.constantFrom(
    ...["add", "add", "add", "add", "abort", "setPriority", "pause", "start", "start"],
    ...["clear", "concurrency", "advance", "advance", "advance"],
  ),
  pick: fc.nat(1000),
  priority: fc.integer({ min: 0, max: 3 }),
});

for (const where of ["here", "elsewhere"] as const) {
  test(`a limiter ${where}: a model that is charged for each start matches the limiter`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const clock = new FakeClock();
        const limiter = Limiter.create(policy, { clock });
        const model = Limiter.create(policy, { clock });
        const remote = later(limiter);
        const queue = new PacedQueue({
          limiter: where === "here" ? limiter : remote.limiter,
          concurrency: 2,
        });
        const settle = async () => {
          for (let i = 0; i < 5; i++) await remote.settled();
        };
        const controllers = new Map<string, AbortController>();
        /** The waiting jobs: their permits by priority, the highest first. */
        const waiting = new Map<string, { permits: number; priority: number }>();

        const add = (id: string, permits: number, priority: number, forMs: number) => {
          const controller = new AbortController();
          controllers.set(id, controller);
          waiting.set(id, { permits, priority });
          const job = async () => {
            assert.ok(model.tryAcquire(permits), `${id} starts within the limit`);
            const highest = Math.max(...Array.from(waiting.values(), (other) => other.priority));
            assert.is(waiting.get(id)?.priority, highest, `${id} is next`);
            waiting.delete(id);
            if (forMs > 0) await new Promise<void>((end) => clock.wakeAt(clock.now() + forMs, end));
          };
          const { signal } = controller;
          queue.add(job, { id, permits, priority, signal }).catch((error) => {
            if (error !== "enough" && error?.name !== "AbortError") throw error;
          });
        };
        /** No job waits that could start. */
        const idle = () => {
          const head = [...waiting.values()].sort((a, b) => b.priority - a.priority)[0];
          if (head === undefined || queue.isPaused || queue.pending >= queue.concurrency) return;
          const highest = [...waiting.values()].filter(
            ({ priority }) => priority === head.priority,
          );
          assert.ok(highest.some(({ permits }) => !model.peek(permits).allowed));
        };

        for (const [i, { action, pick, priority }] of steps.entries()) {
          const ids = [...waiting.keys()];
          const id = ids[pick % ids.length];
          if (action === "add") add(`${i}`, 1 + (pick % 6), priority, pick % 30);
          else if (action === "abort" && id !== undefined) {
            waiting.delete(id);
            controllers.get(id)?.abort("enough");
          } else if (action === "setPriority" && id !== undefined) {
            Object.assign(waiting.get(id) ?? {}, { priority });
            queue.setPriority(id, priority);
          } else if (action === "pause") queue.pause();
          else if (action === "start") queue.start();
          else if (action === "concurrency") queue.concurrency = 1 + (pick % 3);
          else if (action === "clear") {
            waiting.clear();
            queue.clear();
          } else if (action === "advance") {
            for (let ms = pick % 40; ms > 0; ms--) {
              await clock.advance(1);
              await settle();
              idle();
            }
          }
          await settle();
          idle();
          assert.is(queue.size, waiting.size);
        }
        queue.clear();
        await settle();
        assert.equal(limiter.peek(), model.peek());
      }),
      { numRuns: runs(where === "here" ? 150 : 60) },
    );
  });
}

test.run();
