/** The limiters of one rule: those with its own numbers, and those of its overrides. */
import {
  type Clock,
  KeyedLimiter,
  type KeyedLimiterOptions,
  Limiter,
  type LocalLimiter,
  PermitsExceedCapacityError,
  type Policy,
  slidingLog,
  systemClock,
  tokenBucket,
} from "smooth-limiter";
import { type RedisClient, RedisLimiter, type RedisLimiterOptions } from "smooth-limiter/redis";
import type { WhenActorMissing } from "./actors/actor.ts";
import type { GuardedActor, GuardedCall, Report } from "./actors/guarded.ts";
import { keyOfActor } from "./actors/key.ts";
import { chain, type Maybe, settled } from "./ground/maybe.ts";
import type { KeyBudget } from "./key-budget.ts";
import type { GatewayRequest } from "./request.ts";
import { ALGORITHMS, type RuleAlgorithm, type RuleAlgorithms } from "./rules/algorithms.ts";
import { type Calendar, calendarOf } from "./rules/calendar.ts";
import type { GuardedCost } from "./rules/cost.ts";
import type { Block, RequestRule, RuleNumbers } from "./rules/rule.ts";

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
    request: GatewayRequest,
    report: Report | undefined,
    go: (instead: string) => Maybe<T>,
  ): Maybe<T | undefined>;
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

export class Limits {
  readonly policies: RulePolicies;
  readonly own: Keys;
  readonly overrides: ReadonlyMap<string, Keys>;
  /** The actors that are blocked; undefined if the rule blocks none. */
  readonly #blocks: KeyedLimiter | RedisLimiter | undefined;
  /** How often each was blocked, if blocks grow. */
  readonly #strikes: KeyedLimiter | RedisLimiter | undefined;
  /** The permits of each actor's requests that are being answered, and may yet be given back. */
  readonly inFlight: InFlightPermits;

  /**
   * @param before the limits of the rule with the same name. If it counts the same requests, its
   *   used permits stay used, and only the numbers change
   */
  constructor(policies: RulePolicies, context: RuleContext, before?: Limits) {
    this.policies = policies;
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
      limiters.update(policy);
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
      const { times, mostMs } = block;
      const isSame = kin !== undefined && isSameBlock(block, kin.policies.rule.block);
      // a permit is a millisecond of a block: an actor is blocked as long as not all of them are there
      const once = tokenBucket({ capacity: mostMs, refill: 1, everyMs: 1 });
      this.#blocks =
        (isSame ? kin.#blocks : undefined) ?? create(once, ` block ${mostMs}`, undefined, EACH);
      const often = slidingLog({ limit: MOST_STRIKES, windowMs: 2 * mostMs });
      if (times > 1) {
        this.#strikes =
          (isSame ? kin.#strikes : undefined) ??
          create(often, ` strikes ${mostMs}`, undefined, EACH);
      }
    }
    if (kin !== undefined && scope === "local") this.#takeOver(kin, unixMs(context.clock));
  }

  /**
   * Returns the limiter of an actor; undefined: every request is refused.
   *
   * @param isKnown whether the value is the actor's own, and not a replacement for a missing one
   * @param nowMs Unix time, ms: periods of a calendar have keys of their own
   */
  for(value: string, isKnown: boolean, nowMs: number): Limiter | undefined {
    const { policy, calendar, limiters } = this.#keysOf(value, isKnown);
    if (policy === undefined || limiters === undefined) return undefined;
    const key = this.keyOf(value, isKnown);
    if (calendar === undefined) return limiters.for(key);
    return limiters.for(`${key}@${calendar.periodAt(nowMs).label}`);
  }

  /** Returns the calendar that an actor's periods follow. */
  calendarOf(value: string, isKnown: boolean): Calendar | undefined {
    return this.#keysOf(value, isKnown).calendar;
  }

  /** Returns for how much longer an actor is blocked, ms. */
  blockedFor(value: string, isKnown: boolean): Maybe<number> {
    const { mostMs = 0 } = this.policies.rule.block ?? {};
    const looked = this.#blockOf(value, isKnown)?.peek(mostMs);
    return chain(looked, (look) => (look === undefined || look.allowed ? 0 : look.waitMs));
  }

  #blockOf(value: string, isKnown: boolean): Limiter | undefined {
    return this.#blocks?.for(this.keyOf(value, isKnown));
  }

  /**
   * Blocks an actor.
   *
   * @returns for how long, ms, and whether the block begins now; undefined if there is no room for a block
   */
  block(
    value: string,
    isKnown: boolean,
  ): Maybe<{ readonly ms: number; readonly begins: boolean } | undefined> {
    const block = this.#blockOf(value, isKnown);
    const { forMs = 0, times = 1, mostMs = 0 } = this.policies.rule.block ?? {};
    return chain(block?.decide(mostMs), (began) => {
      if (began === undefined || began.waitMs === Infinity) return undefined;
      // another request has begun the block
      if (!began.allowed) return { ms: began.waitMs, begins: false };
      const strikes = settled(() => this.#strike(this.keyOf(value, isKnown)));
      return chain(strikes, (before = 0) => {
        const ms = Math.min(mostMs, forMs * times ** before);
        const shortened = settled(() => chain(block?.refund(mostMs - ms), () => ms));
        return chain(ms < mostMs ? shortened : ms, (is = mostMs) => ({ ms: is, begins: true }));
      });
    });
  }

  /** Counts a block. @returns how many there were before; each renews them all, so the count ends after a quiet time */
  #strike(key: string): Maybe<number> {
    const strikes = this.#strikes?.for(key);
    if (strikes === undefined) return 0;
    return chain(strikes.peek(), ({ limit, remaining }) =>
      chain(strikes.reset(), () =>
        chain(
          strikes.tryAcquire(Math.min(MOST_STRIKES, limit - remaining + 1)),
          () => limit - remaining,
        ),
      ),
    );
  }

  /** Forgets what an actor has used, and ends its block. */
  async reset(value: string, nowMs: number): Promise<void> {
    const resets = [true, false].flatMap((isKnown) => [
      this.for(value, isKnown, nowMs)?.reset(),
      this.#blockOf(value, isKnown)?.reset(),
      this.#strikes?.for(this.keyOf(value, isKnown)).reset(),
    ]);
    await Promise.all(resets);
  }

  /** Whether the numbers can ever let a request of that many permits pass. */
  fits(value: string, isKnown: boolean, permits: number): boolean {
    const { policy } = this.#keysOf(value, isKnown);
    if (policy === undefined) return false;
    try {
      Limiter.create(policy).peek(permits);
      return true;
    } catch (error) {
      if (error instanceof PermitsExceedCapacityError) return false;
      throw error;
    }
  }

  keyOf(value: string, isKnown: boolean): string {
    return keyOfActor(value, isKnown, this.policies.rule.scope);
  }

  #keysOf(value: string, isKnown: boolean): Keys {
    const { overrides, own } = this;
    return (isKnown && overrides.size > 0 && overrides.get(value)) || own;
  }

  /** Closes what is open on Redis, because it is not used any more. */
  async close(): Promise<void> {
    const all = [this.own, ...this.overrides.values()].map(({ limiters }) => limiters);
    await Promise.all(
      [...all, this.#blocks, this.#strikes].map((keys) =>
        keys instanceof RedisLimiter ? keys.close() : undefined,
      ),
    );
  }

  /** Copies the used permits of actors that get an override, or lose theirs. */
  #takeOver(before: Limits, nowMs: number): void {
    const { cost } = this.policies.rule;
    for (const value of new Set([...this.overrides.keys(), ...before.overrides.keys()])) {
      if (this.overrides.has(value) && before.overrides.has(value)) continue;
      const is = this.for(value, true, nowMs) as LocalLimiter | undefined;
      const was = before.for(value, true, nowMs) as LocalLimiter | undefined;
      if (is === undefined || was === undefined) continue;
      const { limit, remaining } = was.peek(cost);
      const used = Math.min(limit - remaining, is.peek(cost).remaining);
      if (used > 0) is.tryAcquire(used);
    }
  }
}

/** While Redis is away each process blocks by itself: a share of a block would be longer. */
const EACH = { instances: 1 };

/** With more, blocks are as long as they get. */
const MOST_STRIKES = 64;

function isSameBlock(one: Block, other: Block | undefined): boolean {
  return one.forMs === other?.forMs && one.times === other.times && one.mostMs === other.mostMs;
}

/** Returns Unix time, ms, as the clock has it. */
export function unixMs(clock: Clock = systemClock): number {
  return clock.now() + (clock.epochMs ?? 0);
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
