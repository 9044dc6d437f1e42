import { checkGatewayOptions, type GatewayOptions } from "./gateway-options.ts";
import { checkOptions, checkText, show } from "./ground/check.ts";
import { chain } from "./ground/maybe-promise.ts";
import { Pipeline } from "./pipeline/pipeline.ts";
import type { CheckCall, GatewayRequest, Report } from "./request.ts";
import type { RuleContext } from "./rule-limiters.ts";
import { readRules } from "./rules/read-rules.ts";
import type { RefusingRule, Rule } from "./rules/rule.ts";
import type { UrlRules } from "./rules/schema.ts";
import { RuleSet } from "./ruleset.ts";
import { LiveRules, type RulesEvent } from "./sources/live-rules.ts";
import { sourcesOf } from "./sources/rules-option.ts";
import { warnOfRules } from "./sources/warn-of-rules.ts";
import { type RuleStats, Stats } from "./stats.ts";
import { DISPUTED, NO_RULE, type Verdict } from "./verdict.ts";

/** A filter for the front of an HTTP server. */
export interface Gateway {
  /** The rules in force. */
  readonly rules: readonly Rule[];

  /**
   * Checks a request against all rules that apply to it. It passes if all rules let it, and is then
   * charged to all; a refused request is charged to none. If a rule makes requests wait, the
   * promise resolves when the request may go on.
   *
   * @param request see `GatewayRequest`
   * @param report receives the error of a failed actor; the request then counts as one without a
   *   value for it. Absent: a process warning, once for each actor
   * @returns the verdict: at once if all rules are counted in this process and the request need not
   *   wait
   * @throws (or rejects) the signal's own reason if the client disconnected while it waited,
   *   ReservationCancelledError if the gateway was closed meanwhile, or StoreUnavailableError
   */
  check(
    request: GatewayRequest,
    report?: (error: unknown, request: GatewayRequest) => void,
  ): Verdict | Promise<Verdict>;

  /**
   * Returns the verdict that `check` would give now, and charges no rule. A request that would have
   * to wait counts as allowed; `decision.waitMs` of the rule is the wait. Global rules are always
   * read. The request is neither counted in `stats` nor published.
   *
   * @param request see `GatewayRequest`
   * @returns the verdict: at once where all rules are counted in this process
   * @throws (or rejects) StoreUnavailableError
   * @example
   * const { outcomes } = await gateway.peek(request);
   */
  peek(request: GatewayRequest): Verdict | Promise<Verdict>;

  /**
   * Clears what an actor has used, and ends its block: it starts again with a full limit. Requests
   * without a value for the actor count by their device: pass its address.
   *
   * @param which.rule the name of the rule
   * @param which.actor the actor's value, as in `outcome.actor`; keys that are stored as hashes are
   *   found by it too. Default "", which is the actor "all"
   * @throws RangeError if there is no such rule for requests per time; (as a rejection) StoreUnavailableError
   * @example
   * await gateway.reset({ rule: "login", actor: "192.0.2.1" });
   */
  reset(which: { readonly rule: string; readonly actor?: string | undefined }): Promise<void>;

  /**
   * The number of requests by result, for each rule by its name. A rule counts from when it came
   * into force; a reload does not reset it.
   */
  readonly stats: Readonly<Record<string, RuleStats>>;

  /**
   * Stops watching the sources and ends all waits; afterwards the gateway does not keep the process
   * alive. Waiting requests reject, and so do later ones that would have to wait or to which a global
   * rule applies: servers answer them with 503, unless `onError` says otherwise.
   */
  close(): Promise<void>;
}

/**
 * Creates a gateway, which applies rules to requests.
 *
 * @param options see `GatewayOptions`; `rules` is required
 * @returns the gateway, once its rules are loaded
 * @throws (rejects) RulesError if the rules are invalid, the source's own error if they
 *   cannot be loaded, and RangeError or TypeError on a bad option
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 * const { allowed } = await gateway.check(request);
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  const gateway = new RuledGateway(options);
  await gateway.open();
  return gateway;
}

class RuledGateway implements Gateway {
  readonly #context: RuleContext;
  readonly #pipeline = new Pipeline();
  readonly #live: LiveRules;
  readonly #stats: Stats;
  #set: RuleSet;
  #isOpen = false;

  constructor(options: GatewayOptions) {
    const context = checkGatewayOptions(options);
    const { algorithms = {}, onRules, onVerdict, whenSourceGone = "keep" } = options;
    this.#context = context;
    this.#stats = new Stats(onVerdict);
    this.#set = new RuleSet([], context);
    const names = {
      actors: Object.keys(options.actors ?? {}),
      actorKinds: Object.keys(options.actorKinds ?? {}),
      costs: Object.keys(options.costs ?? {}),
      algorithms,
    };
    const read = (rules: string | readonly UrlRules[], source = "rules") =>
      readRules(rules, { source, ...names });
    const sources = sourcesOf(options.rules, read);
    // createGateway rejects if its only source fails at the start: that needs no warning too
    const warnLater = (event: RulesEvent) => {
      if (this.#isOpen || sources.length > 1) warnOfRules(event);
    };
    const listen = onRules ?? warnLater;
    this.#live = new LiveRules(sources, {
      whenSourceGone,
      read,
      apply: (rules) => {
        this.#set = new RuleSet(rules, context, this.#set);
        const { permits, slots } = this.#set.active;
        this.#stats.follow([...permits, ...slots].map((each) => each.rule.name));
      },
      // a listener that fails must not stop the rules
      report: (event) => void (async () => listen(event))().catch(() => {}),
    });
  }

  async open(): Promise<void> {
    await this.#live.open();
    this.#isOpen = true;
  }

  get rules(): readonly Rule[] {
    return this.#set.rules;
  }

  check(request: GatewayRequest, report?: Report): Verdict | Promise<Verdict> {
    const call: CheckCall = { request, report };
    const { isExempt } = this.#context;
    const verdict =
      isExempt === undefined
        ? this.#decide(call)
        : chain(isExempt(call), (exempt) => (exempt === true ? NO_RULE : this.#decide(call)));
    return verdict instanceof Promise
      ? verdict.then((later) => this.#stats.note(later, request))
      : this.#stats.note(verdict, request);
  }

  peek(request: GatewayRequest): Verdict | Promise<Verdict> {
    const call: CheckCall = { request };
    return chain(this.#context.isExempt?.(call), (exempt) => {
      if (exempt === true) return NO_RULE;
      const stages = this.#set.match(request);
      return stages ? this.#pipeline.peek<RefusingRule>(stages, call) : DISPUTED;
    });
  }

  #decide(call: CheckCall): Verdict | Promise<Verdict> {
    const stages = this.#set.match(call.request);
    return stages ? this.#pipeline.check<RefusingRule>(stages, call) : DISPUTED;
  }

  async reset(which: { readonly rule: string; readonly actor?: string }): Promise<void> {
    checkOptions("reset", which, { rule: checkText, actor: checkText });
    const { rule, actor = "" } = which;
    checkText("rule", rule);
    const { permits } = this.#set.active;
    const active = permits.find((each) => each.rule.name === rule);
    if (active === undefined) {
      const known = permits.slice(0, MOST_NAMES);
      const names = known.map((each) => show(each.rule.name)).join(", ");
      throw new RangeError(
        `rule must be the name of a rule for requests per time: ${names || "there is none"}, got ${show(rule)}`,
      );
    }
    await active.limits.reset(actor);
  }

  get stats(): Readonly<Record<string, RuleStats>> {
    return this.#stats.byRule;
  }

  async close(): Promise<void> {
    this.#pipeline.rejectWaiting();
    await Promise.all([this.#live.close(), this.#set.close()]);
  }
}

/** How many names an error lists. */
const MOST_NAMES = 5;
