/** The same filter mounted twice on one request counts it once. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Checker,
  createGateway,
  expressGateway,
  fastifyGateway,
  fetchGateway,
  honoGateway,
  koaGateway,
  limitConnections,
  nodeGateway,
} from "../../src/index.ts";

const test = suite("a filter mounted twice");

/** Two filters, the first of which is mounted twice. */
type App = (checker: Checker, other: Checker) => RequestListener | Promise<RequestListener>;

const APPS: Readonly<Record<string, App>> = {
  "node:http": (checker, other) =>
    nodeGateway(
      checker,
      nodeGateway(
        other,
        nodeGateway(checker, (_, res) => res.end("hello")),
      ),
    ),
  "Express, on the application and on a router": (checker, other) => {
    const router = express.Router();
    router.use(expressGateway(checker), (_, res) => void res.send("hello"));
    return express()
      .use(expressGateway(checker), expressGateway(other))
      .use("/hello", router) as RequestListener;
  },
  "Express inside nodeGateway": (checker, other) =>
    nodeGateway(
      checker,
      express().use(expressGateway(other), expressGateway(checker), (_, res) => {
        res.send("hello");
      }) as RequestListener,
    ),
  Fastify: async (checker, other) => {
    const app = fastify();
    await app.register(fastifyGateway, { gateway: checker });
    await app.register(fastifyGateway, { gateway: other });
    await app.register(fastifyGateway, { gateway: checker });
    app.get("/hello", () => "hello");
    await app.ready();
    return app.routing.bind(app);
  },
  Koa: (checker, other) => {
    const app = new Koa();
    app.use(koaGateway(checker)).use(koaGateway(other)).use(koaGateway(checker));
    app.use((context) => {
      context.body = "hello";
    });
    return app.callback();
  },
  Hono: (checker, other) => {
    const inner = new Hono().use(honoGateway(checker));
    inner.get("/", (context) => context.text("hello"));
    const app = new Hono().use(honoGateway(checker), honoGateway(other));
    app.route("/hello", inner);
    return getRequestListener(app.fetch);
  },
  fetch: (checker, other) => {
    const inner = fetchGateway(checker, (_: Request, __: unknown) => new Response("hello"));
    return getRequestListener(fetchGateway(checker, fetchGateway(other, inner)));
  },
};

/** Returns a filter that counts its calls. */
function counting(isLate: boolean): { checker: Checker; asked: () => number } {
  let asked = 0;
  const check = () => {
    asked += 1;
    const passed = { allowed: true, retryMs: 0, outcomes: [] };
    return isLate ? Promise.resolve(passed) : passed;
  };
  return { checker: { check }, asked: () => asked };
}

async function statuses(listener: RequestListener, count: number): Promise<number[]> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const found: number[] = [];
  for (let i = 0; i < count; i++) {
    const response = await fetch(`http://127.0.0.1:${port}/hello`);
    found.push(response.status);
    await response.text();
  }
  server.closeAllConnections();
  server.close();
  return found;
}

for (const [name, app] of Object.entries(APPS)) {
  test(`${name}: once for each filter and request`, async () => {
    for (const isLate of [false, true]) {
      const [one, other] = [counting(isLate), counting(isLate)];
      const listener = await app(one.checker, other.checker);
      assert.equal(await statuses(listener, 3), [200, 200, 200]);
      assert.equal([one.asked(), other.asked()], [3, 3]);
    }
  });

  test(`${name}: a request takes one place`, async () => {
    const listener = await app(limitConnections(1), limitConnections(1));
    assert.equal(await statuses(listener, 3), [200, 200, 200]);
  });
}

test("a response is paced once by a gateway that is mounted twice", async () => {
  const gateway = await createGateway({ rules: { url: "/", rules: [{ bytesPerSecond: 1 }] } });
  const write = () => true;
  const response = {
    ...{ headersSent: false, closed: false, once: () => {}, setHeader: () => {}, write },
    ...{ end: () => {}, emit: () => true },
  };
  let served = 0;
  const listener = nodeGateway(gateway, () => {
    served += 1;
  });
  const request = { url: "/", method: "GET", headers: {}, socket: {} };
  listener(request, response as never);
  const paced = response.write;
  assert.is.not(paced, write);
  listener(request, response as never);
  assert.is(response.write, paced);
  assert.is(served, 2);
});

test("a request that is handled again at another URL is counted there", () => {
  const { checker, asked } = counting(false);
  const app = new Hono();
  app.use(honoGateway(checker));
  const listener = nodeGateway(checker, () => {});
  const request = { url: "/batch", method: "POST", headers: {}, socket: {} };
  const response = { headersSent: false, closed: false, once: () => {} } as never;
  listener(request, response);
  listener(request, response);
  assert.is(asked(), 1);
  listener(Object.assign(Object.create(request), { url: "/login" }), response);
  listener({ ...request, method: "GET" }, response);
  assert.is(asked(), 3);
});

test.run();
