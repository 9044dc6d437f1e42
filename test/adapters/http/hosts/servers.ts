/** Each framework, with a filter in front of two routes: /hello answers "hello", /bad throws. */
import { createServer, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { type ServerType, serve } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import {
  expressGateway,
  fastifyGateway,
  fetchGateway,
  type HostOptions,
  honoGateway,
  koaGateway,
  nodeGateway,
  type Screen,
} from "../../../../src/adapters/http/index.ts";

export interface Running {
  readonly url: string;
  /** How many requests came to a route. */
  readonly served: () => number;
  close(): Promise<void>;
}

/** @param work done by /hello before it answers */
export type Host = (
  gateway: Screen,
  options?: HostOptions,
  work?: () => Promise<void>,
) => Promise<Running>;

const nothing = async () => {};

function running(server: Server | ServerType, served: () => number): Promise<Running> {
  return new Promise((resolve) => {
    const tell = () => {
      const { port } = server.address() as AddressInfo;
      const close = () =>
        new Promise<void>((closed) => {
          server.close(() => closed());
          (server as Server).closeAllConnections();
        });
      resolve({ url: `http://127.0.0.1:${port}`, served, close });
    };
    if (server.listening) tell();
    else server.listen(0, "127.0.0.1", tell);
  });
}

const node: Host = (gateway, options, work = nothing) => {
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
  return running(createServer(listener), () => served);
};

const inExpress =
  (make: typeof express): Host =>
  (gateway, options, work = nothing) => {
    let served = 0;
    const app = make();
    app.set("env", "test");
    app.use(expressGateway(gateway, options));
    app.get("/hello", async (_, res) => {
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

const inFastify: Host = async (gateway, options, work = nothing) => {
  let served = 0;
  const app = fastify({ forceCloseConnections: true });
  await app.register(fastifyGateway, { gateway, ...options });
  app.get("/hello", async () => {
    served += 1;
    await work();
    return "hello";
  });
  app.get("/bad", async () => {
    served += 1;
    throw new Error("bad");
  });
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  return { url, served: () => served, close: () => app.close() };
};

const koa: Host = (gateway, options, work = nothing) => {
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
  return running(createServer(app.callback()), () => served);
};

const hono: Host = (gateway, options, work = nothing) => {
  let served = 0;
  const app = new Hono();
  app.use(honoGateway(gateway, options));
  app.get("/hello", async (context) => {
    served += 1;
    await work();
    return context.text("hello");
  });
  app.get("/bad", () => {
    served += 1;
    throw new Error("bad");
  });
  app.onError((_, context) => context.text("bad", 500));
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  return running(server, () => served);
};

const inFetch: Host = (gateway, options, work = nothing) => {
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
  return running(serve({ fetch, port: 0, hostname: "127.0.0.1" }), () => served);
};

/** It has no types of its own. */
const express4 = createRequire(import.meta.url)("express-4") as typeof express;

export const HOSTS: Readonly<Record<string, Host>> = {
  "node:http": node,
  "Express 5": inExpress(express),
  "Express 4": inExpress(express4),
  "Fastify 5": inFastify,
  Koa: koa,
  Hono: hono,
  fetch: inFetch,
};
