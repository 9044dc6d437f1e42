import type { Report } from "../actors/guarded.ts";
import { chain, type Maybe } from "../ground/maybe.ts";
import type { Place } from "../places.ts";
import type { GatewayRequest } from "../request.ts";
import { type CountedRule, isRefusal, type Outcome } from "../verdict.ts";
import type { PlaceLimit } from "./limit.ts";

/** A request on its way through the limits for connections. */
export class Visit<R extends CountedRule> {
  readonly outcomes: Outcome<R>[] = [];
  readonly #request: GatewayRequest;
  readonly #report: Report | undefined;
  readonly #places: Place[] = [];
  isRefused = false;

  constructor(request: GatewayRequest, report: Report | undefined) {
    this.#request = request;
    this.#report = report;
  }

  /** Takes places, which are free again when the request is over, whatever ends it. */
  enter(limits: readonly PlaceLimit<R>[]): Maybe<void> {
    const turn = inTurn(limits, this.#request);
    const next = (at: number): Maybe<void> => {
      const limit = turn[at];
      if (limit === undefined || this.isRefused) return;
      return chain(limit.enter(this.#request, this.#report), (entered) => {
        if (entered !== undefined) this.#note(entered.outcome, entered.place);
        return next(at + 1);
      });
    };
    return next(0);
  }

  #note(outcome: Outcome<R>, place: Place | undefined): void {
    this.outcomes.push(outcome);
    if (place !== undefined) {
      this.#places.push(place);
      this.#request.onClose?.(place.leave);
    } else if (isRefusal(outcome)) {
      this.isRefused = true;
      this.leave();
    }
  }

  /** Frees all places that the request has taken. Does nothing if they are free already. */
  leave(): void {
    for (const place of this.#places.splice(0)) place.leave();
  }
}

/** Returns the limits that can count the request, in the order in which they are asked. */
export function inTurn<R extends CountedRule>(
  limits: readonly PlaceLimit<R>[],
  request: GatewayRequest,
): readonly PlaceLimit<R>[] {
  // without a report of the end, and without an age, a place would never be free again
  const isReported = request.onClose !== undefined;
  const applying = limits.filter(({ endsByItself }) => isReported || endsByItself);
  return applying.length < 2 ? applying : [...applying].sort((a, b) => a.turn - b.turn);
}
