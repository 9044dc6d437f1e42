// Several processes share the test files, so that all cores are busy, even while a test waits.

import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, normalize } from "node:path";

/** Two more than the number of cores: tests with real timers, servers and processes mostly wait. */
const SHARDS = Math.min(4, availableParallelism()) + 2;

/** The other shards use the other cores, so a garbage collection has none to itself; and there are fewer of them. */
const GC = ["--single-threaded-gc", "--min-semi-space-size=64", "--max-semi-space-size=64"];

/** How long after a shard's end its last output may arrive, ms. */
const LAST_OUTPUT_MS = 2000;

/** What the paths begin with whose tests compute, compile or wait: they take longer than their sizes tell. */
const SLOW = [
  "cli/test/redis/",
  "test/concurrency/scenes",
  "test/project/",
  "test/promises/exactness",
  "test/queue/mass-cancel",
  "test/queue/waiter-queue-process",
  "test/redis/",
  "test/remote/leaving",
  "test/stores/clients",
  "test/stores/postgres/",
].map(normalize);

/** Begins the line with which a shard ends the output of a file. */
const END_OF_FILE = "\u0000end of file ";

/** What became of a test file. */
export interface FileResult {
  readonly file: string;
  readonly passed: number;
  readonly total: number;
  readonly seconds: number;
}

/**
 * Yields the files of a shard: each time the largest one that no shard has claimed yet, those of `SLOW` first.
 * So all shards end at about the same time. One of them begins with the gateway and the others with the core, because
 * each process has to load the modules that it tests.
 *
 * @param claims a folder, empty at first, that all shards share
 */
export function* claimedFiles(
  files: readonly string[],
  claims: string,
  shard: number,
): Generator<string> {
  const sized = files.map((file) => {
    const isCore = file.startsWith(join("test", "/"));
    const isFirst = shard % 3 === 1 ? !isCore : isCore;
    const isSlow = SLOW.some((path) => file.startsWith(path));
    return { file, rank: 2 * Number(isFirst) + Number(isSlow), bytes: statSync(file).size };
  });
  sized.sort((a, b) => b.rank - a.rank || b.bytes - a.bytes);
  for (const { file } of sized) {
    if (claim(join(claims, encodeURIComponent(file)))) yield file;
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

/** Called by a shard: the output before this line is that of the file. */
export function endOfFile(result: FileResult): void {
  console.log(`\n${END_OF_FILE}${JSON.stringify(result)}`);
}

/**
 * Runs the shards, and prints the result of each file as it ends.
 *
 * @param seed what their random tests start from
 * @returns the exit code: 0 if all passed
 */
export async function runShards(seed: number): Promise<number> {
  const claims = mkdtempSync(join(tmpdir(), "smooth-limiter-tests-"));
  const results: FileResult[] = [];
  const startedAt = performance.now();
  const report = (output: string, result: FileResult) => {
    results.push(result);
    const { file, passed, total, seconds } = result;
    const isPassed = passed === total;
    console.log(`${isPassed ? "✔" : "✘"} ${file}  ${passed} of ${total}, ${seconds.toFixed(1)} s`);
    if (!isPassed) console.log(`${output}\n  Run it alone: npm test -- ${file}\n`);
  };
  const shards = Array.from({ length: SHARDS }, (_, i) => {
    return new Shard({ TEST_SHARD: `${i}`, TEST_CLAIMS: claims, SEED: `${seed}` }, report);
  });
  process.on("SIGINT", () => {
    for (const shard of shards) shard.stop();
  });
  const codes = await Promise.all(shards.map(({ ended }) => ended));
  // also those whose process has ended before them
  const failed = new Set(readdirSync(claims).map(decodeURIComponent));
  for (const { file, passed, total } of results) if (passed === total) failed.delete(file);
  rmSync(claims, { recursive: true });

  const sum = (what: "passed" | "total") => results.reduce((all, result) => all + result[what], 0);
  const slowest = results.sort((a, b) => b.seconds - a.seconds).slice(0, 10);
  console.log("\n  Slowest files");
  for (const { file, seconds } of slowest) {
    console.log(`  ${seconds.toFixed(1).padStart(6)} s  ${file}`);
  }
  for (const file of failed) console.log(`  ✘ ${file}`);
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(0);
  console.log(`\n  ${sum("passed")} of ${sum("total")} tests passed in ${seconds} s`);
  return Math.max(...codes);
}

/** A process that runs test files. */
class Shard {
  /** Resolves to its exit code. */
  readonly ended: Promise<number>;
  readonly #child;
  readonly #report: (output: string, result: FileResult) => void;
  #output = "";
  #errors = "";

  constructor(env: NodeJS.ProcessEnv, report: (output: string, result: FileResult) => void) {
    this.#report = report;
    this.#child = spawn(process.execPath, [...GC, ...process.execArgv, ...process.argv.slice(1)], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const child = this.#child;
    child.stdout.setEncoding("utf8").on("data", (text: string) => this.#add(text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#errors += text;
    });
    this.ended = new Promise((resolve, reject) => {
      child.on("error", reject);
      const end = (code: number | null) => {
        // what it has printed after its last file: complaints, or why its watchdog has killed it
        if (code !== 0) console.log(this.#output + this.#errors);
        this.#output = "";
        this.#errors = "";
        // a shard that was killed has no code
        resolve(code ?? 1);
      };
      child.on("close", end);
      // a process that the shard suspended may keep the pipes open
      child.on("exit", (code) => setTimeout(end, LAST_OUTPUT_MS, code));
    });
  }

  /** A shard that waits for a child process, or computes, does not notice that it is asked to. */
  stop(): void {
    this.#child.kill("SIGINT");
    setTimeout(() => this.#child.kill("SIGKILL"), LAST_OUTPUT_MS).unref();
  }

  #add(text: string): void {
    this.#output += text;
    for (;;) {
      const from = this.#output.indexOf(END_OF_FILE);
      const to = this.#output.indexOf("\n", from);
      if (from < 0 || to < 0) return;
      const result: FileResult = JSON.parse(this.#output.slice(from + END_OF_FILE.length, to));
      this.#report(this.#output.slice(0, from).trim() + this.#errors, result);
      this.#output = this.#output.slice(to + 1);
      this.#errors = "";
    }
  }
}
