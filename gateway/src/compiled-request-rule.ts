import type { GuardedActor } from "./actors/guarded.ts";
import { CompiledRule } from "./compiled-rule.ts";
import { Limits, type RuleContext, type RulePolicies } from "./limits.ts";
import type { GuardedCost } from "./rules/cost.ts";
import type { RequestRule } from "./rules/rule.ts";

/** A rule for requests per time that is in force, with its limiters. */
export class CompiledRequestRule extends CompiledRule<RequestRule, GuardedActor> {
  readonly isGlobal: boolean;
  /** Whether it only counts and reports, and never refuses. */
  readonly isShadow: boolean;
  /** How long a request waits instead of being refused, ms: 0 or Infinity. */
  readonly longestWaitMs: number;
  /** Computes the cost of a request; undefined if the rule states it. */
  readonly costBy: GuardedCost | undefined;
  /** Whether permits may be given back, or more be taken, when the request has been answered. */
  readonly settles: boolean;
  /** Whether a request may be refused whatever was used, by a block for example: checked before the limiter. */
  readonly isGuarded: boolean;
  /** Whether periods have keys of their own. */
  readonly isOnCalendar: boolean;
  readonly #hasFixedCost: boolean;
  readonly limits: Limits;

  constructor(
    policies: RulePolicies,
    context: RuleContext,
    before: CompiledRequestRule | undefined,
  ) {
    const { rule } = policies;
    super(rule, context);
    this.isGlobal = rule.scope === "global";
    this.isShadow = rule.mode === "shadow";
    this.longestWaitMs = policies.isLine && !this.isShadow ? Infinity : 0;
    this.limits = new Limits(policies, context, before?.limits);
    this.costBy = rule.costBy === undefined ? undefined : context.costs.get(rule.costBy);
    this.settles = rule.count !== "all" || this.costBy?.settle !== undefined;
    const all = [policies.own, ...policies.overrides.values()];
    this.isGuarded =
      rule.blockMs !== undefined ||
      this.costBy !== undefined ||
      all.some(({ policy }) => policy === undefined);
    this.isOnCalendar = all.some(({ calendar }) => calendar !== undefined);
    this.#hasFixedCost = Object.keys(rule.costs).length === 0;
  }

  /** Returns the permits that a request takes, for a rule that states them. */
  costOf(method: string): number {
    const { cost, costs } = this.rule;
    if (this.#hasFixedCost) return cost;
    const asked = method.toUpperCase();
    return costs[asked] ?? (asked === "HEAD" ? costs.GET : undefined) ?? cost;
  }
}
