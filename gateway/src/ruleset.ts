/** The rules in force. */
import { ActiveRule } from "./active-rule.ts";
import { ActiveConnections, sharingProblem } from "./connection-filter.ts";
import { show } from "./ground/check.ts";
import { policiesOf, type RuleContext } from "./limits.ts";
import { ActiveRate } from "./response-rates.ts";
import { RuleTable } from "./rule-table.ts";
import type { RequestRule, Rule } from "./rules/rule.ts";
import { RulesError } from "./rules/rules-error.ts";

/** All rules that are in force together, by kind. */
export class RuleSet {
  readonly rules: readonly Rule[];
  readonly requests = new RuleTable<ActiveRule>();
  readonly connections = new RuleTable<ActiveConnections>();
  readonly rates = new RuleTable<ActiveRate>();

  /**
   * @param before the rules in force until now; limiters of rules that remain are reused
   * @throws RulesError, or an algorithm's error; nothing has changed then
   */
  constructor(rules: readonly Rule[], context: RuleContext, before?: RuleSet) {
    checkWorkable(rules, context);
    const policies = rules
      .filter((rule): rule is RequestRule => rule.quotaUnit === undefined)
      .map((rule) => policiesOf(rule, context.algorithms));
    this.rules = rules;
    for (const each of policies) {
      this.requests.add(new ActiveRule(each, context, before?.requests.find(each.rule.name)));
    }
    for (const rule of rules) {
      const { name, quotaUnit } = rule;
      if (quotaUnit === "concurrent-requests") {
        this.connections.add(new ActiveConnections(rule, context, before?.connections.find(name)));
      } else if (quotaUnit === "content-bytes") {
        this.rates.add(new ActiveRate(rule, context, before?.rates.find(name)));
      }
    }
  }

  async close(): Promise<void> {
    await Promise.all([
      ...this.requests.all().map(({ limits }) => limits.close()),
      ...this.connections.all().map((each) => each.close()),
    ]);
  }
}

/** Checks what a reader of rules cannot know: whether this gateway has what the rules need. */
function checkWorkable(rules: readonly Rule[], context: RuleContext): void {
  const names = new Set<string>();
  const problems = rules.flatMap((rule) => {
    const { name, actor, scope, place } = rule;
    const messages: string[] = [];
    if (actor !== undefined && context.actor(actor) === undefined) {
      messages.push(
        `the gateway has no options.actors.${actor}, which returns the value that requests are counted by`,
      );
    }
    if (rule.quotaUnit === undefined) messages.push(...missingFor(rule, context));
    if (scope === "global" && context.redis === undefined) {
      messages.push("the gateway has no options.redis, which scope global needs");
    } else if (scope === "global" && rule.quotaUnit === "concurrent-requests") {
      messages.push(...[sharingProblem(context) ?? []].flat());
    }
    if (names.has(name)) messages.push(`there are two rules ${show(name)}`);
    names.add(name);
    return messages.map((message) => ({ ...place, message }));
  });
  if (problems.length > 0) throw new RulesError(problems);
}

/** Returns what the gateway lacks for a rule that limits requests per time. */
function missingFor({ algo, costBy }: RequestRule, { algorithms, costs }: RuleContext): string[] {
  const missing: string[] = [];
  if (!Object.hasOwn(algorithms, algo)) {
    missing.push(`the gateway has no options.algorithms[${show(algo)}]`);
  }
  if (costBy !== undefined && !costs.has(costBy)) {
    missing.push(`the gateway has no options.costs[${show(costBy)}]`);
  }
  return missing;
}
