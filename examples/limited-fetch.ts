/**
 * An API lets in 20 requests in two seconds and says in each response how many remain. Eight workers call it with
 * `limitedFetch`. First the limiter is much too fast, since nobody has told it the limit: it learns that from the
 * responses, after one burst of refusals at the most. Then a colleague uses the same API key: what the colleague takes
 * is seen too. No worker has a line of code about 429.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { type Reply, startServer } from "./lib/api-server.ts";

const LIMIT = 20;
const WINDOW_MS = 2000;
const WORKERS = 8;

/** A counter that begins anew with the first request after a window has ended; it tells how it stands. */
function windowOf(limit: number): () => Reply {
  let began = Number.NEGATIVE_INFINITY;
  let used = 0;
  return () => {
    const now = performance.now();
    if (now >= began + WINDOW_MS) [began, used] = [now, 0];
    const resetSeconds = Math.ceil((began + WINDOW_MS - now) / 1000);
    const refused = used >= limit;
    if (!refused) used += 1;
    const headers = {
      ratelimit: `"window";r=${limit - used};t=${resetSeconds}`,
      "ratelimit-policy": `"window";q=${limit};w=${WINDOW_MS / 1000}`,
    };
    if (!refused) return { status: 200, headers };
    return { status: 429, headers: { ...headers, "retry-after": `${resetSeconds}` } };
  };
}

/** Makes so many calls by all workers; how many of them were answered well. */
async function work(call: typeof fetch, url: string, calls: number): Promise<number> {
  let left = calls;
  let done = 0;
  const worker = async () => {
    while (left-- > 0) {
      const response = await call(url);
      await response.arrayBuffer();
      if (response.ok) done += 1;
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
  return done;
}

async function scene(title: string, call: typeof fetch, calls: number, colleague = 0) {
  const api = await startServer(windowOf(LIMIT));
  const startedAt = performance.now();
  const working = work(call, api.url, calls);
  let others = 0;
  for (let i = 0; i < colleague; i++) {
    await sleep(250);
    const response = await fetch(`${api.url}/report`);
    await response.arrayBuffer();
    if (!response.ok) others += 1;
  }
  const done = await working;
  const seconds = (performance.now() - startedAt) / 1000;
  await api.close();
  const refused = api.refused - others;
  const colour = refused > LIMIT ? colors.red : colors.green;
  console.log(
    `  ${title.padEnd(36)} ${colour(`${String(refused).padStart(3)} refused`)}, ` +
      `${done} of ${calls} done in ${seconds.toFixed(1)} s`,
  );
  return { refused, done, seconds };
}

console.log(`${WORKERS} workers, an API that allows ${LIMIT} requests in ${WINDOW_MS / 1000} s\n`);

const bare = await scene("fetch", fetch, 60);

const learning = limitedFetch(RateLimiter.create(1000));
const learnt = await scene("limitedFetch, told nothing", learning, 50);

const told = limitedFetch(RateLimiter.create(LIMIT / (WINDOW_MS / 1000), { burstSeconds: 0 }));
const shared = await scene("limitedFetch, told, and a colleague", told, 30, 8);

assert.equal(bare.refused, 40, "a bare fetch gets what the API refuses");
assert.equal(learnt.done, 50, "every call is made");
assert.ok(learnt.refused <= LIMIT, `${learnt.refused} refused: not more than one burst`);
assert.ok(learnt.seconds < 8, `${learnt.seconds} s: three windows of work took too long`);
assert.equal(shared.done, 30, "every call is made");
assert.ok(shared.refused <= WORKERS, `${shared.refused} refused: the colleague was not noticed`);
