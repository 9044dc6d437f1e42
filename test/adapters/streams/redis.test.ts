import * as assert from "uvu/assert";
import { smoothBursty, tokenBucket } from "../../../src/index.ts";
import { RedisLimiter } from "../../../src/redis/index.ts";
import { connect, RemoteClock, type Watched } from "../../support/limiter/remote.ts";
import { failure, watch } from "../../support/limiter/watch.ts";
import { redisServer } from "../../support/programs/redis-server.ts";
import { endless, forms } from "../../support/streams/forms.ts";
import { suite } from "../../support/suite.ts";

let watched: Watched;

const test = suite("streams on Redis");
test.before(async () => {
  await redisServer();
  watched = await connect();
});
test.after(() => watched.redis.disconnect());

for (const [form, pass] of Object.entries(forms)) {
  for (const policy of [
    smoothBursty({ permitsPerSecond: 10_000 }),
    tokenBucket({ capacity: 500, refill: 10, everyMs: 1 }),
  ]) {
    test(`two processes share evenly: ${form}, ${policy.algorithm.name}`, async () => {
      const clock = new RemoteClock();
      const name = watched.fresh();
      const controller = new AbortController();
      const { signal } = controller;
      const got = [0, 0];
      const ends = [700, 5000].map((size, i) => {
        const options = { timeoutMs: 60_000, clock };
        const limiter = RedisLimiter.create(watched.runner, name, policy, options);
        const take = (chunk: Uint8Array) => {
          got[i] = (got[i] ?? 0) + chunk.length;
        };
        return failure(() => pass(endless(size), limiter, take, { signal }));
      });
      await clock.advance(2000);
      controller.abort(new Error("enough"));
      await clock.settled();
      for (const end of await Promise.all(ends)) assert.match(String(end), /enough/);
      const [one = 0, two = 0] = got;
      assert.ok(Math.abs(one - two) <= 1000, `${one} and ${two}`);
      assert.ok(Math.abs(one + two - 20_000) <= 1500, `${one + two} in 2 s`);
    });
  }
}

test("a store that is unavailable ends the stream", async () => {
  const clock = new RemoteClock();
  const trouble = new Error("away");
  const runner = { runScript: () => Promise.reject(trouble) };
  const limiter = RedisLimiter.create(runner, "away", smoothBursty({ permitsPerSecond: 1 }), {
    clock,
  });
  for (const pass of Object.values(forms)) {
    const done = watch(
      clock,
      pass(endless(10), limiter, () => {}),
    );
    await clock.advance(2000);
    assert.is((done.error as { code?: string }).code, "STORE_UNAVAILABLE");
  }
});

test.run();
