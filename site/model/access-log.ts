// Reads the times of an access log: the combined format, lines with an ISO time, or JSON lines with one.

import { type Arrival, MOST_ARRIVALS } from "./traffic.ts";

const COMBINED = /\[(\d{2})\/(\w{3})\/(\d{4}):(\d{2}:\d{2}:\d{2})(?: ([+-]\d{2})(\d{2}))?\]/;
const ISO = /\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** The most callers with a colour of their own; the others share one. */
const MOST_TENANTS = 5;

export interface LogTraffic {
  readonly arrivals: readonly Arrival[];
  /** From the first request to the last, s. */
  readonly seconds: number;
  /** How many lines had no time that could be read. */
  readonly skipped: number;
}

/**
 * Reads a log. The first request is at 0 ms; requests of one second are spread over it, because most logs
 * have no fractions. The callers with the most lines have colours of their own.
 */
export function readAccessLog(text: string): LogTraffic {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const read = lines.flatMap((line) => {
    const at = timeOf(line);
    return at === undefined ? [] : [{ at, caller: callerOf(line) }];
  });
  const kept = read.sort((a, b) => a.at - b.at).slice(0, MOST_ARRIVALS);
  const first = kept[0]?.at ?? 0;
  const busiest = mostFrequent(kept.map(({ caller }) => caller));
  const arrivals = kept.map(({ at, caller }, i) => {
    const from = kept.findIndex((other) => other.at === at);
    const count = kept.filter((other) => other.at === at).length;
    const spread = at % 1000 === 0 ? ((i - from) * 1000) / count : 0;
    return { atMs: at - first + spread, tenant: busiest.includes(caller) ? caller : "others" };
  });
  const seconds = Math.floor((arrivals.at(-1)?.atMs ?? 0) / 1000) + 1;
  return { arrivals, seconds, skipped: lines.length - read.length };
}

function timeOf(line: string): number | undefined {
  const [, day, month = "", year, time, hours = "+00", minutes = "00"] = COMBINED.exec(line) ?? [];
  const iso =
    day === undefined
      ? ISO.exec(line)?.[0]
      : `${year}-${String(MONTHS.indexOf(month) + 1).padStart(2, "0")}-${day}T${time}${hours}:${minutes}`;
  const at = iso === undefined ? NaN : Date.parse(iso);
  return Number.isNaN(at) ? undefined : at;
}

function callerOf(line: string): string {
  return /^[^\s[{"]+/.exec(line)?.[0] ?? "others";
}

function mostFrequent(callers: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const caller of callers) counts.set(caller, (counts.get(caller) ?? 0) + 1);
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_TENANTS)
    .map(([caller]) => caller);
}
