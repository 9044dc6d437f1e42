/** What a replay tells: as JSON just so, as text and HTML in words. */
import type { Rule } from "../../adapters/http/index.ts";
import type { Points } from "./time-series.ts";

export interface ActorReport {
  readonly actor: string;
  /** As counted; it may be too many by `surplus`. */
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
  /** For which the rule holds. */
  readonly requests: number;
  /** At once. */
  readonly passed: number;
  /** For their turn, and then they passed. */
  readonly waited: number;
  /** By this rule; of a shadow those that it would have refused. */
  readonly refused: number;
  /** Let pass by this rule and refused by another one. */
  readonly refusedElsewhere: number;
  readonly wait: { readonly meanMs: number; readonly longestMs: number };
  /** The most that passed in any `periodMs`: of all together, and of one actor. */
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
  /** No rule holds for them: they passed. */
  readonly withoutRule: number;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly rules: readonly RuleReport[];
}

/** What a replay has to say. */
export interface Replayed {
  readonly rulesFrom: string;
  readonly log: string;
  readonly lines: number;
  /** Lines that are no requests. */
  readonly unread: number;
  /** Too late to be put in order. */
  readonly late: number;
  readonly report: Report;
}
