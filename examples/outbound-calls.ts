/**
 * Five workers call an API that allows 20 requests in any second. They share one limiter, which stays below that. Then
 * a colleague's script uses up the same limit, and the API answers 429 with Retry-After. `pause` holds all five workers
 * back for that time.
 */
import assert from "node:assert/strict";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";
import { startStrictServer } from "./lib/api-server.ts";

const WORKERS = 5;
const api = await startStrictServer(20);

// requests arrive less evenly than they are sent, so the rate is clearly below the server's limit
const limiter = RateLimiter.create(15, { burstSeconds: 0 });

async function call(path: string): Promise<Response> {
  for (;;) {
    await limiter.acquire();
    const response = await fetch(`${api.url}${path}`);
    if (response.status !== 429) return response;
    const retryAfterMs = 1000 * Number(response.headers.get("retry-after"));
    limiter.pause(retryAfterMs);
    refusals += 1;
    tell(colors.red(`429: all workers pause for ${retryAfterMs} ms`));
  }
}

const customers = Array.from({ length: 45 }, (_, i) => `/customers/${i + 1}`);
const served: string[] = [];
let refusals = 0;

async function work(): Promise<void> {
  for (let path = customers.shift(); path !== undefined; path = customers.shift()) {
    await call(path);
    served.push(path);
    if (served.length === 15) await spendTheAllowance();
  }
}

/** Another program with the same API key. */
async function spendTheAllowance(): Promise<void> {
  await Promise.all(Array.from({ length: 30 }, () => fetch(`${api.url}/report`)));
  tell(colors.yellow("a colleague's script has sent 30 at once"));
}

const startedAt = performance.now();
function tell(what: string): void {
  const seconds = colors.dim(`${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  console.log(`  ${seconds}  ${String(served.length).padStart(2)} done  ${what}`.trimEnd());
}

console.log(`${WORKERS} workers, 45 customers, an API that allows 20 requests in any second\n`);
const progress = setInterval(() => tell(""), 500);
await Promise.all(Array.from({ length: WORKERS }, work));
clearInterval(progress);
await api.close();

tell(colors.green("all done"));
console.log(`\nRefused: ${refusals}, for ${WORKERS} workers. Each refused call was repeated.`);
assert.equal(new Set(served).size, 45, "every customer is served");
assert.ok(refusals <= 2 * WORKERS, `${refusals} were refused: the workers did not pause together`);
