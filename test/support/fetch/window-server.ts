/**
 * A server's own limit, by an algorithm that is independent of the limiters': a counter that is
 * set to 0 when `windowMs` have passed since its first request.
 */
export class WindowCounter {
  limit: number;
  readonly windowMs: number;
  #began = -Infinity;
  #used = 0;
  /** When each request was granted, and when each was refused, ms. */
  readonly acceptedAt: number[] = [];
  readonly refusedAt: number[] = [];

  constructor(limit: number, windowMs: number) {
    this.limit = limit;
    this.windowMs = windowMs;
  }

  get remaining(): number {
    return Math.max(0, this.limit - this.#used);
  }

  resetMs(now: number): number {
    return Math.max(0, this.#began + this.windowMs - now);
  }

  admit(now: number, cost = 1): boolean {
    if (now >= this.#began + this.windowMs) {
      this.#began = now;
      this.#used = 0;
    }
    if (this.#used + cost > this.limit) {
      this.refusedAt.push(now);
      return false;
    }
    this.#used += cost;
    this.acceptedAt.push(now);
    return true;
  }

  get refused(): number {
    return this.refusedAt.length;
  }

  /** How many it granted within this many ms from the first on. */
  acceptedWithin(ms: number): number {
    const [first = 0] = this.acceptedAt;
    return this.acceptedAt.filter((at) => at < first + ms).length;
  }

  /** `RateLimit` and `RateLimit-Policy`, in whole seconds as the draft requires. */
  fields(now: number): Record<string, string> {
    return {
      ratelimit: `"window";r=${this.remaining};t=${Math.ceil(this.resetMs(now) / 1000)}`,
      "ratelimit-policy": `"window";q=${this.limit};w=${this.windowMs / 1000}`,
    };
  }
}

/** The number of bursts, where a burst ends with `gapMs` without a request. */
export function bursts(instants: readonly number[], gapMs: number): number {
  return instants.filter((at, i) => i === 0 || at - (instants[i - 1] ?? 0) > gapMs).length;
}
