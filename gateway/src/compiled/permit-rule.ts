import type { ActorValue } from "../actors/actor-value.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Charge, PermitLimit } from "../pipeline/limit.ts";
import type { CheckCall } from "../request.ts";
import { type RuleContext, RuleLimiters, type RulePolicies } from "../rule-limiters.ts";
import type { GuardedCost } from "../rules/cost.ts";
import type { RequestRule as Rule } from "../rules/rule.ts";
import { CompiledRule } from "./rule.ts";
import { RuleCharge } from "./rule-charge.ts";

/** A rule for requests per time that is in force, with its limiters. */
export class PermitRule extends CompiledRule<Rule> implements PermitLimit<Rule> {
  readonly longestWaitMs: number;
  readonly limits: RuleLimiters;
  /** Computes the cost of a request; undefined if the rule states it. */
  readonly costBy: GuardedCost | undefined;
  /** Whether there is nothing to do but to ask the limiter. */
  readonly #isPlain: boolean;
  /** Whether no charge needs more than the rule's limiter. */
  readonly #isSimple: boolean;
  readonly #hasFixedCost: boolean;

  constructor(policies: RulePolicies, context: RuleContext, before: PermitRule | undefined) {
    const { rule } = policies;
    super(rule, context);
    const isShadow = rule.mode === "shadow";
    this.longestWaitMs = policies.isLine && !isShadow ? Infinity : 0;
    this.limits = new RuleLimiters(policies, context, before?.limits);
    this.costBy = rule.costBy === undefined ? undefined : context.costs.get(rule.costBy);
    const all = [policies.own, ...policies.overrides.values()];
    this.#isSimple =
      rule.count === "all" &&
      rule.block === undefined &&
      this.costBy === undefined &&
      all.every(({ policy, calendar }) => policy !== undefined && calendar === undefined);
    this.#isPlain = this.longestWaitMs === 0 && !isShadow;
    this.#hasFixedCost = Object.keys(rule.costs).length === 0;
  }

  charge(call: CheckCall): MaybePromise<Charge<Rule> | undefined> {
    return this.resolve(call, this.#chargeFor);
  }

  /** One function for all requests, because this is on the path of each. */
  readonly #chargeFor = (
    actor: ActorValue,
    call: CheckCall,
  ): MaybePromise<Charge<Rule> | undefined> => {
    const stated = this.#costOf(call.request.method);
    if (this.costBy === undefined) return this.#chargeOf(actor, stated);
    return chain(this.costBy.estimate(call), (cost = stated) => this.#chargeOf(actor, cost));
  };

  #chargeOf(counted: ActorValue, cost: number): Charge<Rule> | undefined {
    if (cost === 0) return undefined;
    const { limits } = this;
    if (this.#isSimple) {
      const limiter = limits.for(counted);
      return { limit: this, actor: counted.value, cost, limiter, isPlain: this.#isPlain };
    }
    return new RuleCharge(this, counted, cost);
  }

  /** Returns the permits that a request takes, for a rule that states them. */
  #costOf(method: string): number {
    const { cost, costs } = this.rule;
    if (this.#hasFixedCost) return cost;
    const asked = method.toUpperCase();
    return costs[asked] ?? (asked === "HEAD" ? costs.GET : undefined) ?? cost;
  }
}
