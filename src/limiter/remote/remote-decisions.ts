/** The requests and answers of `decide` and `peek`. */
import type { Quota } from "../../algorithms/algorithm.ts";
import type { Amount } from "../../ground/permits.ts";
import type { Answer } from "../../stores/store.ts";
import { decision } from "../decision.ts";
import type { Decision } from "../limiter-api.ts";
import type { CallOptions } from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";
import type { RemoteQueue } from "./remote-queue.ts";

/** Prefetched permits decide where possible; quotas always come from the store. */
export function decisionCall(
  verb: "decide" | "peek",
  amount: Amount,
  queue: RemoteQueue,
): CallOptions<Decision> {
  queue.checkOpen();
  const { policyState, inForce } = queue.parts;
  const buffered = queue.prefetcher?.look(amount, verb === "decide");
  const { wait, ready = 0 } = buffered ?? {};
  const asked = wait === undefined ? verb : "peek";
  let taken = buffered?.grant;
  const giveBack = (answer: Answer) => void queue.returnToStore(amount, answer).catch(() => {});
  const giveBackTaken = () => {
    if (taken !== undefined) giveBack(taken);
    taken = undefined;
  };
  return {
    request: (late) => ({ verb: asked, amount, late }),
    takes: asked === "decide" ? amount : 0,
    returnToStore: giveBack,
    result: (answer) => {
      if (answer.quotas.length === 0) throw inForce.excess(amount);
      const quotas = answer.quotas.map((each) => {
        const allowed = wait === undefined ? each.allowed : wait === 0;
        return { ...(ready > 0 ? atLeast(each, ready) : each), allowed };
      });
      const shortest = wait ?? answer.wait;
      const isFull = shortest > 0 && !queue.hasRoom(amount);
      return decision(
        policyState.names,
        quotas,
        amount,
        isFull ? Infinity : shortest,
        answer.slowest,
      );
    },
    here: (here) => {
      giveBackTaken();
      return closedDecision(amount, queue.parts) ?? here.decide(verb, amount);
    },
    failed: giveBackTaken,
  };
}

/** Returns the rejection during an outage if a requested policy had the limit 0 before it. */
function closedDecision(amount: Amount, { policyState, inForce }: Parts): Decision | undefined {
  const closed = inForce.closed(amount);
  if (closed < 0) return undefined;
  const quotas = inForce.policyState.quotas(0).map((quota, i) => {
    const isClosed = inForce.closes(i);
    return { ...quota, allowed: !isClosed, ...(isClosed && { limit: 0, remaining: 0 }) };
  });
  return decision(policyState.names, quotas, amount, Infinity, closed);
}

/** Raises `remaining` to the prefetched permits: they can be used whatever the store has left. */
function atLeast(quota: Quota, remaining: number): Quota {
  return { ...quota, remaining: Math.max(quota.remaining, Math.min(quota.limit, remaining)) };
}
