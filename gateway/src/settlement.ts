/** What happens to a request's permits once it is refused, or answered. */
import { type Clock, type Decision, systemClock } from "smooth-limiter";
import type { Report } from "./actors/guarded.ts";
import type { OpenCharge } from "./charge.ts";
import { all, chain, type Maybe, settled } from "./ground/maybe.ts";
import type { GatewayRequest } from "./request.ts";
import type { RequestRule } from "./rules/rule.ts";
import { type Outcome, retryOf, type Verdict } from "./verdict.ts";

/** Blocks the actors that a rule has refused, from now on. */
export function block(
  asks: readonly OpenCharge[],
  verdict: Verdict<RequestRule>,
): Maybe<Verdict<RequestRule>> {
  const refused = new Map(
    verdict.outcomes.filter(({ allowed }) => !allowed).map((each) => [each.rule, each.decision]),
  );
  const blocked = asks.filter((ask) => {
    const decision = refused.get(ask.active.rule);
    return decision !== undefined && isUsedUp(ask, decision);
  });
  if (blocked.length === 0) return verdict;
  const blocks = blocked.map(({ active, actor, isKnown, limiter }) => {
    const limit = active.limits.blockOf(actor, isKnown);
    // after the block the actor starts with a full limit; after a failure the limit itself still refuses it
    return chain(
      settled(() => limit?.tryAcquire()),
      (began) => (began === undefined ? undefined : settled(() => limiter.reset())),
    );
  });
  const rules = new Set(blocked.map(({ active }) => active.rule));
  return chain(all(blocks), () => {
    const outcomes = verdict.outcomes.map((outcome) =>
      rules.has(outcome.rule) ? blockedFor(outcome) : outcome,
    );
    return { ...verdict, retryMs: retryOf(outcomes, asks), outcomes };
  });
}

/** Gives permits back, or takes more, when the request has been answered. */
export function settleLater(
  asks: readonly OpenCharge[],
  { outcomes }: Verdict<RequestRule>,
  request: GatewayRequest,
  report: Report | undefined,
  clock: Clock = systemClock,
): void {
  const settling = asks.filter(({ active }) => active.settles);
  if (settling.length === 0 || request.onAnswered === undefined) return;
  const open = settling.flatMap((ask) => {
    const outcome = outcomes.find(({ rule }) => rule === ask.active.rule);
    return outcome?.allowed ? [{ ask, resetMs: outcome.decision.resetMs }] : [];
  });
  const takenMs = clock.now();
  for (const { ask } of open) begin(ask);
  request.onAnswered((status) => {
    for (const { ask, resetMs } of open) {
      end(ask);
      // what was taken has left the limit by itself; a period of a calendar has a key of its own
      const isGone = ask.calendar === undefined && clock.now() - takenMs >= resetMs;
      void settled(() => settle(ask, isGone, status, request, report));
    }
  });
}

function blockedFor(outcome: Outcome<RequestRule>): Outcome<RequestRule> {
  const waitMs = outcome.rule.blockMs ?? 0;
  const { decision } = outcome;
  return { ...outcome, decision: { ...decision, remaining: 0, waitMs, resetMs: waitMs } };
}

/**
 * Whether an actor has used up the limit for good. Permits of requests that are being answered may
 * yet be given back.
 */
function isUsedUp({ active, actor, isKnown, cost }: OpenCharge, { remaining }: Decision): boolean {
  if (active.rule.blockMs === undefined) return false;
  const key = active.limits.keyOf(actor, isKnown);
  return remaining + active.limits.inFlight.permitsOf(key) < cost;
}

/** Notes that a request may give its permits back. */
function begin({ active, actor, isKnown, cost }: OpenCharge): void {
  const { rule, limits } = active;
  if (rule.blockMs !== undefined) limits.inFlight.begin(limits.keyOf(actor, isKnown), cost);
}

/** Notes that it no longer can. */
function end({ active, actor, isKnown, cost }: OpenCharge): void {
  const { rule, limits } = active;
  if (rule.blockMs !== undefined) limits.inFlight.end(limits.keyOf(actor, isKnown), cost);
}

/** The lowest status of a failure. */
const FAILURE = 400;

function settle(
  { active, cost, limiter }: OpenCharge,
  isGone: boolean,
  status: number | undefined,
  request: GatewayRequest,
  report?: Report,
): Maybe<unknown> {
  const { rule, costBy } = active;
  // without a status the request stays counted: a client must not gain by disconnecting
  const isOther =
    status !== undefined &&
    rule.count !== "all" &&
    (rule.count === "failures") === status < FAILURE;
  const actual = isOther ? 0 : costBy?.settle?.(request, report, status);
  return chain(actual, (permits = cost) => {
    if (permits > cost) return limiter.charge(permits - cost);
    return permits < cost && !isGone ? limiter.refund(cost - permits) : undefined;
  });
}
