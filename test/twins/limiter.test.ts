import fc from "fast-check";
import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { smoothBursty, smoothWarmingUp } from "../../src/algorithms/smooth/smooth.ts";
import { Limiter } from "../../src/local/limiter.ts";
import { RateLimiter } from "../../src/local/rate-limiter.ts";
import { RedisLimiter, RedisRateLimiter } from "../../src/redis/index.ts";
import { FakeClock } from "../../src/testing/index.ts";
import { connect, RemoteClock, type Watched } from "../support/limiter/remote.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { runs, suite } from "../support/suite.ts";

type Deed =
  | { verb: "advance" | "pause"; micros: number }
  | { verb: "acquire" | "try" | "reserve" | "decide" | "peek" | "charge" | "refund"; n: number }
  | { verb: "timed"; n: number; micros: number }
  | { verb: "rate"; factor: number };

/**
 * Each permit costs a microsecond or more. A local waiter is released at the end of the
 * microsecond that holds its instant, and its next request in that microsecond counts from that
 * instant, while Redis grants at whole microseconds.
 */
const n = fc.constantFrom(1, 1, 1, 2, 5, 0.5, 1 / 3, 20);
/**
 * Less than 2^32 in all: from there on both count from a later instant, but not always from the
 * same one, and rounding may differ.
 */
const micros = fc.oneof(
  fc.constantFrom(0, 1, 1000, 200_000, 1_000_000),
  fc.integer({ min: 0, max: 5_000_000 }),
);
const someMicros = fc.oneof(micros, fc.constantFrom(10_000_000, 60_000_000));
const action: fc.Arbitrary<Deed> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ verb: fc.constant("advance"), micros: someMicros }) },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: fc.constantFrom("acquire", "try", "reserve", "decide", "peek"),
      n,
    }),
  },
  { weight: 2, arbitrary: fc.record({ verb: fc.constantFrom("charge", "refund"), n }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant("timed"), n, micros }) },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant("pause"), micros }) },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: fc.constant("rate"),
      factor: fc.constantFrom(0.1, 0.5, 1, 1.5, 3),
    }),
  },
);
const rate = fc.constantFrom(3, 7, 100 / 3, 1000 / 3, 12_345.678, 80_000);
const numbers = fc.oneof(
  fc.record({
    permitsPerSecond: rate,
    burstSeconds: fc.constantFrom(0, 0.001, 0.5, 1, 3),
    prefilled: fc.boolean(),
  }),
  fc.record({ permitsPerSecond: rate, warmupMs: fc.constantFrom(0.1, 10, 1000, 60_000) }),
);
type Numbers = typeof numbers extends fc.Arbitrary<infer T> ? T : never;

function policiesOf(list: readonly Numbers[], factor = 1): Record<string, Policy> {
  const entries = list.map((one, i) => {
    const permitsPerSecond = one.permitsPerSecond * factor;
    const policy =
      "warmupMs" in one
        ? smoothWarmingUp({ ...one, permitsPerSecond })
        : smoothBursty({ ...one, permitsPerSecond });
    return [list.length === 1 ? "default" : `policy ${i}`, policy] as const;
  });
  return Object.fromEntries(entries);
}

interface Subject extends Limiter {
  setRate?(permitsPerSecond: number): unknown;
  getRate?(): number;
}

/** A limiter on a clock of its own, and its answers with their instants. */
class Player {
  readonly answers: unknown[] = [];
  readonly #clock: FakeClock;
  readonly #limiter: Subject;
  readonly #list: readonly Numbers[];

  constructor(clock: FakeClock, limiter: Subject, list: readonly Numbers[]) {
    this.#clock = clock;
    this.#limiter = limiter;
    this.#list = list;
  }

  async do(action: Deed): Promise<void> {
    switch (action.verb) {
      case "advance":
        await this.#clock.advance(action.micros / 1000);
        break;
      case "pause":
        await this.#limiter.pause(action.micros / 1000);
        break;
      case "rate":
        await this.#setRate(action.factor);
        break;
      case "acquire":
        this.#note(this.#limiter.acquire(action.n));
        break;
      case "timed":
        this.#note(this.#limiter.tryAcquire(action.n, action.micros / 1000));
        break;
      case "try":
        this.answers.push(await this.#limiter.tryAcquire(action.n));
        break;
      case "reserve":
        this.answers.push((await this.#limiter.reserve(action.n)).waitMs);
        break;
      default:
        this.answers.push(await this.#limiter[action.verb](action.n));
    }
  }

  async #setRate(factor: number): Promise<void> {
    const { setRate, getRate } = this.#limiter;
    if (setRate === undefined) await this.#limiter.update(policiesOf(this.#list, factor));
    else {
      await setRate.call(this.#limiter, (this.#list[0]?.permitsPerSecond ?? 1) * factor);
      this.answers.push(getRate?.call(this.#limiter));
    }
  }

  #note(promise: Promise<unknown>): void {
    const place = this.answers.push("pending") - 1;
    const note = (answer: unknown) => {
      this.answers[place] = [answer, this.#clock.now()];
    };
    promise.then(note, note);
  }
}

const limiters = suite("limiters in this process and on Redis");

let watched: Watched;

limiters.before(async () => {
  await redisServer();
  watched = await connect();
});

limiters.after(() => {
  watched.redis.disconnect();
});

function pair(list: readonly Numbers[], [here, there]: readonly [FakeClock, FakeClock]) {
  const name = watched.fresh();
  const remoteOptions = { clock: there, timeoutMs: 60_000 };
  const [only, second] = list;
  if (only === undefined || second !== undefined) {
    const policies = policiesOf(list);
    return {
      local: Limiter.create(policies, { clock: here }),
      remote: RedisLimiter.create(watched.runner, name, policies, remoteOptions),
    };
  }
  const { permitsPerSecond, ...options } = only;
  const all = { ...options, ...remoteOptions };
  return {
    local: RateLimiter.create(permitsPerSecond, { ...options, clock: here }),
    remote: RedisRateLimiter.create(watched.runner, name, permitsPerSecond, all),
  };
}

/**
 * Re-times local waiters, while instants that Redis has promised stay: done only when no caller
 * waits.
 */
const RETIMING: readonly string[] = ["charge", "refund", "pause", "rate"];

limiters("local and remote limiters give the same answers at the same instants", async () => {
  let actions = 0;
  const property = fc.asyncProperty(
    fc.constantFrom(0, 1, 7, 100_000_000).map((units) => (units * 2 ** 24) / 1000),
    fc.oneof(
      { weight: 3, arbitrary: numbers.map((one) => [one]) },
      { weight: 1, arbitrary: fc.tuple(numbers, numbers) },
    ),
    fc.array(action, { minLength: 1, maxLength: 25, size: "max" }),
    async (startMs, list, story) => {
      const clocks = [new FakeClock(startMs), new RemoteClock(startMs)] as const;
      const { local, remote } = pair(list, clocks);
      // on Redis the state begins at the first call that changes it
      await remote.reset();
      const here = new Player(clocks[0], local, list);
      const there = new Player(clocks[1], remote, list);
      for (const one of story) {
        actions += 1;
        if (RETIMING.includes(one.verb)) {
          const micros = Math.round(local.peek(1e-9).waitMs * 1000) + 1;
          for (const player of [here, there]) await player.do({ verb: "advance", micros });
        }
        await here.do(one);
        await there.do(one);
        await clocks[0].advance(0);
        await clocks[1].advance(0);
        assert.equal(there.answers, here.answers);
      }
      for (const player of [here, there]) await player.do({ verb: "advance", micros: 2e9 });
      assert.equal(there.answers, here.answers);
    },
  );
  const numRuns = runs(500, 40);
  await fc.assert(property, { numRuns, includeErrorInReport: true });
  console.log(`  limiters: ${numRuns} histories, ${actions} actions`);
});

limiters.run();
