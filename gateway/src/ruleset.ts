/** The rules in force: each with its limiters, found by path. */

import type { Limiter } from "smooth-limiter";
import { exemption } from "./actors/exemption.ts";
import type { GuardedActor } from "./actors/guarded.ts";
import { show } from "./ground/check.ts";
import { Limits, policiesOf, type RuleContext, type RulePolicies } from "./limits.ts";
import { PathTree } from "./match/tree.ts";
import type { GatewayRequest } from "./request.ts";
import type { Rule } from "./rules/rule.ts";
import { RulesError } from "./rules/rules-error.ts";

/** A rule in force, with its limiters. */
export class ActiveRule {
  readonly rule: Rule;
  readonly actor: GuardedActor;
  readonly isGlobal: boolean;
  /** Whether it only counts and reports, and never refuses. */
  readonly isShadow: boolean;
  /** How long a request waits instead of being refused, ms: 0 or Infinity. */
  readonly longestWaitMs: number;
  readonly isExempt: (value: string, request: GatewayRequest) => boolean;
  readonly limits: Limits;

  constructor(policies: RulePolicies, workshop: RuleContext, before: ActiveRule | undefined) {
    const { rule } = policies;
    this.rule = rule;
    this.actor = workshop.actors[rule.actor] as GuardedActor;
    this.isGlobal = rule.scope === "global";
    this.isShadow = rule.mode === "shadow";
    this.longestWaitMs = policies.isLine && !this.isShadow ? Infinity : 0;
    this.isExempt = exemption(rule.exempt, this.actor, rule.actor === "device");
    this.limits = new Limits(policies, workshop, before?.limits);
  }

  limiter(value: string, isKnown: boolean): Limiter {
    return this.limits.for(value, isKnown);
  }

  /** GET includes HEAD, which servers answer in the same way. */
  holdsFor(method: string): boolean {
    const { methods } = this.rule;
    if (methods === undefined) return true;
    const asked = method.toUpperCase();
    return methods.includes(asked) || (asked === "HEAD" && methods.includes("GET"));
  }
}

/** All rules that are in force together. */
export class RuleSet {
  readonly rules: readonly Rule[];
  readonly #tree = new PathTree<ActiveRule>();
  readonly #active = new Map<string, ActiveRule>();

  /**
   * @param before the rules in force until now; limiters of rules that remain are reused
   * @throws RulesError, or an algorithm's error; nothing has changed then
   */
  constructor(rules: readonly Rule[], workshop: RuleContext, before?: RuleSet) {
    checkWorkable(rules, workshop);
    const policies = rules.map((rule) => policiesOf(rule, workshop.algorithms));
    this.rules = rules;
    for (const each of policies) {
      const { name, url } = each.rule;
      const active = new ActiveRule(each, workshop, before?.find(name));
      this.#active.set(name, active);
      this.#tree.add(url, active);
    }
  }

  find(name: string): ActiveRule | undefined {
    return this.#active.get(name);
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#active.values(), ({ limits }) => limits.close()));
  }

  /** Returns the rules that apply to a request, those of the outermost URL first. */
  match(method: string, target: string): readonly ActiveRule[] {
    const found = this.#tree.match(target);
    return found.every((rule) => rule.holdsFor(method))
      ? found
      : found.filter((rule) => rule.holdsFor(method));
  }
}

/** Checks what a reader of rules cannot know: whether this gateway has what the rules need. */
function checkWorkable(rules: readonly Rule[], { actors, algorithms, redis }: RuleContext): void {
  const names = new Set<string>();
  const problems = rules.flatMap(({ name, actor, algo, scope, place }) => {
    const messages: string[] = [];
    if (!Object.hasOwn(actors, actor)) {
      messages.push(
        `the gateway has no options.actors.${actor}, which returns the value that requests are counted by`,
      );
    }
    if (!Object.hasOwn(algorithms, algo)) {
      messages.push(`the gateway has no options.algorithms[${show(algo)}]`);
    }
    if (scope === "global" && redis === undefined) {
      messages.push("the gateway has no options.redis, which scope global needs");
    }
    if (names.has(name)) messages.push(`there are two rules ${show(name)}`);
    names.add(name);
    return messages.map((message) => ({ ...place, message }));
  });
  if (problems.length > 0) throw new RulesError(problems);
}
