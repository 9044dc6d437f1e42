export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value below which the share `q` of all values lies. */
export function quantile(values: readonly number[] | Float64Array, q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}
