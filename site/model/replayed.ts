// Reads what `smooth-limiter replay --json` wrote.

import type { Counts, Replayed, RuleReport } from "../../cli/src/report/report.ts";

const COUNTS = ["requests", "passed", "waited", "refused"];
const NOT_A_REPORT =
  "This JSON is neither an access log, with a request in each line, nor a report that `smooth-limiter replay --json` wrote";

/** The largest offset of a time zone, minutes. */
const FARTHEST_ZONE = 14 * 60;
/** The end of the year 9999, Unix time in ms: the last one that can be shown. */
const LATEST_MS = 253_402_300_799_999;

/**
 * Reads a report of a replay.
 *
 * @returns undefined for a file that is not one JSON value: it may be an access log, with a request in each line
 * @throws Error that says what is missing in other JSON
 */
export function readReplayed(text: string): Replayed | undefined {
  const value = parsed(text);
  if (value === undefined) return undefined;
  const { report, zoneMinutes, log, rulesFrom } = fieldsOf(value);
  // a log may have one line
  if (report === undefined && !text.trim().includes("\n")) return undefined;
  const { rules, firstMs, lastMs } = fieldsOf(report);
  check("report.rules", Array.isArray(rules));
  check("log", typeof log === "string" && typeof rulesFrom === "string");
  check("zoneMinutes", isNumber(zoneMinutes) && Math.abs(zoneMinutes) <= FARTHEST_ZONE);
  check("report.firstMs", isNumber(firstMs) && isNumber(lastMs));
  checkCounts("report", report);
  for (const [i, rule] of (rules as readonly unknown[]).entries()) {
    checkRule(`report.rules[${i}]`, rule);
  }
  return value as Replayed;
}

/** Formats the sums of a report in one sentence. */
export function sumsOf({ requests, passed, waited, refused }: Counts): string {
  return `${requests} requests: ${passed} passed at once, ${waited} waited, ${refused} refused.`;
}

function checkRule(path: string, rule: unknown): void {
  const { name, actor, rpu, periodMs, points } = fieldsOf(rule) as Partial<RuleReport>;
  check(`${path}.name`, typeof name === "string" && typeof actor === "string");
  check(`${path}.rpu`, isNumber(rpu) && isNumber(periodMs));
  checkCounts(path, rule);
  const { stepMs, startMs, counts, peaks } = fieldsOf(points);
  check(`${path}.points`, isNumber(stepMs) && stepMs > 0 && isNumber(startMs) && isNumbers(peaks));
  const endMs = Number(startMs) + Number(stepMs) * (peaks as readonly unknown[]).length;
  check(`${path}.points.startMs between 1970 and 9999`, Number(startMs) >= 0 && endMs <= LATEST_MS);
  const lists = fieldsOf(counts);
  check(
    `${path}.points.counts`,
    COUNTS.slice(1).every((part) => isNumbers(lists[part])),
  );
}

function checkCounts(path: string, value: unknown): void {
  const fields = fieldsOf(value);
  for (const count of COUNTS) check(`${path}.${count}`, isNumber(fields[count]));
}

function check(path: string, isThere: boolean): void {
  if (!isThere) throw new Error(`${NOT_A_REPORT}: it has no ${path}.`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function isNumber(value: unknown): value is number {
  return Number.isFinite(value);
}

function isNumbers(value: unknown): boolean {
  return Array.isArray(value) && value.every(isNumber);
}
