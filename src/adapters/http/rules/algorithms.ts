/** The algorithms by the names that rules use. A registered one is known to rules as these are. */
import { show } from "../../../check.ts";
import {
  fixedWindow,
  gcra,
  leakyBucket,
  type Policy,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../index.ts";
import type { RuleNumbers } from "./rule.ts";

/** An algorithm that rules may name. */
export interface RuleAlgorithm {
  /** Other names for it. Case, spaces, "-" and "_" never matter. */
  readonly aliases?: readonly string[];
  /** What a rule may say besides its rate. Default: nothing. */
  readonly fields?: readonly ("burst" | "nodelay" | "with")[];
  /**
   * Requests wait for their turn instead of being refused; those that the policy has no room for
   * are refused. Default false.
   */
  readonly waits?: boolean;
  /**
   * @param numbers of the rule, or of one of its overrides
   * @returns the policy
   * @throws RangeError or TypeError where the numbers are none for it: the rule is then refused
   */
  policy(numbers: RuleNumbers): Policy;
}

export type RuleAlgorithms = Readonly<Record<string, RuleAlgorithm>>;

export function checkAlgorithms(algorithms: unknown): RuleAlgorithms {
  if (typeof algorithms !== "object" || algorithms === null || Array.isArray(algorithms)) {
    throw new TypeError(`algorithms must be an object, got ${show(algorithms)}`);
  }
  for (const [name, one] of Object.entries(algorithms)) {
    if (typeof (Object(one) as Partial<RuleAlgorithm>).policy === "function") continue;
    throw new TypeError(`algorithms.${name} must have policy(numbers), got ${show(one)}`);
  }
  return algorithms as RuleAlgorithms;
}

/** The policy, whose limit that operators keep in a key is these of its numbers: the rule's `rpu`. */
function limitedAt(policy: Policy, limitAt: readonly number[]): Policy {
  return Object.freeze({ ...policy, limitAt });
}

/** Who must wait longer than this for the end of the line does better to come back, ms. */
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
    policy: ({ rpu, periodMs }) => fixedWindow({ limit: rpu, windowMs: periodMs }),
  },
  "sliding window": {
    aliases: ["SW"],
    policy: ({ rpu, periodMs }) => slidingWindow({ limit: rpu, windowMs: periodMs }),
  },
  "leaky bucket": {
    aliases: ["LB"],
    fields: ["burst", "nodelay"],
    waits: true,
    policy: ({ rpu, periodMs, burst, nodelay = 0 }) => {
      const inLine = Math.floor((Math.min(LONGEST_LINE_MS, periodMs) * rpu) / periodMs);
      const permitsPerSecond = (rpu * 1000) / periodMs;
      const bucket = leakyBucket({ permitsPerSecond, capacity: burst ?? inLine, nodelay });
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
