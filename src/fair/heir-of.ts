import type { Ranks } from "./ranks.ts";
import type { Placed, Turn } from "./turn.ts";

/**
 * Returns the next member of a share, if it can have the place of one that is with the store and has left.
 *
 * @param turn of the one that has left
 * @param others those with the store: within a share none overtakes another
 */
export function heirOf<Member extends Placed<Member>>(
  turn: Turn<Member>,
  line: Ranks<Member>,
  others: Iterable<Member>,
): Member | undefined {
  const next = line.nextOf(turn);
  if (next?.turn?.cost !== turn.cost) return undefined;
  for (const { turn: other } of others) {
    if (other !== turn && other?.rank === turn.rank && other.name === turn.name) return undefined;
  }
  return next;
}
