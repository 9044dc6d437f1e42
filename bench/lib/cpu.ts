/**
 * Measures the processor time of an operation. The contenders take turns in rounds, and ratios are taken within a round. Elapsed time
 * would include the other work of a busy machine; processor time includes only the garbage collector's threads.
 */
import { short } from "./options.ts";
import { nanos, table, times } from "./report.ts";
import { median, shuffled } from "./stats.ts";

const ROUNDS = short ? 9 : 41;

/** Returns a function that runs that many operations. Called once for each round. */
export type Contender = () => (operations: number) => Promise<unknown>;

/** Returns how many times as long as `other` the contender took: the median of the ratios within each round. */
export type CpuRatio = (name: string, other: string) => number;

/** Measures the contenders and prints a table. The first is the baseline. */
export async function compareCpu(
  operations: number,
  contenders: Readonly<Record<string, Contender>>,
  rounds = ROUNDS,
): Promise<CpuRatio> {
  const turns = Object.entries(contenders);
  const found = new Map(turns.map(([name]) => [name, [] as number[]]));
  // V8 discards the code of a class without objects; a real process always has one, so one is kept here
  const alive = new Map<string, unknown>();
  for (let round = -2; round < rounds; round++) {
    // in random order: each turn pays for collecting some of the garbage of the turn before it
    for (const [name, make] of shuffled(turns)) {
      const run = make();
      globalThis.gc?.();
      const before = process.cpuUsage();
      await run(operations);
      alive.set(name, run);
      const { user, system } = process.cpuUsage(before);
      if (round >= 0) found.get(name)?.push((1000 * (user + system)) / operations);
    }
  }
  const ratio: CpuRatio = (name, other) => {
    const others = found.get(other) ?? [];
    return median((found.get(name) ?? []).map((ns, i) => ns / (others[i] ?? Number.NaN)));
  };
  const [baseline = ""] = found.keys();
  table(
    ["processor time", "median", "to the baseline"],
    [...found].map(([name, ns]) => [name, nanos(median(ns)), times(ratio(name, baseline))]),
  );
  return ratio;
}
