import type { Decision } from "../../limiter/face.ts";
import type { Rule } from "./rules/rule.ts";

/** What one rule says about a request. */
export interface Outcome {
  readonly rule: Rule;
  /** Whose requests it counts together, as the actor gave it: a user, an address, "" for all. */
  readonly actor: string;
  /** Whether this rule lets it pass. A shadow rule that does not is reported and does no harm. */
  readonly allowed: boolean;
  /**
   * How the rule stands: after the request was charged if it passes, without it if it is refused.
   * A line that a request has waited in says `waitMs`, how long it was told to wait.
   */
  readonly decision: Decision;
}

/** What the gateway says about a request. */
export interface Verdict {
  /** Whether it may pass: all rules let it, shadow rules aside. */
  readonly allowed: boolean;
  /**
   * When to come back, ms: all rules that were asked would let the request pass then, if no other
   * came. 0 when allowed; `Infinity` where a limit is 0.
   */
  readonly retryMs: number;
  /** How long the request has waited for its turn, ms. */
  readonly waitedMs: number;
  /**
   * A rule each, those of the outermost URL first; empty where no rule holds. Where rules in this
   * process refuse, those on Redis are not asked and not listed.
   */
  readonly outcomes: readonly Outcome[];
}
