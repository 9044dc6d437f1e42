/** Counts all requests in progress together, under a limit that is learned from how long they take. */
import { type AdaptiveLimit, type Clock, ConcurrencyLimiter } from "smooth-limiter";
import type { Place, PlaceOptions, Places } from "./places.ts";

export class LearnedPlaces implements Places {
  readonly #limiter: ConcurrencyLimiter;
  readonly #clock: Clock;

  constructor(limit: AdaptiveLimit, clock: Clock) {
    this.#limiter = ConcurrencyLimiter.create(limit, { clock });
    this.#clock = clock;
  }

  /** The limit now. */
  get limit(): number {
    return this.#limiter.limit;
  }

  take({ maxAgeMs }: Pick<PlaceOptions, "maxAgeMs">): Place | undefined {
    const lease = this.#limiter.tryAcquire();
    if (lease === undefined) return undefined;
    const untilMs = this.#clock.now() + maxAgeMs;
    // how long such a request takes is not known: its end was not reported, or is far away
    const timer =
      untilMs < Infinity ? this.#clock.wakeAt(untilMs, () => lease.ignore()) : undefined;
    timer?.unref?.();
    const leave = () => {
      timer?.cancel();
      lease.release();
    };
    return { remaining: Math.max(0, this.limit - this.#limiter.active), leave };
  }

  takenOf(): number {
    return this.#limiter.active;
  }

  async close(): Promise<void> {}
}
