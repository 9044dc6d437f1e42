import type { Algorithm, Policy } from "./algorithm.ts";
import { fixedWindowAlgorithm } from "./fixed-window/fixed-window.ts";
import { gcraAlgorithm } from "./gcra/gcra.ts";
import { slidingLogAlgorithm } from "./sliding-log/sliding-log.ts";
import { slidingWindowAlgorithm } from "./sliding-window/sliding-window.ts";
import { smooth } from "./smooth/smooth.ts";
import { steppedBucket } from "./token-bucket/token-bucket.ts";

/**
 * The registration: every algorithm, one line each. The twin, store and limiter suites run over it.
 */
export const algorithms: readonly Algorithm[] = [
  smooth,
  gcraAlgorithm,
  steppedBucket,
  fixedWindowAlgorithm,
  slidingWindowAlgorithm,
  slidingLogAlgorithm,
];

/** Policies as a store knows them: a line each, the algorithm's letter and the numbers. */
export function writePolicies(policies: readonly Policy[]): string {
  return policies
    .map(({ algorithm, numbers }) => `${algorithm.letter}${numbers.join(" ")}`)
    .join("\n");
}

/** The policies that `writePolicies` wrote. */
export function readPolicies(text: string): Policy[] {
  return text.split("\n").flatMap((line) => {
    const algorithm = algorithms.find(({ letter }) => letter === line[0]);
    return algorithm === undefined ? [] : [algorithm.policy(line.slice(1).split(" ").map(Number))];
  });
}
