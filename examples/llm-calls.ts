/**
 * A language model's API allows 40 requests *and* 12 000 tokens in any minute (a minute takes a second here). How many
 * tokens a call takes is known when it is over. So the most that it may take is reserved, what it took is settled, and
 * what failed is given back: with `limitedFetch`, which any client library takes as its `fetch`; then with `withEstimate`
 * around a function, in two workers that share the limits through Redis. The server enforces both limits, by another
 * algorithm, and counts violations: there are none. Set REDIS_URL to use a Redis of yours; otherwise one is started.
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

// In any minute a bursty policy lets through its rate, its burst and one request more. All that is to stay below the
// limit: with requests of up to 800 tokens, and some room for how unevenly they arrive.
const perSecond = (share: number, limit: number) => (share * limit) / (MINUTE_MS / 1000);
const POLICIES = {
  requests: smoothBursty({
    permitsPerSecond: perSecond(0.85, LIMITS.requests),
    burstSeconds: 0.05,
  }),
  tokens: smoothBursty({ permitsPerSecond: perSecond(0.8, LIMITS.tokens), burstSeconds: 0.05 }),
};

// runs of short questions, where requests are what is scarce, and of long ones, where tokens are
const questions: Question[] = Array.from({ length: 100 }, (_, i) =>
  i % 20 < 8
    ? { prompt: 20 + (i % 9), max_tokens: 40, answer: 5 + (i % 30) }
    : { prompt: 100 + i, max_tokens: 600, answer: 50 + ((i * 37) % 500) },
);

/** Works through the questions with so many callers at once. */
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
      `${failures} failed and were made again, ${minutes.toFixed(1)} minutes, ` +
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

// in this process: a fetch that knows what a request may take, and reads in the answer what it took
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

// on Redis: two workers, each as in a process of its own, and a client that is no fetch
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
    { failed: { tokens: 0 } }, // the server has counted the request, and no tokens
  );
  return asked.catch(() => undefined);
});
const togetherWrong = report("withEstimate, two on Redis", shared, together);
await shared.close();
for (const redis of connections) redis.disconnect();
await server?.stop();

assert.ok(requests + tokens > 0, "without a limiter the limits are violated");
// a machine that stands still for a tenth of such a short minute lets requests arrive together
assert.ok(aloneWrong <= 3, "in one process neither limit is violated");
assert.ok(togetherWrong <= 3, "nor by two that share them");
assert.ok(alone.failures > 0 && together.failures > 0, "failures were given back and made good");
