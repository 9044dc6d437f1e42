/** Each region has a Redis with an equal fraction of the limit, and every call asks that. */
import { Bucket, type MakeWay, type Way } from "./way.ts";
import { STEP_MS, type World } from "./world.ts";

const TRIP_MS = 1;

export const equalFractions: MakeWay = (world) => new EqualFractions(world);

class EqualFractions implements Way {
  readonly callWaits = `${TRIP_MS} ms`;
  readonly homeCalls = 0;
  nearCalls = 0;
  readonly #world: World;
  readonly #buckets: readonly Bucket[];

  constructor(world: World) {
    this.#world = world;
    const { regions } = world.size;
    this.#buckets = Array.from(
      { length: regions },
      () => new Bucket(world.rate / regions, world.capacity / regions),
    );
  }

  step(_nowMs: number, wanted: Float64Array): number {
    let granted = 0;
    for (const bucket of this.#buckets) bucket.fill(STEP_MS);
    for (const [process, permits] of wanted.entries()) {
      granted += this.#buckets[this.#world.regionOf(process)]?.draw(permits) ?? 0;
      this.nearCalls += Math.min(permits, STEP_MS / TRIP_MS);
    }
    return granted;
  }
}
