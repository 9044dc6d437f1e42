/**
 * Does a server keep answering at twice its capacity? It has a pool of four workers and an unbounded queue; clients give up
 * after a second. The gateway refuses with 503 and `Retry-After` what is above a fixed or an adaptive limit.
 */
import type { RequestListener } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { adaptive } from "smooth-limiter";
import { limitConnections, nodeGateway } from "smooth-limiter-gateway";
import {
  CAPACITY,
  DURATION_MS,
  describe,
  listen,
  poolOfWorkers,
  SERVICE_MS,
  type Success,
  stop,
  WORKERS,
} from "../../bench/lib/pool-server.ts";
import { table, target, times } from "../../bench/lib/report.ts";

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
  `${WORKERS} workers of ${SERVICE_MS} ms: at most ${CAPACITY} requests in a second; twice as many come`,
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
// under the right limit the server is busy, unless this machine has other work
const isQuiet = (guarded["limitConnections(4)"] as number) >= CAPACITY / 2;
const unguarded = (guarded["no limit"] as number) / CAPACITY;
target(
  "answers at twice the capacity: at least 0.8 × the capacity, and more than without a limit",
  isQuiet ? served >= 0.8 && served > unguarded : undefined,
  `${times(served)}, without a limit ${times(unguarded)}`,
);
process.exit();
