/**
 * A page that shows the limiters of a process: how many calls are granted, how many wait, how many are refused, and whether
 * the store is away. Its data come from the channels of `diagnostics`, as server-sent events. In this example a limiter on
 * Redis goes through an outage. With `--keep` it runs until it is interrupted, so that you can open the page.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import colors from "picocolors";
import { diagnostics, type LimiterStats, RateLimiter } from "smooth-limiter";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";
import { DASHBOARD_PAGE } from "./lib/dashboard-page.ts";

const EVERY_MS = 250;

/** The state of a limiter, as the page shows it. */
interface Standing {
  readonly rate: number;
  readonly waiting: number;
  readonly longestWaitMs: number;
  readonly refused: number;
  readonly outages: number;
  readonly store: "available" | "unavailable" | "this process";
}

type Standings = Readonly<Record<string, Standing>>;

/** A limiter in this process or on a store: only the latter counts outages. */
interface Watched {
  readonly stats: LimiterStats & { readonly outages?: number };
}

/** Follows the limiters: their counters, and the messages that `diagnostics` publishes about them. */
function watch(limiters: Readonly<Record<string, Watched>>) {
  const longest = new Map<string, number>();
  const away = new Set<string>();
  const before = new Map<string, number>();
  let lookedAt = performance.now();

  diagnostics.wait.subscribe(({ limiter, waitMs }) => {
    longest.set(limiter, Math.max(longest.get(limiter) ?? 0, waitMs));
  });
  diagnostics.unavailable.subscribe(({ limiter }) => away.add(limiter));
  diagnostics.recovered.subscribe(({ limiter }) => away.delete(limiter));

  /** Returns the state of each limiter. The rate and the longest wait are those since the last call. */
  return function look(): Standings {
    const now = performance.now();
    const seconds = (now - lookedAt) / 1000;
    lookedAt = now;
    const standings = Object.entries(limiters).map(([name, { stats }]): [string, Standing] => {
      const { granted, refused, waiting, outages } = stats;
      const rate = Math.round((granted - (before.get(name) ?? 0)) / seconds);
      const longestWaitMs = Math.round(longest.get(name) ?? 0);
      before.set(name, granted);
      longest.delete(name);
      const there = away.has(name) ? "unavailable" : "available";
      const store = outages === undefined ? "this process" : there;
      return [name, { rate, waiting, longestWaitMs, refused, outages: outages ?? 0, store }];
    });
    return Object.fromEntries(standings);
  };
}

/** Serves the page, and sends its events. */
async function serve(look: () => Standings) {
  const readers = new Set<ServerResponse>();
  const server = createServer((request, response) => {
    if (request.url !== "/events") {
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(DASHBOARD_PAGE);
      return;
    }
    response.writeHead(200, {
      "content-type": "text/event-stream",
      "cache-control": "no-store",
    });
    response.flushHeaders();
    readers.add(response);
    response.on("close", () => readers.delete(response));
  });
  const timer = setInterval(() => {
    const event = `data: ${JSON.stringify(look())}\n\n`;
    for (const reader of readers) reader.write(event);
  }, EVERY_MS);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    close() {
      clearInterval(timer);
      server.close();
      server.closeAllConnections();
    },
  };
}

const redisServer = await startRedis();
const redis = new Redis(redisServer.url);
redis.on("error", () => {}); // the limiter reports it

const mails = RateLimiter.create(20, { name: "mails", burstSeconds: 0 });
const api = RedisRateLimiter.create(redis, "api", 50, {
  ...{ timeoutMs: 100, whenUnavailable: "local", instances: 2 },
});
const page = await serve(watch({ mails, api }));
console.log(`The dashboard: ${colors.bold(page.url)}\n`);
assert.match(await (await fetch(page.url)).text(), /new EventSource\("events"\)/);

// callers that run until the end
const ending = new AbortController();
const { signal } = ending;
async function call(limiter: typeof mails | typeof api): Promise<void> {
  while (!signal.aborted) await limiter.acquire(1, { signal }).catch(() => {});
}
async function impatient(): Promise<void> {
  while (!signal.aborted) {
    mails.tryAcquire();
    await sleep(100);
  }
}
const callers = [call(mails), call(mails), call(mails), impatient(), call(api), call(api)];

// the part of a browser: reads the events, and prints them
const seen: Standings[] = [];
const reading = (async () => {
  const { body } = await fetch(`${page.url}events`, { signal });
  let text = "";
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const standings = JSON.parse(event.replace("data: ", "")) as Standings;
      seen.push(standings);
      const words = Object.entries(standings).map(([name, { rate, waiting, refused, store }]) => {
        const line = `${name} ${rate}/s, ${waiting} wait, ${refused} refused`;
        return store === "unavailable" ? colors.red(`${line}, its store is away`) : line;
      });
      console.log(`  ${words.join("   ")}`);
    }
  }
})().catch(() => {});

await until(() => seen.length >= 4);
await redisServer.kill9();
await until(() => seen.at(-1)?.api?.store === "unavailable");
await redisServer.restart();
await until(() => seen.at(-1)?.api?.store === "available");
if (process.argv.includes("--keep")) await once(process, "SIGINT");

const last = seen.at(-1);
assert.ok(seen.some(({ mails }) => Number(mails?.rate) > 5));
assert.ok(seen.some(({ mails }) => mails?.waiting === 3));
assert.ok(Number(last?.mails?.refused) > 0);
assert.ok(Number(last?.api?.outages) >= 1);
assert.equal(last?.mails?.store, "this process");

ending.abort();
await Promise.all([...callers, reading]);
page.close();
await api.close();
redis.disconnect();
await redisServer.stop();

async function until(isSo: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + 20_000;
  while (!isSo()) {
    assert.ok(performance.now() < giveUpAt, "the dashboard does not show the expected state");
    await sleep(20);
  }
}
