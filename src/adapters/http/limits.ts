/** The limiters of one rule: those of its own numbers, and those of its overrides. */
import type { Clock } from "../../clock.ts";
import { KeyedLimiter, type Policy } from "../../index.ts";
import type { Limiter, LocalLimiter } from "../../limiter/face.ts";
import { type RedisClient, RedisLimiter } from "../../redis.ts";
import type { GuardedActor } from "./actors/guarded.ts";
import { keyOf } from "./actors/key.ts";
import type { RuleAlgorithm, RuleAlgorithms } from "./rules/algorithms.ts";
import type { Rule, RuleNumbers } from "./rules/rule.ts";

/** What rules are put to work with. */
export interface Workshop {
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

/** The policies of a rule, which are made before anything changes: numbers may be none. */
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
  // nobody waits for a shadow: a bucket of which all go at once has room when the line has
  const isMeter = isLine && rule.mode === "shadow";
  const policy = (numbers: RuleNumbers) =>
    algorithm.policy(isMeter ? { ...numbers, nodelay: true } : numbers);
  const overrides = rule.overrides.map((override) => [override.value, policy(override)] as const);
  return { rule, isLine, own: policy(rule), overrides: new Map(overrides) };
}

/** The limiters of all actors that have the same numbers. */
interface Keys {
  for(key: string): Limiter;
}

export class Limits {
  readonly policies: RulePolicies;
  readonly own: Keys;
  readonly overrides: ReadonlyMap<string, Keys>;

  /**
   * @param before of the rule of the same name: if it counts the same things, what was used there
   *   stays used, and other numbers hold for it from now on
   */
  constructor(policies: RulePolicies, workshop: Workshop, before?: Limits) {
    this.policies = policies;
    const kin = before !== undefined && isKin(policies, before.policies) ? before : undefined;
    const { name, scope, limitKey } = policies.rule;
    const open = (policy: Policy, was?: Policy, keys?: Keys, keptAt?: string): Keys => {
      if (keys !== undefined && was !== undefined && isSame(policy, was)) return keys;
      // the state on Redis is found by name, and follows the numbers that a call declares
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

  /** @param isKnown the value is the actor's own, and not what stands for one that is missing */
  for(value: string, isKnown: boolean): Limiter {
    const { overrides, own } = this;
    const keys = (isKnown && overrides.size > 0 && overrides.get(value)) || own;
    return keys.for(keyOf(this.#textOf(value, isKnown), this.policies.rule.scope));
  }

  /** In this process it is the value itself where it can be: a text made anew is hashed each time. */
  #textOf(value: string, isKnown: boolean): string {
    if (!isKnown) return `?${value}`;
    const isMarked = value.startsWith("=") || value.startsWith("?");
    return isMarked || this.policies.rule.scope === "global" ? `=${value}` : value;
  }

  /** Ends what is open on Redis: nothing looks for it any more. */
  async close(): Promise<void> {
    const all = [this.own, ...this.overrides.values()];
    await Promise.all(all.map((keys) => (keys instanceof RedisLimiter ? keys.close() : undefined)));
  }

  /** Who gets numbers of its own, or loses them, has used what it has used. */
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

/** Whether the one counts what the other did. */
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

function inProcess(name: string, policy: Policy, workshop: Workshop): KeyedLimiter {
  const { clock, maxKeys, whenFull } = workshop;
  return KeyedLimiter.create(policy, { name, clock, maxKeys, whenFull });
}

function onRedis(
  name: string,
  policy: Policy,
  workshop: Workshop,
  limitKey: string | undefined,
): RedisLimiter {
  const { redis, prefix, hashTag, timeoutMs, whenUnavailable, instances, clock } = workshop;
  const options = { prefix, hashTag, timeoutMs, whenUnavailable, instances, clock, limitKey };
  return RedisLimiter.create(redis as RedisClient, name, policy, options);
}
