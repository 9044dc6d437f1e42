/**
 * Divides a pool among members by their demand: max-min fair, like water that is poured into vessels.
 *
 * Each member gets its demand, or as much of it as an equal level allows; a vessel of weight 2 is twice as wide. What is
 * left when all demands are met is spread over all members by weight, as headroom for demand that grows.
 *
 * Example: a pool of 90, demands 10, 50, 70, equal weights. The first gets its 10. The level of the others is
 * (90 - 10) / 2 = 40: they get 40 each. With demands 10, 20, 30 all are met, and each gets 10 more.
 *
 * The level is found by meeting the smallest demands first, relative to the weights: what the others would get each
 * only grows by that, so the first demand above the level ends the search (Bertsekas and Gallager, Data Networks, 6.5.2).
 */
export interface Vessel {
  readonly demand: number;
  readonly weight: number;
}

/** Returns the part of each vessel, in their order; together `pool`. */
export function waterFill(pool: number, vessels: readonly Vessel[]): readonly number[] {
  const ascending = [...vessels].sort((a, b) => a.demand / a.weight - b.demand / b.weight);
  // the width of each and all behind it, added up from the end: differences of weights that are far apart would be 0
  const widths = new Array<number>(vessels.length).fill(0);
  let all = 0;
  for (let i = vessels.length - 1; i >= 0; i--) widths[i] = all += ascending[i]?.weight ?? 0;
  let left = pool;
  for (const [i, { demand, weight }] of ascending.entries()) {
    const level = left / (widths[i] as number);
    if (demand > level * weight) {
      return vessels.map((vessel) => Math.min(vessel.demand, level * vessel.weight));
    }
    left -= demand;
  }
  const headroom = left / all;
  return vessels.map(({ demand, weight }) => demand + headroom * weight);
}
