// Two processes share the test files, so that both cores of a small machine have something to do.

import { spawn } from "node:child_process";
import { statSync } from "node:fs";

const SHARDS = ["0", "1"] as const;

/** How long what a shard has said may be on its way when it has ended, ms. */
const LAST_WORDS_MS = 2000;

/** The files of a shard: the largest first, each to the shard that has least. */
export function shardOf(files: readonly string[], shard: string): readonly string[] {
  const sized = files.map((file) => ({ file, bytes: statSync(file).size }));
  const parts = SHARDS.map(() => ({ files: [] as string[], bytes: 0 }));
  for (const { file, bytes } of sized.sort((a, b) => b.bytes - a.bytes)) {
    const least = parts.reduce((one, other) => (other.bytes < one.bytes ? other : one));
    least.files.push(file);
    least.bytes += bytes;
  }
  return parts[Number(shard)]?.files.sort() ?? [];
}

interface Outcome {
  readonly output: string;
  readonly code: number;
}

/** Prints what the shards say, one after the other. The exit code: 0 if all passed. */
export async function runShards(): Promise<number> {
  const outcomes = SHARDS.map((shard) => run(shard));
  for (const outcome of outcomes) process.stdout.write((await outcome).output);
  const all = await Promise.all(outcomes);
  const sum = (what: string) => {
    const counts = all.map(({ output }) => new RegExp(`${what}: +(\\d+)`).exec(output)?.[1]);
    return counts.reduce((total, count) => total + Number(count ?? 0), 0);
  };
  console.log(`  All shards: ${sum("Passed")} of ${sum("Total")} passed`);
  const failed = all.filter(({ code }) => code !== 0);
  if (failed.length > 0) console.log(`  ${failed.length} of ${all.length} shards failed`);
  return Math.max(...all.map(({ code }) => code));
}

function run(shard: string): Promise<Outcome> {
  const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    env: { ...process.env, TEST_SHARD: shard },
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
    child.on("exit", (code) => setTimeout(end, LAST_WORDS_MS, code));
  });
}
