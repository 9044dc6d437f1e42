// The playground of concurrency limits: a server whose number of workers changes, and clients that call it through a
// `ConcurrencyLimiter` of the library, in virtual time.

import { adaptive, aimd } from "smooth-limiter";
import { type Limit, runScene } from "../../test/support/concurrency/server-model.ts";
import { type Field, onSlider } from "./algorithms.ts";

export const LIMITS = {
  gradient: "learned from latencies: gradient()",
  aimd: "learned from refusals: aimd()",
  fixed: "a number",
  none: "none",
} as const;

export type LimitKind = keyof typeof LIMITS;

export const SERVERS = {
  queues: "queues what it cannot do at once",
  refuses: "refuses it: 503",
} as const;

export type ServerKind = keyof typeof SERVERS;

/** So many callers call all the time, and the limit is never higher. */
const CALLERS = 100;
/** A call that takes longer is given up, ms. */
const TIMEOUT_MS = 2000;
/** So many times what a server that refuses can answer is asked of it. */
const DEMAND = 2;
/** The number of workers changes when the first of these parts of a run ends, and changes back when the second does, s. */
const PART_S = 10;
export const SECONDS = 3 * PART_S;
/** The charts have a value for each of these, ms. */
const EVERY_MS = 250;
/** A part is judged when the limit has had this long to settle, s. */
const SETTLING_S = 5;

export const FIELDS: readonly Field[] = [
  {
    name: "workers",
    label: "workers at first, and from 20 s",
    min: 1,
    max: 40,
    step: 1,
    initial: 20,
  },
  { name: "between", label: "workers from 10 s to 20 s", min: 1, max: 40, step: 1, initial: 10 },
  {
    name: "serviceMs",
    label: "how long a worker needs, ms",
    min: 20,
    max: 200,
    step: 5,
    initial: 50,
  },
  { name: "fixed", label: "the limit", min: 1, max: CALLERS, step: 1, initial: 20 },
];

export interface ConcurrencySettings {
  readonly limit: LimitKind;
  readonly server: ServerKind;
  /** Those of FIELDS. */
  readonly numbers: Readonly<Record<string, number>>;
}

/** Returns the query of the URL. */
export function toQuery({ limit, server, numbers }: ConcurrencySettings): string {
  const query = new URLSearchParams({ limit, server });
  for (const { name } of FIELDS) {
    if (name !== "fixed" || limit === "fixed") query.set(name, String(numbers[name]));
  }
  return query.toString();
}

/** Reads the query of a URL. What is missing or not allowed has its initial value. */
export function fromQuery(text: string): ConcurrencySettings {
  const query = new URLSearchParams(text);
  const oneOf = <Name extends string>(names: Readonly<Record<Name, string>>, key: string) =>
    (Object.keys(names) as Name[]).find((name) => name === query.get(key));
  const numberOf = (field: Field) => {
    const given = query.get(field.name) ?? "";
    return onSlider(field, given.trim() === "" ? undefined : Number(given));
  };
  return {
    limit: oneOf(LIMITS, "limit") ?? "gradient",
    server: oneOf(SERVERS, "server") ?? "queues",
    numbers: Object.fromEntries(FIELDS.map((field) => [field.name, numberOf(field)])),
  };
}

/** What happened in a part of the run, when the limit had had time to settle. */
export interface Part {
  readonly workers: number;
  readonly limit: number;
  /** When the limit first came near `limit`, s after the part began. */
  readonly settledS: number;
  readonly latencyMs: number;
  /** Calls in a second: answered, refused or given up, and the most that the workers can answer. */
  readonly answered: number;
  readonly failed: number;
  readonly capacity: number;
}

export interface ConcurrencyRun {
  readonly parts: readonly Part[];
  /** Over time, every `EVERY_MS`. */
  readonly limits: readonly number[];
  readonly workers: readonly number[];
  readonly latenciesMs: readonly number[];
}

/** Runs it, at once. */
export function simulate({ limit, server, numbers }: ConcurrencySettings): ConcurrencyRun {
  const { workers = 1, between = 1, serviceMs = 1, fixed = 1 } = numbers;
  const limitOf: Readonly<Record<LimitKind, Limit>> = {
    gradient: adaptive({ max: CALLERS }),
    aimd: adaptive({ max: CALLERS, strategy: aimd() }),
    fixed,
    none: CALLERS,
  };
  const most = Math.max(workers, between) / serviceMs;
  const workersAt = (atMs: number) => (Math.floor(atMs / 1000 / PART_S) === 1 ? between : workers);
  const run = runScene(
    {
      durationMs: SECONDS * 1000,
      workers: workersAt,
      serviceMs: (random) => serviceMs * (0.5 + random()),
      // who is refused at once does not come back at once
      clients: [server === "refuses" ? (atMs) => DEMAND * most * atMs : () => Infinity],
      // one call may wait for the worker that is free next
      queue: server === "refuses" ? 1 : Infinity,
      timeoutMs: TIMEOUT_MS,
    },
    limitOf[limit],
  );
  const limitAt = (atMs: number) => run.limits[Math.floor(atMs / 100)]?.[0] ?? 0;
  const endedIn = (fromMs: number, untilMs: number) => {
    const ended = run.calls.filter(({ endedMs }) => endedMs >= fromMs && endedMs < untilMs);
    const answered = ended.filter(({ isOverload }) => !isOverload);
    const heldMs = answered.reduce((sum, call) => sum + call.endedMs - call.startedMs, 0);
    const latencyMs = answered.length === 0 ? undefined : heldMs / answered.length;
    return { answered: answered.length, failed: ended.length - answered.length, latencyMs };
  };
  const instants = Array.from({ length: (SECONDS * 1000) / EVERY_MS }, (_, i) => i * EVERY_MS);
  let latency = 0;
  const latenciesMs = instants.map((atMs) => {
    latency = endedIn(atMs, atMs + EVERY_MS).latencyMs ?? latency;
    return latency;
  });
  const parts = [0, 1, 2].map((i): Part => {
    const [beginMs, endMs] = [i * PART_S * 1000, (i + 1) * PART_S * 1000];
    const fromMs = beginMs + SETTLING_S * 1000;
    const own = instants.filter((atMs) => atMs >= beginMs && atMs < endMs);
    const settled = own.filter((atMs) => atMs >= fromMs).map(limitAt);
    const mean = settled.reduce((sum, value) => sum + value, 0) / settled.length;
    const isNear = (atMs: number) => Math.abs(limitAt(atMs) - mean) <= Math.max(2, mean / 5);
    const { answered, failed, latencyMs = 0 } = endedIn(fromMs, endMs);
    const seconds = PART_S - SETTLING_S;
    return {
      workers: workersAt(beginMs),
      limit: mean,
      settledS: ((own.find(isNear) ?? beginMs) - beginMs) / 1000,
      latencyMs,
      answered: answered / seconds,
      failed: failed / seconds,
      capacity: (workersAt(beginMs) * 1000) / serviceMs,
    };
  });
  return { parts, limits: instants.map(limitAt), workers: instants.map(workersAt), latenciesMs };
}

const WHY: Readonly<Record<LimitKind, string>> = {
  gradient:
    "The limit follows latency: it falls when calls queue at the server, and rises when none does. Now and then it is halved for a moment, to measure a call without a queue.",
  aimd: "The limit rises while calls are answered, and falls by 30 % when one is refused or takes 2 s.",
  fixed: "The limit is a number, which does not follow what the server can take.",
  none: `Without a limit all ${CALLERS} callers call at once.`,
};

/** Says what happened, and why: a line for each part of the run. */
export function inWords(
  { limit, server, numbers }: ConcurrencySettings,
  run: ConcurrencyRun,
): string {
  const isLearned = limit === "gradient" || limit === "aimd";
  const parts = run.parts.map((part, i) => {
    const { workers, latencyMs, answered, failed, capacity, settledS } = part;
    const rest = Math.round(part.limit);
    const before = run.parts[i - 1];
    const has = `${i === 0 ? "At first" : `From ${i * PART_S} s on`} the server has ${workers} ${workers === 1 ? "worker" : "workers"}`;
    const goes =
      isLearned && before !== undefined && Math.round(before.limit) !== rest
        ? `: the limit goes from ${Math.round(before.limit)} to ${rest}, and is near that after ${settledS} s.`
        : `, and the limit is ${rest}.`;
    const takes = `A call takes ${Math.round(latencyMs)} ms, ${Math.round(answered)} of about ${Math.round(capacity)} possible calls a second are answered${failed >= 0.5 ? `, and ${Math.round(failed)} fail` : ""}.`;
    return [`${has}${goes}`, queueWords(rest - workers, server), takes].filter(Boolean).join(" ");
  });
  const why = `${WHY[limit]} A call without a queue takes ${numbers.serviceMs} ms.`;
  return [why, ...parts].join("\n");
}

function queueWords(more: number, server: ServerKind): string {
  if (more < 0) return `${-more} of its workers have nothing to do.`;
  if (server === "refuses" || more === 0) return "";
  return `About ${more} ${more === 1 ? "call queues" : "calls queue"}, so no worker is idle.`;
}

/** A module in TypeScript that does what the picture shows. */
export function toTypeScript({ limit, numbers }: ConcurrencySettings): string {
  const calls = `fetch(url, { signal: AbortSignal.timeout(${TIMEOUT_MS}) })`;
  if (limit === "none") {
    return `export async function call(url: string): Promise<Response> {
  return ${calls};
}
`;
  }
  if (limit === "fixed") {
    return `import { ConcurrencyLimiter } from "smooth-limiter";

const limiter = ConcurrencyLimiter.create(${numbers.fixed});

export async function call(url: string): Promise<Response> {
  return limiter.run(() => ${calls});
}
`;
  }
  const isAimd = limit === "aimd";
  return `import { adaptive, ${isAimd ? "aimd, " : ""}ConcurrencyLimiter } from "smooth-limiter";

const limit = adaptive({ max: ${CALLERS}${isAimd ? ", strategy: aimd()" : ""} });
const limiter = ConcurrencyLimiter.create(limit);

export async function call(url: string): Promise<Response> {
  return limiter.run(async (lease) => {
    const response = await ${calls};
    if (response.status === 429 || response.status === 503) lease.overloaded();
    return response;
  });
}
`;
}
