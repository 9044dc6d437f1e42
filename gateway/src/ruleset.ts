/** The rules in force: each with its limiters, found by path. */

import { exemption } from "./actors/exemption.ts";
import type { GuardedActor } from "./actors/guarded.ts";
import { show } from "./ground/check.ts";
import { Limits, policiesOf, type RuleContext, type RulePolicies } from "./limits.ts";
import { hostsOf, isHost } from "./match/host.ts";
import { certainlyBelow } from "./match/pattern.ts";
import { PathTree } from "./match/tree.ts";
import type { GatewayRequest } from "./request.ts";
import type { GuardedCost } from "./rules/cost.ts";
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
  /** Computes the cost of a request; undefined if the rule says it. */
  readonly costBy: GuardedCost | undefined;
  /** Whether permits may be given back, or more be taken, when the request has been answered. */
  readonly settles: boolean;
  /** Whether a request is looked at before the rule is asked: it may be refused in any case. */
  readonly isGuarded: boolean;
  /** Whether periods have keys of their own. */
  readonly isOnCalendar: boolean;
  /** Whether it applies to every request to its URLs. */
  readonly isForAll: boolean;
  readonly #hasFixedCost: boolean;
  readonly #exceptions: readonly ((target: string) => boolean)[];
  readonly isExempt: (value: string, request: GatewayRequest) => boolean;
  readonly limits: Limits;

  constructor(policies: RulePolicies, workshop: RuleContext, before: ActiveRule | undefined) {
    const { rule } = policies;
    this.rule = rule;
    this.actor = workshop.actor(rule.actor) as GuardedActor;
    this.isGlobal = rule.scope === "global";
    this.isShadow = rule.mode === "shadow";
    this.longestWaitMs = policies.isLine && !this.isShadow ? Infinity : 0;
    this.isExempt = exemption(rule.exempt, this.actor, rule.actor === "device");
    this.limits = new Limits(policies, workshop, before?.limits);
    this.costBy = rule.costBy === undefined ? undefined : workshop.costs.get(rule.costBy);
    this.settles = rule.count !== "all" || this.costBy?.settle !== undefined;
    const all = [policies.own, ...policies.overrides.values()];
    this.isGuarded =
      rule.blockMs !== undefined ||
      this.costBy !== undefined ||
      all.some(({ policy }) => policy === undefined);
    this.isOnCalendar = all.some(({ calendar }) => calendar !== undefined);
    this.#hasFixedCost = Object.keys(rule.costs).length === 0;
    this.isForAll = !rule.methods && !rule.hosts && rule.except.length === 0;
    this.#exceptions = rule.except.map(certainlyBelow);
  }

  /** Returns the permits that a request takes where the rule says them. */
  costOf(method: string): number {
    const { cost, costs } = this.rule;
    if (this.#hasFixedCost) return cost;
    const asked = method.toUpperCase();
    return costs[asked] ?? (asked === "HEAD" ? costs.GET : undefined) ?? cost;
  }

  holdsFor({ method, url }: GatewayRequest, hosts: () => readonly string[]): boolean {
    const wanted = this.rule.hosts;
    return (
      this.#hasMethod(method) &&
      !this.#exceptions.some((isBelow) => isBelow(url)) &&
      (wanted === undefined || hosts().some((host) => wanted.some((each) => isHost(each, host))))
    );
  }

  /** GET includes HEAD, which servers answer in the same way. */
  #hasMethod(method: string): boolean {
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
  /** Whether a target may match two URLs of one rule. */
  readonly #hasLists: boolean;

  /**
   * @param before the rules in force until now; limiters of rules that remain are reused
   * @throws RulesError, or an algorithm's error; nothing has changed then
   */
  constructor(rules: readonly Rule[], workshop: RuleContext, before?: RuleSet) {
    checkWorkable(rules, workshop);
    const policies = rules.map((rule) => policiesOf(rule, workshop.algorithms));
    this.rules = rules;
    this.#hasLists = rules.some(({ urls }) => urls.length > 1);
    for (const each of policies) {
      const { name, urls, exact } = each.rule;
      const active = new ActiveRule(each, workshop, before?.find(name));
      this.#active.set(name, active);
      for (const url of urls) this.#tree.add(url, active, exact);
    }
  }

  find(name: string): ActiveRule | undefined {
    return this.#active.get(name);
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#active.values(), ({ limits }) => limits.close()));
  }

  /** Returns the rules that apply to a request, those of the outermost URL first. */
  match(request: GatewayRequest): readonly ActiveRule[] {
    const matches = this.#tree.match(request.url);
    const found = this.#hasLists ? [...new Set(matches)] : matches;
    if (found.every(isForAll)) return found;
    let known: readonly string[] | undefined;
    const hosts = () => {
      known ??= hostsOf(request);
      return known;
    };
    return found.filter((rule) => rule.holdsFor(request, hosts));
  }
}

function isForAll(rule: ActiveRule): boolean {
  return rule.isForAll;
}

/** Checks what a reader of rules cannot know: whether this gateway has what the rules need. */
function checkWorkable(rules: readonly Rule[], context: RuleContext): void {
  const { algorithms, costs, redis } = context;
  const names = new Set<string>();
  const problems = rules.flatMap(({ name, actor, algo, costBy, scope, place }) => {
    const messages: string[] = [];
    if (context.actor(actor) === undefined) {
      messages.push(
        `the gateway has no options.actors.${actor}, which returns the value that requests are counted by`,
      );
    }
    if (!Object.hasOwn(algorithms, algo)) {
      messages.push(`the gateway has no options.algorithms[${show(algo)}]`);
    }
    if (costBy !== undefined && !costs.has(costBy)) {
      messages.push(`the gateway has no options.costs[${show(costBy)}]`);
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
