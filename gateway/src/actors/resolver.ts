import { chain, type Maybe } from "../ground/maybe.ts";
import type { GatewayRequest } from "../request.ts";
import type { AnyRule } from "../rules/rule.ts";
import type { GuardedActor, Report } from "./guarded.ts";

/** How requests without a value for the rule's actor are counted. */
export type WhenActorMissing = "device" | "shared" | "skip";

/** A rule, and what is known of its actor. */
export interface Counting {
  readonly rule: AnyRule;
  readonly actor: GuardedActor;
  readonly isExempt: (value: string, request: GatewayRequest) => boolean;
}

/** Finds by what a rule counts a request. */
export class ActorResolver {
  readonly #device: GuardedActor;
  readonly #whenActorMissing: WhenActorMissing;

  constructor(device: GuardedActor, whenActorMissing: WhenActorMissing) {
    this.#device = device;
    this.#whenActorMissing = whenActorMissing;
  }

  /**
   * @param go receives the value, and whether it is the actor's own or a replacement for a missing one
   * @returns undefined if the rule does not apply to the request
   */
  resolve<T>(
    counting: Counting,
    request: GatewayRequest,
    report: Report | undefined,
    go: (actor: string, isKnown: boolean) => Maybe<T>,
  ): Maybe<T | undefined> {
    const value = counting.actor(request, report);
    return value instanceof Promise
      ? value.then((later) => this.#with(later, counting, request, report, go))
      : this.#with(value, counting, request, report, go);
  }

  #with<T>(
    value: string | undefined,
    { rule, isExempt }: Counting,
    request: GatewayRequest,
    report: Report | undefined,
    go: (actor: string, isKnown: boolean) => Maybe<T>,
  ): Maybe<T | undefined> {
    if (value) return isExempt(value, request) ? undefined : go(value, true);
    const { actor, whenActorMissing = this.#whenActorMissing } = rule;
    if (actor === "all") return go("", true);
    if (whenActorMissing === "skip") return undefined;
    const device = whenActorMissing === "device" ? this.#device(request, report) : undefined;
    return chain(device, (instead = "") => go(instead, false));
  }
}
