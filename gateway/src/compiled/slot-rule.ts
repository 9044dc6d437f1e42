/** Rules that limit how many requests are in progress at once. */
import { systemClock } from "smooth-limiter";
import { type RedisClient, RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { type ActorValue, overrideOf } from "../actors/actor-value.ts";
import { keyOfActor } from "../actors/key.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { SlotLimit } from "../pipeline/limit.ts";
import type { CheckCall } from "../request.ts";
import type { RuleContext } from "../rule-limiters.ts";
import type { ConnectionRule } from "../rules/rule.ts";
import { LeasedSlots, OwnSlots, type SlotOptions, type Slots } from "../slots.ts";
import { CompiledRule } from "./rule.ts";

/** A rule for connections that is in force, with the slots that are taken. */
export class SlotRule extends CompiledRule<ConnectionRule> implements SlotLimit<ConnectionRule> {
  readonly order: number;
  readonly endsByItself: boolean;
  readonly slots: Slots;
  readonly #overrides: ReadonlyMap<string, number>;

  /** @param before the rule with the same name: if it counts the same requests, they keep their slots */
  constructor(rule: ConnectionRule, context: RuleContext, before: SlotRule | undefined) {
    super(rule, context);
    const { actor, scope, overrides, maxAgeMs } = rule;
    // of the rules on Redis that for all comes last: requests that another refuses must not hold its slots
    this.order = scope === "local" ? 0 : actor === "all" ? 2 : 1;
    this.endsByItself = maxAgeMs !== undefined;
    this.#overrides = new Map(overrides.map(({ value, connections }) => [value, connections]));
    const isKin = before?.rule.actor === actor && before.rule.scope === scope;
    this.slots = isKin ? before.slots : slotsOf(rule, context);
  }

  slotFor(call: CheckCall): MaybePromise<SlotOptions | undefined> {
    return this.resolve(call, this.#slotOf);
  }

  close(): Promise<void> {
    return this.slots.close();
  }

  readonly #slotOf = (actor: ActorValue): SlotOptions => {
    const { connections, maxAgeMs = Infinity, scope } = this.rule;
    const limit = overrideOf(this.#overrides, actor) ?? connections;
    return { actor: actor.value, key: keyOfActor(actor, scope), limit, maxAgeMs };
  };
}

function slotsOf({ name, scope }: ConnectionRule, context: RuleContext): Slots {
  const { clock = systemClock } = context;
  if (scope === "local") return new OwnSlots(clock);
  return new LeasedSlots(
    (key, limit) => sharedLimiter(`${name} connections[${key}]`, limit, context),
    clock,
  );
}

function sharedLimiter(name: string, limit: number, context: RuleContext): RedisConcurrencyLimiter {
  const { redis, onRedis } = context;
  return RedisConcurrencyLimiter.create(redis as RedisClient, name, limit, onRedis);
}

/** Returns why the gateway's client of Redis cannot count connections; undefined if it can. */
export function sharingProblem(context: RuleContext): string | undefined {
  try {
    // sends nothing before the first call
    sharedLimiter("none", 1, context);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
