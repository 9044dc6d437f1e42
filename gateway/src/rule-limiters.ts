/** The limiters of one rule: those with its own numbers, and those of its overrides. */
import {
  type Clock,
  KeyedLimiter,
  type KeyedLimiterOptions,
  Limiter,
  type LocalLimiter,
  PermitsExceedCapacityError,
  type Policy,
  systemClock,
} from "smooth-limiter";
import { type RedisClient, RedisLimiter, type RedisLimiterOptions } from "smooth-limiter/redis";
import type { WhenActorMissing } from "./actors/actor.ts";
import { type ActorValue, overrideOf } from "./actors/actor-value.ts";
import type { GuardedActor, GuardedCall } from "./actors/guarded.ts";
import { keyOfActor } from "./actors/key.ts";
import { Blocks, isSameBlock } from "./blocks.ts";
import type { MaybePromise } from "./ground/maybe-promise.ts";
import type { KeyBudget } from "./key-budget.ts";
import type { CheckCall } from "./request.ts";
import { ALGORITHMS, type RuleAlgorithm, type RuleAlgorithms } from "./rules/algorithms.ts";
import { type Calendar, calendarOf } from "./rules/calendar.ts";
import type { GuardedCost } from "./rules/cost.ts";
import type { RequestRule, RuleNumbers } from "./rules/rule.ts";

/** The settings with which limiters of rules are created. */
export interface RuleContext {
  /** Returns an actor by the name that rules use; undefined if there is none. */
  readonly actor: (name: string) => GuardedActor | undefined;
  /** Whether a request is exempt from all rules; absent: none is. */
  readonly isExempt: GuardedCall<boolean> | undefined;
  /**
   * Finds by what a request without a value for the rule's actor counts.
   *
   * @param go receives the replacement
   * @returns undefined if the rule does not apply to the request
   */
  missing<T>(
    when: WhenActorMissing | undefined,
    call: CheckCall,
    go: (instead: string) => MaybePromise<T>,
  ): MaybePromise<T | undefined>;
  readonly algorithms: RuleAlgorithms;
  readonly costs: ReadonlyMap<string, GuardedCost>;
  readonly redis: RedisClient | undefined;
  /** The options of all limiters on Redis. */
  readonly onRedis: Pick<
    RedisLimiterOptions,
    "prefix" | "hashTag" | "timeoutMs" | "whenUnavailable" | "instances"
  >;
  /** Those of all limiters in this process. */
  readonly keys: KeyBudget;
  readonly inProcess: Pick<KeyedLimiterOptions, "whenFull" | "clock">;
  readonly clock: Clock | undefined;
}

/** What a rule, or an override, lets through. */
interface Allowance {
  /** Undefined: nothing passes. */
  readonly policy: Policy | undefined;
  /** The calendar, if each period has a key of its own; undefined: the policy knows its periods itself. */
  readonly calendar: Calendar | undefined;
}

/**
 * The policies of a rule. Created first, because invalid numbers must throw before anything
 * changes.
 */
export interface RulePolicies {
  readonly rule: RequestRule;
  readonly isLine: boolean;
  readonly own: Allowance;
  /** By the value of the actor. */
  readonly overrides: ReadonlyMap<string, Allowance>;
}

export function policiesOf(rule: RequestRule, algorithms: RuleAlgorithms): RulePolicies {
  const algorithm = algorithms[rule.algo] as RuleAlgorithm;
  const isLine = algorithm.waits === true;
  // a shadow rule makes no request wait: it uses a bucket with the same room that never delays
  const isMeter = isLine && rule.mode === "shadow";
  const allowance = (numbers: RuleNumbers): Allowance => ({
    policy:
      numbers.rpu === 0
        ? undefined
        : algorithm.policy(isMeter ? { ...numbers, nodelay: true } : numbers),
    calendar: algorithm === ALGORITHMS.window ? calendarOf(numbers) : undefined,
  });
  const overrides = rule.overrides.map(
    (override) => [override.value, allowance(override)] as const,
  );
  return { rule, isLine, own: allowance(rule), overrides: new Map(overrides) };
}

/** The limiters of all actors with the same numbers. */
interface Keys extends Allowance {
  /** Undefined if no numbers above 0 have been in force yet. */
  readonly limiters: KeyedLimiter | RedisLimiter | undefined;
}

/** Permits by key, as long as a request holds some. */
export class InFlightPermits {
  readonly #held = new Map<string, { requests: number; permits: number }>();

  permitsOf(key: string): number {
    return this.#held.get(key)?.permits ?? 0;
  }

  begin(key: string, permits: number): void {
    const held = this.#held.get(key) ?? { requests: 0, permits: 0 };
    held.requests += 1;
    held.permits += permits;
    this.#held.set(key, held);
  }

  end(key: string, permits: number): void {
    const held = this.#held.get(key);
    if (held === undefined) return;
    held.requests -= 1;
    held.permits -= permits;
    if (held.requests === 0) this.#held.delete(key);
  }
}

export class RuleLimiters {
  readonly policies: RulePolicies;
  readonly own: Keys;
  readonly overrides: ReadonlyMap<string, Keys>;
  /** Undefined if the rule blocks no actor. */
  readonly blocks: Blocks | undefined;
  /** The permits of each actor's requests that are being answered, and may yet be given back. */
  readonly inFlight: InFlightPermits;
  readonly #clock: Clock;

  /**
   * @param before the limits of the rule with the same name. If it counts the same requests, its
   *   used permits stay used, and only the numbers change
   */
  constructor(policies: RulePolicies, context: RuleContext, before?: RuleLimiters) {
    this.policies = policies;
    this.#clock = context.clock ?? systemClock;
    const kin = before !== undefined && isKin(policies, before.policies) ? before : undefined;
    const { name, scope, limitKey, block } = policies.rule;
    const create = (policy: Policy, suffix = "", keptAt?: string, more = {}) => {
      const { redis, onRedis, keys, inProcess, clock } = context;
      const named = `${name}${suffix}`;
      if (scope === "local") return keys.create(policy, { ...inProcess, name: named });
      const options = { ...onRedis, clock, limitKey: keptAt, ...more };
      return RedisLimiter.create(redis as RedisClient, named, policy, options);
    };
    const open = (allowance: Allowance, was?: Keys, keptAt?: string): Keys => {
      const { policy } = allowance;
      const { limiters } = was ?? {};
      // nothing passes, and what was used stays used until the numbers are above 0 again
      if (policy === undefined) return { ...allowance, limiters };
      if (limiters !== undefined && was?.policy !== undefined && isSame(policy, was.policy)) {
        return { ...allowance, limiters };
      }
      // the state on Redis is found by its name, and follows the numbers that a call declares
      if (!(limiters instanceof KeyedLimiter)) {
        return { ...allowance, limiters: create(policy, "", keptAt) };
      }
      void limiters.update(policy);
      return { ...allowance, limiters };
    };
    const isKept = kin?.policies.rule.limitKey === limitKey;
    this.own = open(policies.own, isKept ? kin?.own : undefined, limitKey);
    this.overrides = new Map(
      Array.from(policies.overrides, ([value, policy]) => [
        value,
        open(policy, kin?.overrides.get(value)),
      ]),
    );
    this.inFlight = kin?.inFlight ?? new InFlightPermits();
    if (block !== undefined) {
      const was = kin?.blocks;
      // while Redis is away each process blocks by itself: a share of a block would be longer
      const open = (policy: Policy, suffix: string) =>
        create(policy, suffix, undefined, { instances: 1 });
      this.blocks = was && isSameBlock(block, was.block) ? was : new Blocks(block, open);
    }
    if (kin !== undefined && scope === "local") this.#takeOver(kin);
  }

  /** Unix time, ms, as the clock has it. */
  get unixMs(): number {
    return this.#clock.now() + (this.#clock.epochMs ?? 0);
  }

  /** Returns the limiter of an actor; undefined: every request is refused. */
  for(actor: ActorValue): Limiter | undefined {
    const { policy, calendar, limiters } = this.#keysOf(actor);
    if (policy === undefined || limiters === undefined) return undefined;
    const key = this.keyOf(actor);
    if (calendar === undefined) return limiters.for(key);
    // each period has a key of its own
    return limiters.for(`${key}@${calendar.periodAt(this.unixMs).label}`);
  }

  /** Returns the calendar that an actor's periods follow. */
  calendarOf(actor: ActorValue): Calendar | undefined {
    return this.#keysOf(actor).calendar;
  }

  /** Forgets what an actor has used, and ends its block. */
  async reset(value: string): Promise<void> {
    const resets = [true, false].flatMap((isOwn) => [
      this.for({ value, isOwn })?.reset(),
      this.blocks?.reset(this.keyOf({ value, isOwn })),
    ]);
    await Promise.all(resets);
  }

  /** Whether the numbers can ever let a request of that many permits pass. */
  fits(actor: ActorValue, permits: number): boolean {
    const { policy } = this.#keysOf(actor);
    if (policy === undefined) return false;
    try {
      Limiter.create(policy).peek(permits);
      return true;
    } catch (error) {
      if (error instanceof PermitsExceedCapacityError) return false;
      throw error;
    }
  }

  keyOf(actor: ActorValue): string {
    return keyOfActor(actor, this.policies.rule.scope);
  }

  #keysOf(actor: ActorValue): Keys {
    return overrideOf(this.overrides, actor) ?? this.own;
  }

  /** Closes what is open on Redis, because it is not used any more. */
  async close(): Promise<void> {
    const all = [this.own, ...this.overrides.values()].map(({ limiters }) => limiters);
    await Promise.all(
      [...all, ...(this.blocks?.limiters ?? [])].map((keys) =>
        keys instanceof RedisLimiter ? keys.close() : undefined,
      ),
    );
  }

  /** Copies the used permits of actors that get an override, or lose theirs. */
  #takeOver(before: RuleLimiters): void {
    const { cost } = this.policies.rule;
    for (const value of new Set([...this.overrides.keys(), ...before.overrides.keys()])) {
      if (this.overrides.has(value) && before.overrides.has(value)) continue;
      const is = this.for({ value, isOwn: true }) as LocalLimiter | undefined;
      const was = before.for({ value, isOwn: true }) as LocalLimiter | undefined;
      if (is === undefined || was === undefined) continue;
      const { limit, remaining } = was.peek(cost);
      const used = Math.min(limit - remaining, is.peek(cost).remaining);
      if (used > 0) is.tryAcquire(used);
    }
  }
}

/** Whether both rules count the same requests. */
function isKin(
  { rule, isLine, own }: RulePolicies,
  { rule: before, own: beforeOwn }: RulePolicies,
): boolean {
  return (
    rule.algo === before.algo &&
    rule.scope === before.scope &&
    rule.actor === before.actor &&
    (own.calendar === undefined) === (beforeOwn.calendar === undefined) &&
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
