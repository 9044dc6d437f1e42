/**
 * What a member concludes from the rows of the ledger: the part that it should hold, and how much of what it holds it has
 * to give away. Every member computes both by itself, from the same rows.
 *
 * Regions share the pool by `waterFill`, by their weights and the sums of their members' demands; and the members of each
 * region what it gets, equally. So what one of them leaves is the others' first, and then the other regions'.
 * A member gives away only what others lack and what is not free anyway, and of that only its part: in proportion to what
 * each holds beyond its target. So nothing moves where no region would gain, and members that see the same rows do
 * not give more together than is lacking. What all hold beyond the pool is lacking, too.
 */
import { sizeOf, WHOLE } from "../stores/ledger.ts";
import type { Row } from "../stores/ledger-text.ts";
import { waterFill } from "./water-fill.ts";

export interface Claimant {
  readonly id: string;
  readonly region: string;
  readonly demand: number;
}

/** Changes by less than this factor of the part are not worth a message. */
const NOTICEABLE = 0.01;
/** Unless another member lacks this factor of its own. */
const MUCH = 0.02;

/**
 * @param me this member; its own row may be older, or absent
 * @param weights of the regions
 */
export function divide(
  rows: readonly Row[],
  me: Claimant,
  pool: number,
  weights: ReadonlyMap<string, number>,
): { readonly target: number; readonly excess: number } {
  const others = rows.filter(({ id }) => id !== me.id);
  const targets = targetsOf([me, ...others], pool, weights);
  const target = targets.get(me.id) ?? 0;
  const own = rows.find(({ id }) => id === me.id);
  const held = own?.held ?? 0;
  const mine = Math.max(0, held - target);
  let excesses = mine;
  let lacking = 0;
  let lacksMuch = false;
  let free = pool - (own === undefined ? 0 : sizeOf(own));
  for (const row of others) {
    const size = sizeOf(row);
    const wanted = targets.get(row.id) ?? 0;
    free -= size;
    excesses += Math.max(0, size - wanted);
    const lack = Math.max(0, Math.min(wanted, row.want) - size);
    lacking += lack;
    lacksMuch ||= lack > wanted * MUCH;
  }
  // below 0: more is held than there is, since the ledger had forgotten who held it
  const missing = lacking - free;
  if (missing <= 0 || mine === 0) return { target, excess: 0 };
  const excess = Math.floor(Math.min(mine, (missing * mine) / excesses));
  const isNoticed = free < 0 || lacksMuch || excess > held * NOTICEABLE + 1;
  return { target, excess: isNoticed ? excess : 0 };
}

/** Returns the part that each member should hold, by id. */
function targetsOf(
  all: readonly Claimant[],
  pool: number,
  weights: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  const regions = new Map<string, Claimant[]>();
  for (const each of all) {
    const known = regions.get(each.region);
    if (known === undefined) regions.set(each.region, [each]);
    else known.push(each);
  }
  const weightOf = (region: string) => weights.get(region) ?? 1;
  // relative to the heaviest, and not too small: their sum is a number, and so is a demand divided by one
  const heaviest = [...regions.keys()].reduce((most, each) => Math.max(most, weightOf(each)), 0);
  const vessels = [...regions].map(([region, members]) => ({
    demand: members.reduce((sum, { demand }) => sum + demand, 0),
    weight: Math.max(1 / WHOLE, weightOf(region) / heaviest),
  }));
  const parts = waterFill(pool, vessels);
  const targets = new Map<string, number>();
  for (const [i, members] of [...regions.values()].entries()) {
    const equal = members.map(({ demand }) => ({ demand, weight: 1 }));
    const shares = waterFill(parts[i] ?? 0, equal);
    for (const [j, { id }] of members.entries()) targets.set(id, Math.floor(shares[j] ?? 0));
  }
  return targets;
}

/** Whether another member lacks a part. */
export function isLacked(rows: readonly Row[], id: string): boolean {
  return rows.some((row) => row.id !== id && row.want > sizeOf(row));
}
