/** What a request for a place has as its outcome. */
import { chain, type Maybe } from "../ground/maybe.ts";
import type { PlaceOptions, Places } from "../places.ts";
import { type CountedRule, type Outcome, RETRY_MS, stated } from "../verdict.ts";
import type { Entered } from "./limit.ts";

/** A place that a request asks for, and the rule by which it is counted. */
export interface CountedPlace<R extends CountedRule> extends PlaceOptions {
  readonly rule: R;
  readonly actor: string;
}

export function enterPlace<R extends CountedRule>(
  places: Places,
  asked: CountedPlace<R>,
): Maybe<Entered<R>> {
  return chain(places.take(asked), (place) => ({
    outcome: outcomeOf(asked, place?.remaining),
    place,
  }));
}

/** Returns the outcome that `enterPlace` would have now. */
export function lookAtPlace<R extends CountedRule>(
  places: Places,
  asked: CountedPlace<R>,
): Maybe<Outcome<R>> {
  const { key, limit } = asked;
  return chain(places.takenOf(key, limit), (taken) =>
    outcomeOf(asked, taken < limit ? limit - taken : undefined),
  );
}

/** @param remaining how many more places are free; undefined if there was none for the request */
function outcomeOf<R extends CountedRule>(
  { rule, actor, limit }: CountedPlace<R>,
  remaining: number | undefined,
): Outcome<R> {
  const allowed = remaining !== undefined;
  const waitMs = allowed ? 0 : RETRY_MS;
  const decision = stated(rule.name, allowed, { limit, remaining: remaining ?? 0, waitMs });
  return { rule, actor, allowed, decision };
}
