// Says why so many calls passed at once.

import { algorithmOf } from "./algorithms.ts";
import type { Call, Series } from "./simulate.ts";

/** Calls that are no further apart belong to one rush, ms. */
const RUSH_GAP_MS = 50;
/** Instants are sums of whole microseconds. */
const SAME_MS = 0.001;

/** Returns the calls in rushes: after each there is a pause. */
function rushesOf(calls: readonly Call[]): readonly (readonly Call[])[] {
  const rushes: Call[][] = [];
  for (const call of calls) {
    const last = rushes.at(-1);
    const before = last?.at(-1);
    if (last === undefined || before === undefined || call.atMs - before.atMs > RUSH_GAP_MS) {
      rushes.push([call]);
    } else {
      last.push(call);
    }
  }
  return rushes;
}

function isAtOnce({ atMs, startedMs = Infinity }: Call): boolean {
  return startedMs - atMs <= SAME_MS;
}

/**
 * Returns a sentence about the rush of which most calls passed without a wait, such as "11 passed at once: 10 permits
 * were stored, and one call goes in advance. The next one waited 50 ms." Empty if calls never come together.
 */
export function whyInWords(series: Series): string {
  const { algorithm, numbers, permits, samples } = series;
  const rushes = rushesOf(series.calls).map((calls) => {
    const first = calls.findIndex((call) => !isAtOnce(call));
    return { calls, count: first < 0 ? calls.length : first };
  });
  const [most] = rushes.sort((a, b) => b.count - a.count);
  if (most === undefined || most.calls.length < 2 || most.count === 0) return "";
  const { calls, count } = most;
  const fromMs = calls[0]?.atMs ?? 0;
  const lastMs = calls[count - 1]?.atMs ?? fromMs;
  const level = samples.findLast(({ atMs }) => atMs <= fromMs)?.level ?? 0;
  const reason = algorithmOf(algorithm).atOnce(numbers, level, permits);
  const meanwhile = Math.max(0, count - reason.calls);
  const more =
    meanwhile > 0
      ? `; ${meanwhile} more came due in the ${Math.ceil(lastMs - fromMs)} ms that they took to arrive`
      : "";
  return `${count} passed at once: ${reason.words}${more}.${nextInWords(calls[count])}`;
}

function nextInWords(next: Call | undefined): string {
  if (next === undefined) return "";
  if (next.refusedMs !== undefined) {
    const waitedMs = Math.round(next.refusedMs - next.atMs);
    return waitedMs > 0
      ? ` The next one was refused after ${waitedMs} ms.`
      : " The next one was refused.";
  }
  if (next.startedMs === undefined) return " The next one still waits.";
  return ` The next one waited ${Math.round(next.startedMs - next.atMs)} ms.`;
}
