/**
 * A language model's API allows 40 requests *and* 12 000 tokens in any minute (a minute takes a second here). The tokens
 * of a call are known only when it is over. So the most that it may take is reserved, the actual number is settled
 * afterwards, and the tokens of a failed call are given back.
 *
 * First this is done with `limitedFetch`, which any client library takes as its `fetch`. Then it is done with
 * `withEstimate` around a function, in two workers that share the limits through Redis. The server enforces both limits
 * with another algorithm and counts violations: there are none. Set REDIS_URL to use your own Redis; otherwise the
 * example starts one.
 */
import assert from "node:assert/strict";
import { Redis } from "ioredis";
import colors from "picocolors";
import { Limiter, smoothBursty } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { withEstimate } from "smooth-limiter/llm";
import { RedisLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";
import { type Answer, MINUTE_MS, type Question, startModel } from "./lib/model-server.ts";

const LIMITS = { requests: 40, tokens: 12_000 };

// In any minute a bursty policy allows its rate, its burst and one more request. The sum must stay below the API's
// limit, with requests of up to 800 tokens, and some room because requests arrive less evenly than they are sent.
const perSecond = (share: number, limit: number) => (share * limit) / (MINUTE_MS / 1000);
const POLICIES = {
  requests: smoothBursty({
    permitsPerSecond: perSecond(0.85, LIMITS.requests),
    burstSeconds: 0.05,
  }),
  tokens: smoothBursty({ permitsPerSecond: perSecond(0.8, LIMITS.tokens), burstSeconds: 0.05 }),
};

// runs of short questions, which reach the limit of requests, and of long ones, which reach the limit of tokens
const questions: Question[] = Array.from({ length: 100 }, (_, i) =>
  i % 20 < 8
    ? { prompt: 20 + (i % 9), max_tokens: 40, answer: 5 + (i % 30) }
    : { prompt: 100 + i, max_tokens: 600, answer: 50 + ((i * 37) % 500) },
);

/** Asks all questions, with so many callers at once. */
async function answerAll(
  callers: number,
  answer: (question: Question) => Promise<Answer | undefined>,
) {
  const startedAt = performance.now();
  const line = [...questions];
  let failures = 0;
  const work = async () => {
    for (let question = line.shift(); question !== undefined; question = line.shift()) {
      while ((await answer(question)) === undefined) failures += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, work));
  return { failures, minutes: (performance.now() - startedAt) / MINUTE_MS };
}

type Model = Awaited<ReturnType<typeof startModel>>;
type Outcome = Awaited<ReturnType<typeof answerAll>>;

function report(title: string, { used, violations }: Model, { failures, minutes }: Outcome) {
  const { calls, tokens } = used();
  const wrong = violations.requests + violations.tokens;
  const share = (n: number, limit: number) => `${Math.round((100 * n) / (limit * minutes))} %`;
  console.log(
    `  ${title.padEnd(28)} ${(wrong > 0 ? colors.red : colors.green)(`${wrong} violations`)}, ` +
      `${failures} failed and were repeated, ${minutes.toFixed(1)} minutes, ` +
      `${share(calls, LIMITS.requests)} of the requests, ${share(tokens, LIMITS.tokens)} of the tokens`,
  );
  return wrong;
}

const post = (question: Question): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(question),
});
const longest = (question: Question) => question.prompt + question.max_tokens;

console.log(
  `${questions.length} questions; ${LIMITS.requests} requests and ${LIMITS.tokens} tokens a minute\n`,
);

const careless = await startModel(LIMITS);
await Promise.all(questions.map((question) => fetch(careless.url, post(question))));
const { requests, tokens } = careless.violations;
console.log(`  ${"all at once".padEnd(28)} ${colors.red(`${requests + tokens} violations`)}\n`);
await careless.close();

// in this process: a fetch that estimates the tokens of each request and reads the actual number from the answer
const model = await startModel(LIMITS);
const modelFetch = limitedFetch(Limiter.create(POLICIES), {
  permits: async (request) => ({
    requests: 1,
    tokens: longest((await request.json()) as Question),
  }),
  used: async (response) => ({ tokens: ((await response.json()) as Answer).usage.total_tokens }),
  failed: { tokens: 0 },
});
const alone = await answerAll(20, async (question) => {
  const response = await modelFetch(model.url, post(question));
  return response.ok ? ((await response.json()) as Answer) : undefined;
});
const aloneWrong = report("limitedFetch", model, alone);
await model.close();

// on Redis: two workers as in two processes, and a client that does not use fetch
const server = process.env.REDIS_URL ? undefined : await startRedis();
const shared = await startModel(LIMITS);
const name = `model of ${process.pid}`;
const connections = [1, 2].map(() => new Redis(process.env.REDIS_URL ?? server?.url ?? ""));
const limiters = connections.map((redis) => RedisLimiter.create(redis, name, POLICIES));

async function complete(question: Question): Promise<Answer> {
  const response = await fetch(shared.url, post(question));
  if (!response.ok) throw new Error(`the model answers ${response.status}`);
  return (await response.json()) as Answer;
}

let turn = 0;
const together = await answerAll(20, async (question) => {
  const limiter = limiters[turn++ % limiters.length] as RedisLimiter;
  const estimate = { requests: 1, tokens: longest(question) };
  const asked = withEstimate(
    limiter,
    estimate,
    async (settle) => {
      const answer = await complete(question);
      await settle({ tokens: answer.usage.total_tokens });
      return answer;
    },
    { failed: { tokens: 0 } }, // the server has counted the request, but no tokens
  );
  return asked.catch(() => undefined);
});
const togetherWrong = report("withEstimate, two on Redis", shared, together);
await shared.close();
for (const redis of connections) redis.disconnect();
await server?.stop();

assert.ok(requests + tokens > 0, "without a limiter the limits are violated");
// up to 3 violations are allowed: on a machine that stops for a tenth of such a short minute, requests arrive together
assert.ok(aloneWrong <= 3, "one process violates neither limit");
assert.ok(togetherWrong <= 3, "two processes that share the limits violate neither");
assert.ok(
  alone.failures > 0 && together.failures > 0,
  "calls failed, were given back and were repeated",
);
