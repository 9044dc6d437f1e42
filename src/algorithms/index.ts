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
 * Returns the policy with that fraction of the permits and the same times. A request that is larger
 * than the reduced capacity can then never be granted.
 *
 * @param fraction above 0; it may be rounded to 9 digits, so 0.333333333 of 30 are 10
 */
export function share({ algorithm, numbers }: Policy, fraction: number): Policy {
  const { permitsAt } = algorithm;
  return algorithm.policy(
    numbers.map((n, i) => (permitsAt.includes(i) ? wholeIfClose(n * fraction) : n)),
  );
}

function wholeIfClose(permits: number): number {
  const whole = Math.round(permits);
  return Math.abs(permits - whole) <= whole * 4e-9 ? whole : permits;
}

/**
 * Returns policies in the form in which a store gets them: one line each, the algorithm's code and the
 * numbers.
 *
 * @param keptAt for each policy with a limit that is kept under a key: the index of that key, from 1,
 *   among the limit keys of the store; such a number is written `$number@index`
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

/** Reads the policies from a text that `writePolicies` returned. */
export function readPolicies(text: string): Policy[] {
  return readPoliciesOf(algorithms, text);
}

/** Reads policies that have only these algorithms; leaves out others. */
export function readPoliciesOf(known: readonly Algorithm[], text: string): Policy[] {
  return text.split("\n").flatMap((line) => {
    const algorithm = known.find(({ code }) => code === line[0]);
    return algorithm === undefined ? [] : [algorithm.policy(line.slice(1).split(" ").map(Number))];
  });
}
