/**
 * Windows that can never bind, where every policy is asked for the same permits: another policy
 * never lets so many through in that time.
 *
 * Such policies are reported and not rejected, since requests may name other permits for each
 * policy: beside `requests` a day, `tokens` a minute bind although they are more.
 */
import type { Policy } from "./algorithm.ts";

/** A policy that counts in windows, times in microseconds. */
interface WindowPolicy extends Policy {
  readonly limit: number;
  readonly window: number;
  /** Of a fixed window: it opens with the first request. */
  readonly first?: boolean;
  /** Of a sliding window: how long a bucket is. */
  readonly width?: number;
}

const reported = new Set<string>();

/** Warns of each window that can never bind, once for the same numbers; in browsers it does not. */
export function reportUseless(names: readonly string[], list: readonly Policy[]): void {
  for (const message of uselessWindows(names, list)) {
    if (reported.has(message)) continue;
    reported.add(message);
    const { process } = globalThis as { process?: { emitWarning?: typeof emitWarning } };
    const options = { type: "SmoothLimiterWarning", code: "SMOOTH_LIMITER_NEVER_BINDS" };
    process?.emitWarning?.(message, options);
  }
}

declare function emitWarning(message: string, options: { type: string; code: string }): void;

/** A message for each window that another policy makes useless. */
export function uselessWindows(
  names: readonly string[],
  list: readonly Policy[],
): readonly string[] {
  return list.flatMap((policy, i) => {
    if (!isWindow(policy)) return [];
    const other = list.findIndex((one, k) => k !== i && isWindow(one) && covers(one, policy));
    if (other < 0) return [];
    const by = list[other] as WindowPolicy;
    return [
      `policy "${names[i]}" (${describe(policy)}) can never bind where all policies are asked for the same permits: ` +
        `"${names[other]}" (${describe(by)}) lets at most ${most(by, policy)} through in ${policy.window / 1000} ms. ` +
        `Leave "${names[i]}" out, lower its limit, or name the permits of each policy in every request`,
    ];
  });
}

function describe({ limit, window }: WindowPolicy): string {
  return `${limit} in ${window / 1000} ms`;
}

function isWindow(policy: Policy): policy is WindowPolicy {
  return "limit" in policy && "window" in policy;
}

/** Windows of one length are there to count different things. */
function covers(one: WindowPolicy, other: WindowPolicy): boolean {
  return one.window !== other.window && most(one, other) <= other.limit;
}

/** The most that `one` lets through in any window of `other`. */
function most(one: WindowPolicy, other: WindowPolicy): number {
  const { limit, window, first, width = 0 } = one;
  const isOnGrid = first === false;
  if (isOnGrid && other.first === false && nests(window, other.window)) {
    return limit * Math.max(1, other.window / window);
  }
  // a stretch touches one fixed window more than it is long; buckets but one hold the limit
  if (first !== undefined || width === window)
    return limit * (1 + Math.ceil(other.window / window));
  return limit * Math.ceil(other.window / (window - width));
}

function nests(a: number, b: number): boolean {
  return Math.max(a, b) % Math.min(a, b) === 0;
}
