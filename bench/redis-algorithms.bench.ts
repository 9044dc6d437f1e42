/**
 * How many permits a second do 256 callers of one name get from each algorithm on Redis, when the limit itself is not reached? They
 * use a real redis-server on loopback and one connection of ioredis, as in redis.bench.ts. Beside them are rate-limiter-flexible, which
 * counts in a fixed window, and the least that a script can do.
 */
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import {
  allOf,
  fixedWindow,
  gcra,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";
import { RedisLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";
import { target, times } from "./lib/report.ts";
import { inTurns, perSecond, print, sideBySide } from "./lib/turns.ts";

const PLENTY = 1e9;
const CALLERS = 256;
const BARE = "EVALSHA return 1";
const FLEXIBLE = "rate-limiter-flexible";

/** High enough that it is never reached. The sliding log keeps one second's entries. */
const policies: Record<string, Policy> = {
  gcra: gcra({ limit: PLENTY, periodMs: 1000 }),
  tokenBucket: tokenBucket({ capacity: PLENTY, refill: PLENTY, everyMs: 1000 }),
  "tokenBucket, stepped": tokenBucket({
    capacity: PLENTY,
    refill: PLENTY,
    everyMs: 1000,
    stepped: true,
  }),
  leakyBucket: leakyBucket({ permitsPerSecond: PLENTY, capacity: PLENTY, nodelay: PLENTY }),
  smoothBursty: smoothBursty({ permitsPerSecond: PLENTY }),
  smoothWarmingUp: smoothWarmingUp({ permitsPerSecond: PLENTY, warmupMs: 1000 }),
  fixedWindow: fixedWindow({ limit: PLENTY, windowMs: 1000 }),
  slidingWindow: slidingWindow({ limit: PLENTY, windowMs: 1000 }),
  slidingLog: slidingLog({ limit: PLENTY, windowMs: 1000 }),
};

await using server = await startRedis();
const redis = new Redis(server.url);
const sha = String(await redis.script("LOAD", "return 1"));
const flexible = new RateLimiterRedis({ storeClient: redis, points: PLENTY, duration: 3600 });

const calls: Record<string, () => Promise<unknown>> = {
  [BARE]: () => redis.evalsha(sha, 0),
  [FLEXIBLE]: () => flexible.consume("one name"),
};
for (const [name, policy] of Object.entries(policies)) {
  const limiter = RedisLimiter.create(redis, name, policy);
  calls[name] = () => limiter.acquire();
}

const measures = Object.entries(calls).map(([name, call]) => {
  const callers = Array.from({ length: CALLERS }, () => call);
  return [name, () => sideBySide(callers)] as const;
});
const found = await inTurns(Object.fromEntries(measures));
const ratio = print(`${CALLERS} callers of one name: permits a second`, found, perSecond);
for (const name of Object.keys(policies)) {
  const ahead = ratio(name, FLEXIBLE);
  target(`${name}, at least 5 × ${FLEXIBLE}`, ahead >= 5, times(ahead));
}

/** What does a combination cost, compared with single calls? Each of the 256 callers has its own key in the last limiter. */
const common = RedisLimiter.create(redis, "combined: common", policies.gcra as Policy);
const tenant = RedisLimiter.create(redis, "combined: tenant", policies.gcra as Policy);
const user = RedisLimiter.create(redis, "combined: user", policies.gcra as Policy);
const callersOf = (call: (key: string) => Promise<unknown>) =>
  Array.from({ length: CALLERS }, (_, i) => () => call(`${i}`));
const SINGLE = "a key, by itself";
const combined = await inTurns({
  [SINGLE]: () => sideBySide(callersOf(async (key) => user.for(key).decide())),
  "allOf 2 rules": () =>
    sideBySide(callersOf(async (key) => allOf(common, user.for(key)).decide())),
  "allOf 3 rules": () =>
    sideBySide(callersOf(async (key) => allOf(common, tenant, user.for(key)).decide())),
});
print(`${CALLERS} callers: decisions a second`, combined, perSecond);
redis.disconnect();
