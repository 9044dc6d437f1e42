// Runs uvu's suites for Stryker, in one process that loads the test files once. A mutant is switched on by a global variable, so
// it costs only the tests that reach it, up to the first that fails.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { INSTRUMENTER_CONSTANTS } from "@stryker-mutator/api/core";
import { commonTokens, declareClassPlugin, PluginKind, tokens } from "@stryker-mutator/api/plugin";
import {
  DryRunStatus,
  determineHitLimitReached,
  TestStatus,
  toMutantRunResult,
} from "@stryker-mutator/api/test-runner";
import fc from "fast-check";
import { register } from "tsx/esm/api";

/** Stryker lets a mutant run a hundred times as often as the original. A tenth of that shows an endless loop as well. */
const PART_OF_HIT_LIMIT = 0.1;

/** How long a test may take, ms: a mutant that lets a caller wait forever must not cost a minute. */
const LONGEST_TEST_MS = 10_000;

// Captured now, because tests replace the global timers by fake ones.
const { setTimeout, clearTimeout } = globalThis;

/** What the mutated code reads: which mutant is active; and writes: which mutants each test reached. */
globalThis[INSTRUMENTER_CONSTANTS.NAMESPACE] ??= {};
const shared = globalThis[INSTRUMENTER_CONSTANTS.NAMESPACE];

class UvuRunner {
  static inject = tokens(commonTokens.options);

  #files;
  #suites;
  /** The running suite's file, and which tests it has been seen to have. */
  #file = "";
  #tests = new Set();
  #results = [];
  /** The tests to run, or `undefined` for all. */
  #wanted;
  #failed = false;
  /** Fails the running test: an error that nobody caught, in a callback of a timer. */
  #crash = (_error) => {};

  constructor({ uvu }) {
    this.#files = uvu.files;
    process.on("uncaughtException", (error) => this.#crash(error));
  }

  capabilities() {
    return { reloadEnvironment: false };
  }

  async dryRun() {
    await this.#run();
    const { mutantCoverage } = shared;
    // A mutant that some test reaches needs no process of its own, also if it is reached while the files are loaded.
    for (const reached of Object.values(mutantCoverage.perTest)) {
      for (const mutant of Object.keys(reached)) delete mutantCoverage.static[mutant];
    }
    return { status: DryRunStatus.Complete, tests: this.#results, mutantCoverage };
  }

  async mutantRun({ activeMutant, testFilter, hitLimit: most, mutantActivation }) {
    const hitLimit = most && most * PART_OF_HIT_LIMIT;
    if (mutantActivation === "runtime") await this.#load();
    shared.hitCount = hitLimit === undefined ? undefined : 0;
    shared.hitLimit = hitLimit;
    shared.activeMutant = activeMutant.id;
    await this.#run(testFilter && new Set(testFilter));
    shared.activeMutant = undefined;
    return toMutantRunResult(
      determineHitLimitReached(shared.hitCount, hitLimit) ?? {
        status: DryRunStatus.Complete,
        tests: this.#results,
      },
      false,
    );
  }

  async #run(wanted) {
    this.#results = [];
    this.#failed = false;
    this.#wanted = wanted;
    try {
      await this.#load();
    } catch (error) {
      this.#note("loading", 0, error);
      return;
    }
    for (const { file, suite, tests } of this.#suites) {
      if (this.#failed) return;
      if (wanted !== undefined && tests.size > 0 && ![...tests].some((id) => wanted.has(id)))
        continue;
      this.#file = file;
      this.#tests = tests;
      await suite();
    }
  }

  async #load() {
    if (this.#suites !== undefined) return;
    // uvu runs a suite at once unless it finds these globals.
    const queue = [[]];
    Object.assign(globalThis, { UVU_DEFER: 1, UVU_INDEX: 0, UVU_QUEUE: queue });
    register({ tsconfig: resolve("tsconfig.json") });
    fc.configureGlobal({ seed: 1, endOnFailure: true });
    const { progress } = await import(pathToFileURL(resolve("test/support/suite.ts")));
    progress.runTest = (name, _limitMs, body) => this.#runTest(name, body);
    const suites = [];
    for (const file of this.#files) {
      queue[0] = [];
      await import(pathToFileURL(resolve(file)));
      suites.push(...queue[0].map((suite) => ({ file, suite, tests: new Set() })));
    }
    this.#suites = suites;
  }

  async #runTest(name, body) {
    const id = `${this.#file}: ${name}`;
    this.#tests.add(id);
    if (this.#failed || this.#wanted?.has(id) === false) return;
    const startedAt = performance.now();
    shared.currentTestId = id;
    let timer;
    const crashed = new Promise((_, reject) => {
      this.#crash = reject;
      timer = setTimeout(reject, LONGEST_TEST_MS, new Error("the test took too long"));
    });
    let failure;
    try {
      await Promise.race([body(), crashed]);
    } catch (error) {
      failure = error;
    }
    clearTimeout(timer);
    shared.currentTestId = undefined;
    this.#note(id, performance.now() - startedAt, failure);
  }

  #note(id, timeSpentMs, failure) {
    const test = { id, name: id, timeSpentMs, fileName: this.#file };
    if (failure === undefined) {
      this.#results.push({ ...test, status: TestStatus.Success });
    } else {
      this.#failed = true;
      const failureMessage = String(failure?.stack ?? failure);
      this.#results.push({ ...test, status: TestStatus.Failed, failureMessage });
    }
  }
}

export const strykerPlugins = [declareClassPlugin(PluginKind.TestRunner, "uvu", UvuRunner)];
