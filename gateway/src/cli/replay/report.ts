/** The results of a replay: JSON contains exactly this, text and HTML format it. */
import type { Rule } from "../../index.ts";
import type { Points } from "./time-series.ts";

export interface ActorReport {
  readonly actor: string;
  /** Whether the requests had no such actor, so that their device counted instead. */
  readonly isFallback: boolean;
  /** As counted; it may be too high by up to `surplus`. */
  readonly requests: number;
  readonly surplus: number;
  readonly passed: number;
  readonly waited: number;
  readonly refused: number;
  readonly mostInWindow: number;
}

export interface RuleReport {
  readonly name: string;
  readonly url: string;
  readonly actor: string;
  readonly algo: string;
  readonly scope: Rule["scope"];
  readonly mode: Rule["mode"];
  readonly rpu: number;
  readonly periodMs: number;
  /** The requests to which the rule applies. */
  readonly requests: number;
  /** Those that passed at once. */
  readonly passed: number;
  /** Those that waited and then passed. */
  readonly waited: number;
  /** Those that this rule refused; for a shadow rule, those that it would have refused. */
  readonly refused: number;
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

export interface Report {
  readonly requests: number;
  readonly passed: number;
  readonly waited: number;
  readonly refused: number;
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
