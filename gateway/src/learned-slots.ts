/**
 * Counts all requests in progress together, under a limit that is learned from how long they take.
 *
 * A client that disconnects tells only that its request would have taken longer. That counts if it is longer than the last
 * complete request took: in an overload all clients may give up, and the limit must still learn of it. Otherwise it is
 * ignored: clients that send requests and disconnect at once must not make the server look fast.
 */
import { type AdaptiveLimit, type Clock, ConcurrencyLimiter } from "smooth-limiter";
import { leaving, type Slot, type SlotOptions, type Slots } from "./slots.ts";

export class LearnedSlots implements Slots {
  readonly #limiter: ConcurrencyLimiter;
  readonly #clock: Clock;
  /** How long the last complete request took. */
  #lastMs = 0;

  constructor(limit: AdaptiveLimit, clock: Clock) {
    this.#limiter = ConcurrencyLimiter.create(limit, { clock });
    this.#clock = clock;
  }

  /** The limit now. */
  get limit(): number {
    return this.#limiter.limit;
  }

  take({ maxAgeMs, onAnswered }: Omit<SlotOptions, "key" | "limit">): Slot | undefined {
    const lease = this.#limiter.tryAcquire();
    if (lease === undefined) return undefined;
    const sinceMs = this.#clock.now();
    let isComplete = onAnswered === undefined;
    onAnswered?.((status) => {
      isComplete = status !== undefined;
    });
    const leave = leaving(this.#clock, maxAgeMs, (isTooOld) => {
      const heldMs = this.#clock.now() - sinceMs;
      if (isComplete && !isTooOld) this.#lastMs = heldMs;
      // how long a request takes that is too old is not known: its end was not reported, or is far away
      if (isTooOld || heldMs < this.#lastMs) lease.ignore();
      else lease.release();
    });
    return { remaining: Math.max(0, this.limit - this.#limiter.active), leave };
  }

  takenOf(): number {
    return this.#limiter.active;
  }

  async close(): Promise<void> {}
}
