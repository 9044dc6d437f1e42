/**
 * A page that shows the limiters of a process: how many calls are granted, how many wait, how many are refused, and whether
 * the store is away. Its data come from `stats` and from the channels of `diagnostics`, as server-sent events. In this
 * example Redis goes away and comes back. With `--keep` it runs until it is interrupted, so that you can open the page.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { diagnostics, type LimiterStats, RateLimiter } from "smooth-limiter";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";
import { DASHBOARD_PAGE } from "./lib/dashboard-page.ts";

const EVERY_MS = 250;

/** A limiter in this process or on a store: only the latter counts outages. */
interface Watched {
  readonly stats: LimiterStats & { readonly outages?: number };
}

/** Follows the limiters. The returned function returns the state of each: since its last call, or now. */
function watch(limiters: Readonly<Record<string, Watched>>) {
  const longest = new Map<string, number>();
  const before = new Map<string, number>();
  const away = new Set<string>();
  diagnostics.wait.subscribe(({ limiter, waitMs }) => {
    longest.set(limiter, Math.max(longest.get(limiter) ?? 0, waitMs));
  });
  diagnostics.unavailable.subscribe(({ limiter }) => away.add(limiter));
  diagnostics.recovered.subscribe(({ limiter }) => away.delete(limiter));

  return function look() {
    const states = Object.entries(limiters).map(([name, { stats }]) => {
      const { granted, refused, waiting, outages } = stats;
      const rate = Math.round((1000 * (granted - (before.get(name) ?? 0))) / EVERY_MS);
      const longestWaitMs = Math.round(longest.get(name) ?? 0);
      before.set(name, granted);
      longest.delete(name);
      const there = away.has(name) ? "unavailable" : "available";
      const store = outages === undefined ? "this process" : there;
      return [
        name,
        { rate, waiting, longestWaitMs, refused, outages: outages ?? 0, store },
      ] as const;
    });
    return Object.fromEntries(states);
  };
}

const redisServer = await startRedis();
const redis = new Redis(redisServer.url);
redis.on("error", () => {}); // the limiter reports it
const mails = RateLimiter.create(20, { name: "mails", burstSeconds: 0 });
const options = { timeoutMs: 100, whenUnavailable: "local", instances: 2 } as const;
const api = RedisRateLimiter.create(redis, "api", 50, options);

const readers = new Set<ServerResponse>();
const server = createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    response.flushHeaders();
    readers.add(response);
    response.on("close", () => readers.delete(response));
  } else {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(DASHBOARD_PAGE);
  }
});
const look = watch({ mails, api });
let last = look();
const timer = setInterval(() => {
  last = look();
  for (const reader of readers) reader.write(`data: ${JSON.stringify(last)}\n\n`);
}, EVERY_MS);
server.listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
console.log(`The dashboard: ${url}\n`);
assert.match(await (await fetch(url)).text(), /new EventSource\("events"\)/);

// callers that run until the end
const ending = new AbortController();
const { signal } = ending;
async function call(limiter: typeof mails | typeof api): Promise<void> {
  while (!signal.aborted) await limiter.acquire(1, { signal }).catch(() => {});
}
const callers = [call(mails), call(mails), call(mails), call(api), call(api)];
const impatient = setInterval(() => mails.tryAcquire(), 100);

// the part of the browser: reads the events, and prints them
const { body } = await fetch(`${url}events`, { signal });
const reading = body
  ?.pipeThrough(new TextDecoderStream())
  .pipeTo(new WritableStream({ write: (event) => console.log(event.trim()) }))
  .catch(() => {});

await until(() => last.mails?.waiting === 3 && last.mails.rate > 5 && last.mails.refused > 0);
await redisServer.kill9();
await until(() => last.api?.store === "unavailable");
await redisServer.restart();
await until(() => last.api?.store === "available" && last.api.outages >= 1);
if (process.argv.includes("--keep")) await once(process, "SIGINT");

ending.abort();
clearInterval(impatient);
clearInterval(timer);
await Promise.all([...callers, reading]);
server.close();
server.closeAllConnections();
await api.close();
redis.disconnect();

async function until(isSo: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + 20_000;
  while (!isSo()) {
    assert.ok(performance.now() < giveUpAt, "the dashboard does not show the expected state");
    await sleep(20);
  }
}
