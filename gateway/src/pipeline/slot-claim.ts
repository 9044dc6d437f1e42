import { all, chain, ignoreFailure, type MaybePromise } from "../ground/maybe-promise.ts";
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
    return this.#takeFrom(inOrder(limits, this.#call.request), 0);
  }

  #takeFrom(limits: readonly SlotLimit<R>[], from: number): MaybePromise<void> {
    for (let at = from; at < limits.length && !this.isRefused; at++) {
      const taken = this.#takeOne(limits[at] as SlotLimit<R>);
      if (taken instanceof Promise) return taken.then(() => this.#takeFrom(limits, at + 1));
    }
  }

  #takeOne(limit: SlotLimit<R>): MaybePromise<void> {
    const asked = limit.slotFor(this.#call);
    return asked instanceof Promise
      ? asked.then((later) => this.#ask(limit, later))
      : this.#ask(limit, asked);
  }

  #ask(limit: SlotLimit<R>, asked: SlotOptions | undefined): MaybePromise<void> {
    if (asked === undefined) return;
    // a shadow that cannot be asked does not count
    return limit.rule.mode === "enforce"
      ? this.#askOne(limit, asked)
      : ignoreFailure(() => this.#askOne(limit, asked));
  }

  #askOne({ rule, slots }: SlotLimit<R>, asked: SlotOptions): MaybePromise<void> {
    const slot = slots.take(asked);
    return slot instanceof Promise
      ? slot.then((later) => this.#note(rule, asked, later))
      : this.#note(rule, asked, slot);
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
): MaybePromise<readonly (Outcome<R> | undefined)[]> {
  return all(inOrder(limits, call.request), (limit) =>
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
  const applying = isReported ? limits : limits.filter(({ endsByItself }) => endsByItself);
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
