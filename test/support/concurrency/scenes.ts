/**
 * Scenes in which a concurrency limit must be found, and what a limit achieves in them. The test and the
 * benchmark run the same ones. The server has 10 workers unless the scene says otherwise, and clients give up calls after 2 s.
 */
import { adaptive, type ConcurrencyStrategy } from "smooth-limiter";
import { type Limit, type ModelRun, runScene, type Scene } from "./server-model.ts";

/** So many callers does a client have: without a limit as many calls are in flight. */
export const CALLERS = 500;
/** A change of the server happens at this time, ms; recovery may take until `RECOVERED_MS`. */
export const CHANGE_MS = 20_000;
export const RECOVERED_MS = 30_000;

export interface JudgedScene extends Scene {
  /** From when on its calls are judged, ms. */
  readonly judgedFromMs: number;
  /** The fixed limits among which the best one is sought, for each client. */
  readonly fixedLimits: readonly number[];
}

const always = () => Infinity;
/** Calls take from half to one and a half times the mean. */
const around = (meanMs: number) => (random: () => number) => meanMs * (0.5 + random());
const saturated: JudgedScene = {
  durationMs: 60_000,
  workers: () => 10,
  serviceMs: around(50),
  clients: [always],
  timeoutMs: 2000,
  judgedFromMs: 0,
  fixedLimits: [5, 8, 10, 11, 12, 14],
};

export const SCENES: Readonly<Record<string, JudgedScene>> = {
  "warm start": saturated,
  "exponential latencies": {
    ...saturated,
    serviceMs: (random) => -50 * Math.log(1 - random()),
  },
  "bimodal: 90 % 20 ms, 10 % 200 ms": {
    ...saturated,
    serviceMs: (random) => (random() < 0.9 ? 20 : 200) * (0.8 + 0.4 * random()),
  },
  "bursts of 400 every 5 s": {
    ...saturated,
    clients: [(atMs) => atMs / 20 + 400 * Math.floor(atMs / 5000)],
  },
  "server 3 × slower for good": {
    ...saturated,
    serviceMs: (random, atMs) => around(atMs < CHANGE_MS ? 50 : 150)(random),
    judgedFromMs: RECOVERED_MS,
  },
  "workers halve: 20, then 10": {
    ...saturated,
    workers: (atMs) => (atMs < CHANGE_MS ? 20 : 10),
    judgedFromMs: RECOVERED_MS,
  },
  "workers double: 10, then 20": {
    ...saturated,
    workers: (atMs) => (atMs < CHANGE_MS ? 10 : 20),
    judgedFromMs: RECOVERED_MS,
    fixedLimits: [10, 16, 20, 22, 24, 28],
  },
  "idle for 20 s, then busy again": {
    ...saturated,
    clients: [(atMs) => (atMs < 20_000 || atMs >= 40_000 ? Infinity : 0)],
    judgedFromMs: 40_000,
  },
  "two clients, 20 workers": {
    ...saturated,
    durationMs: 120_000,
    workers: () => 20,
    clients: [always, (atMs) => (atMs < 10_000 ? 0 : Infinity)],
    judgedFromMs: RECOVERED_MS,
  },
};

/** AIMD as it is usually written around a queue: every success raises the limit, every error halves it. */
export const usualAimd: ConcurrencyStrategy = ({ min, max, start }) => {
  let limit = start;
  return ({ isOverload }) => {
    limit = isOverload ? Math.max(min, limit / 2) : Math.min(max, limit + 1 / limit);
    return limit;
  };
};

export const learned = (strategy?: ConcurrencyStrategy) => adaptive({ max: CALLERS, strategy });

/** What a limit has achieved. */
export interface Result {
  /** Calls in a second that were not given up. */
  readonly rate: number;
  readonly p99Ms: number;
  /** For each client, its fraction of these calls. */
  readonly shares: readonly number[];
  /** How long after `CHANGE_MS` rate and latency are good again, for four windows of 500 ms in a row, s. */
  readonly recoveryS: (best: Result, unloaded: Result) => number;
  readonly p50Ms: number;
  readonly run: ModelRun;
}

export function resultOf(scene: JudgedScene, limit: Limit, seed: number): Result {
  const run = runScene(scene, limit, seed);
  const within = (fromMs: number, toMs: number) => {
    const calls = run.calls.filter(({ endedMs }) => endedMs >= fromMs && endedMs < toMs);
    const heldMs = calls.map(({ startedMs, endedMs }) => endedMs - startedMs).sort((a, b) => a - b);
    const good = calls.filter(({ isOverload }) => !isOverload);
    const quantile = (part: number) => heldMs[Math.floor(part * heldMs.length)] ?? Number.NaN;
    return { good, quantile, rate: (1000 * good.length) / (toMs - fromMs) };
  };
  const { good, quantile, rate } = within(scene.judgedFromMs, scene.durationMs);
  const shares = scene.clients.map((_, client) => {
    return good.filter((call) => call.client === client).length / good.length;
  });
  const recoveryS = (best: Result, unloaded: Result) => {
    let good = 0;
    for (let ms = CHANGE_MS; ms < scene.durationMs; ms += 500) {
      const now = within(ms, ms + 500);
      const isGood = now.rate >= 0.8 * best.rate && now.quantile(0.5) <= 2 * unloaded.p50Ms;
      good = isGood ? good + 1 : 0;
      if (good === 4) return (ms - 1500 - CHANGE_MS) / 1000;
    }
    return Infinity;
  };
  return { rate, p99Ms: quantile(0.99), p50Ms: quantile(0.5), shares, recoveryS, run };
}

/** The lowest of the fixed limits whose rate is within 0.5 % of the highest rate of all. */
export function bestFixed(scene: JudgedScene, seed: number): Result & { readonly limit: number } {
  const results = scene.fixedLimits.map((limit) => ({ limit, ...resultOf(scene, limit, seed) }));
  const most = Math.max(...results.map(({ rate }) => rate));
  return results.find(({ rate }) => rate >= 0.995 * most) as Result & { readonly limit: number };
}

/** Without a queue at the server: one call at a time. */
export function unloaded(scene: JudgedScene, seed: number): Result {
  return resultOf(scene, 1, seed);
}
