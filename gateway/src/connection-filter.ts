/** Rules that limit how many requests are in progress at once. */
import { systemClock } from "smooth-limiter";
import { type RedisClient, RedisConcurrencyLimiter } from "smooth-limiter/redis";
import type { GuardedActor, Report } from "./actors/guarded.ts";
import { keyOfActor } from "./actors/key.ts";
import type { ActorResolver } from "./actors/resolver.ts";
import { CompiledRule } from "./compiled-rule.ts";
import { all, chain, type Maybe, orElse, settled } from "./ground/maybe.ts";
import type { RuleContext } from "./limits.ts";
import { LeasedPlaces, OwnPlaces, type Place, type Places, placeDecision } from "./places.ts";
import type { GatewayRequest } from "./request.ts";
import type { ConnectionRule } from "./rules/rule.ts";
import type { Outcome } from "./verdict.ts";

/** A rule for connections that is in force, with the places that are taken. */
export class ActiveConnections extends CompiledRule<ConnectionRule, GuardedActor> {
  readonly #places: Places;
  readonly #overrides: ReadonlyMap<string, number>;

  /** @param before the rule with the same name: if it counts the same requests, they keep their places */
  constructor(rule: ConnectionRule, context: RuleContext, before: ActiveConnections | undefined) {
    super(rule, context);
    const { actor, scope, overrides } = rule;
    this.#overrides = new Map(overrides.map(({ value, connections }) => [value, connections]));
    const isKin = before?.rule.actor === actor && before.rule.scope === scope;
    this.#places = isKin ? before.#places : placesOf(rule, context);
  }

  take(actor: string, isKnown: boolean): Maybe<Place | undefined> {
    const { maxAgeMs = Infinity } = this.rule;
    const limit = this.limitOf(actor, isKnown);
    return this.#places.take({ key: this.#keyOf(actor, isKnown), limit, maxAgeMs });
  }

  /** Returns how many places are free. */
  free(actor: string, isKnown: boolean): Maybe<number> {
    const limit = this.limitOf(actor, isKnown);
    const taken = this.#places.takenOf(this.#keyOf(actor, isKnown), limit);
    return chain(taken, (count) => limit - count);
  }

  limitOf(actor: string, isKnown: boolean): number {
    return (isKnown ? this.#overrides.get(actor) : undefined) ?? this.rule.connections;
  }

  close(): Promise<void> {
    return this.#places.close();
  }

  #keyOf(actor: string, isKnown: boolean): string {
    return keyOfActor(actor, isKnown, this.rule.scope);
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

/** The result of the rules for connections for one request. */
export interface Entry {
  readonly outcomes: readonly Outcome<ConnectionRule>[];
  readonly isRefused: boolean;
  /** Frees all places that the request has taken. Does nothing if they are free already. */
  readonly leave: () => void;
}

/** Takes the places of a request under all rules that apply to it, or none. */
export class ConnectionFilter {
  readonly #actors: ActorResolver;

  constructor(actors: ActorResolver) {
    this.#actors = actors;
  }

  /**
   * Takes places, which are free again when the request is over, whatever ends it.
   *
   * @param rules those that apply to the request
   */
  enter(
    rules: readonly ActiveConnections[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Entry> {
    const visit = new Visit(request);
    const turn = inTurn(rules, request);
    const next = (at: number): Maybe<Entry> => {
      const active = turn[at];
      if (active === undefined || visit.isRefused) return visit;
      const asked = this.#actors.resolve(active, request, report, (actor, isKnown) =>
        visit.ask(active, actor, isKnown),
      );
      return chain(asked, () => next(at + 1));
    };
    return orElse(
      () => next(0),
      (error) => {
        visit.leave();
        throw error;
      },
    );
  }

  /** Returns the outcomes that `enter` would have now, without taking a place. */
  peek(
    rules: readonly ActiveConnections[],
    request: GatewayRequest,
  ): Maybe<readonly Outcome<ConnectionRule>[]> {
    const looks = inTurn(rules, request).map((active) =>
      this.#actors.resolve(active, request, undefined, (actor, isKnown) =>
        chain(active.free(actor, isKnown), (free) =>
          outcomeOf(active, actor, isKnown, free > 0 ? free : undefined),
        ),
      ),
    );
    return chain(all(looks), (outcomes) => outcomes.filter((each) => each !== undefined));
  }
}

/** A request on its way through the rules. */
class Visit implements Entry {
  readonly outcomes: Outcome<ConnectionRule>[] = [];
  readonly #request: GatewayRequest;
  readonly #places: Place[] = [];
  isRefused = false;

  constructor(request: GatewayRequest) {
    this.#request = request;
  }

  ask(active: ActiveConnections, actor: string, isKnown: boolean): Maybe<void> {
    const isShadow = active.rule.mode === "shadow";
    const take = () => chain(active.take(actor, isKnown), (place) => ({ place }));
    return chain(isShadow ? settled(take) : take(), (taken) => {
      // a shadow rule that could not be asked
      if (taken === undefined) return;
      const { place } = taken;
      this.outcomes.push(outcomeOf(active, actor, isKnown, place?.remaining));
      if (place !== undefined) {
        this.#places.push(place);
        this.#request.onClose?.(place.leave);
      } else if (!isShadow) {
        this.isRefused = true;
        this.leave();
      }
    });
  }

  readonly leave = (): void => {
    for (const place of this.#places.splice(0)) place.leave();
  };
}

/**
 * Returns the rules in the order in which they are asked: those that answer at once, then those on
 * Redis. Of these the rule for the actor "all" is last, so that requests that another rule refuses do
 * not hold its places meanwhile.
 */
function inTurn(
  rules: readonly ActiveConnections[],
  request: GatewayRequest,
): readonly ActiveConnections[] {
  // without a report of the end, and without an age, a place would never be free again
  const isReported = request.onClose !== undefined;
  const applying = rules.filter(({ rule }) => isReported || rule.maxAgeMs !== undefined);
  return applying.length < 2 ? applying : [...applying].sort((a, b) => turnOf(a) - turnOf(b));
}

function turnOf({ rule: { scope, actor } }: ActiveConnections): number {
  return scope === "local" ? 0 : actor === "all" ? 2 : 1;
}

function outcomeOf(
  active: ActiveConnections,
  actor: string,
  isKnown: boolean,
  remaining: number | undefined,
): Outcome<ConnectionRule> {
  const { rule } = active;
  const decision = placeDecision(rule.name, active.limitOf(actor, isKnown), remaining);
  return { rule, actor, allowed: decision.allowed, decision };
}
