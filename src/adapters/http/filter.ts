/**
 * The filter: combines the results of all rules for a request, as `allOf` combines its limiters. A
 * request is granted by all rules, or charged to none. `limiter/together.ts` gives the order, and
 * what other requests may do in between.
 *
 * A shadow rule never refuses: it is charged if it lets the request pass and the request does pass.
 * A request that must wait holds a place in the line of each such rule, and passes when all lines
 * have released it.
 */
import type { Decision, Limiter, Reservation } from "../../limiter/face.ts";
import {
  chain,
  type Maybe,
  memberOf,
  type Part,
  refusalOf,
  reportRefusal,
  type Together,
  takeTogether,
  undoAll,
} from "../../limiter/together.ts";
import type { GuardedActor, Report } from "./actors/guarded.ts";
import { retryAfter } from "./answers/retry.ts";
import type { GatewayRequest } from "./request.ts";
import type { ActiveRule, RuleSet } from "./ruleset.ts";
import type { Outcome, Verdict } from "./verdict.ts";

/** How a request is counted that has no value for the rule's actor. */
export type WhenActorMissing = "device" | "shared" | "skip";

/** The request to one rule. */
interface Ask {
  readonly active: ActiveRule;
  readonly actor: string;
  readonly limiter: Limiter;
  readonly cost: number;
}

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
  #isDismissed = false;

  constructor(device: GuardedActor, whenActorMissing: WhenActorMissing) {
    this.#device = device;
    this.#whenActorMissing = whenActorMissing;
  }

  check(rules: RuleSet, request: GatewayRequest, report?: Report): Maybe<Verdict> {
    const active = rules.match(request.method, request.url);
    const [first] = active;
    if (first === undefined) return NO_RULE;
    if (active.length === 1)
      return chain(this.#askOf(first, request, report), (ask) => this.#judgeOne(ask, request));
    const asks = all(active.map((one) => this.#askOf(one, request, report)));
    return chain(asks, (known) => this.#judge(known.filter(isDefined), request));
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
    if (value) return active.isExempt(value, request) ? undefined : askFor(active, value, true);
    if (active.rule.actor === "all") return askFor(active, "", true);
    if (this.#whenActorMissing === "skip") return undefined;
    const device = this.#whenActorMissing === "device" ? this.#device(request, report) : undefined;
    return chain(device, (instead = "") => askFor(active, instead, false));
  }

  /** Does the work of `#judge` for a single rule: most requests match only one. */
  #judgeOne(ask: Ask | undefined, request: GatewayRequest): Maybe<Verdict> {
    if (ask === undefined) return NO_RULE;
    const { rule, isGlobal, isShadow, waits } = ask.active;
    if (waits || isShadow) return this.#judge([ask], request);
    const conclude = (decision: Decision): Verdict => ({
      allowed: decision.allowed,
      retryMs: decision.allowed ? 0 : retryAfter(decision, ask.cost),
      waitedMs: 0,
      outcomes: [{ rule, actor: ask.actor, allowed: decision.allowed, decision }],
    });
    // requests for one key that arrive together share one look at its state on Redis
    return isGlobal ? chain(ask.limiter.decide(ask.cost), conclude) : conclude(decideHere(ask));
  }

  #judge(asks: readonly Ask[], request: GatewayRequest): Maybe<Verdict> {
    if (asks.length === 0) return NO_RULE;
    const parts = asks.map(partOf);
    return chain(takeTogether(parts), (together) => {
      if (!together.passes) {
        reportRefusal(parts, together);
        return verdict(asks, together, 0);
      }
      return this.#conclude(asks, together, request);
    });
  }

  #conclude(asks: readonly Ask[], together: Together, request: GatewayRequest): Maybe<Verdict> {
    const lines = together.looks.flatMap((look) => {
      const reservation = look?.taken?.reservation;
      return reservation !== undefined && reservation.waitMs > 0 ? [reservation] : [];
    });
    if (lines.length === 0) return verdict(asks, together, 0);
    // read only here, because servers create the signal on first access
    return this.#wait(lines, request.signal).then(
      (waitedMs) => verdict(asks, together, waitedMs),
      async (error: unknown) => {
        await undoAll(together.looks);
        throw error;
      },
    );
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

function askFor(active: ActiveRule, actor: string, isKnown: boolean): Ask {
  return { active, actor, limiter: active.limiter(actor, isKnown), cost: active.rule.cost };
}

function partOf({ limiter, cost, active }: Ask): Part {
  const { waits, isShadow } = active;
  const longestMs = waits ? Infinity : 0;
  return { member: memberOf(limiter), permits: cost, longestMs, isOptional: isShadow };
}

/** Asks a rule alone whose limiter is in this process. */
function decideHere({ limiter, cost }: Ask): Decision {
  try {
    return limiter.decide(cost) as Decision;
  } catch (error) {
    return withWait(refusalOf(error, limiter.peek(cost) as Decision).decision);
  }
}

/** The retry time if a rule has no room for a new key: it cannot be known, so one second. */
const NO_ROOM_MS = 1000;

function withWait(decision: Decision): Decision {
  return { ...decision, waitMs: decision.waitMs || NO_ROOM_MS };
}

function verdict(asks: readonly Ask[], { passes, looks }: Together, waitedMs: number): Verdict {
  const outcomes: Outcome[] = [];
  let retryMs = 0;
  asks.forEach(({ active, actor, cost }, i) => {
    const look = looks[i];
    // a shadow rule that could not be asked
    if (look === undefined) return;
    const { rule, isShadow } = active;
    const { passes: allowed } = look;
    const decision = allowed ? look.decision : withWait(look.decision);
    outcomes.push({ rule, actor, allowed, decision });
    if (!allowed && !isShadow) retryMs = Math.max(retryMs, retryAfter(decision, cost));
  });
  return { allowed: passes, retryMs, waitedMs, outcomes };
}

// -- results that are available at once or later --

function all<T>(answers: readonly Maybe<T>[]): Maybe<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}

/** Runs the action and ignores its result and its errors. */
function settled(action: () => Maybe<unknown>): Maybe<unknown> {
  try {
    const done = action();
    return done instanceof Promise ? done.catch(() => {}) : undefined;
  } catch {
    return undefined;
  }
}

function isDefined<T>(value: T | undefined): value is T {
  return value !== undefined;
}
