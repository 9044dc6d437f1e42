/**
 * What a server makes of its own limit, by an algorithm that is none of the limiters' here: a
 * counter that is set to 0 when `windowMs` have passed since its first request.
 */
export class WindowCounter {
  limit: number;
  readonly windowMs: number;
  #began = -Infinity;
  #used = 0;
  /** When each request was let in, and when each was refused, ms. */
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

  /** How many it let in within so many ms from the first on. */
  acceptedWithin(ms: number): number {
    const [first = 0] = this.acceptedAt;
    return this.acceptedAt.filter((at) => at < first + ms).length;
  }

  /** `RateLimit` and `RateLimit-Policy`, in whole seconds as the draft wants it. */
  fields(now: number): Record<string, string> {
    return {
      ratelimit: `"window";r=${this.remaining};t=${Math.ceil(this.resetMs(now) / 1000)}`,
      "ratelimit-policy": `"window";q=${this.limit};w=${this.windowMs / 1000}`,
    };
  }
}

/** How many bursts those instants are, where a burst ends with `gapMs` without any. */
export function bursts(instants: readonly number[], gapMs: number): number {
  return instants.filter((at, i) => i === 0 || at - (instants[i - 1] ?? 0) > gapMs).length;
}
