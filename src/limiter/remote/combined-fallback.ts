/** How the fallbacks of several limiters answer together while the store is away. */
import type { Amount, Permits } from "../../ground/permits.ts";
import { LocalTaker, type Look, lookAtOnce, takeAtOnce } from "../member.ts";
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
    member: takerHere(heres[i] as Here, one),
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

function takerHere(here: Here, { queue, permits, amount }: MemberRequest): LocalTaker {
  const limiter = {
    peek: () => here.decide("peek", amount),
    refund: () => here.change("refund", amount, false),
    reserve: () => {
      const reservation = reservationOf(queue, permits, amount);
      reservation.runHere(here);
      return reservation;
    },
  };
  return new LocalTaker(limiter, () => here.decide("decide", amount));
}

export function reservationOf(
  queue: RemoteQueue,
  permits: Permits,
  amount: Amount,
): RemoteReservation {
  return new RemoteReservation(queue, { permits, amount, longest: Infinity, signal: undefined });
}
