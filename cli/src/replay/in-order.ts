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
  /** In the order in which they came, apart from those that were sorted before. */
  #held: LogEntry[] = [];
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
    this.#held.push(entry);
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
    // stable, and nearly sorted lines take few steps
    const held = this.#held.sort((one, other) => one.atMs - other.atMs);
    let from = 0;
    for (let first = held[0]; first !== undefined; first = held[from]) {
      const { atMs, isCoarse } = first;
      if (atMs >= endMs && held.length - from <= this.#most) break;
      let end = from + 1;
      while (held[end]?.atMs === atMs) end += 1;
      const stepMs = this.#spreads && isCoarse ? 1000 / (end - from) : 0;
      for (let i = from; i < end; i++) yield [atMs + (i - from) * stepMs, held[i] as LogEntry];
      from = end;
      this.#playedMs = Math.max(this.#playedMs, atMs);
    }
    this.#held = held.slice(from);
  }
}
