/** The rules in force. */
import { PaceRule } from "./compiled/pace-rule.ts";
import { PermitRule } from "./compiled/permit-rule.ts";
import type { CompiledRule } from "./compiled/rule.ts";
import { SlotRule, sharingProblem } from "./compiled/slot-rule.ts";
import { show } from "./ground/check.ts";
import { hostsOf } from "./match/host.ts";
import { PathTree } from "./match/tree.ts";
import type { Stages } from "./pipeline/limit.ts";
import type { GatewayRequest } from "./request.ts";
import { policiesOf, type RuleContext } from "./rule-limiters.ts";
import type { RefusingRule, RequestRule, Rule } from "./rules/rule.ts";
import { RulesError } from "./rules/rules-error.ts";

/** The rules of each stage; in each those of the outermost URL first. */
interface RulesByStage extends Stages<RefusingRule> {
  readonly slots: readonly SlotRule[];
  readonly permits: readonly PermitRule[];
  readonly paces: readonly PaceRule[];
}

type Kind<T> = abstract new (...args: never) => T;

const NONE: readonly never[] = [];

/** All rules that are in force together, found by name and by path. */
export class RuleSet {
  readonly rules: readonly Rule[];
  readonly #tree = new PathTree<CompiledRule>(({ rule }) => rule.mode === "shadow");
  readonly #byName = new Map<string, CompiledRule>();
  /** Whether a target may match two URLs of one rule. */
  #hasLists = false;
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
    const was = <T extends CompiledRule>(kind: Kind<T>, { name }: Rule): T | undefined => {
      const found = before === undefined ? undefined : before.#byName.get(name);
      return found instanceof kind ? found : undefined;
    };
    for (const each of policies) {
      this.#add(new PermitRule(each, context, was(PermitRule, each.rule)));
    }
    for (const rule of rules) {
      if (rule.quotaUnit === "concurrent-requests") {
        this.#add(new SlotRule(rule, context, was(SlotRule, rule)));
      } else if (rule.quotaUnit === "content-bytes") {
        this.#add(new PaceRule(rule, context, was(PaceRule, rule)));
      }
    }
  }

  get active(): RulesByStage {
    return byStage([...this.#byName.values()]);
  }

  /** Returns the rules that apply to a request; undefined if its target is disputed: see `PathTree`. */
  match(request: GatewayRequest): RulesByStage | undefined {
    const { url } = request;
    let known: readonly string[] | undefined;
    const hosts = () => {
      known ??= hostsOf(request);
      return known;
    };
    const matches = this.#tree.match(url, (one) => one.isForAll || one.includes(request, hosts));
    if (matches === undefined) return undefined;
    const found = this.#hasLists ? [...new Set(matches)] : matches;
    if (!this.#isOneKind) return byStage(found);
    return { slots: NONE, permits: found as readonly PermitRule[], paces: NONE };
  }

  async close(): Promise<void> {
    const { permits, slots } = this.active;
    await Promise.all([
      ...permits.map(({ limits }) => limits.close()),
      ...slots.map((each) => each.close()),
    ]);
  }

  #add(one: CompiledRule): void {
    const { name, urls, exact } = one.rule;
    this.#byName.set(name, one);
    if (urls.length > 1) this.#hasLists = true;
    for (const url of urls) this.#tree.add(url, one, exact);
  }
}

function byStage(rules: readonly CompiledRule[]): RulesByStage {
  const of = <T extends CompiledRule>(kind: Kind<T>) =>
    rules.filter((one): one is T => one instanceof kind);
  return {
    slots: of(SlotRule),
    permits: of(PermitRule),
    paces: of(PaceRule),
  };
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
