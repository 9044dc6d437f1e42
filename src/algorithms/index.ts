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

/**
 * The policy with that fraction of the permits and the same times. A request that is larger than
 * what is left of the capacity can then never pass.
 *
 * @param fraction above 0
 */
export function share({ algorithm, numbers }: Policy, fraction: number): Policy {
  const { permitsAt } = algorithm;
  return algorithm.policy(numbers.map((n, i) => (permitsAt.includes(i) ? n * fraction : n)));
}

/**
 * Policies as a store knows them: a line each, the algorithm's code and the numbers.
 *
 * @param keptAt for a policy whose limit is kept elsewhere: where, among the keys that the store is
 *   given; such a number is written `$number@where`
 */
export function writePolicies(
  policies: readonly Policy[],
  keptAt: readonly (number | undefined)[] = [],
): string {
  return policies
    .map(({ algorithm, numbers, limitAt = [0] }, i) => {
      const where = keptAt[i];
      const texts = numbers.map((number, at) =>
        where !== undefined && limitAt.includes(at) ? `$${number}@${where}` : `${number}`,
      );
      return `${algorithm.code}${texts.join(" ")}`;
    })
    .join("\n");
}

/** The policies that `writePolicies` wrote. */
export function readPolicies(text: string): Policy[] {
  return text.split("\n").flatMap((line) => {
    const algorithm = algorithms.find(({ code }) => code === line[0]);
    return algorithm === undefined ? [] : [algorithm.policy(line.slice(1).split(" ").map(Number))];
  });
}
