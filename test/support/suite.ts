import * as uvu from "uvu";
import { seeded } from "./random.ts";

/** How long one test may take, in ms, unless its suite says otherwise. */
const DEFAULT_TIMEOUT_MS = 60_000;

/** By how much longer it may take in the soaks. */
const PATIENCE_OF_SOAKS = 5;

/** RUNS=10 makes random tests ten times as long. */
const FACTOR = Number(process.env.RUNS ?? 1);

// Captured now, because tests replace the global timers by fake ones.
const { setTimeout, clearTimeout } = globalThis;

const suites: { title: string; tests: number; started: number; ran: boolean; timers: number }[] =
  [];

/** The runner's view of the suites. */
export const progress = {
  /**
   * Runs the body of the test "suite › test", which fails after that time. A runner replaces it to watch tests, or to
   * leave some out.
   */
  runTest: (_name: string, _limitMs: number, body: () => Promise<void>): Promise<void> => body(),

  /** Only tests whose title contains this run. */
  grep: "",

  /** Whether the soaks run, which do more and use other random numbers in each run. */
  isSoak: false,

  /** What random tests start from. */
  seed: 1,

  /** One line for each suite that did not run completely. */
  complaints: (): string[] =>
    suites.flatMap(({ title, tests, started, ran, timers }) => {
      if (!ran) return `"${title}" was never run: it ends without .run()`;
      if (tests === 0 && progress.grep === "") return `"${title}" has no test`;
      if (started < tests)
        return `"${title}" started ${started} of its ${tests} tests: a hook threw`;
      if (timers > 0) return `"${title}" left ${timers} timers that would fire during other tests`;
      return [];
    }),
};

/**
 * How many histories a random test tries: `quick` in `npm test`, `full` in the soaks. They run each test file
 * that calls this once more, with fresh random numbers.
 */
export function runs(full: number, quick = Math.ceil(full / 10)): number {
  return Math.ceil((progress.isSoak ? full : quick) * FACTOR);
}

/**
 * Whether a combination of items is tried, given the place of each in its list: every combination in the soaks, half
 * of them in `npm test`, among them some of each item.
 */
export function isTried(...places: readonly number[]): boolean {
  return isTriedOneIn(2, ...places);
}

/** The same, for one in so many combinations. One list should have at least so many items. */
export function isTriedOneIn(count: number, ...places: readonly number[]): boolean {
  return progress.isSoak || places.reduce((sum, place) => sum + place) % count === 0;
}

/** One of several suites that declare the same tests in the same order, each for something else. */
export interface Sample {
  /** In `npm test` it runs only one in so many of its tests; in the soaks, and with --grep, all. */
  readonly oneIn: number;
  /** Its place among those suites: the next one runs the next tests, so each test runs in some suite. */
  readonly place: number;
}

interface SuiteOptions<T> {
  context?: T;
  timeoutMs?: number;
  sample?: Sample | undefined;
}

/**
 * uvu's `suite` passes silently where it should not. Here a test fails if it takes longer than
 * `timeoutMs`, and a suite fails if it is empty, was never run, or lost tests to a hook that
 * threw. `only` is refused under CI.
 */
export function suite<T = uvu.Context>(
  title: string,
  { context, timeoutMs = DEFAULT_TIMEOUT_MS, sample }: SuiteOptions<T> = {},
): uvu.Test<T> {
  const inner = uvu.suite<T>(title, context);
  const own = { title, tests: 0, started: 0, ran: false, timers: 0 };
  suites.push(own);

  const limited =
    (name: string, body: uvu.Callback<T>): uvu.Callback<T> =>
    (state) => {
      own.started++;
      const limitMs = timeoutMs * (progress.isSoak ? PATIENCE_OF_SOAKS : 1);
      // what draws from Math.random, as the time until the next call to a store, draws the same in each run
      return progress.runTest(`${title} › ${name}`, limitMs, () =>
        seeded(progress.seed, () => within(limitMs, () => body(state))),
      );
    };

  let declared = 0;
  const test = (name: string, body: uvu.Callback<T>) => {
    if (!`${title} › ${name}`.includes(progress.grep)) return;
    if (sample !== undefined && progress.grep === "") {
      if (!isTriedOneIn(sample.oneIn, sample.place, declared++)) return;
    }
    own.tests++;
    inner(name, limited(name, body));
  };
  const only = (name: string, body: uvu.Callback<T>) => {
    if (process.env.CI) throw new Error(`"${title} › ${name}" is marked only`);
    own.tests = 0;
    inner.only(name, limited(name, body));
  };
  const run = () => {
    own.ran = true;
    if (own.tests === 0 && progress.grep !== "") return;
    inner.after(socketsHaveClosed);
    inner.after(async () => {
      own.timers = await timersLeft();
    });
    inner.run();
  };
  return Object.assign(test, {
    only,
    skip: inner.skip,
    // uvu swallows errors of a `before` hook.
    before: Object.assign((hook: uvu.Callback<T>) => inner.before(reported(hook)), {
      each: inner.before.each,
    }),
    after: inner.after,
    run,
  });
}

/**
 * A client that disconnects clears its timer when its socket has closed. In the next suite's fake
 * timers that would clear another test's timer.
 */
async function socketsHaveClosed(): Promise<void> {
  if (!process.getActiveResourcesInfo().includes("TCPSocketWrap")) return;
  await new Promise((resolve) => {
    setTimeout(resolve, 20);
  });
}

/**
 * How long a timer may outlive its suite, ms. The next suite starts when it has ended. (A client of
 * ioredis whose server is gone leaves one of `disconnectTimeout`, 2 s by default.)
 */
const LONGEST_LEFT_MS = 3000;

/**
 * Waits until no timer keeps the process alive. @returns how many still do after `LONGEST_LEFT_MS`
 */
async function timersLeft(): Promise<number> {
  const count = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  for (let ms = 0; ms < LONGEST_LEFT_MS && count() > 0; ms += 10) {
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
  return count();
}

function reported<T>(hook: uvu.Callback<T>): uvu.Callback<T> {
  return async (state) => {
    try {
      await hook(state);
    } catch (error) {
      console.error(error);
      throw error;
    }
  };
}

async function within(ms: number, body: () => Promise<void> | void): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the test took longer than ${ms} ms`)), ms);
  });
  try {
    await Promise.race([body(), late]);
  } finally {
    clearTimeout(timer);
  }
}
