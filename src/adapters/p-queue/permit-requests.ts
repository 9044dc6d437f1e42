/**
 * Requests permits from the limiter for the next jobs.
 *
 * A limiter in this process answers at once, so one request is enough: jobs that wait while slots are free
 * are a `RequestSequence`, so a late timer costs them nothing. A limiter on Redis answers after
 * a round trip. So there is one request for each free slot, and as many jobs can start in one round trip
 * as there are slots. The requests are in the order of their jobs. When other jobs with other costs
 * become the next ones, all requests from the first that does not fit are given up and made again.
 */

import type { Limiter, Reservation, ShareOptions } from "../../api/limiter-api.ts";
import {
  RequestSequence,
  reserveAwaited,
  type SequenceLimiter,
} from "../../api/reserve-awaited.ts";
import type { Permits } from "../../ground/permits.ts";
import type { WaitingJobs } from "./waiting-jobs.ts";

/** How many requests may be open at once, however many slots are free. */
const MOST_REQUESTS = 100;

/** Lets the next job start now (a reservation), or makes it fail (a refusal). */
export type Pass = Reservation | Refusal;

/** The error with which the limiter rejected the next job. */
export class Refusal {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}

interface Request {
  readonly permits: Permits;
  /** Undefined until the limiter has replied. */
  reservation?: Reservation;
  /** Set when the permits can be used, or the request has failed. */
  pass?: Pass;
}

export class PermitRequests {
  readonly #limiter: Limiter;
  readonly #share: ShareOptions | undefined;
  readonly #onChange: () => void;
  readonly #requests: Request[] = [];
  /** Jobs that wait while slots are free; a limiter in this process accounts them like waiters. */
  readonly #sequence = new RequestSequence();
  #repliesLater = false;

  /**
   * @param share the share that the requests count for, on a fair limiter
   * @param onChange called when the limiter has replied, and when a pass may be available
   */
  constructor(limiter: Limiter, share: ShareOptions | undefined, onChange: () => void) {
    this.#limiter = limiter;
    this.#share = share;
    this.#onChange = onChange;
  }

  /** Whether the next job waits for permits; false until the limiter has replied. */
  get isWaiting(): boolean {
    const first = this.#requests[0];
    const waitMs = first?.reservation?.waitMs ?? 0;
    return waitMs > 0 && first?.pass === undefined;
  }

  /** Returns the pass for the next job, if any; makes missing requests and gives up unneeded ones. */
  next(jobs: WaitingJobs, slots: number): Pass | undefined {
    const permits = slots > 0 ? jobs.nextPermits : undefined;
    if (permits === undefined) {
      this.#sequence.end();
      this.#giveUpFrom(0);
      return undefined;
    }
    if (this.#requests.length === 0 && !this.#repliesLater) {
      const pass = this.#request(permits);
      if (!this.#repliesLater) return pass;
    }
    const wanted = this.#repliesLater
      ? jobs.firstPermits(Math.min(slots, MOST_REQUESTS))
      : [permits];
    const unfit = this.#requests.findIndex((request, i) => !isSame(request.permits, wanted[i]));
    if (unfit >= 0) this.#giveUpFrom(unfit);
    if (this.#requests[0]?.pass !== undefined) return this.#requests.shift()?.pass;
    for (const more of wanted.slice(this.#requests.length)) {
      const pass = this.#request(more);
      if (pass !== undefined) return pass;
    }
    return undefined;
  }

  /** Makes a request. Returns a pass if it is the first one and is answered at once. */
  #request(permits: Permits): Pass | undefined {
    let answer: Reservation | Promise<Reservation>;
    try {
      answer = reserve(this.#limiter, permits, this.#sequence, this.#share);
      this.#repliesLater = isLater(answer);
    } catch (error) {
      if (this.#requests.length === 0) return new Refusal(error);
      answer = Promise.reject(error);
    }
    if (this.#requests.length === 0 && !isLater(answer) && answer.waitMs === 0) return answer;
    const request: Request = { permits };
    if (!isLater(answer)) request.reservation = answer;
    this.#requests.push(request);
    void this.#follow(request, answer);
    return undefined;
  }

  async #follow(request: Request, answer: Reservation | Promise<Reservation>): Promise<void> {
    const pass = await this.#outcome(request, answer);
    if (!this.#requests.includes(request)) return;
    request.pass = pass;
    this.#onChange();
  }

  async #outcome(request: Request, answer: Reservation | Promise<Reservation>): Promise<Pass> {
    try {
      const reservation = await answer;
      request.reservation = reservation;
      if (this.#requests.includes(request)) {
        this.#onChange();
        await reservation.ready();
      } else {
        giveBack(reservation);
      }
      return reservation;
    } catch (error) {
      return new Refusal(error);
    }
  }

  /** Gives up the requests from that index. If the limiter replies later, `#outcome` returns the permits. */
  #giveUpFrom(index: number): void {
    if (index >= this.#requests.length) return;
    for (const { reservation } of this.#requests.splice(index)) {
      if (reservation !== undefined) giveBack(reservation);
    }
  }
}

function reserve(
  limiter: Limiter | SequenceLimiter,
  permits: Permits,
  sequence: RequestSequence,
  share: ShareOptions | undefined,
): Reservation | Promise<Reservation> {
  if (reserveAwaited in limiter) return limiter[reserveAwaited](permits, sequence, share);
  return limiter.reserve(permits, share);
}

/** Gives the permits back. No code waits for the reply: if the store is away, the permits are lost. */
export function giveBack(pass: Pass): void {
  if (!(pass instanceof Refusal)) undo(pass).catch(() => {});
}

/** Rejects where the limiter throws. */
async function undo(reservation: Reservation): Promise<void> {
  await reservation.undo();
}

function isLater<T extends object>(answer: T | Promise<T>): answer is Promise<T> {
  return "then" in answer;
}

function isSame(a: Permits, b: Permits | undefined): boolean {
  if (b === undefined) return false;
  if (typeof a === "number" || typeof b === "number") return a === b;
  return [...Object.keys(a), ...Object.keys(b)].every((policy) => a[policy] === b[policy]);
}
