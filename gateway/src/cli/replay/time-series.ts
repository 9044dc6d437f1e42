/** Of how many seconds the counts are kept: a request that has waited is counted later than the next one. */
const RECENT_SECONDS = 512;

/** As many points as a screen shows. */
const MOST_POINTS = 720;

/** The parts that add up to all requests of a rule. */
export const PARTS = ["passed", "waited", "refused"] as const;
export type Part = (typeof PARTS)[number];

/** Counts over time. */
export interface Points {
  /** The time that a point covers, ms. */
  readonly stepMs: number;
  /** Where the first point begins, Unix time, ms. */
  readonly startMs: number;
  readonly counts: Readonly<Record<Part, readonly number[]>>;
  /** The most requests in one second of each point: what its mean hides. */
  readonly peaks: readonly number[];
}

/**
 * Counts over time in bounded memory: when there would be too many points, two become one. At first
 * a point covers one second.
 */
export class TimeSeries {
  #stepMs: number;
  #start = Number.NaN;
  readonly #counts: Record<Part, number[]> = { passed: [], waited: [], refused: [] };
  #peaks: number[] = [];
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
    const counts = this.#counts[part];
    while (counts.length <= index) counts.push(0);
    counts[index] = (counts[index] as number) + 1;
    this.#peaks[index] = Math.max(this.#peaks[index] ?? 0, this.#inSecond(Math.floor(atMs / 1000)));
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
    const length = Math.max(...PARTS.map((part) => this.#counts[part].length));
    const full = (part: Part) => Array.from({ length }, (_, i) => this.#counts[part][i] ?? 0);
    const startMs = (Number.isNaN(this.#start) ? 0 : this.#start) * this.#stepMs;
    const counts = { passed: full("passed"), waited: full("waited"), refused: full("refused") };
    const peaks = Array.from({ length }, (_, i) => this.#peaks[i] ?? 0);
    return { stepMs: this.#stepMs, startMs, counts, peaks };
  }

  #halve(): void {
    const start = Math.floor(this.#start / 2);
    for (const part of PARTS) {
      const merged: number[] = [];
      for (const [i, count] of this.#counts[part].entries()) {
        const at = Math.floor((this.#start + i) / 2) - start;
        merged[at] = (merged[at] ?? 0) + count;
      }
      this.#counts[part] = merged;
    }
    const peaks: number[] = [];
    for (const [i, peak = 0] of this.#peaks.entries()) {
      const at = Math.floor((this.#start + i) / 2) - start;
      peaks[at] = Math.max(peaks[at] ?? 0, peak);
    }
    this.#peaks = peaks;
    this.#start = start;
    this.#stepMs *= 2;
  }
}
