// Runs every file of one or more folders, one after the other, each in a process of its own:
//
//   run-each-file.ts <folder,…> <suffix> [--dist] [--arguments for the files…] [words…]
//
// With words it runs the files whose path contains one of them.
//
// Fails when a file fails or exceeds the time limit. With --dist the files import the built package as
// "smooth-limiter" instead of the sources.

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";

const LIMIT_MS = 10 * 60_000;

const [folders = "", suffix = "", ...rest] = process.argv.slice(2);
const dist = rest.includes("--dist");
const args = rest.filter((arg) => arg.startsWith("--") && arg !== "--dist");
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

for (const file of files) {
  console.log(`\n── ${file}`);
  const { status, signal } = spawnSync(
    process.execPath,
    ["--import", "tsx", "--expose-gc", file, ...args],
    { env, stdio: ["ignore", "inherit", "inherit"], timeout: LIMIT_MS, killSignal: "SIGKILL" },
  );
  if (status !== 0) {
    console.error(`✘ ${file}: ${signal ?? `exit code ${status}`}`);
    process.exitCode = 1;
  }
}
