import type { World } from "./world.ts";

/** A way to share one limit among all processes of a world. */
export interface Way {
  /** For how long a call waits for its answer. */
  readonly callWaits: string;
  /** Calls to the home, and calls to stores in the region of the process. */
  homeCalls: number;
  nearCalls: number;
  /** Grants permits for the step that begins at `nowMs`. Returns how many. */
  step(nowMs: number, wanted: Float64Array): number;
}

export type MakeWay = (world: World) => Way;

/** Permits that come at a rate up to a capacity: a token bucket whose permits are a fluid. */
export class Bucket {
  rate: number;
  capacity: number;
  level: number;

  constructor(rate: number, capacity: number, level = capacity) {
    this.rate = rate;
    this.capacity = capacity;
    this.level = level;
  }

  fill(ms: number): void {
    this.level = Math.min(this.capacity, this.level + this.rate * ms);
  }

  /** Returns how many permits it gives. */
  draw(wanted: number): number {
    const given = Math.max(0, Math.min(this.level, wanted));
    this.level -= given;
    return given;
  }
}
