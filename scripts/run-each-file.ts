// Runs every file of one or more folders, each in a process of its own:
//
//   run-each-file.ts <folder,…> <suffix> [--dist] [--at-once] [--arguments for the files…] [words…]
//
// With words it runs the files whose path contains one of them. With --at-once each core runs one, and what a file
// prints appears when it ends; otherwise one runs after the other.
//
// Fails when a file fails or takes too long. With --dist the files import the built package, not the sources.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const LIMIT_MS = 10 * 60_000;
const OURS = ["--dist", "--at-once"];

const [folders = "", suffix = "", ...rest] = process.argv.slice(2);
const [dist, atOnce] = OURS.map((option) => rest.includes(option));
const args = rest.filter((arg) => arg.startsWith("--") && !OURS.includes(arg));
const words = rest.filter((arg) => !arg.startsWith("--"));

// Only tsconfig.json maps the package's name to src/.
const env = dist ? { ...process.env, TSX_TSCONFIG_PATH: "tsconfig.build.json" } : process.env;

const files = folders.split(",").flatMap((folder) =>
  readdirSync(folder)
    .filter((file) => file.endsWith(suffix))
    .sort()
    .map((file) => join(folder, file))
    .filter((file) => words.length === 0 || words.some((word) => file.includes(word))),
);
if (files.length === 0)
  throw new Error(`no ${suffix} in ${folders} contains ${words.join(" or ")}`);

const left = files.values();
const failed: string[] = [];
await Promise.all(Array.from({ length: atOnce ? availableParallelism() : 1 }, runNext));
for (const report of failed) console.error(`\n${report}`);
if (failed.length > 0) process.exitCode = 1;

async function runNext(): Promise<void> {
  for (const file of left) await run(file);
}

async function run(file: string): Promise<void> {
  const began = performance.now();
  if (!atOnce) console.log(`\n── ${file}`);
  const out = atOnce ? "pipe" : "inherit";
  const child = spawn(process.execPath, ["--import", "tsx", "--expose-gc", file, ...args], {
    env,
    stdio: ["ignore", out, out],
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
  const printed: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (data) => printed.push(data));
  const [status, signal] = await once(child, "close");
  if (atOnce) console.log(`\n── ${file}\n${Buffer.concat(printed)}`);
  console.log(`── ${((performance.now() - began) / 1000).toFixed(1)} s`);
  if (status !== 0)
    failed.push(`${Buffer.concat(printed)}✘ ${file}: ${signal ?? `exit code ${status}`}`);
}
