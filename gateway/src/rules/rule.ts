/** Rules as plain data: the content of a file with all names in one spelling. */

/** In ms. */
export const UNITS = {
  second: 1000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
} as const;

export type Unit = keyof typeof UNITS;

/** How much a rule lets through. */
export interface RuleNumbers {
  /** Requests per unit: permits in each `periodMs`. Above 0. */
  readonly rpu: number;
  readonly unit: Unit;
  /** The number of units in a period. Above 0, default 1. */
  readonly units: number;
  /** `units` of `unit`, ms. */
  readonly periodMs: number;
  /** Undefined: the algorithm's own default. */
  readonly burst: number | undefined;
  /** For a leaky bucket: how many of the burst pass at once. Undefined: none. */
  readonly nodelay: number | true | undefined;
  /** Further settings of a registered algorithm. */
  readonly with: Readonly<Record<string, unknown>>;
}

/** Other numbers for one value of the actor. */
export interface RuleOverride extends RuleNumbers {
  /** As the actor returns it. */
  readonly value: string;
}

export interface Rule extends RuleNumbers {
  /**
   * Unique in a set of rules, and independent of the rule's place in the file, because metrics,
   * header fields and keys on Redis contain it. Printable ASCII.
   */
  readonly name: string;
  /** The path to which the rule applies, with everything below it: "/" is everything. */
  readonly url: string;
  /** In capitals, in order; undefined: all. GET includes HEAD. */
  readonly methods: readonly string[] | undefined;
  /** The actor by which requests are counted: "all", "account", "device" or a registered name. */
  readonly actor: string;
  /** "token bucket", "window", "sliding window", "leaky bucket" or a registered name. */
  readonly algo: string;
  readonly scope: "local" | "global";
  /** "shadow": counted and reported, never refused. */
  readonly mode: "enforce" | "shadow";
  /** Permits that a request takes. Above 0, default 1. */
  readonly cost: number;
  /**
   * For a global rule: a key on Redis in which operators keep its `rpu`. 0 lets nothing through; if
   * the key is absent or contains no limit, the rule's own `rpu` applies. Overrides keep their own
   * numbers.
   */
  readonly limitKey: string | undefined;
  readonly overrides: readonly RuleOverride[];
  /** Values of the actor to which the rule does not apply; for addresses, ranges too. */
  readonly exempt: readonly string[];
  /** Where the rule was read. */
  readonly place: Place;
}

/**
 * A place in a file; lines and columns count from 1. In rules that are objects both are 0, and the
 * source contains the path: "rules[0].rules[1]".
 */
export interface Place {
  readonly source: string;
  readonly line: number;
  readonly column: number;
}
