/**
 * Does an adaptive concurrency limit come near the best fixed one? First in virtual time, against servers whose capacity is
 * known (the test runs the same scenes); then against a real server with a pool of four workers, from its clients'
 * side and, in the gateway, from its own.
 */
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { adaptive, aimd, ConcurrencyLimiter, RateLimiter } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { limitConnections, nodeGateway } from "smooth-limiter-gateway";
import {
  bestFixed,
  CALLERS,
  learned,
  type Result,
  resultOf,
  SCENES,
  unloaded,
  usualAimd,
} from "../test/support/concurrency/scenes.ts";
import { short } from "./lib/options.ts";
import { table, target, times } from "./lib/report.ts";

const SEED = 1;

const cell = ({ rate, p99Ms }: Result) => `${rate.toFixed(0)}/s ${p99Ms.toFixed(0)} ms`;

console.log("virtual time: calls that succeed in a second, and p99 of how long calls are held");
const rows: string[][] = [];
let lowest = Infinity;
let slowest = 0;
for (const [name, scene] of Object.entries(SCENES)) {
  const best = bestFixed(scene, SEED);
  const alone = unloaded(scene, SEED);
  const found = resultOf(scene, learned(), SEED);
  const recoveryS = found.recoveryS(best, alone);
  const notes = [
    ...(scene.clients.length > 1
      ? [`shares ${found.shares.map((share) => `${(100 * share).toFixed(0)} %`).join(", ")}`]
      : []),
    ...(/^(?:server|workers)/.test(name) ? [`recovers in ${recoveryS} s`] : []),
  ];
  rows.push([
    name,
    `${cell(best)} (${best.limit})`,
    cell(found),
    cell(resultOf(scene, learned(aimd()), SEED)),
    cell(resultOf(scene, learned(usualAimd), SEED)),
    cell(resultOf(scene, CALLERS, SEED)),
    notes.join("; "),
  ]);
  lowest = Math.min(lowest, found.rate / best.rate);
  if (best.p99Ms <= 2 * alone.p99Ms) slowest = Math.max(slowest, found.p99Ms / alone.p99Ms);
}
table(
  ["scene", "best fixed", "gradient", "aimd", "aimd as often written", "none", "gradient"],
  rows,
);
target("at least 0.95 × the rate of the best fixed limit", lowest >= 0.95, times(lowest));
target("p99 at most 2 × that of a server without a queue", slowest <= 2, times(slowest));

const WORKERS = 4;
const SERVICE_MS = 25;
const CAPACITY = (1000 * WORKERS) / SERVICE_MS;
const DURATION_MS = short ? 5000 : 15_000;
/** The first part is for learning. */
const JUDGED_FROM_MS = DURATION_MS / 3;

/** Handles requests with four workers and one queue; it does not notice that a client has given up. */
function poolOfWorkers(): RequestListener {
  const waiting: (() => void)[] = [];
  let busy = 0;
  return async (_request, response) => {
    if (busy >= WORKERS) await new Promise<void>((start) => waiting.push(start));
    else busy += 1;
    await sleep(SERVICE_MS);
    const next = waiting.shift();
    if (next === undefined) busy -= 1;
    else next();
    response.end("done");
  };
}

async function listen(listener: RequestListener): Promise<{ server: Server; url: string }> {
  const server = createServer(listener);
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

async function stop(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
}

/** How long the requests took that succeeded, and when they did, ms. */
interface Success {
  readonly atMs: number;
  readonly tookMs: number;
}

function describe(successes: readonly Success[]): { rate: number; cells: string[] } {
  const judged = successes.filter(({ atMs }) => atMs >= JUDGED_FROM_MS && atMs < DURATION_MS);
  const tookMs = judged.map((one) => one.tookMs).sort((a, b) => a - b);
  const rate = (1000 * judged.length) / (DURATION_MS - JUDGED_FROM_MS);
  const p99Ms = tookMs[Math.floor(0.99 * tookMs.length)];
  const cells = [`${rate.toFixed(0)}/s`, p99Ms === undefined ? "–" : `${p99Ms.toFixed(0)} ms`];
  return { rate, cells };
}

/** Requests through `limitedFetch`, with retries, by callers that each wait for their answer. */
async function clientSide(limiter: ConcurrencyLimiter | undefined): Promise<readonly Success[]> {
  const { server, url } = await listen(poolOfWorkers());
  const began = performance.now();
  const now = () => performance.now() - began;
  const successes: Success[] = [];
  const attempt: typeof fetch = async (input, init) => {
    const sent = now();
    const response = await fetch(input, { ...init, signal: AbortSignal.timeout(1000) });
    successes.push({ atMs: now(), tookMs: now() - sent });
    return response;
  };
  const api = limitedFetch(RateLimiter.create(1e6), {
    retries: 2,
    backoffMs: 50,
    fetch: (input, init) => {
      return limiter === undefined ? attempt(input, init) : limiter.run(() => attempt(input, init));
    },
  });
  const caller = async () => {
    while (now() < DURATION_MS) {
      await api(url).then(
        (response) => response.text(),
        () => {},
      );
    }
  };
  await Promise.all(Array.from({ length: 300 }, caller));
  await stop(server);
  return successes;
}

console.log(
  `\na real server, ${WORKERS} workers of ${SERVICE_MS} ms: at most ${CAPACITY} requests in a second`,
);
console.log("300 callers through limitedFetch with 2 retries; a request is given up after 1 s");
const ofClients: Record<string, number> = {};
const clientRows: string[][] = [];
for (const [name, limit] of [
  ["no limit", undefined],
  ["fixed: 4, the number of workers", 4],
  ["adaptive({ max: 300 })", adaptive({ max: 300 })],
] as const) {
  const limiter = limit === undefined ? undefined : ConcurrencyLimiter.create(limit);
  const { rate, cells } = describe(await clientSide(limiter));
  ofClients[name] = rate;
  clientRows.push([name, ...cells, limiter === undefined ? "–" : String(limiter.limit)]);
}
table(["limit of the clients", "answers", "p99 of an answer", "limit at the end"], clientRows);
const nearFixed =
  (ofClients["adaptive({ max: 300 })"] as number) /
  (ofClients["fixed: 4, the number of workers"] as number);
target("at least 0.9 × the answers under a fixed limit of 4", nearFixed >= 0.9, times(nearFixed));

/** Requests at twice the capacity, whether or not earlier ones are answered; each is given up after a second. */
async function serverSide(listener: RequestListener): Promise<readonly Success[]> {
  const { server, url } = await listen(listener);
  const began = performance.now();
  const now = () => performance.now() - began;
  const successes: Success[] = [];
  let refusalsWithoutTime = 0;
  const ask = async () => {
    const sent = now();
    const response = await fetch(url, { signal: AbortSignal.timeout(1000) });
    await response.text();
    if (response.ok) successes.push({ atMs: now(), tookMs: now() - sent });
    else if (!response.headers.has("retry-after")) refusalsWithoutTime += 1;
  };
  // a request that is given up rejects with a TimeoutError; one that could not be sent counts as one too
  const asked: Promise<void>[] = [];
  while (now() < DURATION_MS) {
    while (asked.length < (2 * CAPACITY * now()) / 1000) asked.push(ask().catch(() => {}));
    await sleep(2);
  }
  await Promise.all(asked);
  if (refusalsWithoutTime > 0) throw new Error("a refusal has no Retry-After");
  await stop(server);
  return successes;
}

console.log(
  "\nthe same server at twice its capacity, guarded by the gateway; clients give up after 1 s",
);
const guard = (limit: Parameters<typeof limitConnections>[0], options = {}) => {
  return nodeGateway(limitConnections(limit, options), poolOfWorkers(), { status: 503 });
};
const guarded: Record<string, number> = {};
const serverRows: string[][] = [];
for (const [name, listener] of [
  ["no limit", poolOfWorkers()],
  ["limitConnections(4)", guard(4)],
  ["limitConnections(adaptive({ max: 300 }))", guard(adaptive({ max: 300 }))],
] as const) {
  const { rate, cells } = describe(await serverSide(listener));
  guarded[name] = rate;
  serverRows.push([name, ...cells]);
}
table(["limit of the server", "answers", "p99 of an answer"], serverRows);
const served = (guarded["limitConnections(adaptive({ max: 300 }))"] as number) / CAPACITY;
const unguarded = (guarded["no limit"] as number) / CAPACITY;
target(
  "answers at twice the capacity: at least 0.8 × the capacity, and more than without a limit",
  served >= 0.8 && served > unguarded,
  `${times(served)}, without a limit ${times(unguarded)}`,
);
process.exit();
