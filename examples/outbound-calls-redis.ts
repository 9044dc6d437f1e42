/**
 * The calls of `outbound-calls.ts`, made by two processes with one API key. The limit is in Redis, and
 * so is the pause after a 429: it holds for both processes, whichever of them got the 429. Set REDIS_URL
 * to use your own Redis; otherwise the example starts one.
 */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import colors from "picocolors";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";
import { ok, slidingSecond, startServer, tooMany } from "./lib/api-server.ts";

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
  await Promise.all(Array.from({ length: 3 }, work));
  redis.disconnect();
  process.disconnect?.();
}

async function lead(): Promise<void> {
  const server = process.env.REDIS_URL ? undefined : await startRedis();
  const admit = slidingSecond(20);
  const api = await startServer(() => {
    const comeBackMs = admit();
    return comeBackMs === 0 ? ok : tooMany(comeBackMs);
  });

  console.log("2 processes, 20 calls each, an API that allows 20 in any second\n");
  const startedAt = performance.now();
  const tell = (what: string) => {
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    console.log(`  ${colors.dim(`${seconds} s`)}  ${what}`);
  };
  const counts = { done: 0, refused: 0 };
  const env = { ...process.env, REDIS_URL: process.env.REDIS_URL ?? server?.url };
  const callers = ["first", "second"].map((name) => {
    const caller = fork(fileURLToPath(import.meta.url), [api.url, `${process.pid}`], { env });
    caller.on("message", async (what: keyof typeof counts) => {
      counts[what] += 1;
      if (what === "refused") tell(colors.red(`429 for the ${name} process: both pause`));
      else if (counts.done % 5 === 0) tell(`${counts.done} calls done`);
      if (what === "done" && counts.done === 12) {
        tell(colors.yellow("a third program uses the same API key: 30 calls at once"));
        await Promise.all(Array.from({ length: 30 }, () => fetch(api.url)));
      }
    });
    return caller;
  });
  await Promise.all(callers.map((caller) => once(caller, "exit")));
  await api.close();
  await server?.stop();

  tell(colors.green(`all done, ${counts.refused} were refused and repeated`));
  assert.equal(counts.done, 40, "every call is made");
  assert.ok(
    counts.refused <= 12,
    `${counts.refused} were refused: the processes did not pause together`,
  );
}
