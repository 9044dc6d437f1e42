// Changes the sources one small thing at a time ("mutants") and runs the tests that reach it, until one fails. A mutant that
// survives shows what no test guards.
//
//   npm run mutants                        every room below: a nightly run
//   npm run mutants -- src/queue           one room
//   npm run mutants -- src/queue/fifo.ts   one file
//
// The score of all files stands at the end. The next run tries only what may have changed (.cache). Survivors that change no
// answer are listed in mutants/equivalent.json, with the reason; the others are printed as not judged.

import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { MutantResult } from "@stryker-mutator/api/core";
import { Stryker } from "@stryker-mutator/core";
import equivalent from "./mutants/equivalent.json" with { type: "json" };

/** Changed lines that mean the same as the original, by file and reason. */
const equivalentIn: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> =
  equivalent;

/** Those of the gateway that need no server. */
const SERVERLESS =
  /^gateway\/test\/([^/]+$|(hosts\/(connections|limit)|attacks\/(actors|eviction))\.)/;

/** The tests of each room. */
const testsOf = {
  "src/algorithms": /^test\/(algorithms\/|local\/rate-limiter|queue\/strict)/,
  "src/queue":
    /^test\/(queue|local|keyed|api|algorithms\/gcra|adapters\/pace)\/|^test\/(concurrency\/(limiter|slots)|adapters\/p-queue\/paced-queue)\./,
  "src/fair":
    /^test\/(fair|remote\/fair)\/|^test\/(concurrency\/(fair|leased\/fair-leases)|local\/on-full)\./,
  "src/combine":
    /^test\/(combine\/|(concurrency\/(fair|slots|adaptive|leased\/fair-leases)|fair\/limiters|api\/stats|testing\/memory-store)\.)/,
  "src/regions": /^test\/regions\//,
  "gateway/src/pipeline": SERVERLESS,
  "gateway/src/compiled": SERVERLESS,
};

/** Tests with a server, a process or thousands of callers: too slow for every mutant. */
const isSlow =
  /redis\.test|mass-cancel|process\.test|registration\.test|test\/(combinations|degradation|reload)/;

const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((file) => join(folder, file))
    .sort();
const tests = ["test", "gateway/test"]
  .flatMap(filesIn)
  .filter((file) => file.endsWith(".test.ts") && !isSlow.test(file));

/** The tests of a source file. Those that are most likely to fail come first: its own, and those of its folder. */
function testsFor(source: string, room: RegExp): string[] {
  const folder = dirname(source).replace("src", "test");
  const own = join(folder, basename(source).replace(".ts", ".test.ts"));
  const distance = (test: string) => (test === own ? 0 : dirname(test) === folder ? 1 : 2);
  return tests.filter((test) => room.test(test)).sort((a, b) => distance(a) - distance(b));
}

const wanted = process.argv.slice(2);
const scores: Record<string, Record<string, number | string>> = {};
for (const [room, itsTests] of Object.entries(testsOf)) {
  const sources = filesIn(room).filter((file) => file.endsWith(".ts"));
  for (const source of sources) {
    if (wanted.length > 0 && !wanted.some((path) => source.startsWith(path))) continue;
    const stryker = new Stryker({
      mutate: [source],
      testRunner: "uvu",
      plugins: ["./scripts/mutants/uvu-runner.mjs"],
      uvu: { files: testsFor(source, itsTests) },
      coverageAnalysis: "perTest",
      // What is read once, when a file is loaded, such as a name: each would need a process of its own.
      ignoreStatic: true,
      concurrency: 1,
      // The runner sees waits that never end, and most such loops. A good test may take long on a busy machine.
      timeoutMS: 60_000,
      ignorePatterns: "** !src/** !test/** !gateway/** !package.json !tsconfig.json".split(" "),
      // Stryker would read tsconfig.json with the compiler's API, which TypeScript 7 does not have.
      tsconfigFile: "none",
      disableTypeChecks: false,
      incremental: true,
      incrementalFile: join(".cache", "mutants", `${source.replaceAll("/", "-")}.json`),
      tempDirName: ".cache/mutants/sandbox",
      reporters: ["clear-text"],
      clearTextReporter: {
        allowColor: false,
        logTests: false,
        reportTests: false,
        reportScoreTable: false,
      },
      warnings: false,
    });
    const mutants = await stryker.runMutationTest();
    const lines = readFileSync(source, "utf8").split("\n");
    const sameAs = Object.values(equivalentIn[source] ?? {}).flat();
    const count = (...statuses: string[]) =>
      mutants.filter(({ status }) => statuses.includes(status)).length;
    const survivors = mutants.filter(({ status }) => /Survived|NoCoverage/.test(status));
    const open = survivors.filter((mutant) => !sameAs.includes(changedLine(lines, mutant)));
    for (const mutant of open) console.log(`not judged: ${changedLine(lines, mutant)}`);
    const noticed = count("Killed", "Timeout");
    const changes = noticed + survivors.length;
    if (changes === 0) continue;
    const score = `${((noticed / changes) * 100).toFixed(1)} %`;
    const judged = survivors.length - open.length;
    scores[source] = { changes, noticed, score, equivalent: judged, open: open.length };
  }
}
console.table(scores);

/** Returns the first line of a change as it reads then. */
function changedLine(
  lines: readonly string[],
  { location, replacement = "" }: MutantResult,
): string {
  const { start, end } = location;
  const before = lines[start.line - 1]?.slice(0, start.column - 1);
  const after = lines[end.line - 1]?.slice(end.column - 1);
  return `${before}${replacement}${after}`.trim().split("\n")[0] as string;
}
