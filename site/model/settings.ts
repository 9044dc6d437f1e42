// What the user has chosen, and how the URL holds it.

import {
  ALGORITHM_NAMES,
  type AlgorithmName,
  algorithmOf,
  type Field,
  initialNumbers,
  type Numbers,
  onSlider,
} from "./algorithms.ts";
import { type Arrival, BARS, HIGHEST_BAR, TRAFFIC_KINDS, type TrafficKind } from "./traffic.ts";

export const VERBS = {
  wait: "waits: acquire()",
  try: "is granted now or refused: tryAcquire()",
  timeout: "waits so long at most: tryAcquire(1, ms)",
} as const;

export type Verb = keyof typeof VERBS;

export const QUEUES = {
  one: "one queue, first in, first out",
  fair: "fair: a queue for each tenant, in turn",
} as const;

export type Queue = keyof typeof QUEUES;

/** What stands beside the limiter: nothing, another algorithm at its pace, or itself with the other queue. */
export type Comparison = AlgorithmName | "queue" | "none";

export interface Settings {
  readonly algorithm: AlgorithmName;
  readonly numbers: Numbers;
  readonly verb: Verb;
  /** How callers wait, where several tenants may: see `isShared`. */
  readonly queue: Queue;
  readonly traffic: TrafficKind;
  /** The numbers of COMMON: those of the traffic and of the requests. */
  readonly common: Numbers;
  readonly bars: readonly number[];
  /** Not in the URL: a log stays in the page. */
  readonly log: readonly Arrival[];
  /** Unix time of the log's first request, ms. Not in the URL. */
  readonly logFirstMs: number;
  /** The time of the log at which the picture begins, s. Not in the URL. */
  readonly logFrom: number;
  /** Gets the same traffic. */
  readonly compare: Comparison;
}

export const COMMON: readonly Field[] = [
  { name: "seconds", label: "time shown, seconds", min: 2, max: 60, step: 1, initial: 10 },
  { name: "rps", label: "requests per second", min: 0.5, max: 100, step: 0.5, initial: 12 },
  { name: "size", label: "requests in a burst", min: 1, max: 60, step: 1, initial: 20 },
  { name: "permits", label: "permits that a request takes", min: 1, max: 10, step: 1, initial: 1 },
  { name: "timeoutMs", label: "longest wait, ms", min: 0, max: 5000, step: 50, initial: 500 },
  { name: "weight", label: "weight of tenant b", min: 1, max: 5, step: 1, initial: 1 },
];

export const initialSettings: Settings = {
  algorithm: "smoothBursty",
  numbers: initialNumbers("smoothBursty"),
  verb: "wait",
  queue: "one",
  traffic: "bursts",
  common: Object.fromEntries(COMMON.map(({ name, initial }) => [name, initial])),
  bars: Array.from({ length: BARS }, (_, i) => (i >= 8 && i < 12 ? 8 : i % 4 === 0 ? 2 : 0)),
  log: [],
  logFirstMs: 0,
  logFrom: 0,
  compare: "none",
};

/** Returns whether several tenants may wait, so that their order is a choice. */
export function isShared({ verb, traffic }: Settings): boolean {
  return verb !== "try" && ["tenants", "three", "log"].includes(traffic);
}

/** Returns whether the limiter is fair. */
export function isFair(settings: Settings): boolean {
  return settings.queue === "fair" && isShared(settings);
}

/** Returns what stands beside the limiter: another queue only where that makes a difference. */
export function comparisonOf(settings: Settings): Comparison {
  return settings.compare === "queue" && !isShared(settings) ? "none" : settings.compare;
}

/** Returns the Unix time at which the picture begins, ms: windows that are aligned to the clock need it. */
export function epochOf({ traffic, logFirstMs, logFrom }: Settings): number {
  return traffic === "log" ? logFirstMs + logFrom * 1000 : 0;
}

/** Returns whether the traffic contains tenant b, whose weight can be chosen. */
export function hasWeight({ traffic }: Settings): boolean {
  return traffic === "tenants" || traffic === "three";
}

/** Returns the query of the URL: what differs from the beginning, so that links stay short. */
export function toQuery(settings: Settings): string {
  const query = new URLSearchParams();
  const { algorithm, numbers, verb, traffic, common, bars, compare, queue } = settings;
  query.set("algorithm", algorithm);
  for (const { name } of algorithmOf(algorithm).fields) query.set(name, String(numbers[name]));
  query.set("verb", verb);
  query.set("traffic", traffic);
  if (queue !== "one") query.set("queue", queue);
  for (const { name, initial } of COMMON) {
    if (common[name] !== initial) query.set(name, String(common[name]));
  }
  if (traffic === "drawn") query.set("bars", bars.map((count) => count.toString(36)).join(""));
  if (compare !== "none") query.set("compare", compare);
  return query.toString();
}

/** Reads the query of a URL. What is missing or not allowed keeps its initial value. */
export function fromQuery(text: string): Settings {
  const query = new URLSearchParams(text);
  const oneOf = <Name extends string>(key: string, names: readonly Name[], initial: Name) =>
    names.find((name) => name === query.get(key)) ?? initial;
  const numbersOf = (fields: readonly Field[]) =>
    Object.fromEntries(
      fields.map((field) => [field.name, onSlider(field, numberOf(query, field))]),
    );
  const algorithm = oneOf("algorithm", ALGORITHM_NAMES, initialSettings.algorithm);
  return {
    algorithm,
    numbers: numbersOf(algorithmOf(algorithm).fields),
    verb: oneOf("verb", Object.keys(VERBS) as Verb[], initialSettings.verb),
    queue: oneOf("queue", Object.keys(QUEUES) as Queue[], initialSettings.queue),
    traffic: oneOf("traffic", Object.keys(TRAFFIC_KINDS) as TrafficKind[], initialSettings.traffic),
    common: numbersOf(COMMON),
    bars: barsOf(query.get("bars")),
    log: [],
    logFirstMs: 0,
    logFrom: 0,
    compare: oneOf<Comparison>("compare", [...ALGORITHM_NAMES, "queue"], "none"),
  };
}

function numberOf(query: URLSearchParams, { name }: Field): number | undefined {
  const text = query.get(name);
  return text === null || text.trim() === "" ? undefined : Number(text);
}

function barsOf(text: string | null): readonly number[] {
  if (text === null || !/^[\da-z]*$/.test(text)) return initialSettings.bars;
  const counts = Array.from(text, (digit) => Math.min(HIGHEST_BAR, Number.parseInt(digit, 36)));
  return Array.from({ length: BARS }, (_, i) => counts[i] ?? 0);
}
