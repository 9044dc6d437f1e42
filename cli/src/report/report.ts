/** The results of a replay: JSON contains exactly this, text and HTML format it. */
import type { RequestRule } from "smooth-limiter-gateway";

/** The parts that add up to all requests of a rule. */
export type Part = "passed" | "waited" | "refused";

/** Counts over time. */
export interface Points {
  /** The time that a point covers, ms. */
  readonly stepMs: number;
  /** Where the first point begins, Unix time, ms. */
  readonly startMs: number;
  readonly counts: Readonly<Record<Part, readonly number[]>>;
  /** The most requests in one second of each point: what its mean hides. */
  readonly peaks: readonly number[];
}

/** How many requests had which result. */
export interface Counts {
  readonly requests: number;
  /** Those that passed at once. */
  readonly passed: number;
  /** Those that waited and then passed. */
  readonly waited: number;
  readonly refused: number;
}

export interface ActorReport extends Counts {
  readonly actor: string;
  /** Whether the requests had no such actor, so that their device counted instead. */
  readonly isFallback: boolean;
  readonly mostInWindow: number;
}

/** The counts of a rule: `refused` are those that this rule refused, or would have as a shadow rule. */
export interface RuleReport
  extends Counts,
    Pick<RequestRule, "name" | "url" | "actor" | "algo" | "scope" | "mode" | "rpu" | "periodMs"> {
  /** Those that this rule let pass and another one refused. */
  readonly refusedElsewhere: number;
  /** How many requests this rule decided in a second: over the whole log, and in the busiest second. */
  readonly perSecond: { readonly mean: number; readonly peak: number };
  readonly wait: { readonly meanMs: number; readonly longestMs: number };
  /** The most requests that passed in any `periodMs`: of all together, and of one actor. */
  readonly mostInWindow: number;
  readonly mostOfOneActor: number;
  readonly actors: readonly ActorReport[];
  readonly points: Points;
}

export interface Report extends Counts {
  /** Requests to which no rule applies: they passed. */
  readonly withoutRule: number;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly rules: readonly RuleReport[];
}

/** The whole result of a replay. */
export interface Replayed {
  readonly rulesFrom: string;
  readonly log: string;
  readonly lines: number;
  /** Lines that are not requests. */
  readonly unread: number;
  /** Lines that were too late to be sorted. */
  readonly late: number;
  /** The zone in which the first request says its time, minutes east of UTC. */
  readonly zoneMinutes: number;
  readonly report: Report;
}
