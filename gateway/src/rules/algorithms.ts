/** The algorithms by the names that rules use. Registered algorithms have the same interface. */

import {
  fixedWindow,
  gcra,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "smooth-limiter";
import { checkObject, show } from "../ground/check.ts";
import { calendarOf } from "./calendar.ts";
import type { RuleNumbers } from "./rule.ts";

/** The fields of a rule that not every algorithm knows. */
export const ALGORITHM_FIELDS = [
  "burst",
  "nodelay",
  "slack",
  "buckets",
  "align",
  "timeZone",
  "with",
] as const;

/** A field of a rule that not every algorithm knows. */
export type AlgorithmField = (typeof ALGORITHM_FIELDS)[number];

/** An algorithm that rules may name. */
export interface RuleAlgorithm {
  /** Other names for it. */
  readonly aliases?: readonly string[];
  /** The fields that a rule may contain besides its rate. Default: none. */
  readonly fields?: readonly AlgorithmField[];
  /**
   * Whether requests wait instead of being refused; requests that the policy cannot let wait are
   * refused. Default false.
   */
  readonly waits?: boolean;
  /**
   * @param numbers of the rule, or of one of its overrides
   * @returns the policy
   * @throws RangeError or TypeError on invalid numbers; the rule is then rejected
   */
  policy(numbers: RuleNumbers): Policy;
}

/** Algorithms by the name that rules use. */
export type RuleAlgorithms = Readonly<Record<string, RuleAlgorithm>>;

export function checkAlgorithms(algorithms: unknown): void {
  for (const [name, one] of Object.entries(checkObject("algorithms", algorithms))) {
    if (typeof (Object(one) as Partial<RuleAlgorithm>).policy === "function") continue;
    throw new TypeError(`algorithms.${name} must have policy(numbers), got ${show(one)}`);
  }
}

/**
 * Lets operators keep the policy's limit in a key: `limitAt` are the numbers that become the rule's
 * `rpu`.
 */
function limitedAt(policy: Policy, limitAt: readonly number[]): Policy {
  return Object.freeze({ ...policy, limitAt });
}

/** The longest wait in a line, ms. A request that would have to wait longer is refused. */
const LONGEST_LINE_MS = 5000;

export const ALGORITHMS: RuleAlgorithms = {
  "token bucket": {
    aliases: ["TB"],
    fields: ["burst"],
    policy: ({ rpu, periodMs, burst }) =>
      limitedAt(
        tokenBucket({ capacity: burst ?? rpu, refill: rpu, everyMs: periodMs }),
        burst === undefined ? [0, 1] : [1],
      ),
  },
  window: {
    aliases: ["W", "fixed window"],
    fields: ["align", "timeZone"],
    policy: (numbers) => {
      const { rpu, periodMs, align = "epoch" } = numbers;
      const calendar = calendarOf(numbers);
      // each period of a calendar has a key of its own
      return calendar === undefined
        ? fixedWindow({ limit: rpu, windowMs: periodMs, align })
        : fixedWindow({ limit: rpu, windowMs: calendar.longestMs, align: "first" });
    },
  },
  "sliding window": {
    aliases: ["SW"],
    fields: ["buckets"],
    policy: ({ rpu, periodMs, buckets }) =>
      slidingWindow({ limit: rpu, windowMs: periodMs, ...(buckets !== undefined && { buckets }) }),
  },
  "leaky bucket": {
    aliases: ["LB"],
    fields: ["burst", "nodelay", "slack"],
    waits: true,
    policy: ({ rpu, periodMs, burst, nodelay = 0, slack = 0 }) => {
      const inLine = Math.floor((Math.min(LONGEST_LINE_MS, periodMs) * rpu) / periodMs);
      const permitsPerSecond = (rpu * 1000) / periodMs;
      const bucket = leakyBucket({ permitsPerSecond, capacity: burst ?? inLine, nodelay, slack });
      const [atOnce = 1, , , ...rest] = bucket.numbers;
      return limitedAt(bucket.algorithm.policy([atOnce, rpu, periodMs, ...rest]), [1]);
    },
  },
  "sliding log": {
    aliases: ["SL"],
    policy: ({ rpu, periodMs }) => slidingLog({ limit: rpu, windowMs: periodMs }),
  },
  gcra: {
    fields: ["burst"],
    policy: ({ rpu, periodMs, burst }) =>
      gcra({ limit: rpu, periodMs, ...(burst !== undefined && { burst }) }),
  },
};
