/**
 * Nanosecond functions side by side. mitata measures them, in compiled loops of many calls; here they take turns: each round
 * measures every function once, in an order that shifts by one from round to round, and sets it against the
 * baseline of the *same* round. A machine that is busy for a while thus slows both sides of a ratio, and
 * the median over all rounds forgets the rest.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { measure } from "mitata";
import { short } from "./options.ts";
import { nanos, table, times } from "./report.ts";
import { median } from "./stats.ts";

const ROUNDS = short ? 15 : 61;
const NANOS_A_TURN = short ? 8e6 : 12e6;
const NANOS_A_BATCH = 100_000;

/** How many times as long as `other` it took: the median of the ratios within each round. */
export type Ratio = (name: string, other: string) => number;

/** Measures and prints. The first is the baseline; the second, ours, is what all are set against. What returns a promise is awaited; what does not should `keep` its result. */
export async function compare(contenders: Record<string, () => unknown>): Promise<Ratio> {
  const turns: Turn[] = [];
  for (const [name, run] of Object.entries(contenders)) {
    turns.push(await prepare(name, run, turns.length));
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (let i = 0; i < turns.length; i++) {
      await turns[(round + i) % turns.length]?.take();
      await sleep(1); // lets the timers go that some leave behind
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
  /** Nanoseconds a call, round by round. */
  readonly rounds: number[];
  take(): Promise<void>;
}

async function prepare(name: string, run: () => unknown, index: number): Promise<Turn> {
  const rounds: number[] = [];
  const batch = await batchFor(run);
  const options = {
    min_cpu_time: NANOS_A_TURN,
    min_samples: 3,
    // a number of its own gives each function a loop of its own: in a shared one the call would not be inlined
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

/** How many calls make a batch, once they are warm; mitata unrolls four. */
async function batchFor(run: () => unknown): Promise<number> {
  let batch = 4;
  for (const end = performance.now() + 100; performance.now() < end; ) {
    const start = performance.now();
    for (let i = 0; i < batch; i++) await run();
    if (batch < 1000 && (performance.now() - start) * 1e6 < NANOS_A_BATCH / 2) batch *= 2;
  }
  return batch;
}
