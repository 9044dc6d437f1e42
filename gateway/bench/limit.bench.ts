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
import { compareInMemory, type Rounds } from "./lib/memory-server.ts";
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
  const rounds = { Express: await inMemory("Express"), Fastify: await inMemory("Fastify") };
  const found = await compareServers(Object.keys(servers), {});
  report("Express", found, rounds.Express.added());
  report("Fastify", found, rounds.Fastify.added());
  for (const [title, ours, theirs] of [
    ["Express", "expressLimit", "express-rate-limit"],
    ["Express", "expressLimit", "express-rate-limit, draft-8"],
    ["Fastify", "fastifyLimit", "@fastify/rate-limit"],
    ["Fastify", "fastifyLimit, x-ratelimit", "@fastify/rate-limit"],
  ] as const) {
    const added = rounds[title].added();
    const [mine = 0, other = 0] = [
      added.get(`${title}, ${ours}`),
      added.get(`${title}, ${theirs}`),
    ];
    // taken within a round: whatever slows the machine slows both
    const { median, low, high } = rounds[title].difference(
      `${title}, ${ours}`,
      `${title}, ${theirs}`,
    );
    const reached = high < 0 ? true : low > 0 ? false : undefined;
    const detail = `${mine.toFixed(2)} µs beside ${other.toFixed(2)} µs; within a round ${signed(median)} µs (${signed(low)} to ${signed(high)})`;
    target(`${title}, ${ours}: adds less than ${theirs}`, reached, detail);
  }
}

function signed(micros: number): string {
  return `${micros < 0 ? "−" : "+"}${Math.abs(micros).toFixed(2)}`;
}

async function inMemory(title: string): Promise<Rounds> {
  const made = new Map<string, Server>();
  for (const name of namesOf(title)) made.set(name, (await servers[name]?.()) as Server);
  return compareInMemory(made);
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
