/** The general form of a combination: each limiter has its own permits and wait, and may be optional. */

import type { Decision, Limiter, LocalLimiter, Reservation } from "../api/limiter-api.ts";
import { participantOf, type Subrequest } from "../api/participant.ts";
import {
  atLeastZeroOrInfinity,
  checkBoolean,
  checkNumber,
  checkOptions,
  failCheck,
} from "../ground/check.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { Permits } from "../ground/permits.ts";
import { reportRefusal, takeTogether, undoAll } from "./all-or-none.ts";

/** The request to one of the limiters of `takeFromAll`. */
export interface TakeRequest<L extends Limiter = Limiter> {
  /** The limiter to take from. */
  readonly limiter: L;
  /** Default 1. */
  readonly permits?: Permits | undefined;
  /**
   * The longest wait that the request accepts, ms, 0 or more, Infinity included. Default 0: the
   * permits must be usable now. With more, the result has a `reservation` to wait for.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether the other limiters decide without this one if it refuses or its store is unavailable. If it
   * lets the request pass, it is charged like the others. Default `false`.
   */
  readonly optional?: boolean | undefined;
}

/** The result of one of the limiters of `takeFromAll`. */
export interface TakeResult {
  /** Whether this limiter lets the request pass within `timeoutMs`. */
  readonly allowed: boolean;
  /** Its state: after the charge if permits were taken, without it otherwise. */
  readonly decision: Decision;
  /** If the request accepts a wait and permits were taken: they can be used after `waitMs`. */
  readonly reservation: Reservation | undefined;
}

/** The result of `takeFromAll`. */
export interface TakenFromAll {
  /** Whether all limiters that are not optional let the request pass; if not, nothing was taken. */
  readonly allowed: boolean;
  /**
   * In the order of the requests; undefined for a limiter with an unavailable store, if it
   * is optional or a limiter in this process has refused.
   */
  readonly results: readonly (TakeResult | undefined)[];
  /** Gives back all that was taken, as if it had not been taken. A failure costs permits only. */
  undo(): void | Promise<void>;
}

const OPTIONS: readonly (keyof TakeRequest)[] = ["limiter", "permits", "timeoutMs", "optional"];

/**
 * Takes from several limiters or from none. Use it if they need different permits or waits, or if some
 * must not refuse; otherwise use `allOf`.
 *
 * @param requests one or more: see `TakeRequest`
 * @returns what was taken: at once if all limiters are in this process, otherwise as a promise
 * @throws (or rejects) TypeError or RangeError that names a bad argument, PermitsExceedCapacityError,
 *   or StoreUnavailableError
 * @example
 * const { allowed, results } = await takeFromAll([
 *   { limiter: requests.for(user) },
 *   { limiter: bytes.for(user), permits: body.length },
 *   { limiter: stricter.for(user), optional: true }, // counts and reports, but refuses no request
 * ]);
 */
export function takeFromAll(requests: readonly TakeRequest<LocalLimiter>[]): TakenFromAll;
export function takeFromAll(requests: readonly TakeRequest[]): TakenFromAll | Promise<TakenFromAll>;
export function takeFromAll(requests: readonly TakeRequest[]): MaybePromise<TakenFromAll> {
  if (!Array.isArray(requests) || requests.length === 0) {
    failCheck("requests", "an array with a request", requests);
  }
  const subrequests = requests.map(partOf);
  return chain(takeTogether(subrequests), (together) => {
    const { passes, checks } = together;
    if (!passes) reportRefusal(subrequests, together);
    return {
      allowed: passes,
      results: checks.map(
        (check) =>
          check && {
            allowed: check.passes,
            decision: check.decision,
            reservation: check.taken?.reservation,
          },
      ),
      undo: () => chain(undoAll(checks), () => {}),
    };
  });
}

/** The names of the members of a request in errors. */
function namesOf(i: number) {
  const name = `requests[${i}]`;
  return {
    name,
    limiter: `${name}.limiter`,
    timeoutMs: `${name}.timeoutMs`,
    optional: `${name}.optional`,
  };
}

/** Those of the first requests. Servers call this for each of their requests, and texts for errors are rarely needed. */
const NAMES = /* @__PURE__ */ Array.from({ length: 8 }, (_, i) => namesOf(i));

function partOf(request: TakeRequest, i: number): Subrequest {
  const names = NAMES[i] ?? namesOf(i);
  checkOptions(names.name, request, OPTIONS);
  const { limiter, permits = 1, timeoutMs = 0, optional = false } = request;
  if (typeof (Object(limiter) as Partial<Limiter>).reserve !== "function") {
    failCheck(names.limiter, "a rate limiter", limiter);
  }
  checkNumber(names.timeoutMs, timeoutMs, atLeastZeroOrInfinity);
  checkBoolean(names.optional, optional);
  return {
    participant: participantOf(limiter),
    permits,
    longestMs: timeoutMs,
    isOptional: optional,
  };
}
