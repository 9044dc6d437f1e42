/**
 * What does a prefetched permit cost? One process takes permits one by one, at 100 000 and at 1 000 000 a second, from a real
 * redis-server on loopback. Measured are the round trips for each permit, Redis' share of a core, and the error of the mean rate. Then
 * the latency of an `acquire()` that need not wait, beside that of a limiter without Redis.
 */
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { RateLimiter } from "smooth-limiter";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";
import { compare } from "./lib/compare.ts";
import { short } from "./lib/options.ts";
import { driftOf } from "./lib/pace.ts";
import { table, target, times } from "./lib/report.ts";
import { wasCalm, watchStalls } from "./lib/stalls.ts";

const SETTLE_MS = 500;
const FOR_MS = short ? 2500 : 8000;
/** Periods in which the event loop stood still for longer are left out: the next permits are fetched 50 ms ahead. */
const CALM_MS = 20;

await using server = await startRedis();
const redis = new Redis(server.url);

/** Returns how many scripts Redis has run, and its processor time, ms. */
async function account(): Promise<{ readonly scripts: number; readonly busyMs: number }> {
  const stats = await redis.info("commandstats");
  const [, scripts = "0"] = /cmdstat_evalsha:calls=(\d+)/.exec(stats) ?? [];
  const cpu = await redis.info("cpu");
  const seconds = [...cpu.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)].map(([, text]) =>
    Number(text),
  );
  return { scripts: Number(scripts), busyMs: 1000 * seconds.reduce((sum, each) => sum + each, 0) };
}

interface Finding {
  readonly perSecond: number;
  /** The relative error of the mean rate. NaN when the machine was too busy for a verdict. */
  readonly error: number;
  readonly tripsPerPermit: number;
  /** Redis' share of a core. */
  readonly busy: number;
}

async function oneByOne(
  rate: number,
  acquire: () => Promise<unknown>,
  forMs = FOR_MS,
): Promise<Finding> {
  const every = rate / 1000;
  const grants: number[] = [];
  const settled = performance.now() + SETTLE_MS;
  while (performance.now() < settled) await acquire();
  const before = await account();
  const start = performance.now();
  const end = start + forMs;
  let used = 0;
  let now = start;
  while (now < end) {
    await acquire();
    used += 1;
    // permits that go together: the clock is read once for a millisecond's worth
    if (used % every !== 0 && used > every) continue;
    now = performance.now();
    if (used % every === 0) grants.push(now);
  }
  const after = await account();
  const drift = driftOf(grants, 1000, (from, to) => wasCalm(from, to, CALM_MS));
  return {
    perSecond: (1000 * used) / (now - start),
    error: drift.calmMs > forMs / 2 ? drift.error : Number.NaN,
    tripsPerPermit: (after.scripts - before.scripts) / used,
    busy: (after.busyMs - before.busyMs) / (now - start),
  };
}

const percent = (share: number) => (Number.isNaN(share) ? "?" : `${(100 * share).toFixed(3)} %`);

watchStalls();
for (const rate of [100_000, 1_000_000]) {
  const steady = { burstSeconds: 0 };
  const contenders: Record<string, () => { acquire(): Promise<unknown>; close?(): Promise<void> }> =
    {
      "in this process": () => RateLimiter.create(rate, steady),
      "prefetch { permits: rate / 10 }": () =>
        RedisRateLimiter.create(redis, `fixed ${rate}`, rate, {
          ...steady,
          prefetch: { permits: rate / 10 },
        }),
      'prefetch "auto"': () =>
        RedisRateLimiter.create(redis, `auto ${rate}`, rate, { ...steady, prefetch: "auto" }),
    };
  const findings = new Map<string, Finding>();
  for (const [name, make] of Object.entries(contenders)) {
    const limiter = make();
    findings.set(name, await oneByOne(rate, () => limiter.acquire()));
    await limiter.close?.();
  }
  // one trip for each permit, as fast as possible
  const plain = RedisRateLimiter.create(redis, `plain ${rate}`, rate);
  findings.set("without prefetch", await atFullSpeed(() => plain.acquire()));
  const flexible = new RateLimiterRedis({ storeClient: redis, points: 1e9, duration: 3600 });
  findings.set(
    "rate-limiter-flexible (refuses)",
    await atFullSpeed(() => flexible.consume(`${rate}`)),
  );
  console.log(`\n${rate.toLocaleString("en")} permits a second, one by one`);
  table(
    ["", "permits/s", "mean rate off by", "trips per permit", "Redis, of a core"],
    [...findings].map(([name, { perSecond, error, tripsPerPermit, busy }]) => [
      name,
      Math.round(perSecond).toLocaleString("en"),
      percent(error),
      tripsPerPermit === 0 ? "0" : tripsPerPermit.toPrecision(2),
      percent(busy),
    ]),
  );
  for (const name of ["prefetch { permits: rate / 10 }", 'prefetch "auto"']) {
    const { error = Number.NaN, tripsPerPermit = Number.NaN } = findings.get(name) ?? {};
    const off = Math.abs(error);
    target(
      `${name}: mean rate off by at most 0.1 %`,
      Number.isNaN(off) ? undefined : off <= 0.001,
      percent(off),
    );
    target(
      `${name}: a trip for 1000 permits or more`,
      tripsPerPermit <= 0.001,
      tripsPerPermit.toPrecision(2),
    );
  }
}

/** Measures a limiter with one trip for each permit, which stays far below the rate. */
async function atFullSpeed(acquire: () => Promise<unknown>): Promise<Finding> {
  return { ...(await oneByOne(1000, acquire, 1000)), error: Number.NaN };
}

const PLENTY = 1e9;
const resolved = Promise.resolve(0);
const local = RateLimiter.create(PLENTY, { prefilled: true });
const prefetching = RedisRateLimiter.create(redis, "plenty", PLENTY, {
  prefilled: true,
  prefetch: { permits: 1e9, maxAgeMs: 60_000 },
});
await prefetching.acquire();
console.log("\nawait acquire() that need not wait");
const ratio = await compare({
  "await of a resolved promise": () => resolved,
  "smooth-limiter on Redis, prefetched": () => prefetching.acquire(),
  "smooth-limiter in this process": () => local.acquire(),
});
const latency = ratio("smooth-limiter on Redis, prefetched", "smooth-limiter in this process");
target("at most 3 × the one in this process", latency <= 3, times(latency));
await prefetching.close();
redis.disconnect();
