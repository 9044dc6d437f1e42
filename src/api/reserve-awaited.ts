import { VERSION } from "../ground/copies.ts";
import type { Permits } from "../ground/permits.ts";
import type { LocalReservation, Reservation, ShareOptions } from "./limiter-api.ts";

/**
 * The requests of a caller that makes the next one only after the previous one was granted, although it
 * could have made them all at once: a queue of jobs. Each request is accounted as if it had waited in the
 * limiter's queue since the backlog began, right behind the previous one. So a late timer, or a loop that was
 * blocked, costs the backlog no permits.
 */
export class RequestSequence {
  /** When the first request had to wait, the limiter's own µs; `Infinity`: none has. */
  since = Infinity;

  /** Ends the backlog: a later request counts from when it is made. */
  end(): void {
    this.since = Infinity;
  }
}

export const reserveAwaited: unique symbol = Symbol.for(
  `smooth-limiter@${VERSION}/reserve-awaited`,
);

/** A limiter that can account the requests of a backlog. */
export interface SequenceLimiter {
  /**
   * `reserve`, for a caller that waits for the reservation at once: on a fair limiter others may overtake it.
   *
   * @param backlog the backlog of which this is the next request
   */
  [reserveAwaited](
    permits: Permits,
    sequence?: RequestSequence,
    options?: ShareOptions,
  ): LocalReservation | Promise<Reservation>;
}
