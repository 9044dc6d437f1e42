/**
 * A language model's API has two limits at once: 1200 requests a minute and 240 000 tokens a minute. The tokens of a
 * call are known only afterwards. So an estimate is reserved, and `settle` corrects it to the number in the answer.
 * Unused tokens of a failed call are given back. The server enforces both limits and counts violations.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { Limiter, smoothBursty } from "smooth-limiter";
import { bucket, startServer, tooMany } from "./lib/api-server.ts";

const REQUESTS_PER_SECOND = 1200 / 60;
const TOKENS_PER_SECOND = 240_000 / 60;

/** A question of so many tokens; the answer is cut off at `longest` and is in fact `answer` tokens long. */
interface Question {
  readonly prompt: number;
  readonly longest: number;
  readonly answer: number;
}

// runs of short questions, which reach the limit of requests, and of long ones, which reach the limit of tokens
const questions: Question[] = Array.from({ length: 45 }, (_, i) =>
  i % 15 < 10
    ? { prompt: 20 + i, longest: 30, answer: 5 + (i % 20) }
    : { prompt: 300 + 10 * i, longest: 600, answer: 50 + ((i * 37) % 500) },
);

/** The API: each limit is a bucket of two seconds' worth. Every eleventh accepted call fails. */
function startModel() {
  const requests = bucket(2 * REQUESTS_PER_SECOND, REQUESTS_PER_SECOND);
  const tokens = bucket(2 * TOKENS_PER_SECOND, TOKENS_PER_SECOND);
  let calls = 0;
  return startServer(async ({ searchParams }) => {
    const used = Number(searchParams.get("prompt")) + Number(searchParams.get("answer"));
    const comeBackMs = Math.max(requests.lacks(1), tokens.lacks(used));
    if (comeBackMs > 0) return tooMany(comeBackMs);
    calls += 1;
    requests.take(1);
    if (calls % 11 === 0) return { status: 500 };
    tokens.take(used);
    await sleep(30);
    return { status: 200, body: { totalTokens: used } };
  });
}

const ask = (url: string, { prompt, answer }: Question) =>
  fetch(`${url}/complete?prompt=${prompt}&answer=${answer}`);

console.log("45 questions for an API with 1200 requests and 240 000 tokens a minute\n");

const unlimited = await startModel();
await Promise.all(questions.map((question) => ask(unlimited.url, question)));
await unlimited.close();
console.log(`  all at once        ${colors.red(`${unlimited.refused} refused`)}\n`);

const limiter = Limiter.create({
  requests: smoothBursty({ permitsPerSecond: REQUESTS_PER_SECOND, burstSeconds: 0.5 }),
  tokens: smoothBursty({ permitsPerSecond: TOKENS_PER_SECOND, burstSeconds: 0.5 }),
});

const api = await startModel();
const waitedFor: Record<string, number> = { nothing: 0, requests: 0, tokens: 0 };
let used = 0;
let reserved = 0;
let failures = 0;

async function answered(question: Question): Promise<void> {
  const estimate = question.prompt + question.longest;
  for (;;) {
    const permits = { requests: 1, tokens: estimate };
    const { allowed, policy } = limiter.peek(permits);
    waitedFor[allowed ? "nothing" : policy] = (waitedFor[allowed ? "nothing" : policy] ?? 0) + 1;

    const reservation = limiter.reserve(permits);
    await reservation.ready();
    const response = await ask(api.url, question);
    if (response.ok) {
      const { totalTokens } = (await response.json()) as { totalTokens: number };
      reservation.settle({ tokens: totalTokens });
      used += totalTokens;
      reserved += estimate;
      return;
    }
    reservation.settle({ tokens: 0 });
    failures += 1;
  }
}

const startedAt = performance.now();
const line = [...questions];
async function caller(): Promise<void> {
  for (let question = line.shift(); question !== undefined; question = line.shift()) {
    await answered(question);
  }
}
await Promise.all([caller(), caller(), caller()]);
await api.close();

const seconds = (performance.now() - startedAt) / 1000;
console.log(`  with the limiter   ${colors.green(`${api.refused} refused`)}, all answered in ${seconds.toFixed(1)} s
  calls that waited  ${waitedFor.requests} for requests, ${waitedFor.tokens} for tokens, ${waitedFor.nothing} for nothing
  tokens             ${reserved} reserved, ${used} used: ${reserved - used} went to other calls
  failed calls       ${failures}, repeated; their tokens were given back`);

assert.ok(unlimited.refused > 0, "without a limiter the server refuses calls");
assert.equal(api.refused, 0, "with the limiter neither limit is violated");
assert.ok(used < reserved && failures > 0, "estimates were corrected, and failed calls repeated");
