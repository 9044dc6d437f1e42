import { strict } from "./options.ts";

/** Prints rows under a head as a table of Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): void {
  console.log(`\n${markdown(head, rows)}`);
}

/** Returns rows under a head as a table. The first column is text, the others are numbers. */
export function markdown(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = head.map((_, i) => Math.max(4, ...all.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `| ${widths.map((width, i) => (row[i] ?? "")[i === 0 ? "padEnd" : "padStart"](width)).join(" | ")} |`;
  const [first = [], ...others] = all;
  const rule = widths.map((width, i) => (i === 0 ? "---" : "---:".padStart(width, "-")));
  return [line(first), line(rule), ...others.map(line), ""].join("\n");
}

/** Prints whether a target is reached. `undefined`: the machine was too busy for a verdict. */
export function target(what: string, reached: boolean | undefined, got: string): void {
  const verdict = reached === undefined ? "? unclear" : reached ? "✔ reached" : "✘ missed";
  console.log(`- ${verdict} ${what}: ${got}`);
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
