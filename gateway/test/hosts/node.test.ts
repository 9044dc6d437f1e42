import { once } from "node:events";
import { request as ask, createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import Koa from "koa";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Answer,
  type Checker,
  createGateway,
  expressGateway,
  type GatewayRequest,
  koaGateway,
  nodeGateway,
  readRules,
} from "../../src/index.ts";

const test = suite("Node's servers");

const PASSED = { allowed: true, retryMs: 0, outcomes: [] };
const REFUSED = { allowed: false, retryMs: Infinity, outcomes: [] };

/** What a server answers to one request. */
async function answer(
  listener: Parameters<typeof createServer>[1],
  path = "/",
  headers: Record<string, string | string[]> = {},
): Promise<{ response: IncomingMessage; body: string }> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const asked = ask({ port, path, headers, agent: false }).end();
  const [response] = await once(asked, "response");
  let body = "";
  for await (const chunk of response) body += chunk;
  server.close();
  return { response, body };
}

test("the filter sees the request as it came, wherever a middleware is mounted", async () => {
  const seen: GatewayRequest[] = [];
  let address: string | undefined;
  const checker: Checker = {
    check: (request) => {
      seen.push(request);
      address = request.remoteAddress;
      return PASSED;
    },
  };
  const app = express();
  app.use("/api", expressGateway(checker), (_, res) => void res.send("hello"));
  const headers = { "x-forwarded-for": ["192.0.2.1", "192.0.2.2"], "set-cookie": ["a", "b"] };
  await answer(app, "/api//x/../y?z", headers);
  const [request] = seen;
  assert.ok(request);
  assert.equal([request.method, request.url], ["GET", "/api//x/../y?z"]);
  assert.match(address ?? "", /127\.0\.0\.1$/);
  assert.is(request.header("x-forwarded-for"), "192.0.2.1, 192.0.2.2");
  assert.is(request.header("set-cookie"), "a, b");
  assert.is(request.header("x-none"), undefined);
  assert.ok(request.raw instanceof Object);
  assert.ok(request.signal?.aborted, "the request is over");
  let published = 0;
  request.onClose?.(() => {
    published += 1;
  });
  assert.is(published, 1);
});

test("the application reads the fields, adds its own, and has the last word", async () => {
  const rules = readRules(
    "{ url: /, rules: [{ name: r, actor: all, unit: hour, rpu: 5, algo: sliding window }] }",
  );
  const gateway = await createGateway({ rules, clock: new FakeClock() });
  let read: unknown;
  const { response } = await answer(
    nodeGateway(gateway, (_: IncomingMessage, res: ServerResponse) => {
      read = [res.getHeader("ratelimit-policy"), res.hasHeader("RateLimit")];
      res.removeHeader("RateLimit-Policy");
      res.writeHead(201, { "X-Own": "1" }).end();
    }),
  );
  assert.equal(read, ['"r";q=5;w=3600', true]);
  assert.is(response.statusCode, 201);
  assert.is(response.headers["x-own"], "1");
  assert.is(response.headers["ratelimit-policy"], undefined);
  assert.match(String(response.headers.ratelimit), /^"r";r=4;t=\d+$/);

  const other = await answer(
    nodeGateway(gateway, (_: IncomingMessage, res: ServerResponse) => {
      res.writeHead(200, { ratelimit: "mine" }).end();
    }),
  );
  assert.is(other.response.headers.ratelimit, "mine");
  assert.is(other.response.headers["ratelimit-policy"], '"r";q=5;w=3600');
});

test("no Retry-After where the retry time is unknown", async () => {
  const listener = nodeGateway({ check: () => REFUSED }, () => assert.unreachable("it passed"));
  const { response } = await answer(listener);
  assert.equal([response.statusCode, response.headers["retry-after"]], [429, undefined]);
});

test("an answer of the application's that throws is the usual one, and reported", async () => {
  const received: string[] = [];
  const bad = () => {
    throw new Error("no words");
  };
  const listener = nodeGateway({ check: () => REFUSED }, () => assert.unreachable("it passed"), {
    answer: bad,
    onError: (error) => {
      received.push(String(error));
      throw error;
    },
  });
  const { response, body } = await answer(listener);
  assert.equal([response.statusCode, JSON.parse(body).status], [429, 429]);
  assert.equal(received, ["Error: no words"]);
});

test("an answer of the application's that cannot be sent is the usual one, and reported", async () => {
  const answers: Record<string, unknown> = {
    "the status of an answer must be a whole number from 200 to 599, got undefined": undefined,
    "the status of an answer must be a whole number from 200 to 599, got 1000": { status: 1000 },
    "the body of an answer must be a string, got an object": { body: { slow: "down" } },
    'an answer has a header with an invalid name: "X Y"': { headers: { "X Y": "z" } },
    'header X-A of an answer must be a string that can be sent, got "a\\nb"': {
      headers: { "X-A": "a\nb" },
    },
    'header X-A of an answer must be a string that can be sent, got "日"': {
      headers: { "X-A": "日" },
    },
    "header X-A of an answer must be a string that can be sent, got undefined": {
      headers: { "X-A": undefined },
    },
  };
  for (const [message, change] of Object.entries(answers)) {
    const received: string[] = [];
    const listener = nodeGateway({ check: () => REFUSED }, () => assert.unreachable("it passed"), {
      answer: (usual) =>
        (change === undefined ? change : { ...usual, ...(change as object) }) as Answer,
      onError: (error) => {
        received.push((error as Error).message);
        return "allow";
      },
    });
    const { response, body } = await answer(listener);
    assert.equal([response.statusCode, JSON.parse(body).status], [429, 429]);
    assert.equal(received, [message]);
  }
});

test("a filter that throws at once fails as one that rejects", async () => {
  const check = () => {
    throw new Error("tea");
  };
  const listener = nodeGateway({ check }, (_, res) => res.end("hello"));
  assert.is((await answer(listener)).body, "hello");
  const strict = nodeGateway({ check }, (_, res) => res.end("hello"), { onError: "refuse" });
  assert.is((await answer(strict)).response.statusCode, 503);
});

test("a request that was answered while it waited does not go on", async () => {
  let served = 0;
  let pass = (_: typeof PASSED) => {};
  const waiting = new Promise<typeof PASSED>((resolve) => {
    pass = resolve;
  });
  const listener = nodeGateway({ check: () => waiting }, () => {
    served += 1;
  });
  const { response } = await answer((req, res) => {
    listener(req, res);
    res.statusCode = 504;
    res.end();
  });
  const app = new Koa();
  app.use((context, next) => {
    const rest = next();
    context.res.statusCode = 504;
    context.res.end();
    return rest;
  });
  app.use(koaGateway({ check: () => waiting }));
  app.use(() => {
    served += 1;
  });
  const { response: ofKoa } = await answer(app.callback());
  pass(PASSED);
  await new Promise(setImmediate);
  assert.equal([response.statusCode, ofKoa.statusCode, served], [504, 504, 0]);
});

test.run();
