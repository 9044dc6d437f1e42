import type { Part, Points } from "../report/report.ts";

/** Of how many seconds the counts are kept: a request that has waited is counted later than the next one. */
const RECENT_SECONDS = 512;

/** As many points as a screen shows. */
const MOST_POINTS = 720;

/**
 * Counts over time in bounded memory: when there would be too many points, two become one. At first
 * a point covers one second.
 */
export class TimeSeries {
  #stepMs: number;
  #start = Number.NaN;
  /** By the part; "peak" is the most of one second. */
  readonly #series: Record<Part | "peak", number[]> = {
    passed: [],
    waited: [],
    refused: [],
    peak: [],
  };
  /** The counts of the last seconds with requests. */
  readonly #seconds = new Map<number, number>();

  constructor(stepMs = 1000) {
    this.#stepMs = stepMs;
  }

  add(part: Part, atMs: number): void {
    let at = Math.floor(atMs / this.#stepMs);
    if (Number.isNaN(this.#start)) this.#start = at;
    while (at - this.#start >= MOST_POINTS) {
      this.#halve();
      at = Math.floor(atMs / this.#stepMs);
    }
    const index = Math.max(0, at - this.#start);
    const { [part]: counts, peak } = this.#series;
    while (counts.length <= index) counts.push(0);
    counts[index] = (counts[index] as number) + 1;
    peak[index] = Math.max(peak[index] ?? 0, this.#inSecond(Math.floor(atMs / 1000)));
  }

  /** @returns how many requests there were in a second, this one included */
  #inSecond(second: number): number {
    const count = (this.#seconds.get(second) ?? 0) + 1;
    this.#seconds.set(second, count);
    if (this.#seconds.size > RECENT_SECONDS) {
      for (const oldest of this.#seconds.keys()) {
        this.#seconds.delete(oldest);
        break;
      }
    }
    return count;
  }

  points(): Points {
    const { passed, waited, refused, peak } = this.#series;
    const full = (series: readonly number[]) => Array.from(peak, (_, i) => series[i] ?? 0);
    const startMs = (Number.isNaN(this.#start) ? 0 : this.#start) * this.#stepMs;
    const counts = { passed: full(passed), waited: full(waited), refused: full(refused) };
    return { stepMs: this.#stepMs, startMs, counts, peaks: full(peak) };
  }

  #halve(): void {
    const start = Math.floor(this.#start / 2);
    for (const [name, series] of Object.entries(this.#series)) {
      const join = name === "peak" ? Math.max : (one: number, other: number) => one + other;
      const merged: number[] = [];
      for (const [i, count = 0] of series.entries()) {
        const at = Math.floor((this.#start + i) / 2) - start;
        merged[at] = join(merged[at] ?? 0, count);
      }
      this.#series[name as Part] = merged;
    }
    this.#start = start;
    this.#stepMs *= 2;
  }
}
