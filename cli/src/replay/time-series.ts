import type { Part, Points } from "../report/report.ts";

/** Of how many seconds the counts are kept: a request that has waited is counted later than the next one. */
const RECENT_SECONDS = 512;

/** As many points as a screen shows. */
const MOST_POINTS = 720;

/** The counts of a step, and the most of one second in it. */
type Point = Record<Part | "peak", number>;

/**
 * Counts over time in bounded memory: when there would be too many points, two become one. At first
 * a point covers one second.
 */
export class TimeSeries {
  #stepMs = 1000;
  #start = Number.NaN;
  #points: Point[] = [];
  /** The counts of the last seconds with requests. */
  readonly #seconds = new Map<number, number>();

  add(part: Part, atMs: number): void {
    if (Number.isNaN(this.#start)) this.#start = Math.floor(atMs / this.#stepMs);
    while (this.#indexOf(atMs) >= MOST_POINTS) this.#halve();
    const point = this.#pointAt(Math.max(0, this.#indexOf(atMs)));
    point[part] += 1;
    point.peak = Math.max(point.peak, this.#inSecond(Math.floor(atMs / 1000)));
  }

  points(): Points {
    const of = (part: keyof Point) => this.#points.map((point) => point[part]);
    return {
      stepMs: this.#stepMs,
      startMs: (this.#start || 0) * this.#stepMs,
      counts: { passed: of("passed"), waited: of("waited"), refused: of("refused") },
      peaks: of("peak"),
    };
  }

  #indexOf(atMs: number): number {
    return Math.floor(atMs / this.#stepMs) - this.#start;
  }

  #pointAt(index: number): Point {
    const points = this.#points;
    while (points.length <= index) points.push({ passed: 0, waited: 0, refused: 0, peak: 0 });
    return points[index] as Point;
  }

  /** @returns how many requests there were in a second, this one included */
  #inSecond(second: number): number {
    const count = (this.#seconds.get(second) ?? 0) + 1;
    this.#seconds.set(second, count);
    if (this.#seconds.size > RECENT_SECONDS) {
      const [oldest = second] = this.#seconds.keys();
      this.#seconds.delete(oldest);
    }
    return count;
  }

  #halve(): void {
    const [start, points] = [this.#start, this.#points];
    this.#stepMs *= 2;
    this.#start = Math.floor(start / 2);
    this.#points = [];
    for (const [i, { passed, waited, refused, peak }] of points.entries()) {
      const merged = this.#pointAt(Math.floor((start + i) / 2) - this.#start);
      merged.passed += passed;
      merged.waited += waited;
      merged.refused += refused;
      merged.peak = Math.max(merged.peak, peak);
    }
  }
}
