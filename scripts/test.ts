// Runs test files as uvu's own command would, but also fails where that command stays silent or hangs. Without
// words, several processes share the test files (scripts/shards.ts), and each file's result is printed as it ends.
//
//   npm test                          every *.test.ts below test, gateway/test, cli/test and site/test
//   npm test -- smooth clock          the files whose path contains one of the words
//   npm test -- --grep cancel         the tests whose title contains that text
//   npm run test:soak                 every *.soak.ts there, and again the test files with random tests: several
//                                     processes share them, but for soaks that need an idle machine
//
// Random tests use the same seed in every run. Soaks use a fresh seed and print it, and try more; SEED=<number>
// repeats a run, and RUNS=10 tries ten times as much.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import fc from "fast-check";
import { noteTimers, stopLeftTimers } from "../test/support/left-timers.ts";
import { claimedFiles, endOfFile, runShards } from "./shards.ts";

const { values, positionals: words } = parseArgs({
  allowPositionals: true,
  options: { soak: { type: "boolean", default: false }, grep: { type: "string", default: "" } },
});
const { soak, grep } = values;
/** How long a file may load, and the hooks of a suite may take: some fetch a server, or build the packages. */
const HOOKS_MS = 300_000;
/** Soaks that measure real time: they need an idle machine, and run alone when the others have ended. */
const REAL_TIME = /\b(?:redis|fetch|streams|processes|all-or-none)\b.*\.soak\.ts$/;
/** A test that runs longer than its limit fails by itself, unless it never gives up the thread. */
const LATE_MS = 10_000;

const filesOf = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => join(folder, file));
function isSoak(file: string): boolean {
  if (!file.endsWith(".test.ts")) return file.endsWith(".soak.ts");
  return /from "fast-check"|\b(?:runs|isTried\w*)\(|\bsample:/.test(readFileSync(file, "utf8"));
}
const { TEST_SHARD: shard, TEST_CLAIMS: claims } = process.env;
const isWhole = words.length === 0 && shard === undefined;
const files = ["test", "gateway/test", "cli/test", "site/test"]
  .flatMap(filesOf)
  .filter((file) => (soak ? isSoak(file) : file.endsWith(".test.ts")))
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .filter((file) => !soak || words.length > 0 || REAL_TIME.test(file) === isWhole)
  .sort();
const seed = Number(process.env.SEED ?? (soak ? Math.floor(Math.random() * 2 ** 31) : 1));
if (soak) console.log(`random tests with SEED=${seed}`);
if (isWhole) process.exitCode = await runShards(seed);
if (isWhole && !soak) process.exit();

/** What this thread does, and how long it may take: a message for each of thousands of tests would cost more. */
const board = new SharedArrayBuffer(1024);
const watchdog = new Worker(new URL("../test/support/watchdog.mjs", import.meta.url), {
  execArgv: [],
  workerData: board,
});
watchdog.unref();
const [text, counts] = [Buffer.from(board, 8), new Int32Array(board, 0, 2)];
const watch = (doing: string, limitMs: number) => {
  text.fill(0).write(doing);
  counts[1] = limitMs;
  Atomics.add(counts, 0, 1);
};
watch("loading the runner", HOOKS_MS);

noteTimers();
// uvu runs a suite at once unless it finds these globals, so they must be set before uvu is loaded.
type Suite = () => Promise<[errors: string | true, passed: number, skipped: number, total: number]>;
const queue: Suite[][] = [[]];
Object.assign(globalThis, { UVU_DEFER: 1, UVU_INDEX: 0, UVU_QUEUE: queue });
await import("uvu");
const { progress, runs } = await import("../test/support/suite.ts");
progress.grep = grep;
// the servers that tests have started are stopped when the process exits
process.on("SIGINT", () => process.exit(130));
progress.seed = seed;
progress.isSoak = soak;
fc.configureGlobal({ seed, numRuns: runs(100) });

const complaints = files.length === 0 && !soak ? ["no test file was found"] : [];
const sums = { total: 0, passed: 0, skipped: 0 };
const startedAt = performance.now();
for (const file of claims === undefined ? files : claimedFiles(files, claims, Number(shard))) {
  const suites: Suite[] = [];
  const before = { ...sums };
  const fileStartedAt = performance.now();
  queue[0] = suites;
  watch(`${file}: loading`, HOOKS_MS);
  progress.runTest = (name, limitMs, body) => {
    watch(`${file}: ${name}`, limitMs + LATE_MS);
    return body();
  };
  await import(pathToFileURL(file).href);
  if (suites.length === 0 && grep === "") complaints.push(`${file} runs no suite: it lacks .run()`);
  if (shard === undefined && suites.length > 0) console.log(`\n${file}`);
  for (const run of suites) {
    watch(`${file}: hooks of a suite`, HOOKS_MS);
    const [errors, passed, skipped, total] = await run();
    sums.passed += passed;
    sums.skipped += skipped;
    sums.total += total;
    if (errors === true) continue;
    process.exitCode = 1;
    console.log(`\n${errors}`);
  }
  stopLeftTimers();
  const [passed, total] = [sums.passed - before.passed, sums.total - before.total];
  const seconds = (performance.now() - fileStartedAt) / 1000;
  if (shard !== undefined) endOfFile({ file, passed, total, seconds });
  else if (suites.length > 0) console.log(`  ${seconds.toFixed(1)} s`);
}
if (shard === undefined) {
  console.log(`
  Total:     ${sums.total}
  Passed:    ${sums.passed}
  Skipped:   ${sums.skipped}
  Duration:  ${((performance.now() - startedAt) / 1000).toFixed(1)} s
`);
}

if (grep !== "" && sums.total === 0 && shard === undefined) {
  complaints.push(`no title contains "${grep}"`);
}
complaints.push(...progress.complaints());
for (const complaint of complaints) console.error(`  ✘ ${complaint}`);
if (complaints.length > 0) process.exitCode = 1;

// Under c8, a source that no test loads must count as uncovered, so it is loaded here.
if (process.env.NODE_V8_COVERAGE && (shard ?? "0") === "0") {
  for (const file of ["src", "gateway/src", "cli/src"].flatMap(filesOf)) {
    // this one is a program: loading it would run it
    if (file === join("cli", "src", "index.ts")) continue;
    if (file.endsWith(".ts")) await import(pathToFileURL(file).href);
  }
}

// A timer, server or waiter that is still active now was left behind by a test.
const active = [...new Set(process.getActiveResourcesInfo())].join(", ");
watch(`all tests ended, but something keeps the process alive; active then: ${active}`, 10_000);
