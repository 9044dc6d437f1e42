import { Heap } from "./heap.ts";
import type { LogEntry } from "./log-entry.ts";

/**
 * Sorts the lines of a log by time.
 *
 * Servers write a line when the request ends, and some of them write the time at which it began. So
 * each line is held until a line has come that is `holdMs` newer. A line that is even older is
 * late: it is played at once, because time does not go back, and counted.
 *
 * Lines that share a whole second are spread evenly over it. Otherwise they would all come at one
 * instant, and any limit of a few per second would refuse most of them.
 */
export class InOrder {
  /** How many lines were further out of order than `holdMs`. */
  late = 0;
  readonly #holdMs: number;
  readonly #spreads: boolean;
  readonly #most: number;
  /** The lines held, by their time; those of one time in the order in which they came. */
  readonly #held = new Map<number, LogEntry[]>();
  readonly #times = new Heap<number>((one, other) => one < other);
  #size = 0;
  #newestMs = -Infinity;
  #playedMs = -Infinity;

  /** @param most how many lines are held at most; beyond that the oldest are played at once */
  constructor(holdMs: number, spreads: boolean, most = 200_000) {
    this.#holdMs = holdMs;
    this.#spreads = spreads;
    this.#most = most;
  }

  add(entry: LogEntry): void {
    const { atMs } = entry;
    if (atMs < this.#playedMs) this.late += 1;
    this.#newestMs = Math.max(this.#newestMs, atMs);
    this.#size += 1;
    const group = this.#held.get(atMs);
    if (group !== undefined) {
      group.push(entry);
      return;
    }
    this.#held.set(atMs, [entry]);
    this.#times.push(atMs);
  }

  /** Yields the lines that need not be held any longer. */
  due(): Generator<[atMs: number, entry: LogEntry]> {
    return this.#until(this.#newestMs - this.#holdMs);
  }

  /** Yields the remaining lines. */
  rest(): Generator<[atMs: number, entry: LogEntry]> {
    return this.#until(Infinity);
  }

  /** Yields the lines before `endMs`, in groups with one time. */
  *#until(endMs: number): Generator<[atMs: number, entry: LogEntry]> {
    for (;;) {
      const atMs = this.#times.first;
      if (atMs === undefined || (atMs >= endMs && this.#size <= this.#most)) return;
      const group = this.#held.get(atMs) ?? [];
      this.#times.pop();
      this.#held.delete(atMs);
      this.#size -= group.length;
      const stepMs = this.#spreads && group[0]?.isCoarse ? 1000 / group.length : 0;
      for (const [i, entry] of group.entries()) yield [atMs + i * stepMs, entry];
      this.#playedMs = Math.max(this.#playedMs, atMs);
    }
  }
}
