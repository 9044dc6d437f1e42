/** Rules as plain data: what a file says once it is read, its names folded to one spelling. */

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
  /** How many units the period is long. Above 0, default 1. */
  readonly units: number;
  /** `units` of `unit`, ms. */
  readonly periodMs: number;
  /** Undefined: the algorithm's own default. */
  readonly burst: number | undefined;
  /** Of a leaky bucket: how many of the burst go at once. Undefined: none. */
  readonly nodelay: number | true | undefined;
  /** What a registered algorithm wants to know besides. */
  readonly with: Readonly<Record<string, unknown>>;
}

/** Other numbers for one value of the actor. */
export interface RuleOverride extends RuleNumbers {
  /** As the actor gives it. */
  readonly value: string;
}

export interface Rule extends RuleNumbers {
  /**
   * Unique among the rules of a set, and the same wherever in the file the rule stands: metrics,
   * header fields and the keys on Redis carry it. Printable ASCII.
   */
  readonly name: string;
  /** The path that it holds for, and all below: "/" is everything. */
  readonly url: string;
  /** In capitals, in order; undefined: all. GET holds for HEAD too. */
  readonly methods: readonly string[] | undefined;
  /** Whose requests are counted together: "all", "account", "device" or a registered name. */
  readonly actor: string;
  /** "token bucket", "window", "sliding window", "leaky bucket" or a registered name. */
  readonly algo: string;
  readonly scope: "local" | "global";
  /** "shadow": counted and reported, never refused. */
  readonly mode: "enforce" | "shadow";
  /** Permits that a request takes. Above 0, default 1. */
  readonly cost: number;
  /**
   * Of a global rule: a key on Redis in which operators keep its `rpu`. 0 lets nothing through; where
   * the key is absent or holds no limit, `rpu` of the rule holds. Overrides keep their own numbers.
   */
  readonly limitKey: string | undefined;
  readonly overrides: readonly RuleOverride[];
  /** Values of the actor that the rule does not hold for; for addresses, ranges too. */
  readonly exempt: readonly string[];
  /** Where it was read. */
  readonly place: Place;
}

/** Of something in a file; lines and columns count from 1. */
export interface Place {
  readonly source: string;
  readonly line: number;
  readonly column: number;
}
