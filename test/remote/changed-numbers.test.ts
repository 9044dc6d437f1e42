/** A store refuses a request for ever, and its numbers have changed when the reply is read. */
import * as assert from "uvu/assert";
import {
  fairShares,
  fixedWindow,
  PermitsExceedCapacityError,
  tokenBucket,
} from "../../src/index.ts";
import { StoreLimiter } from "../../src/store.ts";
import { FakeClock, memoryStore } from "../../src/testing/index.ts";
import { onHand } from "../support/limiter/remote.ts";
import { failure } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

/** Errors that no caller gets. */
const escaped: unknown[] = [];
const EVENTS = ["unhandledRejection", "uncaughtException"];
const keep = (error: unknown) => void escaped.push(error);

const test = suite("remote limiter, numbers that change");

test.before(() => {
  for (const event of EVENTS) process.on(event, keep);
});

test.after(() => {
  for (const event of EVENTS) process.off(event, keep);
});

const bucket = (limit: number) => tokenBucket({ capacity: limit, refill: limit, everyMs: 1000 });
const several = (limit: number) => ({
  seconds: bucket(limit),
  windows: fixedWindow({ limit, windowMs: 1000 }),
});

type Calls = Pick<StoreLimiter, "acquire" | "tryAcquire" | "reserve" | "decide" | "peek">;

const askInEachWay = (limiter: Calls, permits: number): readonly Promise<unknown>[] => [
  limiter.acquire(permits),
  limiter.tryAcquire(permits),
  limiter.reserve(permits),
  limiter.decide(permits),
  limiter.peek(permits),
];

async function outcomesOf(clock: FakeClock, calls: readonly Promise<unknown>[]) {
  const outcomes = calls.map(() => "open");
  calls.forEach((call, i) => {
    const settled = (outcome: string) => {
      outcomes[i] = outcome;
    };
    call.then(
      () => settled("done"),
      (error) => settled(error.name),
    );
  });
  await clock.advance(2000);
  return outcomes;
}

const EXCEEDS = PermitsExceedCapacityError.name;

for (const [kind, of] of Object.entries({ "one policy": bucket, "several policies": several })) {
  for (const order of [undefined, fairShares()]) {
    const title = order === undefined ? kind : `${kind}, in fair order`;

    test(`${title}: requests between two updates of one tick end, and their neighbours too`, async () => {
      const clock = new FakeClock();
      const store = memoryStore({ clock });
      const limiter = StoreLimiter.create(store, "limit", of(10), {
        clock,
        ...(order && { order }),
      });
      await limiter.tryAcquire();
      const outcomes = await outcomesOf(clock, [
        limiter.update(of(3)),
        ...askInEachWay(limiter, 8),
        limiter.tryAcquire(1),
        limiter.update(of(10)),
        limiter.tryAcquire(1),
      ]);
      const refused = Array.from({ length: 5 }, () => EXCEEDS);
      assert.equal(outcomes, ["done", ...refused, "done", "done", "done"]);
      assert.is(await limiter.tryAcquire(8), true);
      await limiter.close();
      assert.equal(escaped.splice(0), []);
    });
  }

  test(`${kind}: a limit of 0 is raised in the tick of requests that it rejects`, async () => {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    store.limits.set("limit", "0");
    const limiter = StoreLimiter.create(store, "limit", of(10), { clock, limitKey: "limit" });
    await limiter.tryAcquire();
    const outcomes = await outcomesOf(clock, [
      limiter.acquire(),
      limiter.tryAcquire(),
      limiter.update(of(10)),
      limiter.tryAcquire(),
    ]);
    assert.equal(outcomes, [EXCEEDS, EXCEEDS, "done", "done"]);
    await limiter.close();
    assert.equal(escaped.splice(0), []);
  });
}

test("prefetched permits stay in the buffer if the store has a lower limit by now", async () => {
  const { clock, store, limiter } = onHand(bucket(10), {
    prefetch: { permits: 4, maxAgeMs: 1000 },
  });
  const other = onHand(bucket(10), { clock, store }).limiter;
  await limiter.acquire();
  await clock.advance(100);
  await other.update(bucket(3));
  assert.instance(await failure(() => limiter.decide(4)), PermitsExceedCapacityError);
  const { length } = store.batches;
  assert.is(await limiter.tryAcquire(4), true);
  assert.is(store.batches.length, length, "it asks the store");
  await Promise.all([limiter.close(), other.close()]);
});

test.run();
