import * as assert from "uvu/assert";
import { PacedQueue } from "../../../src/adapters/p-queue/index.ts";
import { StoreUnavailableError } from "../../../src/ground/errors.ts";
import { tokenBucket } from "../../../src/index.ts";
import { RedisLimiter, RedisRateLimiter } from "../../../src/redis/index.ts";
import { connect, RemoteClock, type Watched } from "../../support/limiter/remote.ts";
import { failure, turn } from "../../support/limiter/watch.ts";
import { PATIENT } from "../../support/patient.ts";
import { redisServer } from "../../support/programs/redis-server.ts";
import { suite } from "../../support/suite.ts";

const test = suite("p-queue: on Redis");

let watched: Watched;
test.before(async () => {
  await redisServer();
  watched = await connect();
});
test.after(() => watched.redis.disconnect());

test("two queues share one limit, and each keeps its own order", async () => {
  const clock = new RemoteClock();
  const name = watched.fresh();
  const queues = [0, 1].map(() => {
    const limiter = RedisRateLimiter.create(watched.runner, name, 10, {
      ...PATIENT,
      clock,
      burstSeconds: 0,
    });
    return new PacedQueue({ limiter, concurrency: 3 });
  });
  const starts: { at: number; queue: number; priority: number }[] = [];
  for (const [queue, paced] of queues.entries()) {
    for (const priority of [0, 0, 1, 1]) {
      void paced.add(() => void starts.push({ at: clock.now(), queue, priority }), { priority });
    }
  }
  await clock.advance(1500);
  assert.equal(
    starts.map(({ at }) => Math.round(at / 100)),
    [0, 1, 2, 3, 4, 5, 6, 7],
  );
  for (const queue of [0, 1]) {
    const order = starts.filter((start) => start.queue === queue).map(({ priority }) => priority);
    assert.equal(order, [1, 1, 0, 0]);
  }
});

test("permits of an aborted job are not taken", async () => {
  const clock = new RemoteClock();
  const policy = tokenBucket({ capacity: 4, refill: 1, everyMs: 100 });
  const limiter = RedisLimiter.create(watched.runner, watched.fresh(), policy, {
    ...PATIENT,
    clock,
  });
  const queue = new PacedQueue({ limiter });
  const starts: string[] = [];
  const run = (name: string) => () => void starts.push(`${name} ${clock.now()}`);
  await queue.add(run("all"), { permits: 4 });
  void queue.add(run("heavy"), { permits: 4 });
  await clock.advance(50);
  void queue.add(run("light"), { priority: 1 });
  await clock.advance(250);
  assert.equal(starts, ["all 0", "light 100"]);
  queue.clear();
  await clock.advance(200);
  assert.is((await limiter.peek()).remaining, 4);
});

test("while Redis is unavailable the next job rejects with a StoreUnavailableError", async () => {
  const runner = { runScript: () => Promise.reject(new Error("away")) };
  const limiter = RedisRateLimiter.create(runner, watched.fresh(), 10, PATIENT);
  const queue = new PacedQueue({ limiter, concurrency: 1 });
  const called: string[] = [];
  const errors = await Promise.all(
    ["a", "b"].map((name) => failure(() => queue.add(() => called.push(name)))),
  );
  for (const error of errors) assert.instance(error, StoreUnavailableError);
  await queue.onIdle();
  await turn();
  assert.equal([called, queue.pending, queue.size], [[], 0, 0]);
});

test.run();
