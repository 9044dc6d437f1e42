// Changes the sources one small thing at a time ("mutants") and runs the tests that reach it: a mutant that survives shows what no
// test guards. `npm run mutants` does it for all rooms below, over a night; `-- src/queue` for one; `-- src/queue/fifo.ts` for a file.
// A second run repeats only what a change of the sources or tests touches.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { Stryker } from "@stryker-mutator/core";

/** The tests of each room that need no server, the quick ones first: a mutant is done when one of them fails. */
const testsOf: Record<string, string[]> = {
  "src/algorithms": ["test/algorithms", "test/local/rate-limiter.test.ts"],
  "src/queue": ["test/queue", "test/local"],
  "src/fair": ["test/fair"],
  "src/combine": ["test/combine"],
  "gateway/src/pipeline": ["gateway/test"],
};

/** These need servers, or measure the process. */
const without = /redis|hosts|attacks|registration|waiter-queue-process|all-of\.test/;

const filesIn = (path: string): string[] =>
  (path.endsWith(".ts")
    ? [path]
    : readdirSync(path, { recursive: true, encoding: "utf8" }).map((file) => join(path, file))
  )
    .filter((file) => file.endsWith(".test.ts"))
    .filter((file) => !without.test(file) || file.endsWith("redis-cell.test.ts"))
    .sort();

const wanted = process.argv.slice(2);
for (const [room, folders] of Object.entries(testsOf)) {
  const own = wanted.filter((path) => path.startsWith(room));
  if (wanted.length > 0 && own.length === 0) continue;
  const mutate = (own.length > 0 ? own : [room]).map((path) =>
    path.includes(".ts") ? path : `${path}/**/*.ts`,
  );
  const stryker = new Stryker({
    mutate,
    testRunner: "uvu",
    plugins: ["./scripts/mutants/uvu-runner.mjs"],
    uvu: { files: folders.flatMap(filesIn) },
    coverageAnalysis: "perTest",
    // Names, codes and the like, which are read when a file is loaded: each would need a process of its own.
    ignoreStatic: true,
    concurrency: 1,
    timeoutMS: 5000,
    timeoutFactor: 1.5,
    ignorePatterns: ["**", "!src/**", "!test/**", "!gateway/**", "!package.json", "!tsconfig.json"],
    tempDirName: ".cache/mutants",
    // Stryker would read it by the compiler's API, which TypeScript 7 has not.
    tsconfigFile: "none",
    disableTypeChecks: false,
    incremental: true,
    incrementalFile: join(".cache", `mutants-${room.replaceAll("/", "-")}.json`),
    reporters: ["clear-text"],
    clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
    warnings: false,
  });
  await stryker.runMutationTest();
}
