import { type Clock, gcra, systemClock } from "smooth-limiter";
import { type RedisClient, RedisLimiter } from "smooth-limiter/redis";
import { ACTOR_KINDS, type Actor, type ActorKind, type Actors, ownActor } from "./actors/actor.ts";
import { fromAddress } from "./actors/address.ts";
import { type GuardedActor, guarded, type Report } from "./actors/guarded.ts";
import { Filter, type WhenActorMissing } from "./filter.ts";
import {
  aboveZero,
  atLeastOne,
  type Bound,
  checkClock,
  checkFunction,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkText,
  show,
} from "./ground/check.ts";
import { type RuleContext, unixMs } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import { ALGORITHMS, checkAlgorithms, type RuleAlgorithms } from "./rules/algorithms.ts";
import { type Costs, checkCosts, guardedCost } from "./rules/cost.ts";
import { readRules } from "./rules/read-rules.ts";
import type { Rule } from "./rules/rule.ts";
import type { UrlRules } from "./rules/schema.ts";
import { RuleSet } from "./ruleset.ts";
import { LiveRules, type RulesEvent, type WhenSourceGone } from "./sources/live-rules.ts";
import { fixedSource, type RuleSource } from "./sources/source.ts";
import { type RuleStats, Stats } from "./stats.ts";
import type { Verdict } from "./verdict.ts";

export interface GatewayOptions {
  /**
   * The rules: a source; several sources, of which the first with valid rules applies, so a remote
   * source comes before a local one; plain objects with the fields of a file; or rules that were read
   * already.
   */
  readonly rules:
    | RuleSource
    | readonly RuleSource[]
    | UrlRules
    | readonly UrlRules[]
    | readonly Rule[];
  /**
   * The actors by the name that rules use. "all" (every request together) and "device" (the
   * client's address, see `trustedProxies`) are built in and can be replaced here. "account" and
   * others must be given.
   */
  readonly actors?: Actors | undefined;
  /**
   * Kinds of actors that take an argument from the rule, by the name that rules use: with
   * `{ claim: (name) => ({ raw }) => … }` a rule may say `actor: { claim: org }`. "header" and
   * "cookie" are built in.
   */
  readonly actorKinds?: Readonly<Record<string, ActorKind>> | undefined;
  /** Functions that compute what a request costs, by the name that rules use: `cost: name`. */
  readonly costs?: Costs | undefined;
  /** Algorithms besides the built-in ones, by the name that rules use. */
  readonly algorithms?: RuleAlgorithms | undefined;
  /**
   * How many of your own proxies are in front and append to X-Forwarded-For: see `fromAddress`.
   * Default
   * 0. For `Forwarded` give `actors: { device: fromAddress({ … }) }`.
   */
  readonly trustedProxies?: number | undefined;
  /**
   * How many leading bits of an IPv6 address identify a device: see `fromAddress`. A whole number
   * from 1 to 128, default 56.
   */
  readonly ipv6Prefix?: number | undefined;
  /**
   * How a request is counted that has no value for a rule's actor. `"device"` (the default): by its
   * device, separately from requests that have a value; so leaving the value out gains nothing and
   * harms no other client. `"shared"`: all such requests together. `"skip"`: the rule does not
   * apply.
   */
  readonly whenActorMissing?: WhenActorMissing | undefined;
  /**
   * How long the promise of an actor may take, ms, above 0, default 5000. After that the actor has
   * failed, and the request counts as one without a value.
   */
  readonly actorTimeoutMs?: number | undefined;
  /** A client for rules of scope global; never closed. Without one such rules are rejected. */
  readonly redis?: RedisClient | undefined;
  /** The prefix of all keys on Redis. Default "g:". */
  readonly prefix?: string | undefined;
  /**
   * On Cluster: a hash tag for the keys of all global rules, which can then be checked in one
   * atomic step. The cost: all of them are on one node. Default: none; rules in several slots are
   * checked first, then charged. See docs/gateway.md.
   */
  readonly hashTag?: string | undefined;
  /** How long Redis may take for a reply, ms, above 0, default 1000. */
  readonly timeoutMs?: number | undefined;
  /**
   * How many instances share the global rules, or a function that returns the number: while Redis is
   * unavailable each instance applies its share. `"auto"` (the default): they are counted through
   * Redis while it is available.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /**
   * What global rules do while Redis is unavailable: apply this instance's share (`"local"`, the
   * default), let everything pass (`"allow"`), or make `check` reject with a StoreUnavailableError
   * (`"throw"`).
   */
  readonly whenUnavailable?: "local" | "allow" | "throw" | undefined;
  /** How many actors each rule may know at one time in this process. Default 1 000 000. */
  readonly maxKeys?: number | undefined;
  /**
   * What happens then to a new actor. `"evict"` (the default): the actor that has used least is
   * forgotten, so a client that invents actors cannot lock others out. `"refuse"`: the new actor is
   * refused.
   */
  readonly whenFull?: "evict" | "refuse" | undefined;
  /**
   * Which rules apply when a source cannot be reached any more: its last valid rules (`"keep"`, the
   * default), or those of the next source (`"next"`).
   */
  readonly whenSourceGone?: WhenSourceGone | undefined;
  /**
   * Receives events about the rules: applied, refused, a source gone or back. Errors that it
   * throws, or rejects with, are ignored.
   */
  readonly onRules?: ((event: RulesEvent) => void) | undefined;
  /**
   * Receives each verdict on a request to which a rule applies. Errors that it throws, or rejects
   * with, are ignored. In Node the channel `smooth-limiter-gateway:verdict` of
   * `node:diagnostics_channel` receives the same.
   */
  readonly onVerdict?: ((verdict: Verdict, request: GatewayRequest) => void) | undefined;
  /** The source of time, for tests and simulations. Redis uses it too. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: readonly (keyof GatewayOptions)[] = [
  "rules",
  "actors",
  "actorKinds",
  "costs",
  "algorithms",
  "trustedProxies",
  "ipv6Prefix",
  "whenActorMissing",
  "actorTimeoutMs",
  "redis",
  "prefix",
  "hashTag",
  "timeoutMs",
  "instances",
  "whenUnavailable",
  "maxKeys",
  "whenFull",
  "whenSourceGone",
  "onRules",
  "onVerdict",
  "clock",
];

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
   * @returns the verdict: at once where all rules are counted in this process and the request need
   *   not wait
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
   * asked. Neither counted in `stats` nor published.
   *
   * @param request see `GatewayRequest`
   * @returns the verdict: at once where all rules are counted in this process
   * @throws (or rejects) StoreUnavailableError
   * @example
   * const { outcomes } = await gateway.peek(request);
   */
  peek(request: GatewayRequest): Verdict | Promise<Verdict>;

  /**
   * Forgets what an actor has used, and ends its block: its next request finds the rule as new. A
   * request without a value for the actor counts by its device: give the device's address.
   *
   * @param which.rule the name of the rule
   * @param which.actor the actor's value, as in `outcome.actor`; keys that are stored as hashes are
   *   found by it too. Default "", which is the actor "all"
   * @throws RangeError where there is no such rule; (as a rejection) StoreUnavailableError
   * @example
   * await gateway.reset({ rule: "login", actor: "192.0.2.1" });
   */
  reset(which: { readonly rule: string; readonly actor?: string | undefined }): Promise<void>;

  /**
   * How many requests had which result, by the name of the rule. A rule counts from when it came
   * into force; a reload does not reset it.
   */
  readonly stats: Readonly<Record<string, RuleStats>>;

  /**
   * Stops watching the sources and ends the waiting lines; afterwards the gateway does not keep the
   * process alive. Waiting requests reject, and so do later ones that would have to wait or that
   * meet a rule counted on Redis.
   */
  close(): Promise<void>;
}

/**
 * Creates a gateway, which applies rules to requests.
 *
 * @param options see `GatewayOptions`; `rules` is required
 * @returns the gateway, once its rules are loaded
 * @throws (as a rejection) RulesError if the rules are invalid, the source's own error if they
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
  readonly #workshop: RuleContext;
  readonly #filter: Filter;
  readonly #live: LiveRules;
  readonly #stats: Stats;
  #set: RuleSet;

  constructor(options: GatewayOptions) {
    checkOptions("options", options, OPTIONS);
    const { actors = {}, actorKinds = {}, costs = {}, algorithms = {}, onRules } = options;
    const {
      whenActorMissing = "device",
      whenSourceGone = "keep",
      trustedProxies,
      ipv6Prefix,
    } = options;
    checkFunctions("actors", actors);
    checkFunctions("actorKinds", actorKinds);
    checkCosts(costs);
    checkAlgorithms(algorithms);
    for (const [name, value] of Object.entries({ trustedProxies, ipv6Prefix })) {
      if (actors.device === undefined || value === undefined) continue;
      throw new TypeError(
        `${name} is for the default device: pass it to your own device actor instead`,
      );
    }
    const device = actors.device ?? fromAddress({ trustedProxies, ipv6Prefix });
    checkOneOf("whenActorMissing", whenActorMissing, ["device", "shared", "skip"]);
    checkOneOf("whenSourceGone", whenSourceGone, ["keep", "next"]);
    const { onVerdict } = options;
    for (const [name, listener] of Object.entries({ onRules, onVerdict })) {
      if (listener !== undefined) checkFunction(name, listener);
    }
    this.#stats = new Stats(onVerdict);
    const { actorTimeoutMs = 5000 } = options;
    checkNumber("actorTimeoutMs", actorTimeoutMs, aboveZero);
    const workshop = checkWorkshop(options);
    const guard = (name: string, actor: Actor) =>
      guarded(`actors.${name}`, actor, actorTimeoutMs, workshop.clock);
    const guardedDevice = guard("device", device);
    const named = new Map<string, GuardedActor>([["all", ownActor(() => "")]]);
    for (const [name, actor] of Object.entries(actors)) named.set(name, guard(name, actor));
    named.set("device", guardedDevice);
    const kinds = new Map(Object.entries({ ...ACTOR_KINDS, ...actorKinds }));
    this.#workshop = {
      ...workshop,
      actor: (name) => {
        const known = named.get(name);
        if (known !== undefined) return known;
        const [, kind = "", argument = ""] = /^([^:]*):(.+)$/s.exec(name) ?? [];
        const made = kinds.get(kind)?.(argument);
        if (made === undefined) return undefined;
        checkFunction(`the result of actorKinds.${kind}`, made);
        const actor = guard(name, made);
        named.set(name, actor);
        return actor;
      },
      costs: new Map(
        Object.entries(costs).map(([name, cost]) => [
          name,
          guardedCost(name, cost, actorTimeoutMs, workshop.clock ?? systemClock),
        ]),
      ),
      algorithms: { ...ALGORITHMS, ...algorithms },
    };
    this.#filter = new Filter(guardedDevice, whenActorMissing, workshop.clock);
    this.#set = new RuleSet([], this.#workshop);
    const names = {
      actors: Object.keys(actors),
      actorKinds: Object.keys(actorKinds),
      costs: Object.keys(costs),
      algorithms,
    };
    const read = (rules: string | readonly UrlRules[], source = "rules") =>
      readRules(rules, { source, ...names });
    this.#live = new LiveRules(sourcesOf(options.rules, read), {
      whenSourceGone,
      read,
      apply: (rules) => {
        this.#set = new RuleSet(rules, this.#workshop, this.#set);
        this.#stats.follow(rules.map(({ name }) => name));
      },
      // a listener that fails must not stop the rules
      report: (event) => void (async () => onRules?.(event))().catch(() => {}),
    });
  }

  open(): Promise<void> {
    return this.#live.open();
  }

  get rules(): readonly Rule[] {
    return this.#set.rules;
  }

  check(request: GatewayRequest, report?: Report): Verdict | Promise<Verdict> {
    const verdict = this.#filter.check(this.#set, request, report);
    return verdict instanceof Promise
      ? verdict.then((later) => this.#stats.note(later, request))
      : this.#stats.note(verdict, request);
  }

  peek(request: GatewayRequest): Verdict | Promise<Verdict> {
    return this.#filter.peek(this.#set, request);
  }

  async reset(which: { readonly rule: string; readonly actor?: string }): Promise<void> {
    checkOptions("reset", which, ["rule", "actor"]);
    const { rule, actor = "" } = which;
    const active = this.#set.find(checkText("rule", rule));
    if (active === undefined) {
      const known = this.rules.slice(0, MOST_NAMES).map(({ name }) => show(name));
      throw new RangeError(
        `rule must be the name of a rule in force, such as ${known.join(", ")}, got ${show(rule)}`,
      );
    }
    await active.limits.reset(checkText("actor", actor), unixMs(this.#workshop.clock));
  }

  get stats(): Readonly<Record<string, RuleStats>> {
    return this.#stats.byRule;
  }

  async close(): Promise<void> {
    this.#filter.rejectWaiting();
    await Promise.all([this.#live.close(), this.#set.close()]);
  }
}

/** How many names an error lists. */
const MOST_NAMES = 5;

function checkWorkshop(
  options: GatewayOptions,
): Omit<RuleContext, "actor" | "algorithms" | "costs"> {
  const { redis, prefix = "g:", hashTag, timeoutMs = 1000 } = options;
  const { maxKeys = 1_000_000, whenFull = "evict", clock, instances = "auto" } = options;
  const { whenUnavailable = "local" } = options;
  checkOneOf("whenUnavailable", whenUnavailable, ["local", "allow", "throw"]);
  if (typeof instances !== "function" && instances !== "auto") {
    checkNumber("instances", instances, howMany);
  }
  checkOneOf("whenFull", whenFull, ["evict", "refuse"]);
  checkText("prefix", prefix);
  checkNumber("timeoutMs", timeoutMs, aboveZero);
  // report a bad client now, and not when the first global rule is loaded
  if (redis !== undefined) {
    RedisLimiter.create(redis, "none", gcra({ limit: 1, periodMs: 1 }), { hashTag });
  }
  return {
    redis,
    prefix,
    hashTag,
    timeoutMs,
    maxKeys: checkNumber("maxKeys", maxKeys, atLeastOne),
    instances,
    whenUnavailable,
    whenFull,
    clock: clock && checkClock(clock),
  };
}

const howMany: Bound = {
  ...atLeastOne,
  words: `${atLeastOne.words}, a function that returns one, or "auto"`,
};

function checkFunctions(option: string, functions: unknown): void {
  if (typeof functions !== "object" || functions === null || Array.isArray(functions)) {
    throw new TypeError(`${option} must be an object, got ${show(functions)}`);
  }
  for (const [name, each] of Object.entries(functions)) checkFunction(`${option}.${name}`, each);
}

function sourcesOf(
  rules: GatewayOptions["rules"],
  read: (rules: readonly UrlRules[]) => readonly Rule[],
): readonly RuleSource[] {
  const list = (Array.isArray(rules) ? rules : [rules]) as readonly (
    | RuleSource
    | Rule
    | UrlRules
  )[];
  const sources = list.filter((one): one is RuleSource => isSource(one));
  if (sources.length === 0) {
    if (Array.isArray(rules) && list.every(isRead)) return [fixedSource(list as readonly Rule[])];
    if (list.every(isObject)) return [fixedSource(read(list as readonly UrlRules[]))];
  } else if (sources.length === list.length) {
    return sources;
  }
  throw new TypeError("rules must be a source, sources, plain objects, or the result of readRules");
}

/** Whether it is a rule that `readRules` has returned. */
function isRead(one: unknown): boolean {
  return typeof (Object(one) as Partial<Rule>).place === "object";
}

function isObject(one: unknown): boolean {
  return typeof one === "object" && one !== null && !(one instanceof Promise);
}

function isSource(one: unknown): boolean {
  return typeof (Object(one) as Partial<RuleSource>).load === "function";
}
