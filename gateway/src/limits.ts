/** The limiters of one rule: those with its own numbers, and those of its overrides. */
import {
  type Clock,
  KeyedLimiter,
  type Limiter,
  type LocalLimiter,
  type Policy,
} from "smooth-limiter";
import { type RedisClient, RedisLimiter } from "smooth-limiter/redis";
import type { GuardedActor } from "./actors/guarded.ts";
import { keyOf, markedKey } from "./actors/key.ts";
import type { RuleAlgorithm, RuleAlgorithms } from "./rules/algorithms.ts";
import type { Rule, RuleNumbers } from "./rules/rule.ts";

/** The settings with which limiters of rules are created. */
export interface RuleContext {
  readonly actors: Readonly<Record<string, GuardedActor>>;
  readonly algorithms: RuleAlgorithms;
  readonly redis: RedisClient | undefined;
  readonly prefix: string;
  readonly hashTag: string | undefined;
  readonly timeoutMs: number;
  readonly whenUnavailable: "local" | "allow" | "throw";
  readonly instances: number | "auto" | (() => number);
  readonly maxKeys: number;
  readonly whenFull: "refuse" | "evict";
  readonly clock: Clock | undefined;
}

/**
 * The policies of a rule. Created first, because invalid numbers must throw before anything
 * changes.
 */
export interface RulePolicies {
  readonly rule: Rule;
  readonly isLine: boolean;
  readonly own: Policy;
  /** By the value of the actor. */
  readonly overrides: ReadonlyMap<string, Policy>;
}

export function policiesOf(rule: Rule, algorithms: RuleAlgorithms): RulePolicies {
  const algorithm = algorithms[rule.algo] as RuleAlgorithm;
  const isLine = algorithm.waits === true;
  // a shadow rule makes no request wait: it uses a bucket with the same room that never delays
  const isMeter = isLine && rule.mode === "shadow";
  const policy = (numbers: RuleNumbers) =>
    algorithm.policy(isMeter ? { ...numbers, nodelay: true } : numbers);
  const overrides = rule.overrides.map((override) => [override.value, policy(override)] as const);
  return { rule, isLine, own: policy(rule), overrides: new Map(overrides) };
}

/** The limiters of all actors with the same numbers. */
interface Keys {
  for(key: string): Limiter;
}

export class Limits {
  readonly policies: RulePolicies;
  readonly own: Keys;
  readonly overrides: ReadonlyMap<string, Keys>;

  /**
   * @param before the limits of the rule with the same name. If it counts the same requests, its
   *   used permits stay used, and only the numbers change
   */
  constructor(policies: RulePolicies, workshop: RuleContext, before?: Limits) {
    this.policies = policies;
    const kin = before !== undefined && isKin(policies, before.policies) ? before : undefined;
    const { name, scope, limitKey } = policies.rule;
    const open = (policy: Policy, was?: Policy, keys?: Keys, keptAt?: string): Keys => {
      if (keys !== undefined && was !== undefined && isSame(policy, was)) return keys;
      // the state on Redis is found by its name, and follows the numbers that a call declares
      if (scope === "global") return onRedis(name, policy, workshop, keptAt);
      if (!(keys instanceof KeyedLimiter)) return inProcess(name, policy, workshop);
      keys.update(policy);
      return keys;
    };
    const isKept = kin?.policies.rule.limitKey === limitKey;
    this.own = open(policies.own, kin?.policies.own, isKept ? kin?.own : undefined, limitKey);
    this.overrides = new Map(
      Array.from(policies.overrides, ([value, policy]) => [
        value,
        open(policy, kin?.policies.overrides.get(value), kin?.overrides.get(value)),
      ]),
    );
    if (kin !== undefined && scope === "local") this.#takeOver(kin);
  }

  /**
   * @param isKnown whether the value is the actor's own, and not a replacement for a missing one
   */
  for(value: string, isKnown: boolean): Limiter {
    const { overrides, own } = this;
    const keys = (isKnown && overrides.size > 0 && overrides.get(value)) || own;
    const { scope } = this.policies.rule;
    return keys.for(keyOf(markedKey(value, isKnown, scope === "global"), scope));
  }

  /** Closes what is open on Redis, because it is not used any more. */
  async close(): Promise<void> {
    const all = [this.own, ...this.overrides.values()];
    await Promise.all(all.map((keys) => (keys instanceof RedisLimiter ? keys.close() : undefined)));
  }

  /** Copies the used permits of actors that get an override, or lose theirs. */
  #takeOver(before: Limits): void {
    for (const value of new Set([...this.overrides.keys(), ...before.overrides.keys()])) {
      if (this.overrides.has(value) && before.overrides.has(value)) continue;
      const is = this.for(value, true) as LocalLimiter;
      const was = before.for(value, true) as LocalLimiter;
      const { limit, remaining } = was.peek(this.policies.rule.cost);
      const used = Math.min(limit - remaining, is.peek(this.policies.rule.cost).remaining);
      if (used > 0) is.tryAcquire(used);
    }
  }
}

/** Whether both rules count the same requests. */
function isKin({ rule, isLine }: RulePolicies, { rule: before }: RulePolicies): boolean {
  return (
    rule.algo === before.algo &&
    rule.scope === before.scope &&
    rule.actor === before.actor &&
    (rule.mode === before.mode || !isLine)
  );
}

function isSame(one: Policy, other: Policy): boolean {
  return (
    one.algorithm === other.algorithm &&
    one.numbers.length === other.numbers.length &&
    one.numbers.every((number, i) => number === other.numbers[i])
  );
}

function inProcess(name: string, policy: Policy, workshop: RuleContext): KeyedLimiter {
  const { clock, maxKeys, whenFull } = workshop;
  return KeyedLimiter.create(policy, { name, clock, maxKeys, whenFull });
}

function onRedis(
  name: string,
  policy: Policy,
  workshop: RuleContext,
  limitKey: string | undefined,
): RedisLimiter {
  const { redis, prefix, hashTag, timeoutMs, whenUnavailable, instances, clock } = workshop;
  const options = { prefix, hashTag, timeoutMs, whenUnavailable, instances, clock, limitKey };
  return RedisLimiter.create(redis as RedisClient, name, policy, options);
}
