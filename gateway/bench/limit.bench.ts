/**
 * What does a limit in one call cost a request, beside express-rate-limit on Express and
 * @fastify/rate-limit on Fastify? Pairs on sockets in memory, each pair several times in a process of its own
 * (`lib/pairs.ts`). All count by the client's address, in a window in the process, and send the fields of
 * their default.
 */
import { createServer, type RequestListener, type Server } from "node:http";
import rateLimit from "@fastify/rate-limit";
import express, { type RequestHandler } from "express";
import { rateLimit as expressRateLimit } from "express-rate-limit";
import fastify, { type FastifyInstance } from "fastify";
import { fixedWindow, KeyedLimiter } from "smooth-limiter";
import { expressLimit, fastifyLimit } from "smooth-limiter-gateway";
import { target } from "../../bench/lib/report.ts";
import { compareIfApart, comparePair } from "./lib/pairs.ts";
import type { MakeServer } from "./lib/servers.ts";

const PLENTY = 1e9;
const HOUR_MS = 3_600_000;

const perHour = () =>
  KeyedLimiter.create(fixedWindow({ limit: PLENTY, windowMs: HOUR_MS, align: "first" }));

function onExpress(...handlers: RequestHandler[]): Server {
  const app = express();
  for (const handler of handlers) app.use(handler);
  app.get("/", (_, res) => void res.type("text/plain").send("hello"));
  return createServer(app as RequestListener);
}

async function onFastify(plug: (app: FastifyInstance) => unknown): Promise<Server> {
  const app = fastify();
  await plug(app);
  app.get("/", (_, reply) => reply.type("text/plain").send("hello"));
  await app.ready();
  return app.server;
}

const servers: Record<string, MakeServer> = {
  "Express, no limit": () => onExpress(),
  "Express, expressLimit": () => onExpress(expressLimit(perHour())),
  "Express, express-rate-limit": () =>
    onExpress(expressRateLimit({ limit: PLENTY, windowMs: HOUR_MS })),
  "Express, express-rate-limit, draft-8": () => {
    const options = { standardHeaders: "draft-8", legacyHeaders: false, validate: false } as const;
    return onExpress(expressRateLimit({ limit: PLENTY, windowMs: HOUR_MS, ...options }));
  },
  "Fastify, no limit": () => onFastify(() => {}),
  "Fastify, fastifyLimit": () =>
    onFastify((app) => app.register(fastifyLimit, { limiter: perHour() })),
  "Fastify, fastifyLimit, x-ratelimit": () =>
    onFastify((app) => app.register(fastifyLimit, { limiter: perHour(), headers: "x-ratelimit" })),
  "Fastify, @fastify/rate-limit": () =>
    onFastify((app) => app.register(rateLimit, { max: PLENTY, timeWindow: HOUR_MS })),
};

const PAIRS = [
  ["Express", "expressLimit", "express-rate-limit"],
  ["Express", "expressLimit", "express-rate-limit, draft-8"],
  ["Fastify", "fastifyLimit", "@fastify/rate-limit"],
  ["Fastify", "fastifyLimit, x-ratelimit", "@fastify/rate-limit"],
] as const;

if (!(await compareIfApart(servers))) await compareAll();

async function compareAll(): Promise<void> {
  console.log("\nµs of processor time added to a request, and the difference with 95 %");
  for (const [title, ours, theirs] of PAIRS) {
    const names = ["no limit", ours, theirs].map((name) => `${title}, ${name}`);
    const { one, other, difference } = await comparePair(names as [string, string, string]);
    const { median, low, high } = difference;
    const reached = high < 0 ? true : low > 0 ? false : undefined;
    const detail = `${one.toFixed(2)} µs beside ${other.toFixed(2)} µs: ${signed(median)} µs (${signed(low)} to ${signed(high)})`;
    target(`${title}, ${ours}: adds less than ${theirs}`, reached, detail);
  }
}

function signed(micros: number): string {
  return `${micros < 0 ? "−" : "+"}${Math.abs(micros).toFixed(2)}`;
}
