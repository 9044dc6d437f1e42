/** The rules in force. */
import { ActiveRule } from "./active-rule.ts";
import { ActiveConnections, sharingProblem } from "./connection-filter.ts";
import { show } from "./ground/check.ts";
import { policiesOf, type RuleContext } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import { ActiveRate } from "./response-rates.ts";
import { RuleTable } from "./rule-table.ts";
import type { RequestRule, Rule } from "./rules/rule.ts";
import { RulesError } from "./rules/rules-error.ts";

/** Rules by kind; in each kind those of the outermost URL first. */
export interface RulesByKind {
  readonly requests: readonly ActiveRule[];
  readonly connections: readonly ActiveConnections[];
  readonly rates: readonly ActiveRate[];
}

type InForce = ActiveRule | ActiveConnections | ActiveRate;

const NONE: readonly never[] = [];

/** All rules that are in force together. */
export class RuleSet {
  readonly rules: readonly Rule[];
  readonly #table = new RuleTable<InForce>();
  /** Whether all rules limit requests per time, as in most files. */
  readonly #isOneKind: boolean;

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
    this.#isOneKind = policies.length === rules.length;
    const known = (name: string) => (before === undefined ? undefined : before.#table.find(name));
    for (const each of policies) {
      const was = known(each.rule.name);
      this.#table.add(new ActiveRule(each, context, isForRequests(was) ? was : undefined));
    }
    for (const rule of rules) {
      const was = known(rule.name);
      if (rule.quotaUnit === "concurrent-requests") {
        const same = isForConnections(was) ? was : undefined;
        this.#table.add(new ActiveConnections(rule, context, same));
      } else if (rule.quotaUnit === "content-bytes") {
        this.#table.add(new ActiveRate(rule, context, isForRates(was) ? was : undefined));
      }
    }
  }

  get active(): RulesByKind {
    return byKind(this.#table.all());
  }

  /** Returns the rules that apply to a request. */
  match(request: GatewayRequest): RulesByKind {
    const found = this.#table.match(request);
    if (!this.#isOneKind) return byKind(found);
    return { requests: found as readonly ActiveRule[], connections: NONE, rates: NONE };
  }

  async close(): Promise<void> {
    const { requests, connections } = this.active;
    await Promise.all([
      ...requests.map(({ limits }) => limits.close()),
      ...connections.map((each) => each.close()),
    ]);
  }
}

function byKind(rules: readonly InForce[]): RulesByKind {
  return {
    requests: rules.filter(isForRequests),
    connections: rules.filter(isForConnections),
    rates: rules.filter(isForRates),
  };
}

function isForRequests(one: InForce | undefined): one is ActiveRule {
  return one instanceof ActiveRule;
}

function isForConnections(one: InForce | undefined): one is ActiveConnections {
  return one instanceof ActiveConnections;
}

function isForRates(one: InForce | undefined): one is ActiveRate {
  return one instanceof ActiveRate;
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
