/**
 * The world of the model: processes in regions, what their callers ask for, and what fails.
 *
 * A day takes minutes here, so demand moves hundreds of times faster than behind real users. In each region it rises and
 * falls with the sun; the sum swings around the limit. The processes of a region have between half and one and a half
 * times their region's mean, drawn anew every 30 s. Beside that there is a flash crowd in one region, then the busiest
 * region that has to travel is cut off from the home, then the home is away for all.
 */

/** The resolution of the model, ms. */
export const STEP_MS = 50;
/** The limit for each process, permits a ms: 100 a second. Each call takes one permit. */
const PERMITS_PER_MS = 0.1;
/** The limit holds the permits of so many ms. */
const BURST_MS = 1000;
/** Demand of all regions, in limits. */
const MEAN_DEMAND = 1;
/** How far the sum of the regions swings around its mean. */
const SWING = 0.25;
const REDRAWN_MS = 30_000;
const FLASH = 8;
/** Before the day begins, for the start. Not measured. */
export const WARMUP_MS = 10_000;

export interface Size {
  readonly processes: number;
  readonly regions: number;
}

/** A part of the day with its own line in the table, ms. */
export interface Scene {
  readonly name: "the sun" | "a flash crowd" | "a region cut off" | "the home away";
  readonly fromMs: number;
  readonly toMs: number;
}

export class World {
  readonly size: Size;
  readonly dayMs: number;
  /** Permits a ms, and the most at once, of the whole limit. */
  readonly rate: number;
  readonly capacity: number;
  readonly scenes: readonly Scene[];
  /** The instants from which a way has to adapt, ms. */
  readonly changes: readonly number[];
  readonly #factors: Float64Array;
  readonly #flashRegion: number;
  readonly #cutRegion: number;
  #redrawnMs = -Infinity;
  readonly #random = randomFrom(1);

  constructor(size: Size, dayMs: number) {
    this.size = size;
    this.dayMs = dayMs;
    this.rate = size.processes * PERMITS_PER_MS;
    this.capacity = this.rate * BURST_MS;
    this.#factors = new Float64Array(size.processes);
    const quarter = dayMs / 4;
    const ofQuarter = (name: Scene["name"], at: number, part: number): Scene => ({
      name,
      fromMs: at * quarter,
      toMs: (at + part) * quarter,
    });
    this.scenes = [
      ofQuarter("the sun", 0, 1),
      ofQuarter("a flash crowd", 1, 1 / 3),
      ...(size.regions > 1 ? [ofQuarter("a region cut off", 2, 1 / 3)] : []),
      ofQuarter("the home away", 3, 1 / 3),
    ];
    this.#flashRegion = Math.floor(size.regions / 2);
    const others = Array.from({ length: size.regions }, (_, region) => region).slice(1);
    this.#cutRegion = others.reduce(
      (most, region) =>
        this.#sun(region, 2 * quarter) > this.#sun(most, 2 * quarter) ? region : most,
      others[0] ?? Number.NaN,
    );
    const redrawn = Array.from({ length: dayMs / REDRAWN_MS }, (_, i) => i * REDRAWN_MS);
    const ofScenes = this.scenes
      .slice(1)
      .flatMap(({ name, fromMs, toMs }) => (name === "a flash crowd" ? [fromMs, toMs] : [toMs]));
    this.changes = [...new Set([...redrawn, ...ofScenes])]
      .filter((ms) => !this.#isFaulty(ms))
      .sort((a, b) => a - b);
  }

  regionOf(process: number): number {
    return process % this.size.regions;
  }

  /** The time from a region to the home and back, ms: a trip around the earth, or one within a region. */
  roundTripMs(region: number): number {
    if (region === 0) return 1;
    return 40 + (200 * (region - 1)) / Math.max(1, this.size.regions - 2);
  }

  /** Whether a process of the region reaches the home. */
  reachesHome(region: number, nowMs: number): boolean {
    return (
      !this.#isIn("the home away", nowMs) &&
      !(region === this.#cutRegion && this.#isIn("a region cut off", nowMs))
    );
  }

  /** Writes how many permits each process' callers ask for in the step from `nowMs` on. */
  ask(nowMs: number, wanted: Float64Array): void {
    if (nowMs >= this.#redrawnMs + REDRAWN_MS) {
      this.#redrawnMs = Math.floor(nowMs / REDRAWN_MS) * REDRAWN_MS;
      for (let i = 0; i < this.#factors.length; i++) this.#factors[i] = 0.5 + this.#random();
    }
    const { processes, regions } = this.size;
    const swing = 1 + SWING * Math.sin((8 * Math.PI * nowMs) / this.dayMs);
    const means = Array.from({ length: regions }, (_, region) => {
      const isFlash = region === this.#flashRegion && this.#isIn("a flash crowd", nowMs);
      return this.#sun(region, nowMs) * swing * (isFlash ? FLASH : 1) * PERMITS_PER_MS * STEP_MS;
    });
    for (let i = 0; i < processes; i++) {
      wanted[i] = this.#arrivals((means[i % regions] ?? 0) * (this.#factors[i] ?? 0));
    }
  }

  /** The demand of a process of a region by the time of day, in its part of the limit. */
  #sun(region: number, nowMs: number): number {
    const height =
      (1 + Math.cos(2 * Math.PI * (nowMs / this.dayMs - region / this.size.regions))) / 2;
    // the mean of height² over a day is 3/8
    return (MEAN_DEMAND * (0.15 + 0.85 * height ** 2)) / (0.15 + 0.85 * (3 / 8));
  }

  /** Callers come at random, as in a Poisson process: by Knuth's method, or nearly so if many come. */
  #arrivals(mean: number): number {
    if (mean > 20) {
      const normal = this.#random() + this.#random() + this.#random() + this.#random() - 2;
      return Math.max(0, Math.round(mean + normal * Math.sqrt(3 * mean)));
    }
    let count = -1;
    for (let left = 1, least = Math.exp(-mean); left > least; left *= this.#random()) count += 1;
    return count;
  }

  #isIn(name: Scene["name"], nowMs: number): boolean {
    return this.scenes.some(
      (scene) => scene.name === name && nowMs >= scene.fromMs && nowMs < scene.toMs,
    );
  }

  #isFaulty(nowMs: number): boolean {
    return this.#isIn("the home away", nowMs) || this.#isIn("a region cut off", nowMs);
  }
}

/** Returns a function that returns the same numbers between 0 and 1 in each run. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}
