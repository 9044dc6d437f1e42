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
}

/**
 * Counts over time in bounded memory: when there would be too many points, two become one. At first
 * a point covers one second.
 */
export class TimeSeries {
  #stepMs: number;
  #start = Number.NaN;
  readonly #counts: Record<Part, number[]> = { passed: [], waited: [], refused: [] };

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
  }

  points(): Points {
    const length = Math.max(...PARTS.map((part) => this.#counts[part].length));
    const full = (part: Part) => Array.from({ length }, (_, i) => this.#counts[part][i] ?? 0);
    const startMs = (Number.isNaN(this.#start) ? 0 : this.#start) * this.#stepMs;
    const counts = { passed: full("passed"), waited: full("waited"), refused: full("refused") };
    return { stepMs: this.#stepMs, startMs, counts };
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
    this.#start = start;
    this.#stepMs *= 2;
  }
}
