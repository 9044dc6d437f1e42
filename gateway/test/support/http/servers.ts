/**
 * Servers of each framework with a filter before the routes: /hello answers "hello", /401 answers that status,
 * /bad throws.
 */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createHttp2Server, type ServerHttp2Session } from "node:http2";
import { createRequire } from "node:module";
import type { AddressInfo, Server as NetServer } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import type { Limiter } from "smooth-limiter";
import {
  type Checker,
  expressGateway,
  expressLimit,
  fastifyGateway,
  fastifyLimit,
  fetchGateway,
  fetchLimit,
  type HostLimitOptions,
  type HostOptions,
  honoGateway,
  honoLimit,
  koaGateway,
  koaLimit,
  type LimiterByKey,
  type LimitVerdict,
  nodeGateway,
  nodeLimit,
  type RateLimited,
} from "../../../src/index.ts";
import { tinyGateway, tinyLimit } from "../example-host/tiny.ts";
import { type Handler, serve } from "../example-host/tiny-framework.ts";

export interface Running {
  readonly url: string;
  readonly server: NetServer;
  /** Returns the number of requests that reached a route. */
  readonly served: () => number;
  close(): Promise<void>;
}

/** A limit without rules, instead of a gateway. */
export interface Limit {
  readonly limiter: Limiter | LimiterByKey;
  readonly options?: HostLimitOptions;
}

/** Starts a server. @param work what /hello does before it answers; it gets the verdict of a limit */
export type Host = (
  gateway: Checker | Limit,
  options?: HostOptions,
  work?: (verdict: LimitVerdict | undefined) => Promise<void>,
) => Promise<Running>;

const nothing = async () => {};

function isLimit(front: Checker | Limit): front is Limit {
  return front.limiter !== undefined && !("check" in front);
}

/** Creates a server for one version of HTTP. */
type Make = (listener: RequestListener) => NetServer;

const http1: Make = (listener) => createServer(listener);
/** Its requests and responses have the interface of `http`. */
const http2: Make = (listener) => createHttp2Server(listener as never);

/** Returns the status of a route. */
function statusOf(path = ""): number {
  return path.startsWith("/401") ? 401 : path.startsWith("/bad") ? 500 : 200;
}

/** Starts a server. */
export function running(server: NetServer, served: () => number): Promise<Running> {
  return new Promise((resolve) => {
    const sessions = new Set<ServerHttp2Session>();
    server.on("session", (session: ServerHttp2Session) => {
      sessions.add(session);
      session.on("close", () => sessions.delete(session));
    });
    const tell = () => {
      const { port } = server.address() as AddressInfo;
      const close = () =>
        new Promise<void>((closed) => {
          server.close(() => closed());
          (server as Partial<Server>).closeAllConnections?.();
          for (const session of sessions) session.destroy();
        });
      resolve({ url: `http://127.0.0.1:${port}`, server, served, close });
    };
    if (server.listening) tell();
    else server.listen(0, "127.0.0.1", tell);
  });
}

const node =
  (make: Make): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const handler: (req: IncomingMessage & RateLimited, res: ServerResponse) => void = async (
      req,
      res,
    ) => {
      served += 1;
      await work(req.rateLimit);
      res.statusCode = statusOf(req.url);
      res.end("hello");
    };
    const listener = isLimit(gateway)
      ? nodeLimit(gateway.limiter, handler, gateway.options)
      : nodeGateway(gateway, handler, options);
    return running(make(listener), () => served);
  };

const inExpress =
  (make: typeof express): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = make();
    app.set("env", "test");
    app.use(
      isLimit(gateway)
        ? expressLimit(gateway.limiter, gateway.options)
        : expressGateway(gateway, options),
    );
    app.all(["/hello", "/401"], async (req, res) => {
      served += 1;
      await work(req.rateLimit);
      res.status(statusOf(req.path)).send("hello");
    });
    app.get("/bad", () => {
      served += 1;
      throw new Error("bad");
    });
    return running(createServer(app), () => served);
  };

const inFastify =
  (make: Make): Host =>
  async (gateway, options, work = nothing) => {
    let served = 0;
    let made: NetServer | undefined;
    const serverFactory = (listener: unknown) => {
      made = make(listener as RequestListener);
      return made as Server;
    };
    const app = fastify({ serverFactory });
    if (isLimit(gateway)) {
      await app.register(fastifyLimit, { limiter: gateway.limiter, ...gateway.options });
    } else {
      await app.register(fastifyGateway, { gateway, ...options });
    }
    for (const path of ["/hello", "/401"]) {
      app.all(path, async (request, reply) => {
        served += 1;
        await work((request as RateLimited).rateLimit);
        reply.code(statusOf(path));
        return "hello";
      });
    }
    app.get("/bad", async () => {
      served += 1;
      throw new Error("bad");
    });
    await app.ready();
    return running(made as unknown as NetServer, () => served);
  };

const koa =
  (make: Make): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = new Koa();
    app.silent = true;
    app.use(
      isLimit(gateway) ? koaLimit(gateway.limiter, gateway.options) : koaGateway(gateway, options),
    );
    app.use(async (context) => {
      served += 1;
      await work(context.state.rateLimit);
      if (context.path === "/bad") throw new Error("bad");
      context.status = statusOf(context.path);
      context.body = "hello";
    });
    return running(make(app.callback()), () => served);
  };

const hono =
  (make: Make): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = new Hono<{ Variables: RateLimited }>();
    app.use(
      isLimit(gateway)
        ? honoLimit(gateway.limiter, gateway.options)
        : honoGateway(gateway, options),
    );
    app.on(["GET", "HEAD", "POST"], ["/hello", "/401"], async (context) => {
      served += 1;
      await work(context.get("rateLimit"));
      // without a status this version of @hono/node-server answers 500 to HEAD
      return context.text("hello", statusOf(context.req.path) as 200);
    });
    app.get("/bad", () => {
      served += 1;
      throw new Error("bad");
    });
    app.onError((_, context) => context.text("bad", 500));
    return running(make(getRequestListener(app.fetch)), () => served);
  };

const inFetch =
  (make: Make): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const handler = async (request: Request & RateLimited, _: unknown) => {
      served += 1;
      await work(request.rateLimit);
      return new Response("hello", { status: statusOf(new URL(request.url).pathname) });
    };
    const fetch = isLimit(gateway)
      ? fetchLimit(gateway.limiter, handler, gateway.options)
      : fetchGateway(gateway, handler, options);
    return running(make(getRequestListener(fetch)), () => served);
  };

const tiny: Host = (gateway, options, work = nothing) => {
  let served = 0;
  const handler: Handler = async (context) => {
    served += 1;
    await work((context as RateLimited).rateLimit);
    const status = statusOf(context.req.url);
    if (status === 500) throw new Error("bad");
    context.res.statusCode = status;
    return "hello";
  };
  const filtered = isLimit(gateway)
    ? tinyLimit(gateway.limiter, handler, gateway.options)
    : tinyGateway(gateway, handler, options);
  return running(createServer(serve(filtered)), () => served);
};

/** This version has no types. */
const express4 = createRequire(import.meta.url)("express-4") as typeof express;

export const HOSTS: Readonly<Record<string, Host>> = {
  "node:http": node(http1),
  "Express 5": inExpress(express),
  "Express 4": inExpress(express4),
  "Fastify 5": inFastify(http1),
  Koa: koa(http1),
  Hono: hono(http1),
  fetch: inFetch(http1),
  "the example of CONTRIBUTING": tiny,
};

/** The frameworks that serve HTTP/2. Express does not. */
export const HTTP2_HOSTS: Readonly<Record<string, Host>> = {
  "node:http2": node(http2),
  "Fastify 5 on HTTP/2": inFastify(http2),
  "Koa on HTTP/2": koa(http2),
  "Hono on HTTP/2": hono(http2),
  "fetch on HTTP/2": inFetch(http2),
};
