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
  /** Lines that came in order, from `#first` on. */
  #held: Held[] = [];
  #first = 0;
  /** The others. */
  readonly #stragglers = new Heap();
  #count = 0;
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
    const line = { entry, at: this.#count };
    this.#count += 1;
    const last = this.#held.at(-1);
    const isInOrder = this.#first === this.#held.length || !isBefore(line, last as Held);
    if (isInOrder) this.#held.push(line);
    else this.#stragglers.push(line);
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
      const atMs = this.#next()?.entry.atMs;
      if (atMs === undefined) break;
      const size = this.#held.length - this.#first + this.#stragglers.size;
      if (atMs >= endMs && size <= this.#most) break;
      const group: LogEntry[] = [];
      while (this.#next()?.entry.atMs === atMs) group.push(this.#take());
      const stepMs = this.#spreads && group[0]?.isCoarse ? 1000 / group.length : 0;
      for (const [i, entry] of group.entries()) yield [atMs + i * stepMs, entry];
      this.#playedMs = Math.max(this.#playedMs, atMs);
      this.#tidy();
    }
  }

  /** Returns the earliest line; of lines with one time the one that came first. */
  #next(): Held | undefined {
    const inOrder = this.#held[this.#first];
    const { first } = this.#stragglers;
    if (inOrder === undefined || first === undefined) return inOrder ?? first;
    return isBefore(inOrder, first) ? inOrder : first;
  }

  #take(): LogEntry {
    const next = this.#next() as Held;
    if (next === this.#held[this.#first]) this.#first += 1;
    else this.#stragglers.pop();
    return next.entry;
  }

  #tidy(): void {
    if (this.#first < 1024 || this.#first * 2 < this.#held.length) return;
    this.#held = this.#held.slice(this.#first);
    this.#first = 0;
  }
}

/** A line, and how many came before it. */
interface Held {
  readonly entry: LogEntry;
  readonly at: number;
}

function isBefore(one: Held, other: Held): boolean {
  const { atMs } = one.entry;
  return atMs < other.entry.atMs || (atMs === other.entry.atMs && one.at < other.at);
}

/** A binary heap with the earliest line on top: a shuffled log is sorted in n log n steps. */
class Heap {
  readonly #lines: Held[] = [];

  get size(): number {
    return this.#lines.length;
  }

  get first(): Held | undefined {
    return this.#lines[0];
  }

  push(line: Held): void {
    const lines = this.#lines;
    let at = lines.push(line) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!isBefore(line, lines[above] as Held)) break;
      lines[at] = lines[above] as Held;
      at = above;
    }
    lines[at] = line;
  }

  /** Removes the earliest line. */
  pop(): void {
    const lines = this.#lines;
    const line = lines.pop();
    if (line === undefined || lines.length === 0) return;
    let at = 0;
    for (let below = 1; below < lines.length; below = 2 * at + 1) {
      const right = below + 1;
      if (right < lines.length && isBefore(lines[right] as Held, lines[below] as Held))
        below = right;
      if (!isBefore(lines[below] as Held, line)) break;
      lines[at] = lines[below] as Held;
      at = below;
    }
    lines[at] = line;
  }
}
