import type { Report } from "../actors/guarded.ts";
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { GatewayRequest } from "../request.ts";
import type { Slot } from "../slots.ts";
import { type CountedRule, isRefusal, type Outcome } from "../verdict.ts";
import type { SlotLimit } from "./limit.ts";

/** A request on its way through the limits for connections. */
export class SlotClaim<R extends CountedRule> {
  readonly outcomes: Outcome<R>[] = [];
  readonly #request: GatewayRequest;
  readonly #report: Report | undefined;
  readonly #slots: Slot[] = [];
  isRefused = false;

  constructor(request: GatewayRequest, report: Report | undefined) {
    this.#request = request;
    this.#report = report;
  }

  /** Takes slots, which are free again when the request is over, whatever ends it. */
  enter(limits: readonly SlotLimit<R>[]): MaybePromise<void> {
    const turn = inTurn(limits, this.#request);
    const next = (at: number): MaybePromise<void> => {
      const limit = turn[at];
      if (limit === undefined || this.isRefused) return;
      return chain(limit.enter(this.#request, this.#report), (entered) => {
        if (entered !== undefined) this.#note(entered.outcome, entered.slot);
        return next(at + 1);
      });
    };
    return next(0);
  }

  #note(outcome: Outcome<R>, slot: Slot | undefined): void {
    this.outcomes.push(outcome);
    if (slot !== undefined) {
      this.#slots.push(slot);
      this.#request.onClose?.(slot.leave);
    } else if (isRefusal(outcome)) {
      this.isRefused = true;
      this.leave();
    }
  }

  /** Frees all slots that the request has taken. Does nothing if they are free already. */
  leave(): void {
    for (const slot of this.#slots.splice(0)) slot.leave();
  }
}

/** Returns the limits that can count the request, in the order in which they are asked. */
export function inTurn<R extends CountedRule>(
  limits: readonly SlotLimit<R>[],
  request: GatewayRequest,
): readonly SlotLimit<R>[] {
  // without a report of the end, and without an age, a slot would never be free again
  const isReported = request.onClose !== undefined;
  const applying = limits.filter(({ endsByItself }) => isReported || endsByItself);
  return applying.length < 2 ? applying : [...applying].sort((a, b) => a.turn - b.turn);
}
