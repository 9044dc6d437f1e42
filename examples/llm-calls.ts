/**
 * A language model's API allows 40 requests *and* 12 000 tokens in any minute (a minute takes a second here). The tokens
 * of a call are known only when it is over. So the most that it may take is reserved, the actual number is settled
 * afterwards, and the tokens of a failed call are given back: first by `limitedFetch`, then by `withEstimate` around a
 * function, in two workers that share the limits through Redis. The server enforces both limits and counts violations.
 */
import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { Limiter, smoothBursty } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { withEstimate } from "smooth-limiter/llm";
import { RedisLimiter } from "smooth-limiter/redis";
import { freshUrl } from "../test/support/redis/server.ts";
import { type Answer, MINUTE_MS, type Question, startModel } from "./lib/model-server.ts";

const LIMITS = { requests: 40, tokens: 12_000 };

// In any minute a bursty policy allows its rate, its burst and one more request. The sum must stay below the API's
// limit, with requests of up to 800 tokens, and some room because requests arrive less evenly than they are sent.
const policy = (share: number, limit: number) =>
  smoothBursty({ permitsPerSecond: (share * limit * 1000) / MINUTE_MS, burstSeconds: 0.05 });
const POLICIES = { requests: policy(0.85, LIMITS.requests), tokens: policy(0.8, LIMITS.tokens) };

// runs of short questions, which reach the limit of requests, and of long ones, which reach the limit of tokens
const questions: Question[] = Array.from({ length: 100 }, (_, i) =>
  i % 20 < 8
    ? { prompt: 20 + (i % 9), max_tokens: 40, answer: 5 + (i % 30) }
    : { prompt: 100 + i, max_tokens: 600, answer: 50 + ((i * 37) % 500) },
);
const longest = (question: Question) => question.prompt + question.max_tokens;
const post = (question: Question): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(question),
});

type Answering = (url: string, question: Question) => Promise<Answer | undefined>;

/** Asks all questions, with so many callers at once, again after a failure. Returns the number of violations. */
async function askAll(title: string, callers: number, answer: Answering): Promise<number> {
  const model = await startModel(LIMITS);
  const startedAt = performance.now();
  const line = [...questions];
  let failures = 0;
  const caller = async () => {
    for (let question = line.shift(); question !== undefined; question = line.shift()) {
      while ((await answer(model.url, question)) === undefined) failures += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  const minutes = (performance.now() - startedAt) / MINUTE_MS;
  await model.close();
  const { violations, calls, tokens } = model.used();
  const share = (n: number, limit: number) => `${Math.round((100 * n) / (limit * minutes))} %`;
  console.log(
    `  ${title.padEnd(27)} ${violations} violations, ${failures} failed and were repeated, ${minutes.toFixed(1)} minutes, ` +
      `${share(calls, LIMITS.requests)} of the requests, ${share(tokens, LIMITS.tokens)} of the tokens`,
  );
  assert.ok(title === "fetch" || failures > 0, "calls failed, were given back and were repeated");
  return violations;
}

console.log("100 questions; 40 requests and 12 000 tokens a minute\n");

const careless = await askAll("fetch", 100, async (url, question) => {
  const response = await fetch(url, post(question));
  return response.ok ? ((await response.json()) as Answer) : { usage: { total_tokens: 0 } };
});

// a fetch that estimates the tokens of each request and reads the actual number from the answer
const modelFetch = limitedFetch(Limiter.create(POLICIES), {
  permits: async (request) => ({
    requests: 1,
    tokens: longest((await request.json()) as Question),
  }),
  used: async (response) => ({ tokens: ((await response.json()) as Answer).usage.total_tokens }),
  failed: { tokens: 0 },
});
const alone = await askAll("limitedFetch", 20, async (url, question) => {
  const response = await modelFetch(url, post(question));
  return response.ok ? ((await response.json()) as Answer) : undefined;
});

// on Redis: two workers as in two processes, and a client that does not use fetch
async function complete(url: string, question: Question): Promise<Answer> {
  const response = await fetch(url, post(question));
  if (!response.ok) throw new Error(`the model answers ${response.status}`);
  return (await response.json()) as Answer;
}

const redisUrl = process.env.REDIS_URL ?? (await freshUrl());
const connections = [1, 2].map(() => new Redis(redisUrl));
const [here, there] = connections.map((redis) =>
  RedisLimiter.create(redis, `model of ${process.pid}`, POLICIES),
) as [RedisLimiter, RedisLimiter];
let turn = 0;
const together = await askAll("withEstimate, two on Redis", 20, (url, question) =>
  withEstimate(
    turn++ % 2 ? here : there,
    { requests: 1, tokens: longest(question) },
    async (settle) => {
      const answer = await complete(url, question);
      await settle({ tokens: answer.usage.total_tokens });
      return answer;
    },
    { failed: { tokens: 0 } }, // the server has counted the request, but no tokens
  ).catch(() => undefined),
);
for (const redis of connections) redis.disconnect();

assert.ok(careless > 0, "without a limiter the limits are violated");
// up to 3 violations are allowed: on a machine that stops for a tenth of such a short minute, requests arrive together
assert.ok(alone <= 3, "one process violates neither limit");
assert.ok(together <= 3, "two processes that share the limits violate neither");
