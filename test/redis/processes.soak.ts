/**
 * Eight processes use one name at full speed, and some of their callers abort. The grants of each
 * are counted in milliseconds of the machine's monotonic clock, which all processes share
 * (`process.hrtime`), and compared with what the limiter promises.
 *
 * Some bounds are hard. No caller goes before its instant by the server's clock, so the use from
 * the beginning until any instant is bounded under any load: late timers and late replies only
 * reduce it. And permits that were neither used nor given back would be missing in the server's
 * own account. In a slice of the run, though, delayed callers are released together with punctual
 * ones. So the bound of a slice includes the lateness, which each process measures on itself. The
 * next caller also gets what was given back, while others keep their promised instants: the store,
 * empty under such demand, leaves room for that. That 98 % are used depends on the machine: a busy
 * one may keep all eight from asking for longer than the store bridges (1 s). So that run may be
 * repeated once.
 */
import { type ChildProcess, type ForkOptions, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { RedisRateLimiter } from "../../src/redis/index.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { startRedis } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const WORKERS = 8;
const SECONDS = 10;
/** A request is for 1, 2 or 3 permits. */
const LARGEST = 3;
/** How often a worker looks at its own lateness, ms. */
const PROBE_MS = 10;
/** A caller that is released late counts as punctual up to this lateness, ms. */
const CREDIT_MS = 10;

interface Order {
  readonly url: string;
  readonly name: string;
  readonly rate: number;
  readonly burstSeconds: number;
  /** How many callers each process has, and whether some of them abort. */
  readonly callers: number;
  readonly fickle: boolean;
  /** By `monotonicMs`. */
  readonly startAt: number;
}

interface Report {
  /** Permits used in each ms since `startAt`. */
  readonly used: Float64Array;
  /** The number of calls by outcome. */
  readonly ends: Record<string, number>;
  /** How late an event on the server may have reached its caller, ms. */
  readonly lateMs: number;
}

function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** One of the processes. */
async function work(order: Order): Promise<Report> {
  const { rate, burstSeconds, callers, fickle, startAt } = order;
  const redis = new Redis(order.url);
  // the latency of Redis is not tested here
  const options = { burstSeconds, timeoutMs: 20_000 };
  const limiter = RedisRateLimiter.create(redis, order.name, rate, options);
  await limiter.peek();
  const used = new Float64Array((SECONDS + 15) * 1000);
  const ends: Record<string, number> = {};
  const expectedMs = (1000 * 2 * callers * WORKERS) / rate;

  const end = (how: string, permits = 0) => {
    ends[how] = (ends[how] ?? 0) + 1;
    const ms = Math.floor(monotonicMs() - startAt);
    if (permits > 0) used[ms] = (used[ms] ?? 0) + permits;
  };

  const ask = async (permits: number, kind: number) => {
    if (!fickle || kind < 0.55) {
      await limiter.acquire(permits);
      end("acquired", permits);
    } else if (kind < 0.7) {
      const controller = new AbortController();
      const timer = setTimeout(() => controller.abort("enough"), Math.random() * 2 * expectedMs);
      const outcome = await limiter
        .acquire(permits, { signal: controller.signal })
        .catch((reason: unknown) => reason);
      clearTimeout(timer);
      if (outcome === "enough") end("aborted");
      else if (typeof outcome === "number") end("acquired in time", permits);
      else throw outcome;
    } else if (kind < 0.85) {
      if (await limiter.tryAcquire(permits, Math.random() * 2 * expectedMs)) end("tried", permits);
      else await refused();
    } else if (kind < 0.9) {
      await (await limiter.reserve(permits)).ready();
      end("reserved", permits);
    } else if (kind < 0.95) {
      const reservation = await limiter.reserve(permits);
      await sleep(Math.random() * 1.2 * reservation.waitMs);
      if (await reservation.cancel()) end("cancelled");
      else end("cancelled too late", permits);
    } else if (await limiter.tryAcquire(permits)) end("tried at once", permits);
    else await refused();
  };
  const refused = () => {
    end("refused");
    return sleep(5 + Math.random() * 20);
  };

  let gapMs = 0;
  let tripMs = 0;
  let last = performance.now();
  const probe = setInterval(() => {
    const now = performance.now();
    gapMs = Math.max(gapMs, now - last - PROBE_MS);
    last = now;
    redis.ping().then(
      () => {
        tripMs = Math.max(tripMs, performance.now() - now);
      },
      () => {},
    );
  }, PROBE_MS);

  await sleep(startAt - monotonicMs());
  const stopAt = startAt + SECONDS * 1000;
  await Promise.all(
    Array.from({ length: callers }, async () => {
      while (monotonicMs() < stopAt) {
        await ask(1 + Math.floor(Math.random() * LARGEST), Math.random());
      }
    }),
  );
  // what was given up last is given back by now: calls are sent in order
  await limiter.peek();
  clearInterval(probe);
  redis.disconnect();
  // A reply that the server sent at some instant arrived before that of the first probe after it,
  // and its caller's timer was late by a gap at the most.
  return { used, ends, lateMs: PROBE_MS + gapMs + tripMs + gapMs };
}

class Outcome {
  readonly used: Float64Array;
  readonly ends: Record<string, number> = {};
  readonly lateMs: number;
  readonly #rate: number;

  constructor(rate: number, reports: readonly Report[]) {
    this.#rate = rate;
    this.used = new Float64Array(reports[0]?.used.length ?? 0);
    for (const report of reports) {
      for (const [ms, permits] of report.used.entries()) {
        this.used[ms] = (this.used[ms] ?? 0) + permits;
      }
      for (const [how, count] of Object.entries(report.ends)) {
        this.ends[how] = (this.ends[how] ?? 0) + count;
      }
    }
    this.lateMs = Math.max(...reports.map(({ lateMs }) => lateMs));
  }

  /** Permits used before that ms. */
  until(ms: number): number {
    return this.used.subarray(0, ms).reduce((sum, permits) => sum + permits, 0);
  }

  /**
   * The most by which the permits used in any interval of whole ms exceed rate x time.
   *
   * @param fromStart only the intervals that begin with the run
   */
  excess({ fromStart = false } = {}): number {
    let sum = 0;
    let lowest = 0;
    let most = -Infinity;
    for (const [ms, permits] of this.used.entries()) {
      if (!fromStart) lowest = Math.min(lowest, sum - (this.#rate * ms) / 1000);
      sum += permits;
      most = Math.max(most, sum - (this.#rate * (ms + 1)) / 1000 - lowest);
    }
    return most;
  }

  /** The most permits in one of the slices of this many ms. */
  largestSlice(ms: number): number {
    let most = 0;
    for (let from = 0; from < this.used.length; from += ms) {
      most = Math.max(most, this.until(from + ms) - this.until(from));
    }
    return most;
  }
}

const test = suite("one limit for eight processes");
const workers: ChildProcess[] = [];
let server: Awaited<ReturnType<typeof startRedis>>;
let redis: Redis;
let names = 0;

test.before(async () => {
  await redisServer();
  server = await startRedis();
  redis = new Redis(server.url);
  const env = { ...process.env, NODE_V8_COVERAGE: "" };
  for (let i = 0; i < WORKERS; i++) {
    const execArgv = ["--import", "tsx"];
    const options: ForkOptions = { env, execArgv, serialization: "advanced" };
    workers.push(fork(fileURLToPath(import.meta.url), ["worker"], options));
  }
  await Promise.all(workers.map((worker) => once(worker, "message")));
});

test.after(async () => {
  for (const worker of workers) worker.disconnect();
  redis.disconnect();
  await server.stop();
});

/** All processes at once; and the server's own account, between a first and a last call. */
async function hammer(rate: number, { burstSeconds = 1, fickle = true, callers = 4 } = {}) {
  const name = `hammered ${names++}`;
  const limiter = RedisRateLimiter.create(redis, name, rate, { burstSeconds });
  const clock = watchClock();
  const calledAt = monotonicMs();
  await limiter.acquire();
  const bornAt = monotonicMs();
  const startAt = bornAt + 100;
  const order: Order = { url: server.url, name, rate, burstSeconds, callers, fickle, startAt };
  const reports = await Promise.all(
    workers.map(async (worker) => {
      worker.send(order);
      const [{ report, error }] = await once(worker, "message");
      if (error !== undefined) throw new Error(error);
      return report as Report;
    }),
  );
  const outcome = new Outcome(rate, reports);
  const askedAt = monotonicMs();
  const { waitMs, resetMs } = await limiter.peek();
  const now = monotonicMs();
  // Permits that were granted correspond to time that has passed since the creation, or lies ahead,
  // less what is stored.
  const stored = rate * burstSeconds - ((resetMs - waitMs) * rate) / 1000;
  const handedOut = (rate * (now + waitMs - bornAt)) / 1000 - stored;
  // what the limiter earned between its creation and the run, the most by which the clocks may have
  // drifted apart, and 1 ms for the bins
  const head = (rate * (startAt - bornAt)) / 1000;
  const clockSlack = (rate * (clock.stop() + 1)) / 1000;
  const batchSlack = (rate * (bornAt - calledAt + now - askedAt)) / 1000;
  return { outcome, handedOut, head, clockSlack, batchSlack };
}

/**
 * Measures how far the server's clock and the local one may have drifted apart, ms: each can be
 * set or slewed.
 */
function watchClock(): { stop(): number } {
  let least = Infinity;
  let most = -Infinity;
  const look = async () => {
    const before = monotonicMs();
    const [seconds = 0, micros = 0] = (await redis.time()).map(Number);
    const there = seconds * 1000 + micros / 1000;
    // the true difference lies between these two
    least = Math.min(least, there - before);
    most = Math.max(most, there - monotonicMs());
  };
  const timer = setInterval(() => void look().catch(() => {}), 50);
  return {
    stop() {
      clearInterval(timer);
      // slewing, at most 0.5 ms a second, is hidden by the duration of the batches
      return Math.max(0, most - least) + 0.5 * (SECONDS + 5);
    },
  };
}

/** The bounds that hold for every run. */
function check(
  { outcome, handedOut, head, clockSlack, batchSlack }: Awaited<ReturnType<typeof hammer>>,
  rate: number,
  burstSeconds: number,
): void {
  const used = outcome.until(outcome.used.length);
  const facts = `${rate}/s, used ${used}, ${JSON.stringify(outcome.ends)}`;

  // From the creation on: rate x time and one request, since the store was empty at first.
  const early = outcome.excess({ fromStart: true });
  const first = head + batchSlack + LARGEST + clockSlack;
  assert.ok(early <= first, `${facts}: ${early} permits early, at most ${first}`);

  // In any interval t: the store, rate x t, one request, and what lateness concentrated.
  const slack = (rate * (outcome.lateMs + CREDIT_MS + 1)) / 1000;
  const most = rate * burstSeconds + LARGEST + slack;
  const excess = outcome.excess();
  assert.ok(excess <= most, `${facts}: ${excess} above rate x time, at most ${most}`);
  const slice = outcome.largestSlice(100);
  assert.ok(slice <= most + rate / 10, `${facts}: ${slice} in a slice of 100 ms`);

  // Permits are neither created nor lost: what the server has granted is what was used, and the
  // first permit. Without a store, though, the time before the run and after it counts as granted,
  // too.
  const lost = handedOut - used - 1;
  const tolerance = LARGEST + clockSlack + batchSlack + used * 0.002;
  assert.ok(lost >= -tolerance, `${facts}: used and not granted: ${-lost}`);
  if (burstSeconds > 0) assert.ok(lost <= tolerance, `${facts}: granted and not used: ${lost}`);
}

/** The share of the rate that was used while there was demand. */
function usage({ outcome }: Awaited<ReturnType<typeof hammer>>, rate: number): number {
  return outcome.until(SECONDS * 1000) / (rate * SECONDS);
}

for (const rate of [50, 1_000, 20_000]) {
  test(`${rate} permits a second, with aborts and time-outs`, async () => {
    const callers = Math.max(4, Math.round(0.03 * rate));
    const run = await hammer(rate, { callers });
    check(run, rate, 1);
    for (const how of ["aborted", "refused", "cancelled", "tried", "reserved", "acquired"]) {
      assert.ok((run.outcome.ends[how] ?? 0) > 0, `no call was ${how}`);
    }
    // at least 0.98 on a quiet machine
    assert.ok(usage(run, rate) >= 0.8, `${rate}/s: ${usage(run, rate)} of the rate was used`);
  });
}

test("1 000 permits a second without a store, without aborts", async () => {
  const run = await hammer(1000, { burstSeconds: 0, fickle: false, callers: 30 });
  check(run, 1000, 0);
});

if (process.argv[2] !== "worker") test.run();
else {
  process.on("disconnect", () => process.exit());
  process.on("message", async (order: Order) => {
    const answer = await work(order).then(
      (report) => ({ report }),
      (error) => ({ error: String(error) }),
    );
    process.send?.(answer);
  });
  process.send?.("ready");
}
