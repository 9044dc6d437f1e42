/**
 * Compares functions that take nanoseconds. mitata measures them in compiled loops of many calls, and this file makes them take turns.
 * Each round measures every function once, in an order that shifts by one from round to round, and divides by the baseline of the *same*
 * round. A machine that is busy for a while thus slows both sides of a ratio, and the median over all rounds drops outliers.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { measure } from "mitata";
import { short } from "./options.ts";
import { nanos, table, times } from "./report.ts";
import { median } from "./stats.ts";

const ROUNDS = short ? 15 : 61;
const NANOS_A_TURN = short ? 8e6 : 12e6;
const NANOS_A_BATCH = 100_000;

/** Returns how many times as long as `other` the function took: the median of the ratios within each round. */
export type Ratio = (name: string, other: string) => number;

/**
 * Measures the functions and prints a table. The first is the baseline. The second is ours: a column compares all functions with it.
 * A returned promise is awaited; a function without one should `keep` its result.
 */
export async function compare(contenders: Record<string, () => unknown>): Promise<Ratio> {
  const turns: Turn[] = [];
  for (const [name, run] of Object.entries(contenders)) {
    turns.push(await prepare(name, run, turns.length));
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (let i = 0; i < turns.length; i++) {
      await turns[(round + i) % turns.length]?.take();
      await sleep(1); // lets timers fire that some contenders leave behind
    }
  }
  const found = new Map(turns.map(({ name, rounds }) => [name, rounds]));
  const ratio: Ratio = (name, other) => {
    const others = found.get(other) ?? [];
    return median((found.get(name) ?? []).map((ns, round) => ns / (others[round] ?? Number.NaN)));
  };
  const [baseline = "", ours = ""] = found.keys();
  table(
    ["", "median", "to the baseline", `to ${ours}`],
    turns.map(({ name, rounds }) => [
      name,
      nanos(median(rounds)),
      times(ratio(name, baseline)),
      times(ratio(name, ours)),
    ]),
  );
  return ratio;
}

interface Turn {
  readonly name: string;
  /** Nanoseconds a call, one entry for each round. */
  readonly rounds: number[];
  take(): Promise<void>;
}

async function prepare(name: string, run: () => unknown, index: number): Promise<Turn> {
  const rounds: number[] = [];
  const batch = await batchFor(run);
  const options = {
    min_cpu_time: NANOS_A_TURN,
    min_samples: 3,
    // mitata compiles one loop for each set of options: a distinct number keeps the calls inlined
    max_samples: 1e6 + index,
    batch_samples: batch,
    batch_threshold: Infinity,
    warmup_threshold: Infinity,
    gc: false,
  };
  const take = async () => {
    rounds.push((await measure(run, { ...options })).p50);
  };
  return { name, rounds, take };
}

/** Returns how many warm calls make a batch. The smallest is 4, because mitata unrolls four calls. */
async function batchFor(run: () => unknown): Promise<number> {
  let batch = 4;
  for (const end = performance.now() + 100; performance.now() < end; ) {
    const start = performance.now();
    for (let i = 0; i < batch; i++) await run();
    if (batch < 1000 && (performance.now() - start) * 1e6 < NANOS_A_BATCH / 2) batch *= 2;
  }
  return batch;
}
