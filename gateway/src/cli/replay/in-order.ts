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
  /** How many lines came too late to be sorted. */
  late = 0;
  readonly #holdMs: number;
  readonly #spreads: boolean;
  readonly #most: number;
  /** Sorted, from `#first` on. */
  #held: LogEntry[] = [];
  #first = 0;
  #newestMs = -Infinity;
  #playedMs = -Infinity;

  /** @param most how many lines are held at most; beyond that the oldest is played at once */
  constructor(holdMs: number, spreads: boolean, most = 200_000) {
    this.#holdMs = holdMs;
    this.#spreads = spreads;
    this.#most = most;
  }

  add(entry: LogEntry): void {
    if (entry.atMs < this.#playedMs) this.late += 1;
    this.#newestMs = Math.max(this.#newestMs, entry.atMs);
    const held = this.#held;
    let at = held.length;
    if (at > this.#first && (held[at - 1] as LogEntry).atMs > entry.atMs) {
      at = this.#place(entry.atMs);
      held.splice(at, 0, entry);
    } else held.push(entry);
  }

  /** Yields the lines that need not be held any longer. */
  *due(): Generator<[atMs: number, entry: LogEntry]> {
    yield* this.#until(this.#newestMs - this.#holdMs);
  }

  /** Yields the remaining lines. */
  *rest(): Generator<[atMs: number, entry: LogEntry]> {
    yield* this.#until(Infinity);
  }

  /** Yields the lines before `endMs`, in groups with one time. */
  *#until(endMs: number): Generator<[atMs: number, entry: LogEntry]> {
    for (;;) {
      const held = this.#held;
      const first = held[this.#first];
      if (first === undefined) break;
      if (first.atMs >= endMs && held.length - this.#first <= this.#most) break;
      let end = this.#first + 1;
      while (held[end]?.atMs === first.atMs) end += 1;
      const stepMs = this.#spreads && first.isCoarse ? 1000 / (end - this.#first) : 0;
      for (let i = this.#first; i < end; i++) {
        yield [first.atMs + (i - this.#first) * stepMs, held[i] as LogEntry];
      }
      this.#playedMs = Math.max(this.#playedMs, first.atMs);
      this.#first = end;
      this.#tidy();
    }
  }

  /** Returns the index of the first line with a later time. */
  #place(atMs: number): number {
    let low = this.#first;
    let high = this.#held.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#held[middle] as LogEntry).atMs <= atMs) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #tidy(): void {
    if (this.#first < 1024 || this.#first * 2 < this.#held.length) return;
    this.#held = this.#held.slice(this.#first);
    this.#first = 0;
  }
}
