/** What a request for a slot has as its outcome. */
import { chain, type MaybePromise } from "../ground/maybe-promise.ts";
import type { SlotOptions, Slots } from "../slots.ts";
import { type CountedRule, type Outcome, RETRY_MS, stated } from "../verdict.ts";
import type { Entered } from "./limit.ts";

/** A slot that a request asks for, and the rule by which it is counted. */
export interface CountedSlot<R extends CountedRule> extends SlotOptions {
  readonly rule: R;
  readonly actor: string;
}

export function enterSlot<R extends CountedRule>(
  slots: Slots,
  asked: CountedSlot<R>,
): MaybePromise<Entered<R>> {
  return chain(slots.take(asked), (slot) => ({
    outcome: outcomeOf(asked, slot?.remaining),
    slot,
  }));
}

/** Returns the outcome that `enterSlot` would have now. */
export function lookAtSlot<R extends CountedRule>(
  slots: Slots,
  asked: CountedSlot<R>,
): MaybePromise<Outcome<R>> {
  const { key, limit } = asked;
  return chain(slots.takenOf(key, limit), (taken) =>
    outcomeOf(asked, taken < limit ? limit - taken : undefined),
  );
}

/** @param remaining how many more slots are free; undefined if there was none for the request */
function outcomeOf<R extends CountedRule>(
  { rule, actor, limit }: CountedSlot<R>,
  remaining: number | undefined,
): Outcome<R> {
  const allowed = remaining !== undefined;
  const waitMs = allowed ? 0 : RETRY_MS;
  const decision = stated(rule.name, allowed, { limit, remaining: remaining ?? 0, waitMs });
  return { rule, actor, allowed, decision };
}
