// Runs every file of a folder, one after the other, each in a process of its own:
//
//   each.ts <folder> <suffix> [--dist] [arguments for the files…]
//
// Fails when one of them fails or is still running after the time limit. With --dist the files'
// imports of "smooth-limiter" reach the built package instead of the sources.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

const LIMIT_MS = 4 * 60_000;

const [folder = "", suffix = "", ...rest] = process.argv.slice(2);
const dist = rest.includes("--dist");
const args = rest.filter((arg) => arg !== "--dist");

// The path mapping to src/ stands in tsconfig.json only.
const env = dist ? { ...process.env, TSX_TSCONFIG_PATH: "tsconfig.build.json" } : process.env;

const files = existsSync(folder)
  ? readdirSync(folder)
      .filter((file) => file.endsWith(suffix))
      .sort()
  : [];
if (files.length === 0) console.log(`${folder} holds no *${suffix} yet`);

for (const file of files) {
  console.log(`\n── ${join(folder, file)}`);
  const { status, signal } = spawnSync(
    process.execPath,
    ["--import", "tsx", "--expose-gc", join(folder, file), ...args],
    { env, stdio: ["ignore", "inherit", "inherit"], timeout: LIMIT_MS, killSignal: "SIGKILL" },
  );
  if (status !== 0) {
    console.error(`✘ ${join(folder, file)}: ${signal ?? `exit code ${status}`}`);
    process.exitCode = 1;
  }
}
