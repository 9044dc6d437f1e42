/**
 * The filter for requests per time. It asks all such rules for a request by `takeFromAll`: a request is
 * granted by all rules, or charged to none.
 *
 * A shadow rule never refuses: it is charged if it lets the request pass and the request does pass.
 * A request that must wait holds a place in the line of each such rule, and passes when all lines
 * have released it.
 */
import type { Clock, Decision } from "smooth-limiter";
import type { Report } from "./actors/guarded.ts";
import type { ActorResolver } from "./actors/resolver.ts";
import { type Charge, isOpen, type OpenCharge } from "./charge.ts";
import type { CompiledRequestRule } from "./compiled-request-rule.ts";
import { all, chain, type Maybe } from "./ground/maybe.ts";
import { Judge, NO_RULE, withWait } from "./judge.ts";
import { unixMs } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import type { RequestRule } from "./rules/rule.ts";
import { block, settleLater } from "./settlement.ts";
import {
  isRefusal,
  type Outcome,
  refused,
  retryOf,
  type Verdict,
  withOutcomes,
} from "./verdict.ts";

export class Filter {
  readonly #actors: ActorResolver;
  readonly #clock: Clock | undefined;
  readonly #judge = new Judge();

  constructor(actors: ActorResolver, clock: Clock | undefined) {
    this.#actors = actors;
    this.#clock = clock;
  }

  /** @param active the rules that apply to the request */
  check(
    active: readonly CompiledRequestRule[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict<RequestRule>> {
    const [first] = active;
    if (first === undefined) return NO_RULE;
    if (active.length === 1) {
      return chain(this.#askOf(first, request, report), (ask) =>
        this.#decideOne(ask, request, report),
      );
    }
    return chain(this.#asksOf(active, request, report), (asks) =>
      this.#decide(asks, request, report),
    );
  }

  /** Returns what `check` would return now, without charging any rule. */
  peek(
    active: readonly CompiledRequestRule[],
    request: GatewayRequest,
  ): Maybe<Verdict<RequestRule>> {
    return chain(this.#asksOf(active, request), (asks) => {
      const looks = asks.map((ask) =>
        chain(this.#closedBy(ask), (closed): Maybe<Outcome<RequestRule>> => {
          if (closed !== undefined || ask.limiter === undefined)
            return closed as Outcome<RequestRule>;
          return chain(ask.limiter.peek(ask.cost), (found) => this.#seen(ask, found));
        }),
      );
      return chain(all(looks), (outcomes): Verdict<RequestRule> => {
        const retryMs = retryOf(outcomes, asks);
        return { allowed: retryMs === 0, retryMs, waitedMs: 0, outcomes };
      });
    });
  }

  #seen(ask: Charge, found: Decision): Outcome<RequestRule> {
    const { rule, longestWaitMs } = ask.active;
    const decision = this.#dated(ask, found);
    const allowed = found.allowed || (longestWaitMs > 0 && found.waitMs < Infinity);
    return { rule, actor: ask.actor, allowed, decision: allowed ? decision : withWait(decision) };
  }

  #asksOf(
    active: readonly CompiledRequestRule[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<readonly Charge[]> {
    const asks = all(active.map((one) => this.#askOf(one, request, report)));
    return chain(asks, (known) => known.filter((ask) => ask !== undefined));
  }

  /** Rejects all waiting requests, and later ones that would have to wait. */
  rejectWaiting(): void {
    this.#judge.rejectWaiting();
  }

  #askOf(
    active: CompiledRequestRule,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Charge | undefined> {
    return this.#actors.resolve(active, request, report, (actor, isKnown) =>
      this.#askFor(active, actor, isKnown, request, report),
    );
  }

  /** @returns undefined where the rule does not apply because the request costs nothing */
  #askFor(
    active: CompiledRequestRule,
    actor: string,
    isKnown: boolean,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Charge | undefined> {
    const known = active.costOf(request.method);
    if (active.costBy === undefined) return this.#askOfCost(active, actor, isKnown, known);
    return chain(active.costBy.estimate(request, report), (cost = known) =>
      this.#askOfCost(active, actor, isKnown, cost),
    );
  }

  #askOfCost(
    active: CompiledRequestRule,
    actor: string,
    isKnown: boolean,
    cost: number,
  ): Charge | undefined {
    if (cost === 0) return undefined;
    const { limits, isOnCalendar } = active;
    const limiter = limits.for(actor, isKnown, isOnCalendar ? unixMs(this.#clock) : 0);
    const calendar = isOnCalendar ? limits.calendarOf(actor, isKnown) : undefined;
    return { active, actor, isKnown, cost, limiter, calendar };
  }

  /** Does the work of `#decide` for a single rule: most requests match only one. */
  #decideOne(
    ask: Charge | undefined,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict<RequestRule>> {
    if (ask === undefined) return NO_RULE;
    const { settles, isGuarded, isOnCalendar } = ask.active;
    if (!isOpen(ask) || settles || isGuarded || isOnCalendar) {
      return this.#decide([ask], request, report);
    }
    return this.#judge.one(ask, request);
  }

  #decide(
    asks: readonly Charge[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict<RequestRule>> {
    if (asks.length === 0) return NO_RULE;
    if (!asks.some(({ active }) => active.isGuarded)) {
      return this.#take(asks.filter(isOpen), [], request, report);
    }
    return chain(all(asks.map((ask) => this.#closedBy(ask))), (closed) => {
      const outcomes = closed.filter((outcome) => outcome !== undefined);
      if (outcomes.some(isRefusal)) return refused(outcomes);
      const open = asks.filter(
        (ask, i): ask is OpenCharge => closed[i] === undefined && isOpen(ask),
      );
      return this.#take(open, outcomes, request, report);
    });
  }

  /** Returns the outcome of a rule that refuses a request whatever was used; otherwise undefined. */
  #closedBy({
    active,
    actor,
    isKnown,
    limiter,
    cost,
  }: Charge): Maybe<Outcome<RequestRule> | undefined> {
    const { rule, limits, costBy } = active;
    const closed = (decision: Decision) => ({ rule, actor, allowed: false, decision });
    const isPossible = costBy === undefined || limits.fits(actor, isKnown, cost);
    if (limiter === undefined || !isPossible) return closed(never(rule.name));
    return chain(limits.blockOf(actor, isKnown)?.peek(), (block) =>
      block === undefined || block.allowed ? undefined : closed(block),
    );
  }

  /**
   * @param before outcomes of shadow rules that would have refused the request in any case
   */
  #take(
    asks: readonly OpenCharge[],
    before: readonly Outcome<RequestRule>[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict<RequestRule>> {
    if (asks.length === 0) return withOutcomes(NO_RULE, before);
    return chain(this.#judge.several(asks, request), (judged) => {
      const found = asks.some(({ calendar }) => calendar) ? this.#datedAll(asks, judged) : judged;
      if (found.allowed) settleLater(asks, found, request, report, this.#clock);
      const verdict = withOutcomes(found, before);
      return asks.some(({ active }) => active.rule.blockMs !== undefined)
        ? block(asks, verdict)
        : verdict;
    });
  }

  #datedAll(asks: readonly OpenCharge[], verdict: Verdict<RequestRule>): Verdict<RequestRule> {
    const byRule = new Map(asks.map((ask) => [ask.active.rule, ask]));
    const outcomes = verdict.outcomes.map((outcome) => {
      const ask = byRule.get(outcome.rule);
      return ask ? { ...outcome, decision: this.#dated(ask, outcome.decision) } : outcome;
    });
    return { ...verdict, outcomes, retryMs: retryOf(outcomes, asks) };
  }

  /** Replaces the times of a decision by those of the calendar. */
  #dated({ calendar }: Charge, decision: Decision): Decision {
    if (calendar === undefined) return decision;
    const nowMs = unixMs(this.#clock);
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
}

/** The decision of a rule that lets nothing through. */
function never(policy: string): Decision {
  const status = { limit: 0, remaining: 0, resetMs: Infinity, windowMs: 0 };
  const policies = { [policy]: { allowed: false, ...status } };
  return { allowed: false, waitMs: Infinity, ...status, policy, policies };
}
