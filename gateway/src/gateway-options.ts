/** The options of a gateway, and what is made of them before there are rules. */

import { type Clock, gcra, systemClock } from "smooth-limiter";
import { type RedisClient, RedisLimiter } from "smooth-limiter/redis";
import {
  ACTOR_KINDS,
  type Actor,
  type ActorKind,
  type Actors,
  type WhenActorMissing,
} from "./actors/actor.ts";
import { CLIENT_OPTIONS, type ClientOptions, fromAddress } from "./actors/address.ts";
import { detachable, type GuardedActor, guarded, guardedCall } from "./actors/guarded.ts";
import { AND, together } from "./actors/together.ts";
import {
  aboveZero,
  anything,
  atLeastOne,
  type Checks,
  checkClock,
  checkFunction,
  checkFunctions,
  checkOptions,
  checkText,
  functionOr,
  number,
  oneOf,
  show,
} from "./ground/check.ts";
import { chain } from "./ground/maybe-promise.ts";
import { KeyBudget } from "./key-budget.ts";
import type { GatewayRequest } from "./request.ts";
import type { RuleContext } from "./rule-limiters.ts";
import { ALGORITHMS, checkAlgorithms, type RuleAlgorithms } from "./rules/algorithms.ts";
import { type Costs, checkCosts, guardedCost } from "./rules/cost.ts";
import type { RulesEvent, WhenSourceGone } from "./sources/live-rules.ts";
import type { RulesOption } from "./sources/rules-option.ts";
import type { Verdict } from "./verdict.ts";

/** The options of `createGateway`. */
export interface GatewayOptions extends ClientOptions {
  /**
   * The rules: a source; several sources, of which the first with valid rules applies, so a remote
   * source comes before a local one; plain objects with the fields of a file; or rules that were read
   * already.
   */
  readonly rules: RulesOption;
  /**
   * The actors by the name that rules use. "all" (every request together) and "device" (the
   * client's address, see `trustedProxies`) are built in and can be replaced here: for proxies that
   * append to `Forwarded` by `device: fromAddress({ … })`. "account" and others must be given.
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
   * Returns whether a request is exempt from all rules, or a promise of that. If it fails, or takes longer than
   * `actorTimeoutMs`, the request is not.
   */
  readonly exempt?: ((request: GatewayRequest) => boolean | Promise<boolean>) | undefined;
  /**
   * How requests without a value for a rule's actor are counted. `"device"` (the default): by their
   * device, separately from requests with a value, so a client that omits the value gains nothing and
   * harms no other client. `"shared"`: all such requests together. `"skip"`: the rule does not apply.
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
   * checked first, then charged. See docs/gateway.md, "Scopes".
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
  /**
   * How many actors all rules together may know at one time in this process. Default 1 000 000. A rule may have what
   * the others leave, and always its equal part.
   */
  readonly maxKeys?: number | undefined;
  /**
   * What happens to a new actor beyond `maxKeys`. `"evict"` (the default): the actor that has used least is
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
   * throws, or rejects with, are ignored. Default: a process warning when rules are refused or a
   * source is gone.
   */
  readonly onRules?: ((event: RulesEvent) => void) | undefined;
  /**
   * Receives each verdict on a request to which a rule applies, or whose target is disputed. Errors that it throws, or rejects
   * with, are ignored. In Node the channel `smooth-limiter-gateway:verdict` of
   * `node:diagnostics_channel` receives the same.
   */
  readonly onVerdict?: ((verdict: Verdict, request: GatewayRequest) => void) | undefined;
  /** The source of time, for tests and simulations. Redis uses it too. */
  readonly clock?: Clock | undefined;
}

const OPTIONS: Checks<GatewayOptions> = {
  rules: anything,
  actors: checkFunctions,
  actorKinds: checkFunctions,
  costs: (_, costs) => checkCosts(costs),
  algorithms: (_, algorithms) => checkAlgorithms(algorithms),
  ...CLIENT_OPTIONS,
  exempt: checkFunction,
  whenActorMissing: oneOf("device", "shared", "skip"),
  actorTimeoutMs: aboveZero,
  redis: anything,
  prefix: checkText,
  hashTag: anything,
  timeoutMs: aboveZero,
  instances: (name, value) => value === "auto" || functionOr(howMany)(name, value),
  whenUnavailable: oneOf("local", "allow", "throw"),
  maxKeys: atLeastOne,
  whenFull: oneOf("evict", "refuse"),
  whenSourceGone: oneOf("keep", "next"),
  onRules: checkFunction,
  onVerdict: checkFunction,
  clock: checkClock,
};

const howMany = number(
  'a finite number, 1 or more, a function that returns one, or "auto"',
  (value) => value >= 1 && value < Infinity,
);

/** Returns what limiters and actors of rules need. */
export function checkGatewayOptions(options: GatewayOptions): RuleContext {
  checkOptions("options", options, OPTIONS);
  const { actors = {}, actorKinds = {}, costs = {}, algorithms = {}, exempt } = options;
  const { whenActorMissing = "device", actorTimeoutMs = 5000 } = options;
  const { trustedProxies, ipv6Prefix } = options;
  for (const [name, value] of Object.entries({ trustedProxies, ipv6Prefix })) {
    if (actors.device === undefined || value === undefined) continue;
    throw new TypeError(
      `${name} is for the default device: pass it to your own device actor instead`,
    );
  }
  const device = actors.device ?? fromAddress({ trustedProxies, ipv6Prefix });
  const { redis, prefix = "g:", hashTag, timeoutMs = 1000, instances = "auto" } = options;
  const { whenUnavailable = "local", maxKeys = 1_000_000, whenFull = "evict", clock } = options;
  // report a bad client now, and not when the first global rule is loaded
  if (redis !== undefined) {
    RedisLimiter.create(redis, "none", gcra({ limit: 1, periodMs: 1 }), { hashTag });
  }
  const deadline = { timeoutMs: actorTimeoutMs, clock: clock ?? systemClock };
  const guard = (name: string, actor: Actor) => guarded(`actors.${name}`, actor, deadline);
  const guardedDevice = guard("device", device);
  const named = new Map<string, GuardedActor>([["all", () => ""]]);
  for (const [name, actor] of Object.entries(actors)) named.set(name, guard(name, actor));
  named.set("device", guardedDevice);
  const kinds = new Map(Object.entries({ ...ACTOR_KINDS, ...actorKinds }));
  const actorOf = (name: string): GuardedActor | undefined => {
    const known = named.get(name);
    if (known !== undefined) return known;
    if (name.includes(AND)) {
      const parts = name.split(AND).map(actorOf);
      return parts.every((part) => part !== undefined) ? together(parts) : undefined;
    }
    const [, kind = "", argument = ""] = /^([^:]*):(.+)$/s.exec(name) ?? [];
    const made = kinds.get(kind)?.(argument);
    if (made === undefined) return undefined;
    checkFunction(`the result of actorKinds.${kind}`, made);
    const actor = guard(name, made);
    named.set(name, actor);
    return actor;
  };
  return {
    missing: (when = whenActorMissing, call, go) => {
      if (when === "skip") return undefined;
      const device = when === "device" ? guardedDevice(call) : undefined;
      return chain(device, (instead = "") => go(instead));
    },
    actor: actorOf,
    isExempt:
      exempt &&
      guardedCall((request) => exempt(detachable(request)), {
        name: "exempt",
        instead: "the request is not exempt",
        read: readExempt,
        ...deadline,
      }),
    costs: new Map(
      Object.entries(costs).map(([name, cost]) => [name, guardedCost(name, cost, deadline)]),
    ),
    algorithms: { ...ALGORITHMS, ...algorithms },
    redis,
    onRedis: { prefix, hashTag, timeoutMs, whenUnavailable, instances },
    keys: new KeyBudget(maxKeys),
    inProcess: { whenFull, clock },
    clock,
  };
}

function readExempt(value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw new TypeError(`exempt must return true or false, got ${show(value)}`);
}
