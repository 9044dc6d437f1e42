// Runs uvu's suites for Stryker, in one process that loads the test files once. A mutant is switched on by a global variable, so
// it costs only the tests that reach it, up to the first that fails.

import { resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { INSTRUMENTER_CONSTANTS } from "@stryker-mutator/api/core";
import { commonTokens, declareClassPlugin, PluginKind, tokens } from "@stryker-mutator/api/plugin";
import { DryRunStatus, TestStatus, toMutantRunResult } from "@stryker-mutator/api/test-runner";
import fc from "fast-check";
import { register } from "tsx/esm/api";

/**
 * A mutant may let a caller wait forever. Its test fails when it has waited for no timer, file or socket at so many looks in
 * a row. Time is no measure of that: on a busy machine a good test takes long too.
 */
const LOOKS = 5;
const LOOK_MS = 20;

// Captured now, because tests replace the global timers by fake ones, and remove `process`.
const { setTimeout, clearTimeout, setInterval, clearInterval } = globalThis;
const globals = Object.getOwnPropertyDescriptors(globalThis);

/** Timers that the tests have started: a test that never ends leaves some. */
const timers = new Set();
globals.setTimeout.value = Object.assign((...args) => {
  const timer = setTimeout(...args);
  timers.add(timer);
  return timer;
}, setTimeout);

/** What the mutated code reads: which mutant is active; and writes: which mutants each test reached. */
globalThis[INSTRUMENTER_CONSTANTS.NAMESPACE] ??= {};
const shared = globalThis[INSTRUMENTER_CONSTANTS.NAMESPACE];

/** A loop that never ends fails its test in here, because the mutated code reads this in each round. */
let activeMutant;
let reads = 0;
let mostCpuMicros = Infinity;
Object.defineProperty(shared, "activeMutant", {
  get() {
    reads += 1;
    if (reads % 1024 === 0 && cpuMicros() > mostCpuMicros) throw new Error("the test does not end");
    return activeMutant;
  },
  set(id) {
    activeMutant = id;
  },
});

function cpuMicros() {
  return process.cpuUsage().user;
}

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
  /** How long each test takes without a mutant, as the dry run shows. */
  #cpuMicros = new Map();
  /** How many timers, files and sockets are open when no test runs. */
  #idle = Infinity;

  constructor({ uvu }) {
    this.#files = uvu.files;
    process.on("uncaughtException", (error) => this.#crash(error));
  }

  capabilities() {
    return { reloadEnvironment: false };
  }

  // A mutant's time does not include this.
  init() {
    return this.#load();
  }

  async dryRun() {
    await this.#run();
    const { mutantCoverage = { static: {}, perTest: {} } } = shared;
    // A mutant that some test reaches needs no process of its own, also if it is reached while the files are loaded.
    for (const reached of Object.values(mutantCoverage.perTest)) {
      for (const mutant of Object.keys(reached)) delete mutantCoverage.static[mutant];
    }
    return { status: DryRunStatus.Complete, tests: this.#results, mutantCoverage };
  }

  async mutantRun({ activeMutant, testFilter }) {
    shared.activeMutant = activeMutant.id;
    await this.#run(testFilter && new Set(testFilter));
    shared.activeMutant = undefined;
    return toMutantRunResult({ status: DryRunStatus.Complete, tests: this.#results }, false);
  }

  async #run(wanted) {
    this.#results = [];
    this.#failed = false;
    this.#wanted = wanted;
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
    Object.defineProperties(globalThis, globals);
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
    const cpuBefore = cpuMicros();
    const isDryRun = activeMutant === undefined;
    const usual = isDryRun ? Infinity : (this.#cpuMicros.get(id) ?? 500_000);
    mostCpuMicros = cpuBefore + 500_000 + 3 * usual;
    this.#idle = Math.min(this.#idle, process.getActiveResourcesInfo().length);
    let looks = 0;
    let watch;
    const crashed = new Promise((_, reject) => {
      this.#crash = reject;
      watch = setInterval(() => {
        // one timer is that of the test's limit
        const isIdle = process.getActiveResourcesInfo().length <= this.#idle + 1;
        looks = isIdle ? looks + 1 : 0;
        if (looks === LOOKS) reject(new Error("the test waits for nothing"));
      }, LOOK_MS).unref();
    });
    let failure;
    try {
      await Promise.race([body(), crashed]);
    } catch (error) {
      failure = error;
      this.#cleanUp();
    }
    clearInterval(watch);
    mostCpuMicros = Infinity;
    shared.currentTestId = undefined;
    if (isDryRun) this.#cpuMicros.set(id, cpuMicros() - cpuBefore);
    this.#note(id, performance.now() - startedAt, failure);
  }

  /** A test that never ended has not done so itself: fake timers are still there, for example. */
  #cleanUp() {
    for (const timer of timers) clearTimeout(timer);
    timers.clear();
    Object.defineProperties(globalThis, globals);
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
