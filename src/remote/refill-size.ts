import type { PolicyState } from "../stores/policy-state.ts";

/** Most chunks in a refill: a script blocks the other clients of the store while it runs. */
const MOST_CHUNKS = 1024;

/** With "auto": targets for the time between two fetches, µs (half of what a refill lasts); most permits. */
const FETCHED_TOO_SOON = 25_000;
const FETCHED_TOO_LATE = 100_000;
const MOST_PERMITS = 2 ** 20;

export interface RefillOptions {
  readonly permits: number | "auto";
  readonly maxAgeMs: number;
}

/**
 * Decides how many permits are reserved ahead: a fixed number, or "auto". The next refill is fetched
 * when half of one is used, so the time between two fetches is half of what a refill lasts. "auto"
 * starts with none, doubles the number if that time was less than 25 ms, and halves it if it was more
 * than 100 ms. If permits expire unused, the next refill is half as large as what was used.
 */
export class RefillSize {
  readonly #adapts: boolean;
  #permits: number;
  #fetchedAt = -Infinity;
  #policyState: PolicyState | undefined;
  #chunk = 1;

  constructor(permits: number | "auto") {
    this.#adapts = permits === "auto";
    this.#permits = permits === "auto" ? 0 : permits;
  }

  /** Returns whether a refill could serve a request for that many permits. */
  fits(permits: number): boolean {
    return permits <= (this.#adapts ? MOST_PERMITS : this.#permits);
  }

  /** Adapts the size; called at `now`, microseconds, before each fetch. */
  adapt(now: number): void {
    const since = now - this.#fetchedAt;
    this.#fetchedAt = now;
    if (!this.#adapts) return;
    if (since < FETCHED_TOO_SOON) {
      this.#permits = Math.min(MOST_PERMITS, Math.max(1, 2 * this.#permits));
    } else if (since > FETCHED_TOO_LATE) {
      this.#permits = Math.floor(this.#permits / 2);
    }
  }

  /** Reduces the size: that many permits expired unused. */
  shrink(unused: number): void {
    if (this.#adapts) this.#permits = Math.floor(Math.max(0, this.#permits - unused) / 2);
  }

  /**
   * Returns the most permits that may be buffered and under way together, and the size of a chunk, which
   * the store grants for one instant. A chunk is what the policies let through in a millisecond, the
   * resolution of timers; at least 1, at most half of all.
   *
   * @param policyState a new state under the policies in force
   */
  of(policyState: PolicyState): { readonly permits: number; readonly chunk: number } {
    if (this.#policyState !== policyState) {
      this.#policyState = policyState;
      this.#chunk = chunkOf(policyState);
    }
    const permits = Math.min(this.#permits, MOST_CHUNKS * this.#chunk);
    const chunk = Math.max(1, Math.min(this.#chunk, Math.floor(permits / 2)));
    return { permits, chunk: Math.min(permits, chunk) };
  }
}

function chunkOf(policyState: PolicyState): number {
  const perMs = policyState.quotas(0).map(({ limit, windowMs }) => limit / windowMs);
  let chunk = Math.max(1, Math.floor(Math.min(MOST_PERMITS, ...perMs)));
  const canPass = () => policyState.earliest(0, policyState.amount(chunk)) < Infinity;
  while (chunk > 1 && !canPass()) chunk = Math.ceil(chunk / 2);
  return chunk;
}
