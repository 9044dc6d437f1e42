/** Returns the values in a random order. */
export function shuffled<T>(values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ value }) => value);
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Returns the value that the share `q` of all values is below. */
export function quantile(values: readonly number[] | Float64Array, q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

/** A median and its 95 % confidence interval. */
export interface Interval {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

/** Uses only the order of the values: the number of values below the true median is binomial, like heads in coin throws. */
export function medianWithin(values: readonly number[]): Interval {
  const half = 0.98 / Math.sqrt(values.length);
  return {
    median: median(values),
    low: quantile(values, Math.max(0, 0.5 - half)),
    high: quantile(values, Math.min(1, 0.5 + half)),
  };
}
