/**
 * What does a limit cost that all processes share? It runs on a real redis-server on loopback and one
 * connection of ioredis, without auto-pipelining. The baseline is the least that a script can do:
 * EVALSHA of `return 1`.
 *
 * The server's own time for the scripts comes from INFO commandstats. There the baseline is the least
 * that a limit needs: a script that reads the time and a key, and writes the key with a time-to-live.
 * All contenders take turns in short rounds, and ratios are taken within a round.
 */
import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { smoothBursty, smoothWarmingUp } from "smooth-limiter";
import { RedisLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";
import { short } from "./lib/options.ts";
import { nanos, table, target, times } from "./lib/report.ts";
import { median, quantile } from "./lib/stats.ts";
import { inTurns, perSecond, print, sideBySide } from "./lib/turns.ts";

const PLENTY = 1e9;
/** The number of calls in a round, one after the other. */
const CALLS = short ? 250 : 1000;

const BARE = "EVALSHA return 1";
const OURS = "smooth-limiter";
const PEER = "rate-limiter-flexible (refuses)";

await using server = await startRedis();
const redis = new Redis(server.url);
const sha = String(await redis.script("LOAD", "return 1"));

const bursty = smoothBursty({ permitsPerSecond: PLENTY });
const warmingUp = smoothWarmingUp({ permitsPerSecond: PLENTY, warmupMs: 1000 });

/** For a limiter's name, each returns the function that acquires one permit. */
type Contender = (name: string) => () => Promise<unknown>;

const connection = new Bottleneck.IORedisConnection({ client: redis });
const contenders: Record<string, Contender> = {
  [BARE]: () => () => redis.evalsha(sha, 0),
  [OURS]: (name) => {
    const limiter = RedisLimiter.create(redis, name, bursty);
    return () => limiter.acquire();
  },
  "smooth-limiter, warming up": (name) => {
    const limiter = RedisLimiter.create(redis, `${name}, warming up`, warmingUp);
    return () => limiter.acquire();
  },
  [PEER]: (name) => {
    const options = { storeClient: redis, points: PLENTY, duration: 3600, keyPrefix: "flexible" };
    const limiter = new RateLimiterRedis(options);
    return () => limiter.consume(name);
  },
  bottleneck: (name) => {
    const limiter = new Bottleneck({ id: name, connection, minTime: 0 });
    return () => limiter.schedule(() => Promise.resolve());
  },
};

/** Returns the milliseconds of each of that many calls, one after the other. */
async function oneByOne(call: () => Promise<unknown>, calls: number): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < calls; i++) {
    const start = performance.now();
    await call();
    took.push(performance.now() - start);
  }
  return took;
}

const namesOfAll = Object.keys(contenders);

/** Returns the microseconds that the server has spent on scripts so far, by its own statistics. */
async function scriptTime(): Promise<number> {
  const stats = await redis.info("commandstats");
  const each = stats.matchAll(/cmdstat_(?:evalsha|eval):calls=\d+,usec=(\d+)/g);
  return [...each].reduce((sum, [, micros]) => sum + Number(micros), 0);
}

const LEAST = "TIME, GET, SET PX";
const least = String(
  await redis.script(
    "LOAD",
    `redis.call("TIME")
    redis.call("GET", KEYS[1])
    redis.call("SET", KEYS[1], "0123456789abcdef", "PX", 3600000)
    return "x"`,
  ),
);

for (const [title, atOnce, most] of [
  ["one acquire at a time: the server's time for each", 1, 2],
  ["64 names at once: the server's time for each", 64, 1.1],
] as const) {
  const makers: Record<string, Contender> = {
    [LEAST]: (name) => () => redis.evalsha(least, 1, name),
    ...contenders,
  };
  const measures = Object.entries(makers)
    .filter(([name]) => name !== BARE && name !== "bottleneck")
    .map(([name, make]) => {
      const calls = Array.from({ length: atOnce }, (_, i) => make(`name ${i} of ${atOnce}`));
      const measure = async () => {
        const before = await scriptTime();
        const rounds = Math.ceil(CALLS / atOnce);
        for (let i = 0; i < rounds; i++) await Promise.all(calls.map((call) => call()));
        return ((await scriptTime()) - before) / (rounds * atOnce);
      };
      return [name, measure] as const;
    });
  const found = await inTurns(Object.fromEntries(measures));
  const ratio = print(title, found, (micros) => nanos(micros * 1000));
  const ours = ratio(OURS);
  target(`at most ${most} × the baseline`, ours <= most, times(ours));
}

{
  const p99 = new Map<string, number[]>();
  const measures = namesOfAll.map((name) => {
    const call = contenders[name]?.("one name") ?? (async () => {});
    const tails: number[] = [];
    p99.set(name, tails);
    const measure = async () => {
      // each takes some milliseconds
      const took = await oneByOne(call, name === "bottleneck" ? CALLS / 10 : CALLS);
      tails.push(quantile(took, 0.99));
      return median(took);
    };
    return [name, measure] as const;
  });
  const found = await inTurns(Object.fromEntries(measures));
  const ratio = print("one acquire at a time: latency", found, (ms) => nanos(ms * 1e6));
  const tails = [...p99].map(([name, of]) => `${name} ${nanos(median(of) * 1e6)}`);
  console.log(`99th percentile: ${tails.join(", ")}`);
  const ours = ratio(OURS, PEER);
  target("at most 1.2 × rate-limiter-flexible", ours <= 1.2, times(ours));
}

for (const callers of [256, 1024]) {
  const measures = namesOfAll
    .filter((name) => name !== "bottleneck" || callers === 256)
    .map((name) => {
      const call = contenders[name]?.("one name") ?? (async () => {});
      const calls = Array.from({ length: callers }, () => call);
      return [name, () => sideBySide(calls)] as const;
    });
  const found = await inTurns(Object.fromEntries(measures));
  const ratio = print(`${callers} callers of one name: permits a second`, found, perSecond);
  const ours = ratio(OURS);
  target("at least 8 × the baseline", ours >= 8, times(ours));
}

{
  const measures = namesOfAll
    .filter((name) => name !== "bottleneck")
    .map((name) => {
      const make = contenders[name] ?? (() => async () => {});
      const calls = Array.from({ length: 256 }, (_, i) => make(`name ${i} of 256`));
      return [name, () => sideBySide(calls)] as const;
    });
  const found = await inTurns(Object.fromEntries(measures));
  const ratio = print("256 callers of 256 names: permits a second", found, perSecond);
  const ours = ratio(OURS, PEER);
  target("at least 1.2 × rate-limiter-flexible", ours >= 1.2, times(ours));
}

{
  const name = "twenty-characters-xx";
  const steady = { permitsPerSecond: 5 };
  const keys = {
    "a string of 16 bytes": name,
    [OURS]: `l:${name}`,
    "smooth-limiter, warming up": `w:${name}`,
    "rate-limiter-flexible": `flexible:${name}`,
  };
  await redis.set(name, "0123456789abcdef");
  await RedisLimiter.create(redis, name, smoothBursty(steady)).acquire();
  const warm = smoothWarmingUp({ ...steady, warmupMs: 5000 });
  await RedisLimiter.create(redis, name, warm, { prefix: "w:" }).acquire();
  await contenders["rate-limiter-flexible (refuses)"]?.(name)();
  const bytes = new Map<string, number>();
  for (const [who, key] of Object.entries(keys)) {
    bytes.set(who, Number(await redis.memory("USAGE", key)));
  }
  console.log("\nMEMORY USAGE of a limiter with a name of 20 characters");
  table(
    ["", "bytes"],
    [...bytes].map(([who, size]) => [who, `${size}`]),
  );
  const ours = bytes.get(OURS) ?? Number.NaN;
  const warming = bytes.get("smooth-limiter, warming up") ?? Number.NaN;
  target("bursty at most 120 bytes", ours <= 120, `${ours}`);
  target("warming up at most 150 bytes", warming <= 150, `${warming}`);
}

console.log("\nredis-cell is not here: it is a module that the server would have to load.");
await connection.disconnect(false);
redis.disconnect();
