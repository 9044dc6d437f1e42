// Several processes share the test files, so that all cores are busy, even while a test waits.

import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, statSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";

/** One more than the number of cores: tests with real timers, servers and processes mostly wait. */
const SHARDS = Math.min(4, availableParallelism()) + 1;

/** How long after a shard's end its last output may arrive, ms. */
const LAST_OUTPUT_MS = 2000;

/** The tests of the whole project, which compile, build and wait: they take longer than their sizes tell. */
const PROJECT = join("test", "project");

/**
 * Yields the files of a shard: each time the largest one that no shard has claimed yet, those of `PROJECT` first.
 * So all shards end at about the same time.
 *
 * @param claims a folder, empty at first, that all shards share
 */
export function* claimedFiles(files: readonly string[], claims: string): Generator<string> {
  const sized = files.map((file) => {
    const bytes = file.startsWith(PROJECT) ? Number.MAX_SAFE_INTEGER : statSync(file).size;
    return { file, bytes };
  });
  for (const [i, { file }] of sized.sort((a, b) => b.bytes - a.bytes).entries()) {
    if (claim(join(claims, `${i}`))) yield file;
  }
}

/** Creates the file. @returns `false` if it exists already */
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

/** Runs the shards and prints their output, one after the other. @returns the exit code: 0 if all passed */
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
  const append = (text: Buffer) => {
    output += text;
  };
  child.stdout.on("data", append);
  child.stderr.on("data", append);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    // A shard that its watchdog killed has no code, and a process that the shard suspended may keep the pipes open.
    const end = (code: number | null) => resolve({ output, code: code ?? 1 });
    child.on("close", end);
    child.on("exit", (code) => setTimeout(end, LAST_OUTPUT_MS, code));
  });
}
