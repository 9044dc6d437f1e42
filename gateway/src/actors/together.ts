/** Actors that count by several values together: `actor: [device, { header: x-user }]`. */
import { all, chain } from "../ground/maybe-promise.ts";
import type { GuardedActor } from "./guarded.ts";

/** Stands between the names of the actors, and between their values. */
export const AND = " & ";

/**
 * Returns an actor whose value is those of all parts. Without a value for one of them it has none.
 *
 * A "&" in a value is doubled, so no value can pass for two.
 */
export function together(parts: readonly GuardedActor[]): GuardedActor {
  return (call) =>
    chain(
      all(parts, (part) => part(call)),
      (values) =>
        values.every((value) => value)
          ? values.map((value = "") => value.replaceAll("&", "&&")).join(AND)
          : undefined,
    );
}
