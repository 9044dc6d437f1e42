/**
 * The calls of `outbound-calls.ts`, made by two processes with one API key. The limit is in Redis, and so is the pause after
 * a 429: it holds for both, whichever of them got the 429.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";
import { startStrictServer } from "./lib/api-server.ts";

const [, , api, key] = process.argv;
if (api !== undefined && key !== undefined) await callApi(api, key);
else await lead();

/** Runs one of the processes: 20 calls by three workers. */
async function callApi(api: string, key: string): Promise<void> {
  const redis = new Redis(process.env.REDIS_URL ?? "");
  // clearly below the 20 a second that the API allows
  const limiter = RedisRateLimiter.create(redis, `api of ${key}`, 15, { burstSeconds: 0 });
  let left = 20;
  const work = async () => {
    while (left-- > 0) {
      for (;;) {
        await limiter.acquire();
        const response = await fetch(api);
        if (response.status !== 429) break;
        process.send?.("refused");
        await limiter.pause(1000 * Number(response.headers.get("retry-after")));
      }
      process.send?.("done");
    }
  };
  await Promise.all([work(), work(), work()]);
  redis.disconnect();
  process.disconnect?.();
}

async function lead(): Promise<void> {
  const env = { ...process.env, REDIS_URL: process.env.REDIS_URL ?? (await freshUrl()) };
  const api = await startStrictServer(20);
  console.log("2 processes, 20 calls each, an API that allows 20 in any second\n");
  const startedAt = performance.now();
  const tell = (what: string) =>
    console.log(`  ${((performance.now() - startedAt) / 1000).toFixed(1)} s  ${what}`);
  const counts = { done: 0, refused: 0 };
  const callers = ["first", "second"].map((name) => {
    const caller = fork(fileURLToPath(import.meta.url), [api.url, `${process.pid}`], { env });
    caller.on("message", async (what: keyof typeof counts) => {
      counts[what] += 1;
      if (what === "refused") tell(`429 for the ${name} process: both pause`);
      else if (counts.done % 5 === 0) tell(`${counts.done} calls done`);
      if (what === "done" && counts.done === 12) {
        tell("a third program uses the same API key: 30 calls at once");
        await Promise.all(Array.from({ length: 30 }, () => fetch(api.url)));
      }
    });
    return once(caller, "exit");
  });
  await Promise.all(callers);
  await api.close();
  tell(`all done, ${counts.refused} were refused and repeated`);
  assert.equal(counts.done, 40, "every call is made");
  assert.ok(counts.refused <= 12, "the processes did not pause together");
}
