/**
 * Servers with a secret, each with a filter before it. They answer SECRET below /admin/secret, and an
 * answer has RateLimit fields if the rule applied to the request. Requests are written to a raw
 * socket, because every HTTP client rewrites some targets.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import { createRequire } from "node:module";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join, posix, win32 } from "node:path";
import { unescape as unescapeQuery } from "node:querystring";
import { parse } from "node:url";
import { getRequestListener } from "@hono/node-server";
import { serveStatic } from "@hono/node-server/serve-static";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import {
  createGateway,
  expressGateway,
  fastifyGateway,
  fetchGateway,
  type Gateway,
  honoGateway,
  koaGateway,
  nodeGateway,
  readRules,
} from "../../../src/index.ts";

const SECRET = "SECRET";
export const GUARDED = /^\/admin\/secret(?:\.txt)?(?=\/|$)/i;
const RULE = "rules: [{ actor: all, unit: second, rpu: 1000000000 }]";
const RULES = [
  ...["/admin/secret", "/admin/secret.txt"].map((url) => `- { url: ${url}, ${RULE} }`),
  `- { url: "/vault/:id/secret", ${RULE} }`,
  `- { url: "/only/{id}", exact: true, ${RULE} }`,
  // everything but this is guarded there
  `- { url: /most, except: /most/public, ${RULE} }`,
].join("\n");

/** This version has no types. */
const express4 = createRequire(import.meta.url)("express-4") as typeof express;

// -- handlers that parse the path by hand, in common ways --

const decoded = (text: string) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
const cut = (text: string, ends: RegExp) => text.split(ends, 1)[0] ?? "";
const parsed = (text: string) => {
  try {
    return new URL(text, "http://localhost").pathname;
  } catch {
    return "";
  }
};
const legacy = (text: string, withHosts: boolean) => {
  try {
    return parse(text, false, withHosts).pathname ?? "";
  } catch {
    // some versions of Node refuse some ports
    return "";
  }
};
const normal = (text: string) => posix.normalize(`/${text}`);
const segments = (text: string) => text.split("/").filter((segment) => segment !== "");
const collapsed = (text: string) => text.replace(/\/+/g, "/");
const forward = (text: string) => text.replaceAll("\\", "/");
const bare = (text: string) => text.replace(/;[^/]*/g, "");

export const BY_HAND: Readonly<Record<string, (target: string) => string>> = {
  "as it came": (target) => target,
  "without a query": (target) => cut(target, /\?/),
  "without query and fragment": (target) => cut(target, /[?#]/),
  "slashes collapsed": (target) => collapsed(cut(target, /\?/)),
  "decoded, normalised": (target) => normal(decoded(cut(target, /\?/))),
  "normalised with its query": (target) => normal(decoded(target)),
  "decoded, then cut": (target) => normal(cut(decoded(target), /[?#]/)),
  "decoded, normalised, then cut": (target) => cut(normal(decoded(target)), /[?#]/),
  "normalised, then decoded": (target) => decoded(normal(cut(target, /\?/))),
  "segments decoded": (target) =>
    `/${segments(normal(cut(target, /[?#]/)))
      .map(decoded)
      .join("/")}`,
  "a URL": parsed,
  "a URL, decoded": (target) => decoded(parsed(target)),
  "a URL, decoded, normalised": (target) => normal(decoded(parsed(target))),
  // a URL parser decodes dots: where "%25" stands that would be twice
  "decoded, then a URL": (target) => (target.includes("%25") ? "" : parsed(decoded(target))),
  "a legacy URL": (target) => decoded(legacy(target, false)),
  "a legacy URL with hosts": (target) => normal(decoded(legacy(target, true))),
  "without parameters": (target) => normal(decoded(bare(cut(target, /\?/)))),
  "decoded, without parameters": (target) => normal(bare(decoded(cut(target, /[?#]/)))),
  "without parameters, then a query": (target) => normal(decoded(cut(bare(target), /\?/))),
  "decoded, without parameters, then cut": (target) => normal(cut(bare(decoded(target)), /[?#]/)),
  "up to a semicolon": (target) => normal(decoded(cut(target, /[?;]/))),
  "as Windows paths": (target) => forward(win32.normalize(decoded(cut(target, /\?/)))),
  "names as Windows takes them": (target) =>
    normal(decoded(cut(target, /\?/)).replace(/(?<=[^/. ])[. ]+(?=\/|$)/g, "")),
  "up to a NUL": (target) => cut(normal(decoded(cut(target, /\?/))), /\0/),
  "without NULs": (target) => normal(decoded(cut(target, /\?/)).replaceAll("\0", "")),
  "by unescape": (target) => normal(unescape(cut(target, /\?/))),
  "by querystring": (target) => normal(unescapeQuery(cut(target, /\?/))),
  trimmed: (target) => normal(decoded(cut(target, /\?/)).trim()),
  "behind the host": (target) => normal(decoded(target.replace(/^[a-z]+:\/\/[^/]*/i, ""))),
};

/**
 * Routers that split a path before they decode its segments: a segment may then hold a slash, and an
 * empty one is a segment.
 */
export const BY_SEGMENT: Readonly<Record<string, (target: string) => readonly string[]>> = {
  ...Object.fromEntries(
    Object.entries(BY_HAND).map(([name, read]) => [
      name,
      (target: string) => read(target).split("/").slice(1),
    ]),
  ),
  "split, then decoded": (target) => cut(target, /[?#]/).split("/").slice(1).map(decoded),
  "split, without parameters": (target) =>
    cut(target, /\?/)
      .split("/")
      .slice(1)
      .map((segment) => decoded(bare(segment))),
  "a URL, split, then decoded": (target) => parsed(target).split("/").slice(1).map(decoded),
  "split without empty segments": (target) => segments(cut(target, /[?#]/)).map(decoded),
};

const byHand: RequestListener = (req, res) => {
  const found = Object.entries(BY_HAND).filter(([, read]) => GUARDED.test(read(req.url ?? "")));
  res.end(found.length > 0 ? `${SECRET} ${found.map(([name]) => name)}` : "nothing");
};

// -- all servers --

export interface GuardedServers {
  /** The port of each server, by name. */
  readonly ports: Readonly<Record<string, number>>;
  close(): Promise<void>;
}

export async function openServers(): Promise<GuardedServers> {
  const folder = mkdtempSync(join(tmpdir(), "targets-"));
  mkdirSync(join(folder, "admin"));
  writeFileSync(join(folder, "admin", "secret.txt"), SECRET);
  const gateway = await createGateway({ rules: readRules(RULES) });
  const listeners: Record<string, RequestListener> = {
    "by hand": nodeGateway(gateway, byHand),
    "Express 4": inExpress(express4, gateway, folder),
    "Express 5": inExpress(express, gateway, folder),
    Koa: inKoa(gateway),
    Hono: getRequestListener(inHono(gateway, folder).fetch, { overrideGlobalObjects: false }),
    fetch: getRequestListener(
      fetchGateway(gateway, (request: Request) => {
        const isGuarded = GUARDED.test(decoded(new URL(request.url).pathname));
        return new Response(isGuarded ? SECRET : "nothing");
      }),
      { overrideGlobalObjects: false },
    ),
    Fastify: await inFastify(gateway, {}),
    "Fastify, lenient": await inFastify(gateway, {
      useSemicolonDelimiter: true,
      ignoreDuplicateSlashes: true,
      ignoreTrailingSlash: true,
      caseSensitive: false,
    }),
  };
  const ports: Record<string, number> = {};
  const servers: Server[] = [];
  for (const [name, listener] of Object.entries(listeners)) {
    const server = createServer(listener);
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    ports[name] = (server.address() as AddressInfo).port;
  }
  const close = async () => {
    for (const server of servers) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
    await gateway.close();
    rmSync(folder, { recursive: true });
  };
  return { ports, close };
}

function inExpress(make: typeof express, gateway: Gateway, folder: string): RequestListener {
  const app = make();
  app.set("env", "test");
  app.use(expressGateway(gateway));
  app.get("/admin/secret", (_, res) => void res.send(SECRET));
  app.get("/vault/:id/secret", (_, res) => void res.send(SECRET));
  app.get("/only/:id", (_, res) => void res.send(SECRET));
  app.get("/most/public", (_, res) => void res.send("public"));
  app.use("/most", (_, res) => void res.send(SECRET));
  const router = make.Router();
  router.use("/secret", (_, res) => void res.send(SECRET));
  app.use("/admin", router);
  app.use(make.static(folder, { dotfiles: "allow" }));
  return app as unknown as RequestListener;
}

function inKoa(gateway: Gateway): RequestListener {
  const app = new Koa();
  app.silent = true;
  app.use(koaGateway(gateway));
  app.use((context) => {
    const isGuarded = [context.path, decoded(context.path), parsed(context.url)].some((path) =>
      GUARDED.test(path),
    );
    context.body = isGuarded ? SECRET : "nothing";
  });
  return app.callback();
}

function inHono(gateway: Gateway, folder: string): Hono {
  const app = new Hono();
  app.use(honoGateway(gateway));
  app.all("/admin/secret", (context) => context.text(SECRET));
  app.all("/admin/secret/*", (context) => context.text(SECRET));
  app.all("/vault/:id/secret", (context) => context.text(SECRET));
  app.all("/only/:id", (context) => context.text(SECRET));
  app.all("/most/public", (context) => context.text("public"));
  app.all("/most/public/*", (context) => context.text("public"));
  app.all("/most/*", (context) => context.text(SECRET));
  app.use("/*", serveStatic({ root: folder }));
  app.onError((_, context) => context.text("bad", 500));
  return app;
}

async function inFastify(gateway: Gateway, routerOptions: object): Promise<RequestListener> {
  const app = fastify({ routerOptions });
  await app.register(fastifyGateway, { gateway });
  app.get("/admin/secret", async () => SECRET);
  app.get("/admin/secret/*", async () => SECRET);
  app.get("/vault/:id/secret", async () => SECRET);
  app.get("/only/:id", async () => SECRET);
  app.get("/most/public", async () => "public");
  app.get("/most/public/*", async () => "public");
  app.get("/most/*", async () => SECRET);
  await app.ready();
  return (req, res) => app.routing(req, res);
}

/** A server's answer to a target. */
export type Answer = "nothing" | "guarded" | "bypassed";

/** Sends the target unchanged, byte by byte. Characters above 255 are left out. */
export function send(port: number, target: string): Promise<{ answer: Answer; text: string }> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect(port, "127.0.0.1", () => {
      socket.write(`GET ${target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`, "latin1");
    });
    socket.setEncoding("latin1");
    socket.setTimeout(20_000, () => socket.destroy(new Error(`no answer to ${target}`)));
    socket.on("data", (chunk: string) => {
      text += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => {
      const isSecret = text.includes(SECRET);
      const isMet = /^ratelimit/im.test(text);
      resolve({ answer: !isSecret ? "nothing" : isMet ? "guarded" : "bypassed", text });
    });
  });
}
