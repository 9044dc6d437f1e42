/** Rules that limit how many requests are in progress at once. */
import { systemClock } from "smooth-limiter";
import { type RedisClient, RedisConcurrencyLimiter } from "smooth-limiter/redis";
import { type ActorValue, overrideOf } from "../actors/actor-value.ts";
import type { Report } from "../actors/guarded.ts";
import { keyOfActor } from "../actors/key.ts";
import { type Maybe, settled } from "../ground/maybe.ts";
import type { RuleContext } from "../limits.ts";
import { type CountedPlace, enterPlace, lookAtPlace } from "../pipeline/counted-place.ts";
import type { Entered, PlaceLimit } from "../pipeline/limit.ts";
import { LeasedPlaces, OwnPlaces, type Places } from "../places.ts";
import type { GatewayRequest } from "../request.ts";
import type { ConnectionRule } from "../rules/rule.ts";
import type { Outcome } from "../verdict.ts";
import { CompiledRule } from "./rule.ts";

/** A rule for connections that is in force, with the places that are taken. */
export class PlaceRule extends CompiledRule<ConnectionRule> implements PlaceLimit<ConnectionRule> {
  readonly turn: number;
  readonly endsByItself: boolean;
  readonly #places: Places;
  readonly #overrides: ReadonlyMap<string, number>;

  /** @param before the rule with the same name: if it counts the same requests, they keep their places */
  constructor(rule: ConnectionRule, context: RuleContext, before: PlaceRule | undefined) {
    super(rule, context);
    const { actor, scope, overrides, maxAgeMs } = rule;
    // of the rules on Redis that for all comes last: requests that another refuses must not hold its places
    this.turn = scope === "local" ? 0 : actor === "all" ? 2 : 1;
    this.endsByItself = maxAgeMs !== undefined;
    this.#overrides = new Map(overrides.map(({ value, connections }) => [value, connections]));
    const isKin = before?.rule.actor === actor && before.rule.scope === scope;
    this.#places = isKin ? before.#places : placesOf(rule, context);
  }

  enter(request: GatewayRequest, report?: Report): Maybe<Entered<ConnectionRule> | undefined> {
    return this.resolve(request, report, (actor) => {
      const take = () => enterPlace(this.#places, this.#placeFor(actor));
      return this.rule.mode === "shadow" ? settled(take) : take();
    });
  }

  look(request: GatewayRequest): Maybe<Outcome<ConnectionRule> | undefined> {
    return this.resolve(request, undefined, (actor) =>
      lookAtPlace(this.#places, this.#placeFor(actor)),
    );
  }

  close(): Promise<void> {
    return this.#places.close();
  }

  #placeFor(actor: ActorValue): CountedPlace<ConnectionRule> {
    const { rule } = this;
    const { maxAgeMs = Infinity, scope } = rule;
    const limit = overrideOf(this.#overrides, actor) ?? rule.connections;
    return { rule, actor: actor.value, key: keyOfActor(actor, scope), limit, maxAgeMs };
  }
}

function placesOf({ name, scope }: ConnectionRule, context: RuleContext): Places {
  const { clock = systemClock } = context;
  if (scope === "local") return new OwnPlaces(clock);
  return new LeasedPlaces(
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
