/**
 * What does the gateway cost a request? There are three measurements: requests a second and the server's
 * own processor time, both with autocannon (`lib/servers.ts`); and, more precise, the time that a filter
 * adds on a socket in memory (`lib/memory-server.ts`). "The same fields by hand" is Node's own cost of the
 * header fields, which no filter that sends them can avoid. express-rate-limit, which is made for Express, is measured there: see limit.
 */
import { createServer, type RequestListener, type Server } from "node:http";
import rateLimit from "@fastify/rate-limit";
import fastify, { type FastifyInstance } from "fastify";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createGateway, fastifyGateway, nodeGateway, readRules } from "smooth-limiter-gateway";
import { table, target, times } from "../../bench/lib/report.ts";
import { startRedis } from "../../test/support/redis/server.ts";
import { compareInMemory } from "./lib/memory-server.ts";
import { type Comparison, compareServers, type MakeServer, serveIfApart } from "./lib/servers.ts";

const PLENTY = 1e9;

const hello: RequestListener = (_, res) => {
  res.setHeader("Content-Type", "text/plain");
  res.end("hello");
};

function open(scope: "local" | "global", redis?: Redis) {
  const text = `url: /\nrules: [{ name: visitors, actor: device, unit: hour, rpu: ${PLENTY}, algo: W, scope: ${scope} }]`;
  return createGateway({ rules: readRules(text), redis, instances: 1 });
}

async function onFastify(plug: (app: FastifyInstance) => unknown): Promise<Server> {
  const app = fastify();
  await plug(app);
  app.get("/", (_, reply) => reply.type("text/plain").send("hello"));
  await app.ready();
  return app.server;
}

let left = PLENTY;
const policy = `"visitors";q=${PLENTY};w=3600`;
const standing = () => `"visitors";r=${--left};t=3599`;

function redisClient(): Redis {
  return new Redis(process.env.REDIS_URL ?? "");
}

function flexible(storeClient: Redis): RequestListener {
  const limiter = new RateLimiterRedis({ storeClient, points: PLENTY, duration: 3600 });
  return async (req, res) => {
    const reply = await limiter.consume(req.socket.remoteAddress ?? "");
    res.setHeader("RateLimit-Policy", `"flexible";q=${PLENTY};w=3600`);
    const seconds = Math.ceil(reply.msBeforeNext / 1000);
    res.setHeader("RateLimit", `"flexible";r=${reply.remainingPoints};t=${seconds}`);
    hello(req, res);
  };
}

const servers: Record<string, MakeServer> = {
  "node:http, no filter": () => createServer(hello),
  "node:http, no filter, once more": () => createServer((req, res) => hello(req, res)),
  "node:http, the same fields by hand": () =>
    createServer((req, res) => {
      res.setHeader("RateLimit-Policy", policy);
      res.setHeader("RateLimit", standing());
      hello(req, res);
    }),
  "node:http, smooth-limiter": async () => createServer(nodeGateway(await open("local"), hello)),
  "node:http, smooth-limiter, headers: false": async () =>
    createServer(nodeGateway(await open("local"), hello, { headers: false })),
  "Fastify, no filter": () => onFastify(() => {}),
  "Fastify, the same fields by hand": () =>
    onFastify((app) =>
      app.addHook("onRequest", (_, reply, done) => {
        reply.header("RateLimit-Policy", policy);
        reply.header("RateLimit", standing());
        done();
      }),
    ),
  "Fastify, smooth-limiter": () =>
    onFastify(async (app) => app.register(fastifyGateway, { gateway: await open("local") })),
  "Fastify, @fastify/rate-limit": () =>
    onFastify((app) => app.register(rateLimit, { max: PLENTY, timeWindow: 3_600_000 })),
  "Redis, smooth-limiter": async () =>
    createServer(nodeGateway(await open("global", redisClient()), hello)),
  "Redis, rate-limiter-flexible": () => createServer(flexible(redisClient())),
};

if (!(await serveIfApart(servers))) await compareAll();

async function compareAll(): Promise<void> {
  const addedOnNode = await added("node:http");
  const addedOnFastify = await added("Fastify");
  await using redis = await startRedis();
  const found = await compareServers(Object.keys(servers), { REDIS_URL: redis.url });
  report("node:http", "node:http, no filter", found, addedOnNode);
  report("Fastify", "Fastify, no filter", found, addedOnFastify);
  report("Redis", "Redis, rate-limiter-flexible", found);
  // the same server again must give a ratio of 1; the difference is the measurement's error
  const again = found.speed("node:http, no filter, once more", "node:http, no filter");
  const doubt = Math.abs(again.median - 1);
  for (const [name, other, least] of [
    ["node:http, smooth-limiter", "node:http, no filter", 0.97],
    ["node:http, smooth-limiter, headers: false", "node:http, no filter", 0.97],
    ["Fastify, smooth-limiter", "Fastify, @fastify/rate-limit", 1],
  ] as const) {
    const { median, low, high } = found.speed(name, other);
    const reached = low * (1 - doubt) >= least || (high * (1 + doubt) < least ? false : undefined);
    const range = `${times(median)} (${low.toFixed(2)} to ${high.toFixed(2)})`;
    target(`${name}: at least ${least} × ${other}`, reached, range);
  }
}

async function added(title: string): Promise<ReadonlyMap<string, number>> {
  const made = new Map<string, Server>();
  for (const name of namesOf(title)) made.set(name, (await servers[name]?.()) as Server);
  return (await compareInMemory(made)).added();
}

function namesOf(title: string): readonly string[] {
  return Object.keys(servers).filter((name) => name.startsWith(`${title}, `));
}

function report(
  title: string,
  baseline: string,
  found: Comparison,
  added?: ReadonlyMap<string, number>,
): void {
  console.log(`\n${title}: one rule, counted ${title === "Redis" ? "on Redis" : "in the process"}`);
  const rows = namesOf(title).map((name) => {
    const { median, low, high } = found.speed(name, baseline);
    const micros = added?.get(name);
    return [
      name.slice(title.length + 2),
      Math.round(found.perSecond(name)).toLocaleString("en"),
      found.micros(name).toFixed(1),
      times(median),
      `${low.toFixed(2)} to ${high.toFixed(2)}`,
      ...(micros === undefined ? [] : [micros.toFixed(2)]),
    ];
  });
  const head = ["", "requests/s", "µs of the server", `to ${baseline}`, "95 %"];
  table(added === undefined ? head : [...head, "µs added in memory"], rows);
}
