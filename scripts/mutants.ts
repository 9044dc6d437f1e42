// Changes the sources one small thing at a time ("mutants") and runs the tests that reach it, until one fails. A mutant that
// survives shows what no test guards.
//
//   npm run mutants                        every room below: a nightly run
//   npm run mutants -- src/queue           one room
//   npm run mutants -- src/queue/fifo.ts   one file
//
// The results are kept in .cache: the next run tries only what a change of the sources or of the tests may have changed.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { Stryker } from "@stryker-mutator/core";

/** The tests of each room. */
const testsOf = {
  "src/algorithms": /^test\/(algorithms\/|local\/rate-limiter|queue\/strict)/,
  "src/queue": /^test\/(queue|local)\//,
  "src/fair": /^test\/fair\//,
  "src/combine": /^test\/combine\//,
  "gateway/src/pipeline": /^gateway\/test\/[^/]+$/,
  "gateway/src/compiled": /^gateway\/test\/[^/]+$/,
};

/** Tests with a server or a process of their own: too slow for every mutant. */
const isSlow =
  /redis\.test|combine\/all-of\.test|process\.test|registration\.test|test\/(combinations|connection-filter|degradation|reload)/;

const tests = ["test", "gateway/test"]
  .flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => join(folder, file)),
  )
  .filter((file) => file.endsWith(".test.ts") && !isSlow.test(file))
  .sort();

const wanted = process.argv.slice(2);
for (const [room, itsTests] of Object.entries(testsOf)) {
  const paths = wanted.length === 0 ? [room] : wanted.filter((path) => path.startsWith(room));
  if (paths.length === 0) continue;
  const stryker = new Stryker({
    mutate: paths.map((path) => (path.endsWith(".ts") ? path : `${path}/**/*.ts`)),
    testRunner: "uvu",
    plugins: ["./scripts/mutants/uvu-runner.mjs"],
    uvu: { files: tests.filter((file) => itsTests.test(file)) },
    coverageAnalysis: "perTest",
    // What is read once, when a file is loaded, such as a name: each would need a process of its own.
    ignoreStatic: true,
    concurrency: 1,
    timeoutMS: 5000,
    timeoutFactor: 1.5,
    ignorePatterns: ["**", "!src/**", "!test/**", "!gateway/**", "!package.json", "!tsconfig.json"],
    // Stryker would read tsconfig.json with the compiler's API, which TypeScript 7 does not have.
    tsconfigFile: "none",
    disableTypeChecks: false,
    incremental: true,
    incrementalFile: join(".cache", `mutants-${room.replaceAll("/", "-")}.json`),
    tempDirName: ".cache/mutants",
    reporters: ["clear-text"],
    clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
    warnings: false,
  });
  await stryker.runMutationTest();
}
