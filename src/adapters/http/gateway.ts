import {
  aboveZero,
  atLeastOne,
  type Bound,
  checkNumber,
  checkOneOf,
  checkOptions,
  checkText,
  show,
} from "../../check.ts";
import { type Clock, checkClock } from "../../clock.ts";
import { gcra } from "../../index.ts";
import { type RedisClient, RedisLimiter } from "../../redis.ts";
import { type Actor, type Actors, ownActor } from "./actors/actor.ts";
import { fromAddress } from "./actors/address.ts";
import { guarded, type Report } from "./actors/guarded.ts";
import { Filter, type WhenActorMissing } from "./filter.ts";
import type { Workshop } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import { ALGORITHMS, checkAlgorithms, type RuleAlgorithms } from "./rules/algorithms.ts";
import { readRules } from "./rules/read-rules.ts";
import type { Rule } from "./rules/rule.ts";
import { RuleSet } from "./ruleset.ts";
import { LiveRules, type RulesEvent, type WhenSourceGone } from "./sources/live-rules.ts";
import { fixedSource, type RuleSource } from "./sources/source.ts";
import type { Verdict } from "./verdict.ts";

export interface GatewayOptions {
  /**
   * Where the rules come from: a source; several, of which the first that has good rules holds, so
   * the remote one stands before the local one; or rules that were read already.
   */
  readonly rules: RuleSource | readonly RuleSource[] | readonly Rule[];
  /**
   * Who the actors are, by the name that rules use. "all" is everybody and "device" the client's
   * address (see `trustedProxies`) unless they are given here; "account" and others must be.
   */
  readonly actors?: Actors | undefined;
  /** Algorithms besides the built-in ones, by the name that rules use. */
  readonly algorithms?: RuleAlgorithms | undefined;
  /**
   * How many proxies of yours stand in front and add to X-Forwarded-For: see `fromAddress`. Default
   * 0. For `Forwarded` give `actors: { device: fromAddress({ … }) }`.
   */
  readonly trustedProxies?: number | undefined;
  /**
   * How many leading bits of an IPv6 address make a device: see `fromAddress`. A whole number from 1
   * to 128, default 56.
   */
  readonly ipv6Prefix?: number | undefined;
  /**
   * What a request counts as that has no value for a rule's actor. `"device"` (the default): as its
   * device, apart from those that have a value, so leaving the actor out gains nothing and harms
   * nobody else; `"shared"`: all such requests together; `"skip"`: the rule does not hold for it.
   */
  readonly whenActorMissing?: WhenActorMissing | undefined;
  /**
   * How long the promise of an actor may take, ms, above 0, default 5000. After that the actor has
   * failed, and the request counts as one without a value.
   */
  readonly actorTimeoutMs?: number | undefined;
  /** A client for the rules of scope global; never closed. Without one such rules are refused. */
  readonly redis?: RedisClient | undefined;
  /** What the keys on Redis begin with. Default "g:". */
  readonly prefix?: string | undefined;
  /**
   * On Cluster: a hash tag for the keys of all global rules, which are then asked in one atomic step.
   * The cost: all of them are on one node. Default: none, and rules in several slots are looked at
   * first, then taken from. See docs/gateway.md.
   */
  readonly hashTag?: string | undefined;
  /** How long Redis may take for an answer, ms, above 0, default 1000. */
  readonly timeoutMs?: number | undefined;
  /**
   * How many instances share the global rules, or a function that returns it: while Redis is away
   * each goes by its share of them. `"auto"`, the default: they are counted through Redis while it
   * is up.
   */
  readonly instances?: number | "auto" | (() => number) | undefined;
  /**
   * What global rules do while Redis is away: go by this instance's share (`"local"`, the default),
   * let everything pass (`"allow"`), or have `check` reject with a StoreUnavailableError (`"throw"`).
   */
  readonly whenUnavailable?: "local" | "allow" | "throw" | undefined;
  /** How many actors each rule may know at one time, in this process. Default 1 000 000. */
  readonly maxKeys?: number | undefined;
  /**
   * What a new actor meets then: the one that has used least is forgotten for it (`"evict"`, the
   * default: whoever invents actors shuts nobody out), or it is refused (`"refuse"`).
   */
  readonly whenFull?: "evict" | "refuse" | undefined;
  /**
   * What holds when a source cannot be reached any more: its last good rules (`"keep"`, the
   * default), or those of the next source (`"next"`).
   */
  readonly whenSourceGone?: WhenSourceGone | undefined;
  /**
   * Hears what happens to the rules: applied, refused, a source gone or back. What it throws, or
   * rejects with, is ignored.
   */
  readonly onRules?: ((event: RulesEvent) => void) | undefined;
  /** Where the time comes from, for tests and simulations: Redis goes by it too. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: readonly (keyof GatewayOptions)[] = [
  "rules",
  "actors",
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
  "clock",
];

/** A filter for the front of an HTTP server. */
export interface Gateway {
  /** The rules in force. */
  readonly rules: readonly Rule[];

  /**
   * Asks all rules that hold for a request. It passes if all let it, and is then charged to all; one
   * that is refused is charged to none. Where a rule has requests wait for their turn, the answer
   * comes when it is the request's.
   *
   * @param request see `GatewayRequest`
   * @param report is given what an actor throws or rejects with; the request then counts as one
   *   without a value for it. Absent: a warning of the process, once for each actor
   * @returns the verdict: at once where all rules are counted in this process and nobody waits
   * @throws (or rejects) the signal's own reason if the client went away while it waited,
   *   ReservationCancelledError if the gateway was closed meanwhile, or StoreUnavailableError
   */
  check(
    request: GatewayRequest,
    report?: (error: unknown, request: GatewayRequest) => void,
  ): Verdict | Promise<Verdict>;

  /**
   * Ends the watching of sources and the lines: nothing of the gateway keeps the process alive
   * afterwards. Requests that still wait reject, and so do those that come later where they would
   * have to wait, or where a rule is counted on Redis.
   */
  close(): Promise<void>;
}

/**
 * A gateway: rules at work.
 *
 * @param options see `GatewayOptions`; `rules` is needed
 * @returns the gateway, once its rules are there
 * @throws (as a rejection) RulesError where the rules are broken, the source's own error where they
 *   cannot be reached, and RangeError or TypeError on a bad option
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
  readonly #workshop: Workshop;
  readonly #filter: Filter;
  readonly #live: LiveRules;
  #set: RuleSet;

  constructor(options: GatewayOptions) {
    checkOptions("options", options, OPTIONS);
    const { actors = {}, algorithms = {}, onRules, whenActorMissing = "device" } = options;
    const { whenSourceGone = "keep", trustedProxies, ipv6Prefix } = options;
    checkActors(actors);
    checkAlgorithms(algorithms);
    for (const [name, value] of Object.entries({ trustedProxies, ipv6Prefix })) {
      if (actors.device === undefined || value === undefined) continue;
      throw new TypeError(`${name} is for the default device: give it to yours instead`);
    }
    const device = actors.device ?? fromAddress({ trustedProxies, ipv6Prefix });
    checkOneOf("whenActorMissing", whenActorMissing, ["device", "shared", "skip"]);
    checkOneOf("whenSourceGone", whenSourceGone, ["keep", "next"]);
    if (onRules !== undefined && typeof onRules !== "function") {
      throw new TypeError(`onRules must be a function, got ${show(onRules)}`);
    }
    const { actorTimeoutMs = 5000 } = options;
    checkNumber("actorTimeoutMs", actorTimeoutMs, aboveZero);
    const workshop = checkWorkshop(options);
    const guard = (name: string, actor: Actor) =>
      guarded(`actors.${name}`, actor, actorTimeoutMs, workshop.clock);
    const guardedDevice = guard("device", device);
    const named = Object.entries(actors).map(([name, actor]) => [name, guard(name, actor)]);
    this.#workshop = {
      ...workshop,
      actors: { all: ownActor(() => ""), ...Object.fromEntries(named), device: guardedDevice },
      algorithms: { ...ALGORITHMS, ...algorithms },
    };
    this.#filter = new Filter(guardedDevice, whenActorMissing);
    this.#set = new RuleSet([], this.#workshop);
    this.#live = new LiveRules(sourcesOf(options.rules), {
      whenSourceGone,
      read: (text, source) => readRules(text, { source, actors: Object.keys(actors), algorithms }),
      apply: (rules) => {
        this.#set = new RuleSet(rules, this.#workshop, this.#set);
      },
      // whoever listens does not stop the rules, now or later
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
    return this.#filter.check(this.#set, request, report);
  }

  async close(): Promise<void> {
    this.#filter.dismiss();
    await Promise.all([this.#live.close(), this.#set.close()]);
  }
}

function checkWorkshop(options: GatewayOptions): Omit<Workshop, "actors" | "algorithms"> {
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
  // what is no client is told of now, and not when the first rule of scope global comes
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

function checkActors(actors: unknown): void {
  if (typeof actors !== "object" || actors === null || Array.isArray(actors)) {
    throw new TypeError(`actors must be an object, got ${show(actors)}`);
  }
  for (const [name, actor] of Object.entries(actors)) {
    if (typeof actor === "function") continue;
    throw new TypeError(`actors.${name} must be a function, got ${show(actor)}`);
  }
}

function sourcesOf(rules: GatewayOptions["rules"]): readonly RuleSource[] {
  const list = Array.isArray(rules) ? (rules as readonly (RuleSource | Rule)[]) : [rules];
  const sources = list.filter((one): one is RuleSource => isSource(one));
  if (sources.length === 0) {
    if (Array.isArray(rules)) return [fixedSource(rules as readonly Rule[])];
  } else if (sources.length === list.length) {
    return sources;
  }
  throw new TypeError("rules must be a source, sources, or what readRules made");
}

function isSource(one: unknown): boolean {
  return typeof (Object(one) as Partial<RuleSource>).load === "function";
}
