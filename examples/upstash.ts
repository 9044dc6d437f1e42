/**
 * Three workers share a limit of 10 a second through Redis over HTTP, as functions on an edge runtime do.
 * Every call is one HTTP request. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to use your own
 * database; otherwise the example starts a Redis and a small server with the same protocol.
 */
import assert from "node:assert/strict";
import { Redis } from "@upstash/redis";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";
import { startUpstash, TOKEN } from "../test/support/redis/upstash-server.ts";

const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token = "" } = process.env;
const server = url === undefined ? await startRedis() : undefined;
const http = server && (await startUpstash(server.url));

const name = `upstash of ${process.pid}`;
const workers = ["ann", "bob", "cleo"].map((worker) => {
  const redis = new Redis(http ? { url: http.url, token: TOKEN } : { url: String(url), token });
  const limiter = RedisRateLimiter.create(redis, name, 10, { burstSeconds: 0, timeoutMs: 5000 });
  return { worker, limiter };
});

console.log("3 workers, one limit: 10 a second, over HTTP\n");
const startedAt = performance.now();
const used: number[] = [];
await Promise.all(
  workers.map(async ({ worker, limiter }) => {
    for (let call = 1; call <= 5; call++) {
      await limiter.acquire();
      used.push(performance.now() - startedAt);
      const seconds = ((used.at(-1) ?? 0) / 1000).toFixed(2);
      console.log(`  ${seconds} s  ${worker}, call ${call}`);
    }
  }),
);

if (http !== undefined) console.log(`\n${http.requests.length} HTTP requests for 15 permits`);
// 10 ms of tolerance, because the server's clock may be adjusted
const early = used.findIndex((at, i) => at < 100 * i - 10);
assert.equal(early, -1, "together the workers are never ahead of the limit");
await http?.close();
