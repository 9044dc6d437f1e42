import fc from "fast-check";
import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { fairShares, RateLimiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure } from "../../support/limiter/watch.ts";
import { runs, suite } from "../../support/suite.ts";

const test = suite("PacedQueue, fair");

/** Ten jobs a second; the first permit is taken. */
function busy(options = {}) {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0 });
  limiter.tryAcquire();
  const queue = new PacedQueue({ limiter, order: fairShares(), ...options });
  const order: string[] = [];
  const add = (share: string, more = {}) =>
    queue.add(() => order.push(share), { share, ...more }).catch(() => order.push("failed"));
  return { clock, queue, order, add };
}

test("jobs of several shares start in turn, in proportion to the weights", async () => {
  const { clock, order, add } = busy();
  for (let i = 0; i < 6; i++) void add("a");
  for (let i = 0; i < 6; i++) void add("b", { weight: 2 });
  await clock.advance(900);
  assert.is(order.filter((share) => share === "b").length, 6, order.join(""));
  await clock.advance(1000);
  assert.is(order.length, 12);
});

test("a higher priority goes before all shares of a lower one", async () => {
  const { clock, order, add } = busy();
  void add("a");
  void add("b");
  void add("c", { priority: 1 });
  await clock.advance(1000);
  assert.equal(order, ["c", "a", "b"]);
});

test("a job counts by its permits, those by name by the largest", async () => {
  const { clock, order, add } = busy();
  for (let i = 0; i < 2; i++) void add("a", { permits: 3 });
  for (let i = 0; i < 4; i++) void add("b", { permits: { default: 1 } });
  await clock.advance(2000);
  assert.is(order.length, 6);
  assert.ok(order.indexOf("a") >= 2, order.join(""));
});

test("a job that leaves costs its share nothing; a full queue drops from the largest share", async () => {
  const { clock, queue, order, add } = busy({ maxWaiting: 4, onFull: "drop-lowest-priority" });
  const controller = new AbortController();
  void add("a", { id: "x", signal: controller.signal });
  void add("b");
  void add("a");
  void add("a");
  queue.setPriority("x", 0);
  void add("c", { priority: 1 });
  controller.abort();
  await clock.advance(2000);
  assert.equal(order.toSorted(), ["a", "a", "b", "c", "failed"]);
});

test("the jobs of a fair queue can be listed, in their order", async () => {
  const { queue, add, clock, order } = busy();
  for (const share of ["a", "a", "b"]) void add(share);
  assert.is(queue.sizeBy({ priority: 0 }), 3);
  await clock.advance(1000);
  assert.is(order.join(""), "aba");
});

test("a queue is one share of a fair limiter", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10, { clock, burstSeconds: 0, order: fairShares() });
  limiter.tryAcquire();
  const order: string[] = [];
  for (let i = 0; i < 4; i++) {
    void limiter.acquire(1, { share: "calls" }).then(() => order.push("call"));
  }
  const queue = new PacedQueue({ limiter, share: "jobs", weight: 2 });
  for (let i = 0; i < 3; i++) void queue.add(() => order.push("job"));
  await clock.advance(400);
  assert.ok(order.filter((one) => one === "job").length >= 2, order.join(" "));
  await clock.advance(1000);
  assert.is(order.length, 7);
});

test("bad options are refused, and shares where the queue is not fair", async () => {
  const { queue } = busy();
  const unfair = busy({ order: undefined }).queue;
  const job = () => 1;
  assert.match(String(await failure(() => queue.add(job, { share: 1 as never }))), /share must/);
  assert.match(String(await failure(() => queue.add(job, { weight: 0 }))), /weight must/);
  assert.match(
    String(await failure(() => unfair.add(job, { share: "a" }))),
    /order: fairShares\(\)/,
  );
  assert.match(
    String(await failure(() => unfair.add(job, { weight: 2 }))),
    /order: fairShares\(\)/,
  );
});

test("every job starts, whatever joins and leaves", async () => {
  const job = fc.record({
    share: fc.constantFrom("a", "b", "c"),
    weight: fc.constantFrom(1, 2, 0.5),
    permits: fc.constantFrom(1, 2),
    leaves: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(job, { maxLength: 20 }), async (jobs) => {
      const { clock, queue, order, add } = busy();
      const controllers = jobs.map(({ leaves: _, ...options }) => {
        const controller = new AbortController();
        void add(options.share, { ...options, signal: controller.signal });
        return controller;
      });
      jobs.forEach(({ leaves }, i) => {
        if (leaves) controllers[i]?.abort();
      });
      await clock.advance(10_000);
      assert.is(order.length, jobs.length);
      assert.is(queue.size, 0);
    }),
    { numRuns: runs(30) },
  );
});

test.run();
