/** How many are sure to be found: of n requests a count is off by n / 1000 at most. */
const SURE = 1000;

/** What is kept for one that is followed. It goes over to another one later, and begins anew. */
interface Notes {
  reset(): void;
}

/** One that is followed. */
export interface Followed<T> {
  readonly actor: string;
  /** Never less than it really sent, and never more than `surplus` above that. */
  requests: number;
  /** What it may have sent before it was followed, at most. */
  readonly surplus: number;
  /** Kept for it since then. */
  readonly notes: T;
}

/**
 * Who sent the most, in bounded memory: the counters of Misra and Gries (1982), thinned out by half
 * at a time. Twice as many are followed as are sure; when all places are taken, the half that sent
 * least goes, and a newcomer is taken to have sent as many as the largest of those. So whoever
 * really sent more than n / 1000 of n requests is always among those followed.
 */
export class TopActors<T extends Notes> {
  readonly #note: () => T;
  readonly #sure: number;
  readonly #known = new Map<string, Followed<T>>();
  readonly #spare: T[] = [];
  /** The most that one who is not followed can have sent. */
  #missed = 0;

  /** @param note makes what is kept for each */
  constructor(note: () => T, sure = SURE) {
    this.#note = note;
    this.#sure = sure;
  }

  count(actor: string): T {
    const one = this.#known.get(actor) ?? this.#follow(actor);
    one.requests += 1;
    return one.notes;
  }

  /** Those come first that are sure to have sent the most. */
  top(count: number): readonly Followed<T>[] {
    const sure = ({ requests, surplus }: Followed<T>) => requests - surplus;
    return [...this.#known.values()].sort((a, b) => sure(b) - sure(a)).slice(0, count);
  }

  #follow(actor: string): Followed<T> {
    if (this.#known.size >= 2 * this.#sure) this.#thinOut();
    const notes = this.#spare.pop() ?? this.#note();
    const surplus = this.#missed;
    const one = { actor: copyOf(actor), requests: surplus, surplus, notes };
    this.#known.set(one.actor, one);
    return one;
  }

  #thinOut(): void {
    const counts = Float64Array.from(this.#known.values(), ({ requests }) => requests).sort();
    this.#missed = counts[this.#sure - 1] ?? 0;
    for (const { actor, requests, notes } of this.#known.values()) {
      if (requests > this.#missed) continue;
      this.#known.delete(actor);
      notes.reset();
      this.#spare.push(notes);
    }
  }
}

/**
 * A piece of a line keeps all that was read with the line in memory, in V8 at least; a text that is
 * put together does not.
 */
function copyOf(text: string): string {
  return ` ${text}`.slice(1);
}
