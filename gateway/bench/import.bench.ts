/**
 * How long does an import take? A new process for each, in turns: the median of what `performance.now()` shows
 * around it. The targets are ratios within this run.
 */
import { spawnSync } from "node:child_process";
import { short } from "../../bench/lib/options.ts";
import { table, target, times } from "../../bench/lib/report.ts";

const PACKAGES = [
  "smooth-limiter",
  "smooth-limiter/redis",
  "smooth-limiter-gateway/limit",
  "smooth-limiter-gateway",
  "express-rate-limit",
  "rate-limiter-flexible",
];
const ROUNDS = short ? 9 : 41;

function importMs(name: string): number {
  const code = `const begun = performance.now(); await import("${name}"); console.log(performance.now() - begun)`;
  const args = ["--input-type=module", "-e", code];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: import.meta.dirname,
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(stderr);
  return Number(stdout);
}

const found = new Map<string, number[]>(PACKAGES.map((name) => [name, []]));
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, all] of found) all.push(importMs(name));
}

function median(name: string): number {
  const sorted = (found.get(name) ?? []).toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

console.log("\nThe import of a package, ms");
const peer = median("express-rate-limit");
table(
  ["", "ms", "to express-rate-limit"],
  PACKAGES.map((name) => [name, median(name).toFixed(1), times(median(name) / peer)]),
);
const ratio = median("smooth-limiter-gateway/limit") / peer;
target(
  "smooth-limiter-gateway/limit: at most 1.5 × express-rate-limit",
  ratio <= 1.5,
  times(ratio),
);
