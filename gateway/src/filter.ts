/**
 * The filter: combines the results of all rules for a request by `takeFromAll`. A request is granted
 * by all rules, or charged to none.
 *
 * A shadow rule never refuses: it is charged if it lets the request pass and the request does pass.
 * A request that must wait holds a place in the line of each such rule, and passes when all lines
 * have released it.
 */
import {
  type Clock,
  type Decision,
  type Reservation,
  type TakenFromAll,
  TooManyKeysError,
  takeFromAll,
} from "smooth-limiter";
import type { GuardedActor, Report } from "./actors/guarded.ts";
import { retryAfter } from "./answers/retry.ts";
import { type Ask, isOpen, type OpenAsk } from "./ask.ts";
import { all, chain, type Maybe, settled } from "./ground/maybe.ts";
import { unixMs } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import type { ActiveRule, RuleSet } from "./ruleset.ts";
import { block, settleLater } from "./settlement.ts";
import type { Outcome, Verdict } from "./verdict.ts";

/** How a request is counted that has no value for the rule's actor. */
export type WhenActorMissing = "device" | "shared" | "skip";

const NO_RULE: Verdict = Object.freeze({
  allowed: true,
  retryMs: 0,
  waitedMs: 0,
  outcomes: Object.freeze([]),
});

export class Filter {
  readonly #device: GuardedActor;
  readonly #whenActorMissing: WhenActorMissing;
  readonly #waiting = new Set<Reservation>();
  readonly #clock: Clock | undefined;
  #isDismissed = false;

  constructor(device: GuardedActor, whenActorMissing: WhenActorMissing, clock: Clock | undefined) {
    this.#device = device;
    this.#whenActorMissing = whenActorMissing;
    this.#clock = clock;
  }

  check(rules: RuleSet, request: GatewayRequest, report?: Report): Maybe<Verdict> {
    const active = rules.match(request);
    const [first] = active;
    if (first === undefined) return NO_RULE;
    if (active.length === 1) {
      return chain(this.#askOf(first, request, report), (ask) =>
        this.#judgeOne(ask, request, report),
      );
    }
    return chain(this.#asksOf(active, request, report), (asks) =>
      this.#judge(asks, request, report),
    );
  }

  /** Returns what `check` would return now, without charging any rule. */
  peek(rules: RuleSet, request: GatewayRequest): Maybe<Verdict> {
    return chain(this.#asksOf(rules.match(request), request), (asks) => {
      const looks = asks.map((ask) =>
        chain(this.#closedBy(ask), (closed): Maybe<Outcome> => {
          if (closed !== undefined || ask.limiter === undefined) return closed as Outcome;
          return chain(ask.limiter.peek(ask.cost), (found) => this.#seen(ask, found));
        }),
      );
      return chain(all(looks), (outcomes): Verdict => {
        const retries = outcomes.map(({ allowed, decision, rule }, i) =>
          allowed || rule.mode === "shadow" ? 0 : retryAfter(decision, asks[i]?.cost ?? 1),
        );
        const retryMs = Math.max(0, ...retries);
        return { allowed: retryMs === 0, retryMs, waitedMs: 0, outcomes };
      });
    });
  }

  #seen(ask: Ask, found: Decision): Outcome {
    const { rule, waits } = ask.active;
    const decision = this.#dated(ask, found);
    const allowed = found.allowed || (waits && found.waitMs < Infinity);
    return { rule, actor: ask.actor, allowed, decision: allowed ? decision : withWait(decision) };
  }

  #asksOf(
    active: readonly ActiveRule[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<readonly Ask[]> {
    const asks = all(active.map((one) => this.#askOf(one, request, report)));
    return chain(asks, (known) => known.filter(isDefined));
  }

  /** Rejects all waiting requests, and later ones that would have to wait. */
  dismiss(): void {
    this.#isDismissed = true;
    for (const reservation of this.#waiting) void settled(() => reservation.cancel());
  }

  #askOf(active: ActiveRule, request: GatewayRequest, report?: Report): Maybe<Ask | undefined> {
    const value = active.actor(request, report);
    return value instanceof Promise
      ? value.then((later) => this.#askAbout(active, later, request, report))
      : this.#askAbout(active, value, request, report);
  }

  #askAbout(
    active: ActiveRule,
    value: string | undefined,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Ask | undefined> {
    if (value) {
      if (active.isExempt(value, request)) return undefined;
      return this.#askFor(active, value, true, request, report);
    }
    const { actor, whenActorMissing = this.#whenActorMissing } = active.rule;
    if (actor === "all") return this.#askFor(active, "", true, request, report);
    if (whenActorMissing === "skip") return undefined;
    const device = whenActorMissing === "device" ? this.#device(request, report) : undefined;
    return chain(device, (instead = "") => this.#askFor(active, instead, false, request, report));
  }

  /** @returns undefined where the rule does not apply because the request costs nothing */
  #askFor(
    active: ActiveRule,
    actor: string,
    isKnown: boolean,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Ask | undefined> {
    const known = active.costOf(request.method);
    const computed = active.costBy?.estimate(request, report);
    return chain(computed, (cost = known) => {
      if (cost === 0) return undefined;
      const nowMs = active.isOnCalendar ? unixMs(this.#clock) : 0;
      const { limiter, calendar } = active.limits.for(actor, isKnown, nowMs);
      return { active, actor, isKnown, cost, limiter, calendar };
    });
  }

  /** Does the work of `#judge` for a single rule: most requests match only one. */
  #judgeOne(ask: Ask | undefined, request: GatewayRequest, report?: Report): Maybe<Verdict> {
    if (ask === undefined) return NO_RULE;
    const { rule, isGlobal, isShadow, waits, settles, isGuarded } = ask.active;
    if (!isOpen(ask) || waits || isShadow || settles || isGuarded) {
      return this.#judge([ask], request, report);
    }
    const conclude = (found: Decision): Verdict => {
      const decision = this.#dated(ask, found);
      return {
        allowed: decision.allowed,
        retryMs: decision.allowed ? 0 : retryAfter(decision, ask.cost),
        waitedMs: 0,
        outcomes: [{ rule, actor: ask.actor, allowed: decision.allowed, decision }],
      };
    };
    // requests for one key that arrive together share one look at its state on Redis
    return isGlobal ? chain(ask.limiter.decide(ask.cost), conclude) : conclude(decideHere(ask));
  }

  #judge(asks: readonly Ask[], request: GatewayRequest, report?: Report): Maybe<Verdict> {
    if (asks.length === 0) return NO_RULE;
    if (!asks.some(({ active }) => active.isGuarded)) {
      return this.#take(asks.filter(isOpen), [], request, report);
    }
    return chain(all(asks.map((ask) => this.#closedBy(ask))), (closed) => {
      const outcomes = closed.filter(isDefined);
      if (outcomes.some(({ rule }) => rule.mode === "enforce")) return refusedBy(outcomes);
      const open = asks.filter((ask, i): ask is OpenAsk => closed[i] === undefined && isOpen(ask));
      return this.#take(open, outcomes, request, report);
    });
  }

  /** Returns the outcome of a rule that refuses a request whatever was used; otherwise undefined. */
  #closedBy({ active, actor, isKnown, limiter, cost }: Ask): Maybe<Outcome | undefined> {
    const { rule, limits, costBy } = active;
    const refused = (decision: Decision): Outcome => ({ rule, actor, allowed: false, decision });
    const isPossible = costBy === undefined || limits.fits(actor, isKnown, cost);
    if (limiter === undefined || !isPossible) return refused(never(rule.name));
    return chain(limits.blockOf(actor, isKnown)?.peek(), (block) =>
      block === undefined || block.allowed ? undefined : refused(block),
    );
  }

  /**
   * @param before outcomes of shadow rules that would have refused the request in any case
   */
  #take(
    asks: readonly OpenAsk[],
    before: readonly Outcome[],
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict> {
    if (asks.length === 0) return before.length === 0 ? NO_RULE : { ...NO_RULE, outcomes: before };
    const taken = takeFromAll(
      asks.map(({ limiter, cost, active: { waits, isShadow } }) => {
        return { limiter, permits: cost, timeoutMs: waits ? Infinity : 0, optional: isShadow };
      }),
    );
    return chain(taken, (result) =>
      chain(this.#conclude(asks, result, request), (found) => {
        if (found.allowed) settleLater(asks, result, request, report, this.#clock);
        const verdict =
          before.length === 0 ? found : { ...found, outcomes: [...before, ...found.outcomes] };
        return asks.some(({ active }) => active.rule.blockMs !== undefined)
          ? block(asks, result, verdict)
          : verdict;
      }),
    );
  }

  #conclude(
    asks: readonly OpenAsk[],
    taken: TakenFromAll,
    request: GatewayRequest,
  ): Maybe<Verdict> {
    const lines = taken.results.flatMap((result) => {
      const reservation = result?.reservation;
      return reservation !== undefined && reservation.waitMs > 0 ? [reservation] : [];
    });
    if (lines.length === 0) return this.#verdict(asks, taken, 0);
    // read only here, because servers create the signal on first access
    return this.#wait(lines, request.signal).then(
      (waitedMs) => this.#verdict(asks, taken, waitedMs),
      async (error: unknown) => {
        await taken.undo();
        throw error;
      },
    );
  }

  #verdict(
    asks: readonly OpenAsk[],
    { allowed, results }: TakenFromAll,
    waitedMs: number,
  ): Verdict {
    const outcomes: Outcome[] = [];
    let retryMs = 0;
    asks.forEach((ask, i) => {
      const result = results[i];
      // a shadow rule that could not be asked
      if (result === undefined) return;
      const { rule, isShadow } = ask.active;
      const found = this.#dated(ask, result.decision);
      const decision = result.allowed ? found : withWait(found);
      outcomes.push({ rule, actor: ask.actor, allowed: result.allowed, decision });
      if (!result.allowed && !isShadow) retryMs = Math.max(retryMs, retryAfter(decision, ask.cost));
    });
    return { allowed, retryMs, waitedMs, outcomes };
  }

  /** Replaces the times of a decision by those of the calendar. */
  #dated({ calendar }: Ask, decision: Decision): Decision {
    if (calendar === undefined) return decision;
    const nowMs = unixMs(this.#clock);
    const { startMs, endMs } = calendar.periodAt(nowMs);
    const leftMs = endMs - nowMs;
    const windowMs = endMs < Infinity ? endMs - startMs : 0;
    const { policy, policies } = decision;
    const status = policies[policy];
    const resetMs = decision.resetMs > 0 && leftMs < Infinity ? leftMs : 0;
    return {
      ...decision,
      waitMs: decision.allowed ? 0 : leftMs,
      resetMs,
      policies: status ? { [policy]: { ...status, resetMs, windowMs } } : policies,
    };
  }

  async #wait(lines: readonly Reservation[], signal: AbortSignal | undefined): Promise<number> {
    for (const line of lines) this.#waiting.add(line);
    try {
      const waits = lines.map((line) => line.ready({ signal }));
      if (this.#isDismissed) this.dismiss();
      return Math.max(...(await Promise.all(waits)));
    } finally {
      for (const line of lines) this.#waiting.delete(line);
    }
  }
}

/** Asks a rule alone whose limiter is in this process. */
function decideHere({ limiter, cost }: OpenAsk): Decision {
  try {
    return limiter.decide(cost) as Decision;
  } catch (error) {
    if (!(error instanceof TooManyKeysError)) throw error;
    return withWait({ ...(limiter.peek(cost) as Decision), allowed: false });
  }
}

/** The retry time if a rule has no room for a new key: it cannot be known, so one second. */
const NO_ROOM_MS = 1000;

function withWait(decision: Decision): Decision {
  return { ...decision, waitMs: decision.waitMs || NO_ROOM_MS };
}

/** The decision of a rule that lets nothing through. */
function never(policy: string): Decision {
  const status = { limit: 0, remaining: 0, resetMs: 0, windowMs: 0 };
  const policies = { [policy]: { allowed: false, ...status } };
  return { allowed: false, waitMs: Infinity, ...status, policy, policies };
}

function refusedBy(outcomes: readonly Outcome[]): Verdict {
  const retries = outcomes
    .filter(({ rule }) => rule.mode === "enforce")
    .map(({ decision }) => retryAfter(decision, 1));
  return { allowed: false, retryMs: Math.max(...retries), waitedMs: 0, outcomes };
}

function isDefined<T>(value: T | undefined): value is T {
  return value !== undefined;
}
