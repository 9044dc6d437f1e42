/**
 * An API allows 20 requests in two seconds and says in each response how many remain. Eight workers call it with
 * `limitedFetch`. First the limiter is created with a rate that is much too high. It learns the API's limit from the
 * responses, after at most one burst of refusals. Then a colleague uses the same API key, and the limiter notices the
 * colleague's requests in the responses too. The workers' code does not handle 429 at all.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { RateLimiter } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { type Reply, startServer } from "./lib/api-server.ts";

const LIMIT = 20;
const WINDOW_MS = 2000;
const WORKERS = 8;

/** An API's limit: a window starts with the first request after the last one has ended. Each reply reports its state. */
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

/** Makes so many calls by all workers together, beside those of the colleague. */
async function scene(title: string, call: typeof fetch, calls: number, colleague = 0) {
  const api = await startServer(windowOf(LIMIT));
  const startedAt = performance.now();
  let left = calls;
  let done = 0;
  const worker = async () => {
    while (left-- > 0) {
      if ((await call(api.url)).ok) done += 1;
    }
  };
  const working = Promise.all(Array.from({ length: WORKERS }, worker));
  let others = 0;
  for (let i = 0; i < colleague; i++) {
    await sleep(250);
    if (!(await fetch(api.url)).ok) others += 1;
  }
  await working;
  const seconds = (performance.now() - startedAt) / 1000;
  await api.close();
  const refused = api.refused - others;
  const facts = `${refused} refused, ${done} of ${calls} done in ${seconds.toFixed(1)} s`;
  console.log(`  ${title.padEnd(36)} ${facts}`);
  return { refused, done, seconds };
}

console.log(`${WORKERS} workers, an API that allows ${LIMIT} requests in ${WINDOW_MS / 1000} s\n`);

const bare = await scene("fetch", fetch, 60);

const learning = limitedFetch(RateLimiter.create(1000));
const learnt = await scene("limitedFetch, rate unknown", learning, 50);

const exact = limitedFetch(RateLimiter.create(LIMIT / (WINDOW_MS / 1000), { burstSeconds: 0 }));
const shared = await scene("limitedFetch, known rate, colleague", exact, 30, 8);

assert.equal(bare.refused, 40, "without limitedFetch the API refuses all requests above its limit");
assert.equal(learnt.done, 50, "every call is made");
assert.ok(learnt.refused <= LIMIT, `${learnt.refused} refused: more than one burst`);
assert.ok(learnt.seconds < 8, `${learnt.seconds} s: three windows of work took too long`);
assert.equal(shared.done, 30, "every call is made");
assert.ok(shared.refused <= WORKERS, `${shared.refused} refused: the colleague was not noticed`);
