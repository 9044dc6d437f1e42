/**
 * Fair limiters on a store in a combination. Their callers wait in this process, in an order that the store does
 * not know. So before the store is asked, the combination looks whether its call goes before them: if it does
 * not, nothing is taken. What is taken is charged to the share of the call.
 */
import { chain, type Maybe } from "../ground/maybe.ts";
import type { Look, Part, Steps, Terms } from "./member.ts";

/** Asks the limiters of one group in one step. Only looks at them where other callers go first. */
export function askInOrder(
  verb: keyof Steps,
  steps: Steps,
  parts: readonly Part[],
  terms: Terms,
): Maybe<readonly Look[]> {
  const entries = parts.map(({ member, permits }) => member.enter?.(permits));
  if (entries.every((entry) => entry === undefined)) return steps[verb](parts, terms);
  const areBehind = parts.map(({ longestMs, isOptional }, i) => {
    return longestMs === 0 && !isOptional && entries[i]?.isNext === false;
  });
  const asked = areBehind.includes(true) ? steps.look(parts, terms) : steps[verb](parts, terms);
  return chain(asked, (looks) =>
    looks.map((look, i) => {
      const entry = entries[i];
      if (entry === undefined) return look;
      if (look.taken !== undefined) return { ...look, taken: entry.charged(look.taken) };
      // a request that accepts a wait is booked in the store at once
      if (parts[i]?.longestMs !== 0) return look;
      const decision = entry.seen(look.decision);
      if (!areBehind[i]) return { ...look, decision };
      return { ...look, decision: { ...decision, allowed: false }, passes: false };
    }),
  );
}
