/**
 * Compares two servers in memory (`memory-server.ts`), several times, each time in a process of their own:
 * what V8 compiles for one server differs with the other servers in its process, and by chance from one
 * start to the next. So a start gives one difference, and the confidence interval is that of the starts.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import type { Server } from "node:http";
import { short } from "../../../bench/lib/options.ts";
import { type Interval, median, medianWithin } from "../../../bench/lib/stats.ts";
import { compareInMemory } from "./memory-server.ts";
import type { MakeServer } from "./servers.ts";

const STARTS = short ? 3 : 8;
const ROUNDS = short ? 40 : 60;
const PAIR = "--pair";

/** A server without a limit, and two with one. */
export type Trio = readonly [bare: string, one: string, other: string];

/** Microseconds of processor time for a request. */
export interface PairResult {
  /** What the limits add to a request, the median of all starts. */
  readonly one: number;
  readonly other: number;
  /** How much more the one takes than the other. */
  readonly difference: Interval;
}

/** In the process of a pair: compares the servers and sends the result to the parent. */
export async function compareIfApart(
  servers: Readonly<Record<string, MakeServer>>,
): Promise<boolean> {
  const [, , mode, ...names] = process.argv;
  if (!process.send || mode !== PAIR) return false;
  const made = new Map<string, Server>();
  for (const name of names) made.set(name, (await servers[name]?.()) as Server);
  const rounds = await compareInMemory(made, ROUNDS);
  process.send(Array.from(rounds.added()), () => process.exit());
  return true;
}

/** Starts the pair several times; the two change places from one start to the next. */
export async function comparePair([bare, one, other]: Trio): Promise<PairResult> {
  const found: { readonly one: number; readonly other: number }[] = [];
  for (let start = 0; start < STARTS; start++) {
    const order = start % 2 === 0 ? [bare, one, other] : [bare, other, one];
    const child = fork(process.argv[1] as string, [PAIR, ...order]);
    const [added] = (await once(child, "message")) as [readonly (readonly [string, number])[]];
    const of = new Map(added);
    found.push({ one: of.get(one) ?? Number.NaN, other: of.get(other) ?? Number.NaN });
  }
  return {
    one: median(found.map((each) => each.one)),
    other: median(found.map((each) => each.other)),
    difference: medianWithin(found.map((each) => each.one - each.other)),
  };
}
