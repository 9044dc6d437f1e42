import { readPolicies } from "../../algorithms/index.ts";
import { openCell } from "../../stores/memory.ts";

/** A script keeps everybody else waiting while it runs: no run has more pieces than this. */
const MOST_PIECES = 1024;

/** A run that adapts lasts about as long as two of these, microseconds; and no more permits than that. */
const FETCHED_TOO_SOON = 25_000;
const FETCHED_TOO_LATE = 100_000;
const MOST_PERMITS = 2 ** 20;

/**
 * How many permits are reserved ahead: a number, or as many as are used. The next run is fetched
 * when half of one is used, so that the time between two fetches is half of what a run lasts.
 * "auto" begins with none, doubles where that was less than 25 ms and halves where it was more than
 * 100 ms. What came back unused was too much: the next run is half as large as what was used.
 */
export class RunSize {
  readonly #adapts: boolean;
  #permits: number;
  #fetchedAt = -Infinity;
  #numbers = "";
  #piece = 1;

  constructor(permits: number | "auto") {
    this.#adapts = permits === "auto";
    this.#permits = permits === "auto" ? 0 : permits;
  }

  /** Whether a run could serve such a request. */
  fits(permits: number): boolean {
    return permits <= (this.#adapts ? MOST_PERMITS : this.#permits);
  }

  /** A run is wanted now, microseconds. */
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
  of(numbers: string): { readonly permits: number; readonly piece: number } {
    if (this.#numbers !== numbers) {
      this.#numbers = numbers;
      this.#piece = pieceOf(numbers);
    }
    const permits = Math.min(this.#permits, MOST_PIECES * this.#piece);
    const piece = Math.max(1, Math.min(this.#piece, Math.floor(permits / 2)));
    return { permits, piece: Math.min(permits, piece) };
  }
}

function pieceOf(numbers: string): number {
  const cells = readPolicies(numbers).map((policy) =>
    openCell({ names: ["default"], list: [policy] }, 0, 0),
  );
  const quotas = cells.flatMap((cell) => cell.quotas(0));
  const perMs = quotas.map(({ limit, windowMs }) => limit / windowMs);
  let piece = Math.max(1, Math.floor(Math.min(MOST_PERMITS, ...perMs)));
  const canPass = () => cells.every((cell) => cell.earliest(0, piece) < Infinity);
  while (piece > 1 && !canPass()) piece = Math.ceil(piece / 2);
  return piece;
}
