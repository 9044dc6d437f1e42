/**
 * Returns the first whole number after `from` for which `holds` is true, by steps that double and a search
 * between the last two. It is true for all greater numbers too, and false at `from`.
 */
export function firstWhole(from: number, holds: (value: number) => boolean): number {
  let early = from;
  let late = Math.floor(from) + 1;
  for (let step = 1; !holds(late); step *= 2) {
    early = late;
    late += step;
  }
  for (;;) {
    const middle = Math.floor((early + late) / 2);
    if (middle <= early || middle >= late) return late;
    if (holds(middle)) late = middle;
    else early = middle;
  }
}
