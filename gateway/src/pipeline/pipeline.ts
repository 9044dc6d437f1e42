/**
 * Decides a request by the limits that apply to it (`Stages`):
 *
 * 1. **Slots.** A request takes a slot under each limit for connections, or none.
 * 2. **Closed.** Limits that refuse it whatever was used: a rate of 0, a block, a cost that never passes.
 * 3. **Permits.** `takeFromAll` asks all limits for requests per time: all of them grant it, or none is charged.
 *    A shadow rule never refuses: it is charged if it lets the request pass and the request does pass.
 * 4. **The wait.** A request that must wait passes when the queues of all limits have released it.
 * 5. **After.** Permits that may be given back when the response is known, the block of a refused actor, and the
 *    paces of the response.
 *
 * Where the permits are refused, or asking for them fails, the slots are free again.
 */
import {
  type Limiter,
  type Reservation,
  type TakenFromAll,
  type TakeRequest,
  type TakeResult,
  takeFromAll,
} from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import { all, chain, ignoreFailure, type MaybePromise, orElse } from "../ground/maybe-promise.ts";
import { type Deadline, within } from "../ground/within.ts";
import type { CheckCall, GatewayRequest } from "../request.ts";
import {
  type CountedRule,
  isRefusal,
  NO_RULE,
  type Outcome,
  type Verdict,
  verdictOf,
  verdictOfOne,
  withWait,
} from "../verdict.ts";
import type { Answered, Charge, PaceLimit, SlotLimit, Stages } from "./limit.ts";
import { lookAtSlots, SlotClaim } from "./slot-claim.ts";

export class Pipeline {
  readonly #waiting = new Set<Reservation>();
  readonly #deadline: Deadline | undefined;
  #isClosed = false;

  /** @param deadline how long limiters may take to decide. Absent: they have deadlines of their own */
  constructor(deadline?: Deadline) {
    this.#deadline = deadline;
  }

  check<R extends CountedRule>(
    { slots, permits, paces }: Stages<R>,
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    const verdict =
      slots.length === 0 ? this.#decide(permits, call) : this.#enter(slots, permits, call);
    if (paces.length === 0) return verdict;
    return chain(verdict, (known) => withPaces<R>(paces, known, call));
  }

  /** Returns what `check` would return now, without charging any limit. */
  peek<R extends CountedRule>(
    { slots, permits }: Stages<R>,
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    const decide = (before: readonly Outcome<R>[]) =>
      chain(
        all(permits, (limit) => limit.charge(call)),
        (charges) =>
          chain(all(present(charges), lookAt), (found) =>
            verdictOf([...before, ...found], 0, present(charges)),
          ),
      );
    return chain(lookAtSlots(slots, call), (looked) => {
      const outcomes = present(looked);
      return outcomes.some(isRefusal) ? verdictOf(outcomes) : decide(outcomes);
    });
  }

  /** Takes the permits of one charge, or refuses it. */
  take<R extends CountedRule>(charge: Charge<R>, call: CheckCall): MaybePromise<Verdict<R>> {
    return charge.isPlain ? this.#decideOne(charge) : this.#decideAll([charge], call);
  }

  /** Asks a single limit: requests for one key that arrive together share one look at its state on Redis. */
  #decideOne<R extends CountedRule>(charge: Charge<R>): MaybePromise<Verdict<R>> {
    const limiter = charge.limiter as Limiter;
    const decision = limiter.decide(charge.cost);
    return decision instanceof Promise
      ? this.#inTime(decision).then((later) => verdictOfOne(charge, charge.read?.(later) ?? later))
      : verdictOfOne(charge, charge.read?.(decision) ?? decision);
  }

  /** The permits of a late decision are used: by default a request passes where its limit fails. */
  #inTime<T>(answer: Promise<T>): Promise<T> {
    return this.#deadline === undefined ? answer : within(answer, this.#deadline);
  }

  /** Rejects all waiting requests, and later ones that would have to wait. */
  rejectWaiting(): void {
    this.#isClosed = true;
    for (const reservation of this.#waiting) void ignoreFailure(() => reservation.cancel());
  }

  #enter<R extends CountedRule>(
    slots: readonly SlotLimit<R>[],
    permits: Stages<R>["permits"],
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    const claim = new SlotClaim<R>(call);
    return orElse(
      () => chain(claim.take(slots), () => this.#behind(claim, permits, call)),
      (error) => {
        claim.leave();
        throw error;
      },
    );
  }

  /** Decides a request that has taken its slots, or was refused one. */
  #behind<R extends CountedRule>(
    claim: SlotClaim<R>,
    permits: Stages<R>["permits"],
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    if (claim.isRefused || permits.length === 0) return verdictOf(claim.outcomes);
    return chain(this.#decide(permits, call), (verdict) => {
      if (!verdict.allowed) claim.leave();
      return { ...verdict, outcomes: [...claim.outcomes, ...verdict.outcomes] };
    });
  }

  #decide<R extends CountedRule>(
    permits: Stages<R>["permits"],
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    const [first] = permits;
    if (first === undefined) return NO_RULE;
    if (permits.length === 1) {
      const charge = first.charge(call);
      return charge instanceof Promise
        ? charge.then((later) => this.#takeIf(later, call))
        : this.#takeIf(charge, call);
    }
    return chain(
      all(permits, (limit) => limit.charge(call)),
      (charges) => this.#decideAll(present(charges), call),
    );
  }

  #takeIf<R extends CountedRule>(
    charge: Charge<R> | undefined,
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    return charge === undefined ? NO_RULE : this.take(charge, call);
  }

  #decideAll<R extends CountedRule>(
    charges: readonly Charge<R>[],
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    if (!charges.some((charge) => charge.closed)) return this.#take(charges, [], call);
    return chain(
      all(charges, (charge) => charge.closed?.()),
      (closed) => {
        const before: Outcome<R>[] = [];
        const open: Charge<R>[] = [];
        charges.forEach((charge, i) => {
          const decision = closed[i];
          if (decision === undefined) open.push(charge);
          else
            before.push({ rule: charge.limit.rule, actor: charge.actor, allowed: false, decision });
        });
        return before.some(isRefusal) ? verdictOf(before) : this.#take(open, before, call);
      },
    );
  }

  /** @param before outcomes of shadow rules that would have refused the request in any case */
  #take<R extends CountedRule>(
    charges: readonly Charge<R>[],
    before: readonly Outcome<R>[],
    call: CheckCall,
  ): MaybePromise<Verdict<R>> {
    if (charges.length === 0) return verdictOf(before);
    const taken = takeFromAll(charges.map(requestOf));
    return chain(taken instanceof Promise ? this.#inTime(taken) : taken, (result) =>
      chain(this.#released(result, call.request), (waitedMs) => {
        const found = charges.map((charge, i) => outcomeOf(charge, result.results[i]));
        return chain(after(charges, found, result, call), (outcomes) => {
          const known = present(outcomes);
          const all = before.length === 0 ? known : [...before, ...known];
          return verdictOf(all, waitedMs, charges);
        });
      }),
    );
  }

  /** Returns how long the request has waited, ms, when all queues have released it. */
  #released(taken: TakenFromAll, request: GatewayRequest): MaybePromise<number> {
    const reservations: Reservation[] = [];
    for (const result of taken.results) {
      const reservation = result?.reservation;
      if (reservation !== undefined && reservation.waitMs > 0) reservations.push(reservation);
    }
    if (reservations.length === 0) return 0;
    // read only here, because servers create the signal on first access
    return this.#wait(reservations, request.signal).catch(async (error: unknown) => {
      await taken.undo();
      throw error;
    });
  }

  async #wait(
    reservations: readonly Reservation[],
    signal: AbortSignal | undefined,
  ): Promise<number> {
    for (const reservation of reservations) this.#waiting.add(reservation);
    try {
      const waits = reservations.map((reservation) => reservation.ready({ signal }));
      if (this.#isClosed) this.rejectWaiting();
      return Math.max(...(await Promise.all(waits)));
    } finally {
      for (const reservation of reservations) this.#waiting.delete(reservation);
    }
  }
}

function requestOf({ limiter, cost, limit }: Charge): TakeRequest {
  return {
    limiter: limiter as Limiter,
    permits: cost,
    timeoutMs: limit.longestWaitMs,
    optional: limit.rule.mode === "shadow",
  };
}

/** @returns undefined for a shadow rule that could not be asked */
function outcomeOf<R extends CountedRule>(
  charge: Charge<R>,
  result: TakeResult | undefined,
): Outcome<R> | undefined {
  if (result === undefined) return undefined;
  const { allowed } = result;
  const decision = allowed ? result.decision : withWait(result.decision);
  const { actor, limit } = charge;
  return { rule: limit.rule, actor, allowed, decision: charge.read?.(decision) ?? decision };
}

/** Returns a filter by limits that are the same for every request: a limit in one call. */
export function checkerOf(limits: Partial<Stages>): Checker {
  const pipeline = new Pipeline();
  const stages: Stages = { slots: [], permits: [], paces: [], ...limits };
  return { check: (request, report) => pipeline.check<CountedRule>(stages, { request, report }) };
}

/** Tells the limits the result. @returns the outcomes: those of blocked actors are others */
function after<R extends CountedRule>(
  charges: readonly Charge<R>[],
  outcomes: readonly (Outcome<R> | undefined)[],
  taken: TakenFromAll,
  call: CheckCall,
): MaybePromise<readonly (Outcome<R> | undefined)[]> {
  if (!charges.some(({ passed, refused }) => passed ?? refused)) return outcomes;
  const undo = () => taken.undo();
  const { request } = call;
  const isRefused = outcomes.some((outcome) => outcome !== undefined && isRefusal(outcome));
  const settles = !isRefused && request.onAnswered !== undefined;
  const answered: Answered[] = [];
  const settled = all(outcomes, (outcome, i): MaybePromise<Outcome<R> | undefined> => {
    const charge = charges[i];
    if (outcome === undefined || charge === undefined) return outcome;
    if (outcome.allowed) {
      const settle = settles ? charge.passed?.(outcome.decision, undo, call) : undefined;
      if (settle !== undefined) answered.push(settle);
      return outcome;
    }
    return chain(charge.refused?.(outcome.decision), (decision) =>
      decision === undefined ? outcome : { ...outcome, decision },
    );
  });
  if (answered.length > 0) {
    request.onAnswered?.((status) => {
      for (const settle of answered) settle(status);
    });
  }
  return settled;
}

/** Returns the outcome that a charge would have now. */
function lookAt<R extends CountedRule>(charge: Charge<R>): MaybePromise<Outcome<R>> {
  const { actor, limiter, cost, limit } = charge;
  const { rule } = limit;
  return chain(charge.closed?.(), (closed): MaybePromise<Outcome<R>> => {
    if (closed !== undefined) return { rule, actor, allowed: false, decision: closed };
    return chain((limiter as Limiter).peek(cost), (found) => {
      const decision = charge.read?.(found) ?? found;
      const allowed = found.allowed || (limit.longestWaitMs > 0 && found.waitMs < Infinity);
      return { rule, actor, allowed, decision: allowed ? decision : withWait(decision) };
    });
  });
}

function withPaces<R extends CountedRule>(
  limits: readonly PaceLimit[],
  verdict: Verdict<R>,
  call: CheckCall,
): MaybePromise<Verdict<R>> {
  // a response to HEAD has no body
  if (!verdict.allowed || call.request.method === "HEAD") return verdict;
  return chain(
    all(limits, (limit) => limit.pace(call)),
    (paces) => {
      const known = present(paces);
      return known.length === 0 ? verdict : { ...verdict, paces: known };
    },
  );
}

function present<T>(list: readonly (T | undefined)[]): readonly T[] {
  return list.every((each) => each !== undefined)
    ? (list as readonly T[])
    : list.filter((each) => each !== undefined);
}
