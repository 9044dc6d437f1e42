import Table from "cli-table3";
import { strict } from "./options.ts";

type Align = "left" | "right";

/** Prints rows under a head. The first column is text, the others are numbers. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const colAligns = head.map((_, i): Align => (i === 0 ? "left" : "right"));
  const style = { head: [], border: [], compact: true };
  const printed = new Table({ head: [...head], colAligns, style });
  for (const row of rows) printed.push([...row]);
  console.log(printed.toString());
}

/** Prints whether a target is reached. `undefined`: the machine was too busy for a verdict. */
export function target(what: string, reached: boolean | undefined, got: string): void {
  const verdict = reached === undefined ? "? unclear " : reached ? "✔ reached " : "✘ missed  ";
  console.log(`${verdict} ${what}: ${got}`);
  if (reached === false && strict) process.exitCode = 1;
}

export function times(ratio: number): string {
  if (ratio >= 1000) return `${ratio.toExponential(0)} ×`;
  return `${ratio.toFixed(ratio < 10 ? 2 : 1)} ×`;
}

export function nanos(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(1)} ns`;
  return ns < 1e6 ? `${(ns / 1e3).toFixed(2)} µs` : `${(ns / 1e6).toFixed(2)} ms`;
}
