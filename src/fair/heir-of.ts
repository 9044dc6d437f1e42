import type { FairEntry, HasFairEntry } from "./fair-entry.ts";
import type { Ranks } from "./ranks.ts";

/**
 * Returns the next member of a share, if it can have the place of one that is with the store and has left.
 *
 * @param fairEntry of the one that has left
 * @param others those with the store: within a share none overtakes another
 */
export function heirOf<Member extends HasFairEntry<Member>>(
  fairEntry: FairEntry<Member>,
  ranks: Ranks<Member>,
  others: Iterable<Member>,
): Member | undefined {
  const next = ranks.nextOf(fairEntry);
  if (next?.fairEntry?.cost !== fairEntry.cost) return undefined;
  for (const { fairEntry: other } of others) {
    if (other !== fairEntry && other?.rank === fairEntry.rank && other.name === fairEntry.name)
      return undefined;
  }
  return next;
}
