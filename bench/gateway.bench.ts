/**
 * What does the gateway cost a request? Each server is a process of its own, autocannon asks them
 * in many short turns from here, and of each its best tenth counts: nothing makes a server faster
 * than it is, and much makes it slower. Beside the requests a second stands the server's own time
 * for each, which the client's does not hide: the verdicts go by it.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import rateLimit from "@fastify/rate-limit";
import autocannon from "autocannon";
import { rateLimit as expressRateLimit, type Options } from "express-rate-limit";
import fastify from "fastify";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createGateway, fastifyGateway, nodeGateway, readRules } from "smooth-limiter/http";
import { startRedis } from "../scripts/redis/server.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";
import { quantile } from "./lib/stats.ts";

/** Many short ones: what else the machine does changes from second to second. */
const ROUNDS = short ? 12 : 60;
const SECONDS = 0.15;
/** Before that, so that all is compiled. */
const WARM_UP_SECONDS = short ? 0.7 : 2;
const PLENTY = 1e9;

const hello: RequestListener = (_, res) => {
  res.setHeader("Content-Type", "text/plain");
  res.end("hello");
};

function open(scope: "local" | "global", redis?: Redis) {
  const text = `url: /\nrules: [{ actor: device, unit: hour, rpu: ${PLENTY}, algo: W, scope: ${scope} }]`;
  return createGateway({ rules: readRules(text), redis, instances: 1 });
}

function onNode(listener: RequestListener): Promise<number> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  return once(server, "listening").then(() => (server.address() as AddressInfo).port);
}

async function onFastify(plug: (app: ReturnType<typeof fastify>) => unknown): Promise<number> {
  const app = fastify();
  await plug(app);
  app.get("/", (_, reply) => reply.type("text/plain").send("hello"));
  return Number(new URL(await app.listen({ port: 0, host: "127.0.0.1" })).port);
}

/** Each makes a server and tells its port. */
const servers: Record<string, () => Promise<number>> = {
  "node:http, no filter": () => onNode(hello),
  "node:http, smooth-limiter": async () => onNode(nodeGateway(await open("local"), hello)),
  "node:http, smooth-limiter, headers: false": async () =>
    onNode(nodeGateway(await open("local"), hello, { headers: false })),
  "node:http, express-rate-limit": () => {
    const limit = expressRateLimit({
      limit: PLENTY,
      windowMs: 3_600_000,
      standardHeaders: "draft-8",
      legacyHeaders: false,
      validate: false,
      keyGenerator: ({ socket }) => socket.remoteAddress ?? "",
    } satisfies Partial<Options>);
    type Args = Parameters<typeof limit>;
    return onNode((req, res) => void limit(req as Args[0], res as Args[1], () => hello(req, res)));
  },
  "Fastify, no filter": () => onFastify(() => {}),
  "Fastify, smooth-limiter": () =>
    onFastify(async (app) => app.register(fastifyGateway, { gateway: await open("local") })),
  "Fastify, @fastify/rate-limit": () =>
    onFastify((app) => app.register(rateLimit, { max: PLENTY, timeWindow: 3_600_000 })),
  "Redis: smooth-limiter": async () => {
    const gateway = await open("global", new Redis(process.env.REDIS_URL ?? ""));
    return onNode(nodeGateway(gateway, hello));
  },
  "Redis: rate-limiter-flexible": () => {
    const storeClient = new Redis(process.env.REDIS_URL ?? "");
    const limiter = new RateLimiterRedis({ storeClient, points: PLENTY, duration: 3600 });
    return onNode(async (req, res) => {
      const told = await limiter.consume(req.socket.remoteAddress ?? "");
      res.setHeader("RateLimit-Policy", `"flexible";q=${PLENTY};w=3600`);
      const seconds = Math.ceil(told.msBeforeNext / 1000);
      res.setHeader("RateLimit", `"flexible";r=${told.remainingPoints};t=${seconds}`);
      hello(req, res);
    });
  },
};

const [, file, name] = process.argv;
const make = process.send && servers[name ?? ""];
if (make) await serveApart(make);
else await compareAll();

/** In the process of a server: tells its port, and what time it has taken whenever it is asked. */
async function serveApart(make: () => Promise<number>): Promise<void> {
  process.on("disconnect", () => process.exit());
  process.send?.(await make());
  process.on("message", () => {
    const { user, system } = process.cpuUsage();
    process.send?.(user + system);
  });
}

interface Figures {
  readonly perSecond: number[];
  readonly micros: number[];
}

async function compareAll(): Promise<void> {
  await using redis = await startRedis();
  const env = { ...process.env, REDIS_URL: redis.url };
  const running = new Map<string, { process: ChildProcess; url: string }>();
  const figures = new Map<string, Figures>();
  for (const name of Object.keys(servers)) {
    const server = fork(file ?? fileURLToPath(import.meta.url), [name], { env });
    const [port] = await once(server, "message");
    running.set(name, { process: server, url: `http://127.0.0.1:${port}/` });
    figures.set(name, { perSecond: [], micros: [] });
  }
  const turns = [...running];
  for (let round = -1; round < ROUNDS; round++) {
    for (let i = 0; i < turns.length; i++) {
      const [name, { process, url }] = turns[(round + 1 + i) % turns.length] as (typeof turns)[0];
      const before = await timeOf(process);
      const { requests, duration, non2xx, errors } = await autocannon({
        url,
        connections: 50,
        duration: round < 0 ? WARM_UP_SECONDS : SECONDS,
        sampleInt: 25,
      });
      if (non2xx + errors > 0) throw new Error(`${name}: ${non2xx} refused, ${errors} failed`);
      const spent = (await timeOf(process)) - before;
      if (round < 0) continue;
      figures.get(name)?.perSecond.push(requests.total / duration);
      figures.get(name)?.micros.push(spent / requests.total);
    }
  }
  for (const { process } of running.values()) process.kill();
  report(figures);
}

async function timeOf(server: ChildProcess): Promise<number> {
  server.send("time");
  const [micros] = await once(server, "message");
  return micros;
}

function report(figures: ReadonlyMap<string, Figures>): void {
  const best = (name: string) => {
    const { perSecond, micros } = figures.get(name) ?? { perSecond: [], micros: [] };
    return { perSecond: quantile(perSecond, 0.9), micros: quantile(micros, 0.1) };
  };
  /** How many requests the one could answer in the time in which the other answers one. */
  const speed = (name: string, other: string) => best(other).micros / best(name).micros;
  for (const [title, baseline] of [
    ["node:http", "node:http, no filter"],
    ["Fastify", "Fastify, no filter"],
    ["Redis", "Redis: rate-limiter-flexible"],
  ] as const) {
    console.log(
      `\n${title}: one rule, counted ${title === "Redis" ? "on Redis" : "in the process"}`,
    );
    const rows = [...figures.keys()]
      .filter((name) => name.startsWith(title))
      .map((name) => {
        const { perSecond, micros } = best(name);
        const rate = Math.round(perSecond).toLocaleString("en");
        return [name, rate, micros.toFixed(1), times(speed(name, baseline))];
      });
    table(["", "requests/s", "µs of the server", `to ${baseline}`], rows);
  }
  for (const [name, other, least] of [
    ["node:http, smooth-limiter", "node:http, no filter", 0.97],
    ["node:http, smooth-limiter", "node:http, express-rate-limit", 1],
    ["Fastify, smooth-limiter", "Fastify, @fastify/rate-limit", 1],
  ] as const) {
    const got = speed(name, other);
    target(`${name}: at least ${least} × ${other}`, got >= least, times(got));
  }
}
