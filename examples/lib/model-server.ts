/**
 * A simulated API of a language model. It allows so many requests and so many tokens in any minute, answers 429 to a
 * call above either limit, and reports in each answer how many tokens it took. It keeps its own log of the calls that
 * it let in, and does not use smooth-limiter. A minute takes a second here.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

export const MINUTE_MS = 1000;

/** A question of `prompt` tokens; the answer is cut off at `max_tokens`, and is in fact `answer` tokens long. */
export interface Question {
  readonly prompt: number;
  readonly max_tokens: number;
  readonly answer: number;
}

export interface Answer {
  readonly usage: { readonly total_tokens: number };
}

interface Entry {
  readonly at: number;
  tokens: number;
}

/** Starts the server. Every `failsEvery`-th call that it lets in fails with a 500: it counts as a request without tokens. */
export async function startModel(limits: { requests: number; tokens: number }, failsEvery = 11) {
  let log: Entry[] = [];
  let calls = 0;
  let tokensUsed = 0;
  let violations = 0;

  const server = createServer(async (request, response) => {
    const question = (await json(request)) as Question;
    const now = performance.now();
    log = log.filter(({ at }) => at > now - MINUTE_MS);
    // like real services: the largest possible answer counts until the actual one is known
    const longest = question.prompt + question.max_tokens;
    const tokens = log.reduce((sum, entry) => sum + entry.tokens, 0);
    if (log.length + 1 > limits.requests || tokens + longest > limits.tokens) {
      violations += 1;
      response.writeHead(429, { "retry-after": "1" }).end();
      return;
    }

    const entry = { at: now, tokens: longest };
    log.push(entry);
    calls += 1;
    const fails = calls % failsEvery === 0;
    await sleep(20);
    entry.tokens = fails ? 0 : question.prompt + question.answer;
    tokensUsed += entry.tokens;
    if (fails) {
      response.writeHead(500).end();
      return;
    }
    const answer: Answer = { usage: { total_tokens: entry.tokens } };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/complete`,
    /** The number of calls above a limit and below both, and the tokens that the latter took. */
    used: () => ({ violations, calls, tokens: tokensUsed }),
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}
