import { readPolicies } from "../../algorithms/index.ts";
import { openCell } from "../../stores/memory.ts";

/** A script keeps others waiting while it runs: no refill has more chunks than this. */
const MOST_CHUNKS = 1024;

/** A refill that adapts lasts about as long as two of these, microseconds; and no more permits than that. */
const FETCHED_TOO_SOON = 25_000;
const FETCHED_TOO_LATE = 100_000;
const MOST_PERMITS = 2 ** 20;

export interface PrefetchOptions {
  readonly permits: number | "auto";
  readonly maxAgeMs: number;
}

/**
 * How many permits are reserved ahead: a number, or as many as are used. The next refill is fetched
 * when half of one is used, so that the time between two fetches is half of what a refill lasts.
 * "auto" begins with none, doubles where that was less than 25 ms and halves where it was more than
 * 100 ms. What came back unused was too much: the next refill is half as large as what was used.
 */
export class RefillSize {
  readonly #adapts: boolean;
  #permits: number;
  #fetchedAt = -Infinity;
  #numbers = "";
  #chunk = 1;

  constructor(permits: number | "auto") {
    this.#adapts = permits === "auto";
    this.#permits = permits === "auto" ? 0 : permits;
  }

  /** Whether a refill could serve such a request. */
  fits(permits: number): boolean {
    return permits <= (this.#adapts ? MOST_PERMITS : this.#permits);
  }

  /** A refill is wanted now, microseconds. */
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

  /** So many came back unused. */
  shrink(unused: number): void {
    if (this.#adapts) this.#permits = Math.floor(Math.max(0, this.#permits - unused) / 2);
  }

  /**
   * The most that lies here and is on its way; and how many of them are granted for one instant:
   * what the policies let go in a millisecond, for timers are not finer, at least 1, at most half of
   * all.
   *
   * @param numbers the policies in force, as the store tells them
   */
  of(numbers: string): { readonly permits: number; readonly chunk: number } {
    if (this.#numbers !== numbers) {
      this.#numbers = numbers;
      this.#chunk = chunkOf(numbers);
    }
    const permits = Math.min(this.#permits, MOST_CHUNKS * this.#chunk);
    const chunk = Math.max(1, Math.min(this.#chunk, Math.floor(permits / 2)));
    return { permits, chunk: Math.min(permits, chunk) };
  }
}

function chunkOf(numbers: string): number {
  const cells = readPolicies(numbers).map((policy) =>
    openCell({ names: ["default"], list: [policy] }, 0, 0),
  );
  const quotas = cells.flatMap((cell) => cell.quotas(0));
  const perMs = quotas.map(({ limit, windowMs }) => limit / windowMs);
  let chunk = Math.max(1, Math.floor(Math.min(MOST_PERMITS, ...perMs)));
  const canPass = () => cells.every((cell) => cell.earliest(0, chunk) < Infinity);
  while (chunk > 1 && !canPass()) chunk = Math.ceil(chunk / 2);
  return chunk;
}
