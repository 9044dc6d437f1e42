/** Formats numbers for people. */

export function number(count: number): string {
  return count.toLocaleString("en");
}

/** With two decimal places below 10, otherwise none. */
export function rounded(count: number): string {
  return count < 10 ? String(Number(count.toFixed(2))) : number(Math.round(count));
}

/** In per cent. */
export function share(count: number, all: number): string {
  return `${all > 0 ? ((100 * count) / all).toFixed(1) : "0.0"} %`;
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
] as const;

export function duration(ms: number): string {
  const [unit, length] = UNITS.find(([, length]) => ms >= length) ?? ["ms", 1];
  return `${Number((ms / length).toFixed(2))} ${unit}`;
}

/** A number and its noun. */
export function some(count: number, what: string): string {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}
