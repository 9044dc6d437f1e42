// Several processes share the test files, so that all cores have something to do, also while a test waits.

import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, statSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";

/** One more than there are cores: tests with real timers, servers and processes mostly wait. */
const SHARDS = Math.min(4, availableParallelism()) + 1;

/** How long the output of a shard may be on its way when the shard has ended, ms. */
const LAST_OUTPUT_MS = 2000;

/**
 * Yields the files of a shard, the largest first: each time the next one that no shard has claimed yet. So
 * all shards end at about the same time.
 *
 * @param claims a folder, empty at first, that all shards share
 */
export function* claimedFiles(files: readonly string[], claims: string): Generator<string> {
  const sized = files.map((file) => ({ file, bytes: statSync(file).size }));
  for (const [i, { file }] of sized.sort((a, b) => b.bytes - a.bytes).entries()) {
    if (claim(join(claims, `${i}`))) yield file;
  }
}

/** Creates the file. @returns `false` if it exists */
function claim(path: string): boolean {
  try {
    closeSync(openSync(path, "wx"));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

interface Outcome {
  readonly output: string;
  readonly code: number;
}

/** Prints what the shards say, one after the other. The exit code: 0 if all passed. */
export async function runShards(): Promise<number> {
  const claims = mkdtempSync(join(tmpdir(), "smooth-limiter-tests-"));
  const outcomes = Array.from({ length: SHARDS }, (_, shard) => run(`${shard}`, claims));
  for (const outcome of outcomes) process.stdout.write((await outcome).output);
  const all = await Promise.all(outcomes);
  rmSync(claims, { recursive: true });
  const sum = (what: string) => {
    const counts = all.map(({ output }) => new RegExp(`${what}: +(\\d+)`).exec(output)?.[1]);
    return counts.reduce((total, count) => total + Number(count ?? 0), 0);
  };
  console.log(`  All shards: ${sum("Passed")} of ${sum("Total")} passed`);
  const failed = all.filter(({ code }) => code !== 0);
  if (failed.length > 0) console.log(`  ${failed.length} of ${all.length} shards failed`);
  return Math.max(...all.map(({ code }) => code));
}

function run(shard: string, claims: string): Promise<Outcome> {
  const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    env: { ...process.env, TEST_SHARD: shard, TEST_CLAIMS: claims },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const hear = (text: Buffer) => {
    output += text;
  };
  child.stdout.on("data", hear);
  child.stderr.on("data", hear);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    // killed by its watchdog: no code, and a process that it had stopped may keep the pipes open
    const end = (code: number | null) => resolve({ output, code: code ?? 1 });
    child.on("close", end);
    child.on("exit", (code) => setTimeout(end, LAST_OUTPUT_MS, code));
  });
}
