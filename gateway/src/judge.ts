/** Takes the permits of a request, and returns the outcome for each limiter. */
import {
  type Decision,
  type Limiter,
  type Reservation,
  type TakenFromAll,
  TooManyKeysError,
  takeFromAll,
} from "smooth-limiter";
import { retryAfter } from "./answers/retry.ts";
import type { CompiledRequestRule } from "./compiled-request-rule.ts";
import { chain, type Maybe, settled } from "./ground/maybe.ts";
import type { GatewayRequest } from "./request.ts";
import type { RequestRule } from "./rules/rule.ts";
import type { CountedRule, Outcome, Verdict } from "./verdict.ts";

/** The request to one rule. */
export interface Ask<R extends CountedRule = RequestRule> {
  readonly active: Pick<CompiledRequestRule, "isGlobal" | "isShadow" | "longestWaitMs"> & {
    readonly rule: R;
  };
  readonly actor: string;
  readonly limiter: Limiter;
  readonly cost: number;
  /** Called if the request passes, with a function that gives back all permits that were taken for it. */
  readonly onTaken?: ((undo: () => Maybe<void>) => void) | undefined;
}

export const NO_RULE: Verdict<never> = Object.freeze({
  allowed: true,
  retryMs: 0,
  waitedMs: 0,
  outcomes: Object.freeze([]),
});

/** Takes the permits of a request, from all its limiters or from none. */
export class Judge {
  readonly #waiting = new Set<Reservation>();
  #isClosed = false;

  /** Does the work of `several` for a single rule: most requests match only one. */
  one<R extends CountedRule>(ask: Ask<R> | undefined, request: GatewayRequest): Maybe<Verdict<R>> {
    if (ask === undefined) return NO_RULE;
    const { isGlobal, isShadow, longestWaitMs } = ask.active;
    if (longestWaitMs > 0 || isShadow || ask.onTaken) return this.several([ask], request);
    // requests for one key that arrive together share one look at its state on Redis
    const decision = isGlobal ? ask.limiter.decide(ask.cost) : decideHere(ask);
    return decision instanceof Promise
      ? decision.then((later) => verdictOfOne(ask, later))
      : verdictOfOne(ask, decision);
  }

  several<R extends CountedRule>(
    asks: readonly Ask<R>[],
    request: GatewayRequest,
  ): Maybe<Verdict<R>> {
    if (asks.length === 0) return NO_RULE;
    const taken = takeFromAll(
      asks.map(({ limiter, cost, active: { longestWaitMs, isShadow } }) => {
        return { limiter, permits: cost, timeoutMs: longestWaitMs, optional: isShadow };
      }),
    );
    return chain(taken, (result) =>
      chain(this.#conclude(asks, result, request), (verdict) => {
        if (verdict.allowed) for (const { onTaken } of asks) onTaken?.(() => result.undo());
        return verdict;
      }),
    );
  }

  /** Rejects all waiting requests, and later ones that would have to wait. */
  rejectWaiting(): void {
    this.#isClosed = true;
    for (const reservation of this.#waiting) void settled(() => reservation.cancel());
  }

  #conclude<R extends CountedRule>(
    asks: readonly Ask<R>[],
    taken: TakenFromAll,
    request: GatewayRequest,
  ): Maybe<Verdict<R>> {
    const lines = taken.results.flatMap((result) => {
      const reservation = result?.reservation;
      return reservation !== undefined && reservation.waitMs > 0 ? [reservation] : [];
    });
    if (lines.length === 0) return verdict(asks, taken, 0);
    // read only here, because servers create the signal on first access
    return this.#wait(lines, request.signal).then(
      (waitedMs) => verdict(asks, taken, waitedMs),
      async (error: unknown) => {
        await taken.undo();
        throw error;
      },
    );
  }

  async #wait(lines: readonly Reservation[], signal: AbortSignal | undefined): Promise<number> {
    for (const line of lines) this.#waiting.add(line);
    try {
      const waits = lines.map((line) => line.ready({ signal }));
      if (this.#isClosed) this.rejectWaiting();
      return Math.max(...(await Promise.all(waits)));
    } finally {
      for (const line of lines) this.#waiting.delete(line);
    }
  }
}

function verdictOfOne<R extends CountedRule>(ask: Ask<R>, decision: Decision): Verdict<R> {
  const { allowed } = decision;
  return {
    allowed,
    retryMs: allowed ? 0 : retryAfter(decision, ask.cost),
    waitedMs: 0,
    outcomes: [{ rule: ask.active.rule, actor: ask.actor, allowed, decision }],
  };
}

/** Asks a single rule with a limiter in this process. */
function decideHere({ limiter, cost }: Pick<Ask, "limiter" | "cost">): Decision {
  try {
    return limiter.decide(cost) as Decision;
  } catch (error) {
    if (!(error instanceof TooManyKeysError)) throw error;
    return withWait({ ...(limiter.peek(cost) as Decision), allowed: false });
  }
}

/** The retry time if a rule has no room for a new key: it cannot be known, so one second. */
const NO_ROOM_MS = 1000;

export function withWait(decision: Decision): Decision {
  return { ...decision, waitMs: decision.waitMs || NO_ROOM_MS };
}

function verdict<R extends CountedRule>(
  asks: readonly Ask<R>[],
  { allowed, results }: TakenFromAll,
  waitedMs: number,
): Verdict<R> {
  const outcomes: Outcome<R>[] = [];
  let retryMs = 0;
  asks.forEach(({ active, actor, cost }, i) => {
    const result = results[i];
    // a shadow rule that could not be asked
    if (result === undefined) return;
    const { rule, isShadow } = active;
    const decision = result.allowed ? result.decision : withWait(result.decision);
    outcomes.push({ rule, actor, allowed: result.allowed, decision });
    if (!result.allowed && !isShadow) retryMs = Math.max(retryMs, retryAfter(decision, cost));
  });
  return { allowed, retryMs, waitedMs, outcomes };
}
