/**
 * Does an adaptive concurrency limit come near the best fixed one? First in virtual time, against servers whose capacity is
 * known (the test runs the same scenes); then against a real server with a pool of four workers. The gateway's
 * benchmark `adaptive-connections` has the limit on the server's side.
 */
import { adaptive, aimd, ConcurrencyLimiter, RateLimiter } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
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
} from "./lib/pool-server.ts";
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
process.exit();
