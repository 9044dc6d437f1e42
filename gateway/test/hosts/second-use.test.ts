/** One limit in several places, and two limits with one limiter. The types are those that users see. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import { fixedWindow, KeyedLimiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  createGateway,
  expressGateway,
  expressLimit,
  fastifyLimit,
  fetchLimit,
  honoLimit,
  koaLimit,
  nodeLimit,
  type RateLimited,
} from "../../src/index.ts";

const keyed = (limit: number) =>
  KeyedLimiter.create(fixedWindow({ limit, windowMs: 60_000, align: "first" }));

/** Asks for each path in turn and returns the statuses, and the warnings emitted meanwhile. */
async function asking(
  listener: RequestListener,
  paths: readonly string[],
): Promise<{ statuses: number[]; warnings: string[] }> {
  const warnings: string[] = [];
  const listen = ({ message }: Error) => void warnings.push(message);
  process.on("warning", listen);
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const statuses: number[] = [];
  for (const path of paths) {
    const response = await fetch(`http://127.0.0.1:${port}${path}`);
    await response.text();
    statuses.push(response.status);
  }
  server.close();
  server.closeAllConnections();
  process.off("warning", listen);
  return { statuses, warnings };
}

const hello = (_: unknown, res: express.Response) => void res.send("hello");

const test = suite("a limiter used twice on one request");

test("one limit on the application and on a route counts a request once", async () => {
  const limit = expressLimit(keyed(2), { key: (req: express.Request) => req.ip });
  const app = express().use(limit);
  app.get("/hello", limit, hello);
  const { statuses, warnings } = await asking(app as RequestListener, Array(3).fill("/hello"));
  assert.equal([statuses, warnings], [[200, 200, 429], []]);
});

test("several routes share one count, and others have their own", async () => {
  const app = express();
  const login = expressLimit(keyed(2));
  app.get("/login", login, hello);
  app.get("/reset", login, hello);
  app.get("/search", expressLimit(keyed(1)), hello);
  app.get("/free", hello);
  const paths = ["/login", "/reset", "/login", "/search", "/search", "/free", "/free"];
  const { statuses } = await asking(app as RequestListener, paths);
  assert.equal(statuses, [200, 200, 429, 200, 429, 200, 200]);
});

test("two limits with one limiter charge twice, with one warning", async () => {
  const limiter = keyed(4);
  const app = express().use(expressLimit(limiter));
  app.get("/hello", expressLimit(limiter), hello);
  const { statuses, warnings } = await asking(app as RequestListener, Array(3).fill("/hello"));
  assert.equal(statuses, [200, 200, 429]);
  assert.is(warnings.length, 1);
  assert.match(
    warnings[0] ?? "",
    /^a request was charged twice: .* the same limiter by the same key/,
  );
});

test("no warning for other keys, skipped requests, or other filters", async () => {
  const limiter = keyed(5);
  const gateway = await createGateway({ rules: [] });
  const app = express().use(expressGateway(gateway), expressLimit(limiter));
  app.get("/hello", expressLimit(limiter, { key: () => "everyone" }), hello);
  app.get("/skip", expressLimit(limiter, { skip: () => true }), hello);
  app.get("/other", expressLimit(keyed(1)), hello);
  const paths = ["/hello", "/skip", "/other", "/other"];
  const { statuses, warnings } = await asking(app as RequestListener, paths);
  assert.equal([statuses, warnings], [[200, 200, 200, 429], []]);
});

test("a failing limit beside another gives no warning and no rejection", async () => {
  const limiter = { for: () => ({ decide: () => Promise.reject(new Error("tea")) }) } as never;
  const app = express().use(expressLimit(limiter));
  app.get("/hello", expressLimit(limiter), hello);
  const { statuses, warnings } = await asking(app as RequestListener, ["/hello"]);
  assert.equal([statuses, warnings], [[200], []]);
});

test.run();

const places = suite("a limit per route");

places("Fastify: in any hook of a route, also behind an authentication", async () => {
  const app = fastify();
  app.decorateRequest("user", "");
  const authenticate = async (request: object) => void Object.assign(request, { user: "ann" });
  const byUser = fastifyLimit(keyed(1), { key: (request) => (request as { user?: string }).user });
  for (const hook of ["onRequest", "preParsing", "preValidation", "preHandler"] as const) {
    app.get(`/${hook}`, { [hook]: fastifyLimit(keyed(1)) }, () => "hello");
  }
  app.get("/me", { onRequest: authenticate, preHandler: byUser }, (request) => {
    const { rateLimit } = request as RateLimited;
    return `${rateLimit?.key} ${rateLimit?.remaining}`;
  });
  await app.ready();
  for (const path of ["/onRequest", "/preParsing", "/preValidation", "/preHandler"]) {
    assert.is((await app.inject(path)).statusCode, 200, path);
    assert.is((await app.inject(path)).statusCode, 429, path);
  }
  assert.is((await app.inject("/me")).body, "ann 0");
  assert.is((await app.inject("/me")).statusCode, 429);
  await app.close();
});

places("Fastify: a plugin in a hook of its choice, which leaves routes out", async () => {
  const app = fastify();
  await app.register(fastifyLimit, { limiter: keyed(1), hook: "preHandler" });
  app.get("/hello", () => "hello");
  app.get("/free", { config: { rateLimit: false } }, () => "hello");
  const search = fastifyLimit(keyed(1));
  app.get("/search", { config: { rateLimit: false }, onRequest: search }, () => "hello");
  const statuses: number[] = [];
  for (const path of ["/hello", "/hello", "/free", "/free", "/search", "/search", "/none"]) {
    statuses.push((await app.inject(path)).statusCode);
  }
  assert.equal(statuses, [200, 429, 200, 200, 200, 429, 429]);
  await app.close();
});

places(
  "Fastify: a plugin leaves out routes that were registered before it, and those of plugins",
  async () => {
    for (const isBefore of [true, false]) {
      const app = fastify();
      const free = (at: string) => {
        app.get(at, { config: { rateLimit: false } }, () => "hello");
      };
      if (isBefore) free("/free");
      await app.register(fastifyLimit, { limiter: keyed(1) });
      if (!isBefore) {
        app.get("/hello", () => "hello");
        await app.register((child, _, done) => {
          child.get("/free", { config: { rateLimit: false } }, () => "hello");
          done();
        });
      }
      for (let i = 0; i < 3; i++) assert.is((await app.inject("/free")).statusCode, 200);
      assert.is((await app.inject("/none")).statusCode, 404);
      assert.is((await app.inject("/none")).statusCode, 429);
      await app.close();
    }
  },
);

places("Fastify: a route has options, or a limiter, of its own", async () => {
  const app = fastify();
  const early = { rateLimit: { limiter: keyed(2) } };
  app.get("/early", { config: early }, () => "hello");
  await app.register(fastifyLimit, { limiter: keyed(4), headers: false });
  app.get("/hello", () => "hello");
  const shared = { limiter: keyed(1), headers: "x-ratelimit" };
  app.get("/one", { config: { rateLimit: shared } }, () => "hello");
  app.get("/two", { config: { rateLimit: shared } }, () => "hello");
  app.get("/dear", { config: { rateLimit: { cost: 3 } } }, () => "hello");
  app.get("/usual", { config: { rateLimit: true } }, () => "hello");
  const statuses: number[] = [];
  for (const path of [
    "/one",
    "/two",
    "/early",
    "/early",
    "/early",
    "/dear",
    "/dear",
    "/usual",
    "/hello",
  ]) {
    statuses.push((await app.inject(path)).statusCode);
  }
  assert.equal(statuses, [200, 429, 200, 200, 429, 200, 429, 200, 429]);
  assert.is((await app.inject("/one")).headers["x-ratelimit-limit"], "1");
  assert.is((await app.inject("/hello")).headers["x-ratelimit-limit"], undefined);
  for (const [rateLimit, words] of [
    [{ max: 3 }, /options has no "max"/],
    [5, /config.rateLimit must be an object, got 5/],
    [{ limiter: 5 }, /limiter must be a limiter/],
  ] as const) {
    const another = fastify();
    await another.register(fastifyLimit, { limiter: keyed(1) });
    assert.throws(() => another.get("/", { config: { rateLimit } }, () => "hello"), words);
  }
  await app.close();
});

places("Fastify: a bad option rejects the registration", async () => {
  for (const [options, words] of [
    [{ limiter: keyed(1), hook: "onSend" }, /hook must be one of onRequest, preParsing/],
    [{ limiter: keyed(1), max: 5 }, /options has no "max"/],
    [{ limiter: 5 }, /limiter must be a limiter/],
  ] as const) {
    const app = fastify();
    try {
      await app.register(fastifyLimit, options as never);
      assert.unreachable("it was taken");
    } catch (error) {
      assert.match(String(error), words);
    }
  }
});

places("Koa, Hono, node:http and fetch know the types of their requests", async () => {
  const koa = new Koa();
  koa.use(koaLimit(keyed(1), { key: (context) => context.req.headers.host as string }));
  koa.use((context) => {
    context.body = "hello";
  });
  const hono = new Hono<{ Variables: RateLimited }>();
  hono.use(honoLimit(keyed(1), { key: (context) => context.req.raw.url }));
  hono.get("/hello", (context) => context.text(`${context.get("rateLimit")?.remaining}`, 200));
  const node: RequestListener = nodeLimit(keyed(1), (req, res) => {
    res.end(`${req.rateLimit?.remaining}`);
  });
  const handler = fetchLimit(
    keyed(1),
    (request, _env: unknown) => {
      return new Response(`${request.rateLimit?.remaining}`);
    },
    { key: (request) => request.headers.get("x-user") },
  );
  const listeners = [
    koa.callback(),
    getRequestListener(hono.fetch),
    node,
    getRequestListener(handler),
  ];
  for (const listener of listeners) {
    assert.equal((await asking(listener, ["/hello", "/hello"])).statuses, [200, 429]);
  }
});

places.run();
