/** A real server with a pool of workers, for the benchmarks of adaptive concurrency. */
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { short } from "./options.ts";

export const WORKERS = 4;
export const SERVICE_MS = 25;
export const CAPACITY = (1000 * WORKERS) / SERVICE_MS;
export const DURATION_MS = short ? 5000 : 15_000;
/** The first part is for learning. */
const JUDGED_FROM_MS = DURATION_MS / 3;

/** Handles requests with four workers and one queue; it does not notice that a client has given up. */
export function poolOfWorkers(): RequestListener {
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

export async function listen(listener: RequestListener): Promise<{ server: Server; url: string }> {
  const server = createServer(listener);
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

export async function stop(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
}

/** How long the requests took that succeeded, and when they did, ms. */
export interface Success {
  readonly atMs: number;
  readonly tookMs: number;
}

export function describe(successes: readonly Success[]): { rate: number; cells: string[] } {
  const judged = successes.filter(({ atMs }) => atMs >= JUDGED_FROM_MS && atMs < DURATION_MS);
  const tookMs = judged.map((one) => one.tookMs).sort((a, b) => a - b);
  const rate = (1000 * judged.length) / (DURATION_MS - JUDGED_FROM_MS);
  const p99Ms = tookMs[Math.floor(0.99 * tookMs.length)];
  const cells = [`${rate.toFixed(0)}/s`, p99Ms === undefined ? "–" : `${p99Ms.toFixed(0)} ms`];
  return { rate, cells };
}
