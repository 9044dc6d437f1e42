// Reads the times of an access log: the combined format, lines with an ISO time, or JSON lines with a time.

import type { Arrival } from "./traffic.ts";

const COMBINED = /\[(\d{2})\/(\w{3})\/(\d{4}):(\d{2}:\d{2}:\d{2})(?: ([+-]\d{2})(\d{2}))?\]/;
const ISO = /\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?/;
/** Unix time, in the fields in which Caddy, nginx and pino write it. */
const UNIX = /"(?:ts|time|timestamp|msec)"\s*:\s*"?(\d{9,13}(?:\.\d+)?)\b/;
/** Unix time in ms has more digits than in s. */
const LEAST_MS = 1e11;
const CALLER_IN_JSON =
  /"(?:remote_addr|remoteAddress|remote_ip|client_ip|ip|ClientHost)"\s*:\s*"([^"]+)"/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** The most callers with a colour of their own; the others share one. */
const MOST_TENANTS = 5;

export interface LogTraffic {
  readonly arrivals: readonly Arrival[];
  /** Unix time of the first request, ms. */
  readonly firstMs: number;
  /** From the first request to the last, s. */
  readonly seconds: number;
  /** How many lines had no time that could be read. */
  readonly skipped: number;
}

/**
 * Reads a log. The first request is at 0 ms. Most logs have no fractions: the requests of such a second are
 * spread over it, as `smooth-limiter replay` does. The callers with the most lines have colours of their own.
 */
export function readAccessLog(text: string): LogTraffic {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const read = lines.flatMap((line) => {
    const time = timeOf(line);
    return time === undefined ? [] : [{ ...time, caller: callerOf(line) }];
  });
  read.sort((a, b) => a.at - b.at);
  const first = read[0]?.at ?? 0;
  const counts = countsOf(read.map(({ at }) => at));
  const busiest = mostFrequent(read.map(({ caller }) => caller));
  let [before, index] = [first, 0];
  const arrivals = read.map(({ at, isWhole, caller }) => {
    index = at === before ? index : 0;
    before = at;
    const spread = isWhole ? (index++ * 1000) / (counts.get(at) ?? 1) : 0;
    const atMs = at - first + spread;
    return busiest.includes(caller) ? { atMs, tenant: caller } : { atMs, tenant: "others", caller };
  });
  const seconds = Math.floor((arrivals.at(-1)?.atMs ?? 0) / 1000) + 1;
  return { arrivals, firstMs: first, seconds, skipped: lines.length - read.length };
}

interface Time {
  /** Unix time, ms. */
  readonly at: number;
  /** Whether it is written without a fraction of a second. */
  readonly isWhole: boolean;
}

function timeOf(line: string): Time | undefined {
  const [, day, month = "", year, time, hours = "+00", minutes = "00"] = COMBINED.exec(line) ?? [];
  const iso =
    day === undefined
      ? ISO.exec(line)?.[0]
      : `${year}-${String(MONTHS.indexOf(month) + 1).padStart(2, "0")}-${day}T${time}${hours}:${minutes}`;
  if (iso !== undefined) {
    const at = Date.parse(iso);
    return Number.isNaN(at) ? undefined : { at, isWhole: !iso.includes(".") };
  }
  const unix = UNIX.exec(line)?.[1];
  if (unix === undefined) return undefined;
  const isSeconds = Number(unix) < LEAST_MS;
  return {
    at: Number(unix) * (isSeconds ? 1000 : 1),
    isWhole: isSeconds && !unix.includes("."),
  };
}

function callerOf(line: string): string {
  return CALLER_IN_JSON.exec(line)?.[1] ?? /^[^\s[{"]+/.exec(line)?.[0] ?? "others";
}

function mostFrequent(callers: readonly string[]): string[] {
  return [...countsOf(callers)]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_TENANTS)
    .map(([caller]) => caller);
}

function countsOf<Value>(values: readonly Value[]): Map<Value, number> {
  const counts = new Map<Value, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}
