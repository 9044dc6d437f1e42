/**
 * What a request asks of a rule that does more than to ask its limiter: it blocks actors, follows a calendar, gives
 * permits back when the response is known, or has a cost that a function computes.
 */
import type { Decision, Limiter } from "smooth-limiter";
import type { ActorValue } from "../actors/actor-value.ts";
import { counts } from "../answers/counted.ts";
import { chain, ignoreFailure, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Answered, Charge, PermitLimit } from "../pipeline/limit.ts";
import type { CheckCall } from "../request.ts";
import type { RuleLimiters } from "../rule-limiters.ts";
import type { GuardedCost } from "../rules/cost.ts";
import type { RequestRule } from "../rules/rule.ts";
import { stated } from "../verdict.ts";

/** The rule, as far as its charges need it. */
interface ChargedRule extends PermitLimit<RequestRule> {
  readonly limits: RuleLimiters;
  readonly costBy: GuardedCost | undefined;
}

export class RuleCharge implements Charge<RequestRule> {
  readonly limit: ChargedRule;
  readonly actor: string;
  readonly cost: number;
  readonly limiter: Limiter | undefined;
  readonly isPlain = false;
  readonly #counted: ActorValue;

  constructor(limit: ChargedRule, counted: ActorValue, cost: number) {
    this.limit = limit;
    this.actor = counted.value;
    this.cost = cost;
    this.limiter = limit.limits.for(counted);
    this.#counted = counted;
  }

  closed(): MaybePromise<Decision | undefined> {
    const { limits, costBy, rule } = this.limit;
    const isPossible = costBy === undefined || limits.fits(this.#counted, this.cost);
    if (this.limiter === undefined || !isPossible) {
      return stated(rule.name, false, { limit: 0, remaining: 0, waitMs: Infinity });
    }
    return chain(limits.blocks?.leftOf(this.#key), (waitMs = 0) =>
      waitMs > 0 ? stated(rule.name, false, { limit: 1, remaining: 0, waitMs }) : undefined,
    );
  }

  read(decision: Decision): Decision {
    const { limits } = this.limit;
    const calendar = limits.calendarOf(this.#counted);
    if (calendar === undefined) return decision;
    const nowMs = limits.unixMs;
    const { startMs, endMs } = calendar.periodAt(nowMs);
    const leftMs = endMs - nowMs;
    const windowMs = endMs < Infinity ? endMs - startMs : 0;
    const { policy, policies } = decision;
    const status = policies[policy];
    const resetMs = decision.resetMs > 0 ? leftMs : 0;
    return {
      ...decision,
      waitMs: decision.allowed ? 0 : leftMs,
      resetMs,
      policies: status ? { [policy]: { ...status, resetMs, windowMs } } : policies,
    };
  }

  /** Blocks the actor if it has used up the limit for good. */
  refused(decision: Decision): MaybePromise<Decision | undefined> {
    const { blocks, inFlight } = this.limit.limits;
    if (blocks === undefined) return undefined;
    // permits of requests that are being answered may yet be given back
    if (decision.remaining + inFlight.permitsOf(this.#key) >= this.cost) return undefined;
    return chain(
      ignoreFailure(() => blocks.begin(this.#key)),
      (block) => {
        // after a failure the limit itself still refuses it
        if (block === undefined) return undefined;
        const { ms: waitMs, begins } = block;
        const blocked = { ...decision, remaining: 0, waitMs, resetMs: waitMs };
        // after the block the actor starts with a full limit
        return begins
          ? chain(
              ignoreFailure(() => this.limiter?.reset()),
              () => blocked,
            )
          : blocked;
      },
    );
  }

  /** Gives permits back, or takes more, when the request has been answered. */
  passed(
    { resetMs }: Decision,
    _undo: () => MaybePromise<void>,
    call: CheckCall,
  ): Answered | undefined {
    const { rule, costBy, limits } = this.limit;
    const settles = rule.count !== "all" || costBy?.settle !== undefined;
    if (!settles) return undefined;
    const { cost, limiter } = this;
    const mayBlock = rule.block !== undefined;
    const takenMs = limits.unixMs;
    if (mayBlock) limits.inFlight.begin(this.#key, cost);
    return (status) => {
      if (mayBlock) limits.inFlight.end(this.#key, cost);
      // what was taken has left the limit by itself
      const isGone = limits.unixMs - takenMs >= resetMs;
      // without a status the request stays counted: a client must not gain by disconnecting
      const isFree = status !== undefined && !counts(rule.count, status);
      const settle = () =>
        chain(isFree ? 0 : costBy?.settle?.(call, status), (actual = cost) => {
          if (actual > cost) return limiter?.charge(actual - cost);
          return actual < cost && !isGone ? limiter?.refund(cost - actual) : undefined;
        });
      void ignoreFailure(settle);
    };
  }

  get #key(): string {
    return this.limit.limits.keyOf(this.#counted);
  }
}
