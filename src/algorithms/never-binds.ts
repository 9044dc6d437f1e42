/**
 * Finds windows that can never bind if every policy is asked for the same permits, because another
 * policy never grants that many in that time.
 *
 * Such policies are reported and not rejected, since a request may name different permits for each
 * policy: next to a limit of `requests` a day, a limit of `tokens` a minute binds although it is larger.
 */
import { emitWarning } from "../ground/node-process.ts";
import type { Policy } from "./algorithm.ts";

/** A policy that counts in windows. Times are microseconds. */
interface WindowPolicy extends Policy {
  readonly limit: number;
  readonly window: number;
  /** For a fixed window: whether it opens with the first request. */
  readonly first?: boolean;
  /** For a sliding window: the length of a bucket. */
  readonly width?: number;
}

const reported = new Set<string>();

/** Warns of each window that can never bind, once for the same numbers. Does nothing in browsers. */
export function reportUseless(names: readonly string[], list: readonly Policy[]): void {
  for (const message of uselessWindows(names, list)) {
    if (reported.has(message)) continue;
    reported.add(message);
    emitWarning(message, { type: "SmoothLimiterWarning", code: "SMOOTH_LIMITER_NEVER_BINDS" });
  }
}

/** Returns a message for each window that another policy makes useless. */
export function uselessWindows(
  names: readonly string[],
  list: readonly Policy[],
): readonly string[] {
  const windows = list.map((policy, i) => ({ ...policy, name: names[i] })).filter(isWindow);
  return windows.flatMap((policy) => {
    const by = windows.find((one) => covers(one, policy));
    if (by === undefined) return [];
    return [
      `policy "${policy.name}" (${describe(policy)}) can never bind where all policies are asked for the same permits: ` +
        `"${by.name}" (${describe(by)}) lets at most ${most(by, policy)} through in that time. ` +
        `Leave "${policy.name}" out, lower its limit, or name permits by policy in every request`,
    ];
  });
}

function describe({ limit, window }: WindowPolicy): string {
  return `${limit} in ${window / 1000} ms`;
}

function isWindow<P extends Policy>(policy: P): policy is P & WindowPolicy {
  return "limit" in policy && "window" in policy;
}

/** Windows of equal length are assumed to count different things, so neither covers the other. */
function covers(one: WindowPolicy, other: WindowPolicy): boolean {
  return one.window !== other.window && most(one, other) <= other.limit;
}

/** Returns the most permits that `one` grants in any window of `other`. */
function most(one: WindowPolicy, other: WindowPolicy): number {
  const { limit, window, first, width = 0 } = one;
  const isOnGrid = first === false;
  if (isOnGrid && other.first === false && nests(window, other.window)) {
    return limit * Math.max(1, other.window / window);
  }
  // an interval of k fixed windows touches k + 1; all buckets but one together hold the limit
  if (first !== undefined || width === window)
    return limit * (1 + Math.ceil(other.window / window));
  return limit * Math.ceil(other.window / (window - width));
}

function nests(a: number, b: number): boolean {
  return Math.max(a, b) % Math.min(a, b) === 0;
}
