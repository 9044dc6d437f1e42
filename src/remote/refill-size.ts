import type { PolicyState } from "../stores/state/one.ts";

/** Most chunks in a refill: a script blocks the other clients of the store while it runs. */
const MOST_CHUNKS = 1024;

/** With "auto": how long a refill should lie unused, µs: less than the first, it grows; more than the second, it shrinks. */
const USED_SOON = 25_000;
const USED_LATE = 100_000;
const GROWTH = 4;
/** With "auto": the most is what the policies let through in this time, ms. */
const MOST_AHEAD_MS = 100;
const MOST_PERMITS = 2 ** 20;

export interface RefillOptions {
  readonly permits: number | "auto";
  readonly maxAgeMs: number;
}

/**
 * Decides how many permits are reserved ahead: a fixed number, or "auto". The next refill is fetched when half of one
 * is used. "auto" starts with none. It reserves four times as many if that half was used within 25 ms after it could be
 * used, and half as many if that took more than 100 ms. If permits expire unused, the next refill is half as large as
 * what was used.
 *
 * The most is what the policies let through in 100 ms, at least 1. The store serves all processes first in, first
 * out, so each gets as much as it has reserved there: processes with much to do share the limit equally only because
 * their refills grow to the same size. For the same reason the time does not count for which a refill could not be
 * used yet: a process behind others would never grow.
 */
export class RefillSize {
  readonly #adapts: boolean;
  #permits: number;
  #fetchedAt = -Infinity;
  #policyState: PolicyState | undefined;
  #chunk = 1;
  #most: number;

  constructor(permits: number | "auto") {
    this.#adapts = permits === "auto";
    this.#permits = permits === "auto" ? 0 : permits;
    this.#most = this.#permits;
  }

  /** Returns whether a refill could serve a request for that many permits. */
  fits(permits: number, policyState: PolicyState): boolean {
    this.#read(policyState);
    return permits <= this.#most;
  }

  /**
   * Adapts the size; called at `now`, before each fetch.
   *
   * @param usableAt from when the permits that were drawn last could be used; microseconds, like `now`
   */
  adapt(now: number, usableAt: number): void {
    const unused = now - Math.max(this.#fetchedAt, usableAt);
    this.#fetchedAt = now;
    if (!this.#adapts) return;
    if (unused < USED_SOON) this.#permits = Math.max(1, GROWTH * this.#permits);
    else if (unused > USED_LATE) this.#permits = Math.floor(this.#permits / 2);
    this.#permits = Math.min(this.#most, this.#permits);
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
    this.#read(policyState);
    const permits = Math.min(this.#permits, this.#most, MOST_CHUNKS * this.#chunk);
    const chunk = Math.max(1, Math.min(this.#chunk, Math.floor(permits / 2)));
    return { permits, chunk: Math.min(permits, chunk) };
  }

  #read(policyState: PolicyState): void {
    if (this.#policyState === policyState) return;
    this.#policyState = policyState;
    const perMs = policyState.quotas(0).map(({ limit, windowMs }) => limit / windowMs);
    const pace = Math.min(MOST_PERMITS, ...perMs);
    this.#chunk = chunkOf(policyState, pace);
    if (this.#adapts) this.#most = Math.max(1, MOST_AHEAD_MS * pace);
  }
}

/** @param pace how many permits the policies let through in a millisecond */
function chunkOf(policyState: PolicyState, pace: number): number {
  let chunk = Math.max(1, Math.floor(pace));
  const canPass = () => policyState.earliest(0, policyState.amount(chunk)) < Infinity;
  while (chunk > 1 && !canPass()) chunk = Math.ceil(chunk / 2);
  return chunk;
}
