/**
 * What does a call cost while Redis is away? Calls do not wait for Redis then: this process keeps its
 * share of the limit. The baseline is the same call, awaited, on a limiter without Redis.
 */
import { createServer } from "node:net";
import { Redis } from "ioredis";
import { RateLimiterMemory, RateLimiterRedis } from "rate-limiter-flexible";
import { Limiter, smoothBursty } from "smooth-limiter";
import { type RedisClient, RedisLimiter } from "smooth-limiter/redis";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

const PLENTY = smoothBursty({ permitsPerSecond: 1e9 });
const SCARCE = smoothBursty({ permitsPerSecond: 1e-6 });

/** A port on which no server listens. */
const port = await new Promise<number>((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const address = server.address();
    server.close(() => resolve(typeof address === "object" ? (address?.port ?? 0) : 0));
  });
});
const redis = new Redis(port, { enableOfflineQueue: false, retryStrategy: () => 1000 });
redis.on("error", () => {});

const ignore = () => {};

for (const [title, policy] of [
  ["let in", PLENTY],
  ["refused", SCARCE],
] as const) {
  const local = Limiter.create(policy);
  const remote = (whenUnavailable: "local" | "throw") => {
    const options = { whenUnavailable, ...(whenUnavailable === "local" && { instances: 4 }) };
    return RedisLimiter.create(redis as RedisClient, `bench, ${title}`, policy, options);
  };
  const [sharing, throwing] = [remote("local"), remote("throw")];
  const insured = new RateLimiterRedis({
    storeClient: redis,
    ...{ points: policy === PLENTY ? 1e9 : 1, duration: 1e6 },
    insuranceLimiter: new RateLimiterMemory({ points: policy === PLENTY ? 1e9 : 1, duration: 1e6 }),
  });
  // the first calls detect the outage
  await Promise.all([sharing.tryAcquire(), throwing.tryAcquire().catch(ignore)]);
  local.tryAcquire();

  console.log(`\ntryAcquire() while Redis is away, ${title}`);
  const ratio = await compare({
    "smooth-limiter, in this process": async () => local.tryAcquire(),
    'smooth-limiter on Redis, "local"': () => sharing.tryAcquire(),
    'the same, "throw"': () => throwing.tryAcquire().catch(ignore),
    "rate-limiter-flexible, insured": () => insured.consume("key").catch(ignore),
  });
  const ours = ratio('smooth-limiter on Redis, "local"', "smooth-limiter, in this process");
  target(`${title}, at most 12 × the call in this process`, ours <= 12, times(ours));
  const peer = ratio("rate-limiter-flexible, insured", 'smooth-limiter on Redis, "local"');
  target("ahead of rate-limiter-flexible", peer > 1, `it takes ${times(peer)} as long`);
}

redis.disconnect();
