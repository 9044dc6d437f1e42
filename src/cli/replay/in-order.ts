import type { LogEntry } from "./log-entry.ts";

/**
 * Puts the lines of a log into the order of their times.
 *
 * Servers write a line when the request ends, and some of them the time at which it began. So lines
 * are held back until one has come that is `holdMs` newer; what is older still is late: it is played
 * at once, since time does not go back, and counted.
 *
 * Lines that share a whole second are spread evenly over it. As they stand they would all come at
 * one instant, and no limit of a few a second would bear that.
 */
export class InOrder {
  /** How many came too late to be put where they belong. */
  late = 0;
  readonly #holdMs: number;
  readonly #spreads: boolean;
  readonly #most: number;
  /** In order from `#first` on. */
  #held: LogEntry[] = [];
  #first = 0;
  #newestMs = -Infinity;
  #playedMs = -Infinity;

  /** @param most how many are held back: beyond that the oldest goes, come what may */
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

  /** Plays what need not be held back any longer. */
  *due(): Generator<[atMs: number, entry: LogEntry]> {
    yield* this.#until(this.#newestMs - this.#holdMs);
  }

  /** Plays the rest. */
  *rest(): Generator<[atMs: number, entry: LogEntry]> {
    yield* this.#until(Infinity);
  }

  /** Those before `endMs`, in groups of one time. */
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

  /** The first place of which the time is later. */
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
