import { chain, ignoreFailure, type MaybePromise } from "../ground/maybe-promise.ts";
import type { CheckCall, GatewayRequest } from "../request.ts";
import type { Slot, SlotOptions } from "../slots.ts";
import { type CountedRule, isRefusal, type Outcome, RETRY_MS, stated } from "../verdict.ts";
import type { SlotLimit } from "./limit.ts";

/** The slots that a request takes. */
export class SlotClaim<R extends CountedRule> {
  readonly outcomes: Outcome<R>[] = [];
  readonly #call: CheckCall;
  readonly #slots: Slot[] = [];
  isRefused = false;

  constructor(call: CheckCall) {
    this.#call = call;
  }

  /** Takes slots one after the other, up to the first refusal. They are free again when the request is over. */
  take(limits: readonly SlotLimit<R>[]): MaybePromise<void> {
    const ordered = inOrder(limits, this.#call.request);
    const next = (at: number): MaybePromise<void> => {
      const limit = ordered[at];
      if (limit === undefined || this.isRefused) return;
      return chain(this.#takeOne(limit), () => next(at + 1));
    };
    return next(0);
  }

  #takeOne(limit: SlotLimit<R>): MaybePromise<void> {
    return chain(limit.slotFor(this.#call), (asked) => {
      if (asked === undefined) return;
      const note = (slot: Slot | undefined) => this.#note(limit.rule, asked, slot);
      if (limit.rule.mode === "enforce") return chain(limit.slots.take(asked), note);
      // a shadow that cannot be asked does not count
      return ignoreFailure(() => chain(limit.slots.take(asked), note));
    });
  }

  #note(rule: R, asked: SlotOptions, slot: Slot | undefined): void {
    const outcome = outcomeOf(rule, asked, slot?.remaining);
    this.outcomes.push(outcome);
    if (slot !== undefined) {
      this.#slots.push(slot);
      this.#call.request.onClose?.(slot.leave);
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

/** Returns the outcomes that a claim would have now. */
export function lookAtSlots<R extends CountedRule>(
  limits: readonly SlotLimit<R>[],
  call: CheckCall,
): readonly MaybePromise<Outcome<R> | undefined>[] {
  return inOrder(limits, call.request).map((limit) =>
    chain(limit.slotFor(call), (asked) => asked && lookAtSlot(limit, asked)),
  );
}

function lookAtSlot<R extends CountedRule>(
  { rule, slots }: SlotLimit<R>,
  asked: SlotOptions,
): MaybePromise<Outcome<R>> {
  const { key, limit } = asked;
  return chain(slots.takenOf(key, limit), (taken) =>
    outcomeOf(rule, asked, taken < limit ? limit - taken : undefined),
  );
}

/** Returns the limits that can count the request, in the order in which they are asked. */
function inOrder<R extends CountedRule>(
  limits: readonly SlotLimit<R>[],
  request: GatewayRequest,
): readonly SlotLimit<R>[] {
  // without a report of the end, and without an age, a slot would never be free again
  const isReported = request.onClose !== undefined;
  const applying = limits.filter(({ endsByItself }) => isReported || endsByItself);
  return applying.length < 2 ? applying : [...applying].sort((a, b) => a.order - b.order);
}

/** @param remaining how many more slots are free; undefined if there was none for the request */
function outcomeOf<R extends CountedRule>(
  rule: R,
  { actor, limit }: SlotOptions,
  remaining: number | undefined,
): Outcome<R> {
  const allowed = remaining !== undefined;
  const waitMs = allowed ? 0 : RETRY_MS;
  const decision = stated(rule.name, allowed, { limit, remaining: remaining ?? 0, waitMs });
  return { rule, actor, allowed, decision };
}
