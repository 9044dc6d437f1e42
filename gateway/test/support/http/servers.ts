/** Servers of each framework with a filter before two routes: /hello answers "hello", /bad throws. */
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttp2Server, type ServerHttp2Session } from "node:http2";
import { createRequire } from "node:module";
import type { AddressInfo, Server as NetServer } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import {
  type Checker,
  expressGateway,
  fastifyGateway,
  fetchGateway,
  type HostOptions,
  honoGateway,
  koaGateway,
  nodeGateway,
} from "../../../src/index.ts";

export interface Running {
  readonly url: string;
  readonly server: NetServer;
  /** Returns the number of requests that reached a route. */
  readonly served: () => number;
  close(): Promise<void>;
}

/** Starts a server. @param work what /hello does before it answers */
export type Host = (
  gateway: Checker,
  options?: HostOptions,
  work?: () => Promise<void>,
) => Promise<Running>;

const nothing = async () => {};

/** Creates a server for one version of HTTP. */
type Make = (listener: RequestListener) => NetServer;

const http1: Make = (listener) => createServer(listener);
/** Its requests and responses have the interface of `http`. */
const http2: Make = (listener) => createHttp2Server(listener as never);

function running(server: NetServer, served: () => number): Promise<Running> {
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
    const listener = nodeGateway(
      gateway,
      async (req, res) => {
        served += 1;
        await work();
        res.statusCode = req.url === "/bad" ? 500 : 200;
        res.end("hello");
      },
      options,
    );
    return running(make(listener), () => served);
  };

const inExpress =
  (make: typeof express): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = make();
    app.set("env", "test");
    app.use(expressGateway(gateway, options));
    app.all("/hello", async (_, res) => {
      served += 1;
      await work();
      res.send("hello");
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
    await app.register(fastifyGateway, { gateway, ...options });
    app.all("/hello", async () => {
      served += 1;
      await work();
      return "hello";
    });
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
    app.use(koaGateway(gateway, options));
    app.use(async (context) => {
      served += 1;
      await work();
      if (context.path === "/bad") throw new Error("bad");
      context.body = "hello";
    });
    return running(make(app.callback()), () => served);
  };

const hono =
  (make: Make): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = new Hono();
    app.use(honoGateway(gateway, options));
    app.all("/hello", async (context) => {
      served += 1;
      await work();
      // without a status this version of @hono/node-server answers 500 to HEAD
      return context.text("hello", 200);
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
    const fetch = fetchGateway(
      gateway,
      async (request: Request, _: unknown) => {
        served += 1;
        await work();
        const isBad = new URL(request.url).pathname === "/bad";
        return new Response("hello", { status: isBad ? 500 : 200 });
      },
      options,
    );
    return running(make(getRequestListener(fetch)), () => served);
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
};

/** The frameworks that serve HTTP/2. Express does not. */
export const HTTP2_HOSTS: Readonly<Record<string, Host>> = {
  "node:http2": node(http2),
  "Fastify 5 on HTTP/2": inFastify(http2),
  "Koa on HTTP/2": koa(http2),
  "Hono on HTTP/2": hono(http2),
  "fetch on HTTP/2": inFetch(http2),
};
