import * as assert from "uvu/assert";
import {
  KeyedLimiter,
  Limiter,
  type LocalLimiter,
  slidingLog,
  smoothBursty,
} from "../../src/index.ts";
import { RedisLimiter } from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { failure, watch } from "../support/limiter/watch.ts";
import { suite } from "../support/suite.ts";

const LIMIT = 10;
const WINDOW_MS = 100;

/** Each timer has another lateness, in turn. */
class LateClock extends FakeClock {
  readonly #lateMs: readonly number[];
  #timers = 0;

  constructor(lateMs: readonly number[]) {
    super();
    this.#lateMs = lateMs;
  }

  override wakeAt(timeMs: number, wake: () => void) {
    this.#timers += 1;
    return super.wakeAt(timeMs + (this.#lateMs[this.#timers % this.#lateMs.length] ?? 0), wake);
  }
}

/** The most starts that lie within less than a window. */
function mostInAWindow(starts: readonly number[]): number {
  return Math.max(
    ...starts.map((from) => starts.filter((at) => at >= from && at < from + WINDOW_MS).length),
  );
}

type Ask = (limiter: LocalLimiter) => Promise<unknown>;

const verbs: Readonly<Record<string, Ask>> = {
  acquire: (limiter) => limiter.acquire(),
  "tryAcquire with a time-out": (limiter) => limiter.tryAcquire(1, 1e6),
  "ready of a reservation": (limiter) => limiter.reserve().ready(),
};

async function startsOf(limiter: LocalLimiter, clock: FakeClock, ask: Ask): Promise<number[]> {
  const starts: number[] = [];
  const callers = Array.from({ length: 12 }, async () => {
    for (let i = 0; i < 5; i++) {
      await ask(limiter);
      starts.push(clock.now());
    }
  });
  await clock.advance(5000);
  await Promise.all(callers);
  return starts;
}

const test = suite("slidingLog, strict");

for (const [verb, ask] of Object.entries(verbs)) {
  const lateness = [6, 0, 13, 1, 25];
  const numbers = { limit: LIMIT, windowMs: WINDOW_MS };

  test(`late timers never let more starts than the limit into a window: ${verb}`, async () => {
    const strict = slidingLog({ ...numbers, strict: true });
    const one = new LateClock(lateness);
    assert.is(
      mostInAWindow(await startsOf(Limiter.create(strict, { clock: one }), one, ask)),
      LIMIT,
    );

    const keyed = new LateClock(lateness);
    const ann = KeyedLimiter.create(strict, { clock: keyed }).for("ann");
    assert.is(mostInAWindow(await startsOf(ann, keyed, ask)), LIMIT);

    const two = new LateClock(lateness);
    const policies = { strict, other: smoothBursty({ permitsPerSecond: 1e6 }) };
    const joint = Limiter.create(policies, { clock: two });
    assert.is(mostInAWindow(await startsOf(joint, two, ask)), LIMIT);
  });

  test(`without strict, a window can hold more starts than the limit by the lateness: ${verb}`, async () => {
    const clock = new LateClock([6, 0]);
    const limiter = Limiter.create(slidingLog(numbers), { clock });
    assert.ok(mostInAWindow(await startsOf(limiter, clock, ask)) > LIMIT);
  });
}

test("callers behind a late start get the later instants", async () => {
  const clock = new LateClock([0, 6, 0]);
  const limiter = Limiter.create(slidingLog({ limit: 1, windowMs: 100, strict: true }), { clock });
  const calls = [1, 2, 3].map(() => watch(clock, limiter.acquire()));
  assert.is(limiter.peek().waitMs, 300);
  await clock.advance(150);
  const late = calls[1]?.at ?? 0;
  assert.ok(late > 100, `started at ${late}`);
  assert.is(limiter.peek().waitMs, late + 200 - 150);
  await clock.advance(1000);
  assert.is(calls[2]?.at, late + 100);
});

test("a reservation that is not awaited is charged at its reserved instant", async () => {
  const clock = new FakeClock();
  const limiter = Limiter.create(slidingLog({ limit: 1, windowMs: 100, strict: true }), { clock });
  limiter.tryAcquire();
  assert.is(limiter.reserve().waitMs, 100);
  await clock.advance(150);
  assert.is(limiter.peek().waitMs, 50);
});

test("update can turn strict on and off", async () => {
  const clock = new LateClock([6, 0]);
  const limiter = Limiter.create(slidingLog({ limit: 1, windowMs: 10 }), { clock });
  limiter.update(slidingLog({ limit: 1, windowMs: 10, strict: true }));
  const starts = await startsOf(limiter, clock, (each) => each.acquire());
  starts.slice(1).forEach((at, i) => {
    assert.ok(at - (starts[i] ?? 0) >= 10, `${starts[i]} and ${at}`);
  });
});

test("strict must be a boolean", () => {
  const strict = 1 as unknown as boolean;
  assert.throws(
    () => slidingLog({ limit: 1, windowMs: 100, strict }),
    (error: unknown) => /^TypeError: strict must be/.test(String(error)),
  );
});

test("a store refuses strict, at creation and in update", async () => {
  const strict = slidingLog({ limit: 1, windowMs: 100, strict: true });
  const runner = { runScript: () => Promise.reject(new Error("must not be called")) };
  const message =
    'TypeError: policy "log" must not be strict on a store, which grants instants in advance and ' +
    "cannot move them when a caller starts late; leave out strict, or use Limiter.create, which is in this process";
  assert.is(
    String(await failure(() => RedisLimiter.create(runner, "strict", { log: strict }))),
    message,
  );
  const limiter = RedisLimiter.create(runner, "strict", {
    log: slidingLog({ limit: 1, windowMs: 100 }),
  });
  assert.is(String(await failure(() => limiter.update({ log: strict }))), message);
});

test.run();
