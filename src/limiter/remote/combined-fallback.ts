/** How the fallbacks of several limiters answer together while the store is away. */
import type { Amount, Permits } from "../../ground/permits.ts";
import { type Look, lookAtOnce, lookWithin, type Takeable, takeAtOnce } from "../member.ts";
import type { Here } from "./permit-request.ts";
import type { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";

/** The request to one of the limiters. */
export interface MemberRequest {
  readonly queue: RemoteQueue;
  readonly permits: Permits;
  readonly amount: Amount;
  readonly longestMs: number;
  readonly isOptional: boolean;
}

/** Checks all fallbacks, then takes from all. */
export function answerHere(
  verb: "peek" | "take",
  asked: readonly MemberRequest[],
  heres: readonly Here[],
): readonly Look[] {
  const parts = asked.map((one, i) => ({
    ...one,
    member: new FallbackMember(heres[i] as Here, one),
  }));
  if (verb === "peek") return lookAtOnce(parts);
  const looks = takeAtOnce(parts);
  asked.forEach(({ queue, amount }, i) => {
    const taken = looks[i]?.taken;
    if (taken !== undefined && taken.reservation === undefined)
      queue.parts.meter.granted(amount, 0);
  });
  return looks;
}

class FallbackMember implements Takeable {
  readonly #here: Here;
  readonly #asked: MemberRequest;

  constructor(here: Here, asked: MemberRequest) {
    this.#here = here;
    this.#asked = asked;
  }

  look(_permits: Permits, longestMs: number): Look {
    return lookWithin(this.#here.decide("peek", this.#asked.amount), longestMs);
  }

  take(permits: Permits, longestMs: number): Look {
    const here = this.#here;
    const { queue, amount } = this.#asked;
    if (longestMs === 0) {
      const decision = here.decide("decide", amount);
      if (!decision.allowed) return { decision, passes: false };
      return {
        decision,
        passes: true,
        taken: { undo: () => here.change("refund", amount, false) },
      };
    }
    const before = this.look(permits, longestMs);
    if (!before.passes) return before;
    const reservation = reservationOf(queue, permits, amount);
    reservation.runHere(here);
    const { waitMs } = reservation;
    const decision = { ...here.decide("peek", amount), allowed: true, waitMs };
    return { decision, passes: true, taken: { undo: () => reservation.undo(), reservation } };
  }
}

export function reservationOf(
  queue: RemoteQueue,
  permits: Permits,
  amount: Amount,
): RemoteReservation {
  return new RemoteReservation(queue, { permits, amount, longest: Infinity, signal: undefined });
}
