import * as assert from "uvu/assert";
import type { Policy } from "../../src/algorithms/algorithm.ts";
import { reportUseless, uselessWindows } from "../../src/algorithms/never-binds.ts";
import {
  fixedWindow,
  gcra,
  KeyedLimiter,
  Limiter,
  slidingLog,
  slidingWindow,
} from "../../src/index.ts";
import { suite } from "../support/suite.ts";

const test = suite("windows that can never bind");

const fixed = (limit: number, seconds: number, align: "epoch" | "first" = "epoch") =>
  fixedWindow({ limit, windowMs: seconds * 1000, align });
const log = (limit: number, seconds: number) => slidingLog({ limit, windowMs: seconds * 1000 });
const sliding = (limit: number, seconds: number, buckets = 10) =>
  slidingWindow({ limit, windowMs: seconds * 1000, buckets });

/** Two policies, and which of them can never bind: the first, the second, or none. */
const rows: readonly (readonly [string, Policy, Policy, readonly string[]])[] = [
  ["a longer window that allows no more", fixed(10, 1), fixed(10, 60), ["a"]],
  ["a longer window that allows more", fixed(10, 1), fixed(11, 60), []],
  ["a longer window on another grid may grant its limit twice", fixed(10, 1), fixed(6, 1.5), []],
  ["a longer window on another grid, half as much", fixed(10, 1), fixed(5, 1.5), ["a"]],
  ["a longer window that opens with the first request", fixed(10, 1), fixed(6, 60, "first"), []],
  ["the same, half as much", fixed(10, 1), fixed(5, 60, "first"), ["a"]],
  ["a log, on any grid", fixed(10, 1), log(10, 60), ["a"]],
  ["a log behind a fixed window", log(10, 1), fixed(6, 60), []],
  ["a sliding window holds its limit in all buckets but one", log(10, 1), sliding(10, 2), ["a"]],
  ["a sliding window of one bucket is a fixed window", log(10, 1), sliding(6, 2, 1), []],
  ["and may hold it twice in a longer time", log(19, 1.9), sliding(10, 2), []],
  ["one bucket touches one window more", log(12, 1), sliding(6, 2, 1), ["a"]],
  ["a shorter window that never grants so many", log(1, 1), log(60, 60), ["b"]],
  ["a shorter window that may bind", log(1, 1), log(59, 60), []],
  ["on one grid a minute is sixty seconds", fixed(1, 1), fixed(60, 60), ["b"]],
  ["without a grid it overlaps sixty-one", fixed(1, 1), log(60, 60), []],
  ["windows of one length count different things", fixed(5, 60), fixed(500, 60), []],
  ["only windows are compared", gcra({ limit: 1, periodMs: 1000 }), fixed(1000, 60), []],
];

for (const [title, a, b, useless] of rows) {
  test(title, () => {
    const messages = uselessWindows(["a", "b"], [a, b]);
    const named = messages.map((message) => /policy "(.)"/.exec(message)?.[1]);
    assert.equal(named, useless);
  });
}

test("create warns once for the same numbers, with the numbers and the fix", async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => void warnings.push(warning);
  process.on("warning", onWarning);
  const policies = { second: fixed(12, 1), minute: fixed(7, 60) };
  for (let i = 0; i < 2; i++) Limiter.create(policies);
  KeyedLimiter.create(policies);
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", onWarning);
  assert.is(warnings.length, 1);
  const [{ name, message } = new Error("none")] = warnings;
  assert.is(name, "SmoothLimiterWarning");
  assert.match(
    message,
    /"second" \(12 in 1000 ms\).*"minute" \(7 in 60000 ms\).*at most 7 through in that time\. Leave "second" out/,
  );
});

test("without a process object no warning is reported, and creation succeeds", () => {
  const { process } = globalThis;
  Object.assign(globalThis, { process: undefined });
  try {
    reportUseless(["a", "b"], [fixed(13, 1), fixed(7, 60)]);
  } finally {
    Object.assign(globalThis, { process });
  }
});

test.run();
