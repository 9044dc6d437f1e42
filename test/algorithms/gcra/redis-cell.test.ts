import * as assert from "uvu/assert";
import { gcra } from "../../../src/algorithms/gcra/gcra.ts";
import { toRedisCellReply } from "../../../src/algorithms/gcra/redis-cell.ts";
import { Limiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { suite } from "../../support/suite.ts";

const test = suite("throttle: redis-cell's five integers");

const fifteen = () => gcra({ limit: 30, periodMs: 60_000, burst: 15 });

test("CL.THROTTLE key 15 30 60, by the documented formula, second by second", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(fifteen(), { clock });
  // quantity requested at a second, and the reply
  const table: [at: number, quantity: number, answer: readonly number[]][] = [
    [0, 1, [0, 16, 15, -1, 2]],
    [0, 1, [0, 16, 14, -1, 4]],
    [1, 10, [0, 16, 4, -1, 23]],
    [1, 5, [1, 16, 4, 1, 23]],
    [2, 5, [0, 16, 0, -1, 32]],
    [2, 1, [1, 16, 0, 2, 32]],
    [3.5, 1, [1, 16, 0, 1, 31]],
    [4, 1, [0, 16, 0, -1, 32]],
    [36, 16, [0, 16, 0, -1, 32]],
  ];
  for (const [at, quantity, answer] of table) {
    await clock.advance(at * 1000 - clock.now());
    assert.equal(toRedisCellReply(limiter.decide(quantity)), answer, `${quantity} at ${at} s`);
  }
});

test("a caller that retries after retryAfter seconds is granted", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(gcra({ limit: 7, periodMs: 10_000 }), { clock });
  limiter.charge(7);
  const [limited, , , retryAfter] = toRedisCellReply(limiter.decide());
  assert.equal([limited, retryAfter], [1, 2]);
  await clock.advance(retryAfter * 1000);
  assert.is(toRedisCellReply(limiter.decide())[0], 0);
});

test("long times are valid", () => {
  const limiter = Limiter.create(gcra({ limit: 1, periodMs: 1e15, burst: 1e9 }));
  limiter.charge(1e9);
  limiter.charge(1e9);
  const [limited, limit, remaining, retryAfter, resetAfter] = toRedisCellReply(limiter.decide());
  assert.equal([limited, limit, remaining], [1, 1e9 + 1, 0]);
  assert.ok(retryAfter > 1e20 && resetAfter > retryAfter);
});

test("where permits may not wait, retryAfter is the time until all are refilled", () => {
  const limiter = Limiter.create(fifteen(), { maxWaiting: 0, clock: new FakeClock() });
  limiter.tryAcquire(16);
  assert.is(limiter.peek().waitMs, Infinity);
  assert.equal(toRedisCellReply(limiter.peek()), [1, 16, 0, 32, 32]);
});

test("with several policies the reply is that of the binding one, or of a named one", () => {
  const policies = { many: gcra({ limit: 100, periodMs: 1000 }), few: fifteen() };
  const decision = Limiter.create(policies, { clock: new FakeClock() }).decide();
  assert.equal(toRedisCellReply(decision), [0, 16, 15, -1, 2]);
  assert.equal(toRedisCellReply(decision, "many"), [0, 100, 99, -1, 1]);
  const words = /^policyName must be one of many, few, got "none"/;
  assert.throws(() => toRedisCellReply(decision, "none"), words);
  assert.throws(() => toRedisCellReply(decision, "toString"), /got "toString"/);
});

test.run();
