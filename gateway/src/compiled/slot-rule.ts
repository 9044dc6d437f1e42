/** Rules that limit how many requests are in progress at once. */
import { systemClock } from "smooth-limiter";
import { type RedisClient, RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { type ActorValue, overrideOf } from "../actors/actor-value.ts";
import type { Report } from "../actors/guarded.ts";
import { keyOfActor } from "../actors/key.ts";
import { ignoreFailure, type MaybePromise } from "../ground/maybe-promise.ts";
import { type CountedSlot, enterSlot, lookAtSlot } from "../pipeline/counted-slot.ts";
import type { Entered, SlotLimit } from "../pipeline/limit.ts";
import type { GatewayRequest } from "../request.ts";
import type { RuleContext } from "../rule-limiters.ts";
import type { ConnectionRule } from "../rules/rule.ts";
import { LeasedSlots, OwnSlots, type Slots } from "../slots.ts";
import type { Outcome } from "../verdict.ts";
import { CompiledRule } from "./rule.ts";

/** A rule for connections that is in force, with the slots that are taken. */
export class SlotRule extends CompiledRule<ConnectionRule> implements SlotLimit<ConnectionRule> {
  readonly turn: number;
  readonly endsByItself: boolean;
  readonly #slots: Slots;
  readonly #overrides: ReadonlyMap<string, number>;

  /** @param before the rule with the same name: if it counts the same requests, they keep their slots */
  constructor(rule: ConnectionRule, context: RuleContext, before: SlotRule | undefined) {
    super(rule, context);
    const { actor, scope, overrides, maxAgeMs } = rule;
    // of the rules on Redis that for all comes last: requests that another refuses must not hold its slots
    this.turn = scope === "local" ? 0 : actor === "all" ? 2 : 1;
    this.endsByItself = maxAgeMs !== undefined;
    this.#overrides = new Map(overrides.map(({ value, connections }) => [value, connections]));
    const isKin = before?.rule.actor === actor && before.rule.scope === scope;
    this.#slots = isKin ? before.#slots : placesOf(rule, context);
  }

  enter(
    request: GatewayRequest,
    report?: Report,
  ): MaybePromise<Entered<ConnectionRule> | undefined> {
    return this.resolve(request, report, (actor) => {
      const take = () => enterSlot(this.#slots, this.#slotFor(actor));
      return this.rule.mode === "shadow" ? ignoreFailure(take) : take();
    });
  }

  look(request: GatewayRequest): MaybePromise<Outcome<ConnectionRule> | undefined> {
    return this.resolve(request, undefined, (actor) =>
      lookAtSlot(this.#slots, this.#slotFor(actor)),
    );
  }

  close(): Promise<void> {
    return this.#slots.close();
  }

  #slotFor(actor: ActorValue): CountedSlot<ConnectionRule> {
    const { rule } = this;
    const { maxAgeMs = Infinity, scope } = rule;
    const limit = overrideOf(this.#overrides, actor) ?? rule.connections;
    return { rule, actor: actor.value, key: keyOfActor(actor, scope), limit, maxAgeMs };
  }
}

function placesOf({ name, scope }: ConnectionRule, context: RuleContext): Slots {
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
