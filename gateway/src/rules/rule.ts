/** Rules as plain data: the content of a file with all names in one spelling. */

/**
 * In ms. A month is as long as the calendar says, and this is its average; a quota of unit "ever"
 * is never refilled.
 */
export const UNITS = {
  second: 1000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  month: 2_629_746_000,
  ever: 1e12,
} as const;

/** A unit of time, by the name that rules use. */
export type Unit = keyof typeof UNITS;

/** Where the windows of a fixed window begin. */
export type Align = "epoch" | "first";

export function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** How much a rule lets through. */
export interface RuleNumbers {
  /** Requests per unit: permits in each `periodMs`. 0 or more; 0 refuses every request. */
  readonly rpu: number;
  /** The unit of the period. */
  readonly unit: Unit;
  /** The number of units in a period. Above 0, default 1. */
  readonly units: number;
  /** `units` of `unit`, ms; of months the average. */
  readonly periodMs: number;
  /** Undefined: the algorithm's own default. */
  readonly burst: number | undefined;
  /** For a leaky bucket: how many of the burst pass at once. Undefined: none. */
  readonly nodelay: number | true | undefined;
  /** For a leaky bucket: how many unused permits may be made up for. Undefined: none. */
  readonly slack: number | undefined;
  /** For a sliding window: its parts. Undefined: the algorithm's own default. */
  readonly buckets: number | undefined;
  /**
   * For a fixed window: whether windows are aligned to the clock or begin with a request. Undefined:
   * aligned to the clock.
   */
  readonly align: Align | undefined;
  /** For a fixed window of days or months: the zone in which they begin. Undefined: UTC. */
  readonly timeZone: string | undefined;
  /** Further settings of a registered algorithm. */
  readonly with: Readonly<Record<string, unknown>>;
}

/** Other numbers for one value of the actor. */
export interface RuleOverride extends RuleNumbers {
  /** As the actor returns it. */
  readonly value: string;
}

/** What rules of all kinds have: a name, and the requests to which they apply. */
export interface AnyRule {
  /**
   * Unique in a set of rules, and independent of the rule's place in the file, because metrics,
   * header fields and keys on Redis contain it. Printable ASCII.
   */
  readonly name: string;
  /**
   * The path to which the rule applies, with everything below it: "/" is everything. If the rule
   * applies to several paths, the first of `urls`.
   */
  readonly url: string;
  /** The paths to which the rule applies, which share one count. */
  readonly urls: readonly string[];
  /** Whether the rule applies to the paths only, and not to what is below them. */
  readonly exact: boolean;
  /** Paths to which the rule does not apply, nor to what is below them. */
  readonly except: readonly string[];
  /** The host names for which it applies, "*.example.com" for all subdomains; undefined: all. */
  readonly hosts: readonly string[] | undefined;
  /** In capitals, in order; undefined: all. GET includes HEAD. */
  readonly methods: readonly string[] | undefined;
  /**
   * The actor by which requests are counted: "all", "account", "device", a registered name, or a
   * kind with its argument, "header:x-tenant". Undefined for a `RateRule` of each response.
   */
  readonly actor: string | undefined;
  /** How requests without a value for the actor are counted. Undefined: the gateway's `whenActorMissing`. */
  readonly whenActorMissing: "device" | "shared" | "skip" | undefined;
  /** "local": counted in each process; "global": on Redis, for all together. */
  readonly scope: "local" | "global";
  /** "shadow": counted and reported, never refused. */
  readonly mode: "enforce" | "shadow";
  /** Values of the actor to which the rule does not apply; for addresses, ranges too. */
  readonly exempt: readonly string[];
  /** Where the rule was read. */
  readonly place: Place;
}

/** What rules that can refuse a request have. */
interface Reported {
  /**
   * Whether responses mention the rule: its name, and in the RateLimit fields its numbers. A refusal has
   * a Retry-After in any case.
   */
  readonly report: boolean;
}

/** Which requests count: others get their permits back after the response. */
export type Count = "all" | "failures" | "successes" | { readonly status: readonly number[] };

/** How long an actor is refused once a rule has refused it. */
export interface Block {
  /** How long the first block lasts, ms. */
  readonly forMs: number;
  /** How many times as long as the one before each further block lasts. 1: all are equally long. */
  readonly times: number;
  /** No block lasts longer, ms. An actor that is not blocked for twice this time begins with `forMs` again. */
  readonly mostMs: number;
}

/** Limits requests per time. */
export interface RequestRule extends AnyRule, Reported, RuleNumbers {
  /** Undefined: it counts requests per time. */
  readonly quotaUnit?: undefined;
  readonly actor: string;
  /** "token bucket", "window", "sliding window", "leaky bucket" or a registered name. */
  readonly algo: string;
  /** Permits that a request takes, if `costs` or `costBy` do not say otherwise. Default 1. */
  readonly cost: number;
  /** Permits by method, in capitals; 0: the rule does not apply. */
  readonly costs: Readonly<Record<string, number>>;
  /** The name of the gateway's function that computes the permits. */
  readonly costBy: string | undefined;
  /**
   * Which requests stay counted when they have been answered: all, those with a status of 400 or
   * more, those with a lower one, or those with one of these. The permits of others are given back then.
   */
  readonly count: Count;
  /** How long an actor is refused once this rule has refused it. Undefined: not at all. */
  readonly block: Block | undefined;
  /**
   * For a global rule: a key on Redis in which operators keep its `rpu`. 0 lets nothing through; if
   * the key is absent or contains no limit, the rule's own `rpu` applies. Overrides keep their own
   * numbers.
   */
  readonly limitKey: string | undefined;
  /** Other numbers for values of the actor. */
  readonly overrides: readonly RuleOverride[];
}

/** Limits how many requests are in progress at once. */
export interface ConnectionRule extends AnyRule, Reported {
  /** It counts requests in progress. */
  readonly quotaUnit: "concurrent-requests";
  readonly actor: string;
  /** A request holds one slot. */
  readonly cost: 1;
  /** How many requests of each actor, a whole number, 1 or more. */
  readonly connections: number;
  /** How long a request holds its slot at most, ms. Undefined: until it is over. */
  readonly maxAgeMs: number | undefined;
  /** Other numbers for values of the actor. */
  readonly overrides: readonly ConnectionOverride[];
}

/** Another number for one value of the actor. */
export interface ConnectionOverride {
  /** As the actor returns it. */
  readonly value: string;
  /** How many requests of this actor, a whole number, 1 or more. */
  readonly connections: number;
}

/** How fast responses are sent. */
export interface RateNumbers {
  /** Above 0. */
  readonly bytesPerSecond: number;
  /** How many bytes of each response are sent at once, before the limit applies. 0 or more. */
  readonly afterBytes: number;
}

/** Limits the bytes per second of responses: of each one, or of all of an actor together. */
export interface RateRule extends AnyRule, RateNumbers {
  /** It counts bytes of responses. */
  readonly quotaUnit: "content-bytes";
  readonly scope: "local";
  readonly mode: "enforce";
  /** Other numbers for values of the actor. */
  readonly overrides: readonly RateOverride[];
}

/** Other numbers for one value of the actor. */
export interface RateOverride extends RateNumbers {
  /** As the actor returns it. */
  readonly value: string;
}

/** A rule that can refuse a request. */
export type RefusingRule = RequestRule | ConnectionRule;

/** A rule: `quotaUnit` says of which kind it is. */
export type Rule = RequestRule | ConnectionRule | RateRule;

/**
 * A place in a file; lines and columns count from 1. In rules that are objects both are 0, and the
 * source contains the path: "rules[0].rules[1]".
 */
export interface Place {
  /** The name of the file, or of another source. */
  readonly source: string;
  /** From 1; 0 in objects. */
  readonly line: number;
  /** From 1; 0 in objects. */
  readonly column: number;
}
