/**
 * What does a limit in one call cost a request, beside express-rate-limit on Express and
 * @fastify/rate-limit on Fastify? The servers' own processor time with autocannon (`lib/servers.ts`),
 * and what each adds on a socket in the memory (`lib/memory-server.ts`). All count by the client's
 * address, in a window in the process, and send the fields of their default.
 */
import { createServer, type RequestListener, type Server } from "node:http";
import rateLimit from "@fastify/rate-limit";
import express, { type RequestHandler } from "express";
import { rateLimit as expressRateLimit } from "express-rate-limit";
import fastify, { type FastifyInstance } from "fastify";
import { fixedWindow, KeyedLimiter } from "smooth-limiter";
import { expressLimit, fastifyLimit } from "smooth-limiter-gateway";
import { table, target, times } from "../../bench/lib/report.ts";
import { addedMicros } from "./lib/memory-server.ts";
import { type Comparison, compareServers, type MakeServer, serveIfApart } from "./lib/servers.ts";

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
  "Express, no limit, once more": () => onExpress(),
  "Express, expressLimit": () => onExpress(expressLimit(perHour())),
  "Express, expressLimit, x-ratelimit": () =>
    onExpress(expressLimit(perHour(), { headers: "x-ratelimit" })),
  "Express, express-rate-limit": () =>
    onExpress(expressRateLimit({ limit: PLENTY, windowMs: HOUR_MS })),
  "Express, express-rate-limit, draft-8": () => {
    const options = { standardHeaders: "draft-8", legacyHeaders: false, validate: false } as const;
    return onExpress(expressRateLimit({ limit: PLENTY, windowMs: HOUR_MS, ...options }));
  },
  "Fastify, no limit": () => onFastify(() => {}),
  "Fastify, no limit, once more": () => onFastify(() => {}),
  "Fastify, fastifyLimit": () =>
    onFastify((app) => app.register(fastifyLimit, { limiter: perHour() })),
  "Fastify, fastifyLimit, x-ratelimit": () =>
    onFastify((app) => app.register(fastifyLimit, { limiter: perHour(), headers: "x-ratelimit" })),
  "Fastify, @fastify/rate-limit": () =>
    onFastify((app) => app.register(rateLimit, { max: PLENTY, timeWindow: HOUR_MS })),
};

if (!(await serveIfApart(servers))) await compareAll();

async function compareAll(): Promise<void> {
  const added = new Map([...(await addedTo("Express")), ...(await addedTo("Fastify"))]);
  const found = await compareServers(Object.keys(servers), {});
  report("Express", found, added);
  report("Fastify", found, added);
  for (const [name, other] of [
    ["Express, expressLimit", "Express, express-rate-limit"],
    ["Express, expressLimit", "Express, express-rate-limit, draft-8"],
    ["Fastify, fastifyLimit", "Fastify, @fastify/rate-limit"],
    ["Fastify, fastifyLimit, x-ratelimit", "Fastify, @fastify/rate-limit"],
  ] as const) {
    const [ours = 0, theirs = 0] = [added.get(name), added.get(other)];
    const detail = `${ours.toFixed(2)} µs beside ${theirs.toFixed(2)} µs`;
    target(`${name}: adds less than ${other}`, ours < theirs, detail);
  }
}

async function addedTo(title: string): Promise<ReadonlyMap<string, number>> {
  const made = new Map<string, Server>();
  for (const name of namesOf(title)) made.set(name, (await servers[name]?.()) as Server);
  return addedMicros(made);
}

function namesOf(title: string): readonly string[] {
  return Object.keys(servers).filter((name) => name.startsWith(`${title}, `));
}

function report(title: string, found: Comparison, added: ReadonlyMap<string, number>): void {
  console.log(`\n${title}: one limit by address`);
  const rows = namesOf(title).map((name) => {
    const { median, low, high } = found.speed(name, `${title}, no limit`);
    return [
      name.slice(title.length + 2),
      Math.round(found.perSecond(name)).toLocaleString("en"),
      found.micros(name).toFixed(1),
      times(median),
      `${low.toFixed(2)} to ${high.toFixed(2)}`,
      (added.get(name) ?? 0).toFixed(2),
    ];
  });
  table(["", "requests/s", "µs of the server", "to no limit", "95 %", "µs added in memory"], rows);
}
