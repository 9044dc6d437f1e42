/** What a request costs, in permits: computed by a function of the application. */
import { detachable, type GuardedCall, guardedCall } from "../actors/guarded.ts";
import { atLeastZero, checkObject, show } from "../ground/check.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { Deadline } from "../ground/within.ts";
import type { GatewayRequest } from "../request.ts";

/**
 * Computes the permits that a request takes: a number, 0 or more, or a promise of one; 0 means that
 * the rule does not apply. More than the rule ever lets through at once refuses the request.
 *
 * If it throws, rejects, takes longer than `actorTimeoutMs` or returns anything else, the request
 * takes one permit, and the error is reported like that of an actor.
 */
export type CostFunction = (request: GatewayRequest) => MaybePromise<number>;

/** A cost that is known for sure only when the request has been answered. */
export interface SettledCost {
  /** The permits to take on arrival. */
  readonly estimate: CostFunction;
  /**
   * Computes what the request really cost: the difference is taken, or given back. Called once when
   * the request is over. If it fails the estimate stays.
   *
   * @param status of the response; undefined if the client disconnected before there was one
   */
  readonly settle: (request: GatewayRequest, status: number | undefined) => MaybePromise<number>;
}

/** What a request costs, in permits. */
export type Cost = CostFunction | SettledCost;

/** Costs by the name that rules use. */
export type Costs = Readonly<Record<string, Cost>>;

/** A cost with functions that never throw; undefined is a failure. */
export interface GuardedCost {
  readonly estimate: GuardedCall<number>;
  readonly settle: GuardedCall<number, [status: number | undefined]> | undefined;
}

export function checkCosts(costs: unknown): void {
  for (const [name, cost] of Object.entries(checkObject("costs", costs))) {
    const { estimate, settle } = Object(cost) as Partial<SettledCost>;
    if (typeof cost === "function") continue;
    if (typeof estimate === "function" && typeof settle === "function") continue;
    throw new TypeError(
      `costs.${name} must be a function or { estimate, settle }, got ${show(cost)}`,
    );
  }
}

export function guardedCost(name: string, cost: Cost, deadline: Deadline): GuardedCost {
  const what = `costs.${name}`;
  const read = (value: unknown) => atLeastZero(`the result of ${what}`, value);
  const [estimate, settle] =
    typeof cost === "function" ? [cost, undefined] : [cost.estimate, cost.settle];
  const common = { read, ...deadline };
  return {
    estimate: guardedCall((request) => estimate(detachable(request)), {
      ...common,
      name: what,
      instead: "the request takes one permit",
    }),
    settle:
      settle &&
      guardedCall((request, status) => settle(detachable(request), status), {
        ...common,
        name: `${what}.settle`,
        instead: "the estimate stays",
      }),
  };
}
