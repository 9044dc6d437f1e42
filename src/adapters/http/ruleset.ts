/** Rules at work: each with its limiters, by the paths that they hold for. */
import type { Clock } from "../../clock.ts";
import { KeyedLimiter, type Policy } from "../../index.ts";
import type { Limiter } from "../../limiter/face.ts";
import { type RedisClient, RedisLimiter } from "../../redis.ts";
import type { Actor, Actors } from "./actors/actor.ts";
import { isWithin } from "./actors/address.ts";
import { keyOf } from "./actors/key.ts";
import { PathTree } from "./match/tree.ts";
import type { RuleAlgorithm, RuleAlgorithms } from "./rules/algorithms.ts";
import type { Rule, RuleNumbers } from "./rules/rule.ts";
import { RulesError } from "./rules/rules-error.ts";

/** What limiters are made with. */
export interface Workshop {
  readonly actors: Actors;
  readonly algorithms: RuleAlgorithms;
  readonly redis: RedisClient | undefined;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly maxKeys: number;
  readonly whenFull: "refuse" | "evict";
  readonly clock: Clock | undefined;
}

/** The limiters of the keys under some numbers. */
interface Limits {
  readonly policy: Policy;
  readonly limiters: { for(key: string): Limiter };
}

/** A rule at work. */
export class ActiveRule {
  readonly rule: Rule;
  readonly actor: Actor;
  /** Requests wait for their turn. */
  readonly waits: boolean;
  readonly isGlobal: boolean;
  readonly isShadow: boolean;
  readonly limits: Limits;
  readonly overrides: ReadonlyMap<string, Limits>;

  constructor(rule: Rule, workshop: Workshop, before: ActiveRule | undefined) {
    const algorithm = workshop.algorithms[rule.algo] as RuleAlgorithm;
    this.rule = rule;
    this.actor = workshop.actors[rule.actor] as Actor;
    this.isGlobal = rule.scope === "global";
    this.isShadow = rule.mode === "shadow";
    const isLine = algorithm.waits === true;
    this.waits = isLine && !this.isShadow;
    const makePolicy = (numbers: RuleNumbers): Policy =>
      // nobody waits for a shadow: a bucket from which all go at once has room when the line has
      algorithm.policy(isLine && this.isShadow ? { ...numbers, nodelay: true } : numbers);
    const kin = before !== undefined && isKin(rule, before.rule) ? before : undefined;
    this.limits = adapt(kin?.limits, rule.name, makePolicy(rule), this.isGlobal, workshop);
    this.overrides = new Map(
      rule.overrides.map((override) => {
        const known = kin?.overrides.get(override.value);
        const policy = makePolicy(override);
        return [override.value, adapt(known, rule.name, policy, this.isGlobal, workshop)];
      }),
    );
  }

  /** The limiter of an actor's value. */
  limiter(value: string, isKnown: boolean): Limiter {
    const { limiters } =
      (isKnown && this.overrides.size > 0 ? this.overrides.get(value) : undefined) ?? this.limits;
    return limiters.for(keyOf(`${isKnown ? "=" : "?"}${value}`, this.rule.scope));
  }

  isExempt(value: string): boolean {
    const { exempt, actor } = this.rule;
    if (exempt.length === 0) return false;
    return exempt.includes(value) || (actor === "device" && exempt.some((r) => isWithin(value, r)));
  }

  /** GET holds for HEAD: servers answer it in the same way. */
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
  readonly active = new Map<string, ActiveRule>();

  /**
   * @param before whose limiters go on where the rule is still there
   * @throws RulesError, and nothing has changed
   */
  constructor(rules: readonly Rule[], workshop: Workshop, before?: RuleSet) {
    checkWorkable(rules, workshop);
    this.rules = rules;
    for (const rule of rules) {
      const active = new ActiveRule(rule, workshop, before?.active.get(rule.name));
      this.active.set(rule.name, active);
      this.#tree.add(rule.url, active);
    }
  }

  match(method: string, target: string): readonly ActiveRule[] {
    const found = this.#tree.match(target);
    return found.every((rule) => rule.holdsFor(method))
      ? found
      : found.filter((rule) => rule.holdsFor(method));
  }
}

/** Whether the one counts what the other did. */
function isKin(rule: Rule, before: Rule): boolean {
  return (
    rule.algo === before.algo &&
    rule.scope === before.scope &&
    rule.actor === before.actor &&
    rule.mode === before.mode
  );
}

/** Other numbers hold for what is used already: nobody gets a fresh burst. */
function adapt(
  before: Limits | undefined,
  name: string,
  policy: Policy,
  isGlobal: boolean,
  workshop: Workshop,
): Limits {
  if (before !== undefined && isSame(before.policy, policy)) return before;
  if (isGlobal) return { policy, limiters: onRedis(name, policy, workshop) };
  if (before === undefined) return { policy, limiters: inProcess(name, policy, workshop) };
  const limiters = before.limiters as KeyedLimiter;
  limiters.update(policy);
  return { policy, limiters };
}

function isSame(one: Policy, other: Policy): boolean {
  return (
    one.algorithm === other.algorithm &&
    one.numbers.length === other.numbers.length &&
    one.numbers.every((number, i) => number === other.numbers[i])
  );
}

function inProcess(name: string, policy: Policy, workshop: Workshop): KeyedLimiter {
  const { clock, maxKeys, whenFull } = workshop;
  return KeyedLimiter.create(policy, { name, clock, maxKeys, whenFull });
}

/** The state on Redis is found by name, and follows the numbers that a call declares. */
function onRedis(name: string, policy: Policy, workshop: Workshop): RedisLimiter {
  const { redis, prefix, timeoutMs, clock } = workshop;
  const whenUnavailable = "throw";
  return RedisLimiter.create(redis as RedisClient, name, policy, {
    prefix,
    timeoutMs,
    whenUnavailable,
    clock,
  });
}

/** What a reader cannot know: whether this gateway has what the rules ask for. */
function checkWorkable(rules: readonly Rule[], { actors, algorithms, redis }: Workshop): void {
  const problems = rules.flatMap(({ actor, algo, scope, place }) => {
    const lacks = [
      ...(Object.hasOwn(actors, actor) ? [] : [`options.actors.${actor}, which says whose it is`]),
      ...(Object.hasOwn(algorithms, algo) ? [] : [`options.algorithms["${algo}"]`]),
      ...(scope === "global" && redis === undefined ? ["options.redis, for scope global"] : []),
    ];
    return lacks.map((what) => ({ ...place, message: `the gateway lacks ${what}` }));
  });
  if (problems.length > 0) throw new RulesError(problems);
}
