/** How many actors are certain to be found: of n requests a count is off by n / 1000 at most. */
const SURE = 1000;

/** Notes about a followed actor. They are reset and reused for another actor later. */
interface Notes {
  reset(): void;
}

/** A followed actor. */
export interface Followed<T> {
  readonly actor: string;
  /** Never less than its real number of requests, and at most `surplus` more. */
  requests: number;
  /** The most requests that it may have sent before it was followed. */
  readonly surplus: number;
  /** Notes since then. */
  readonly notes: T;
}

/**
 * Finds the actors with the most requests in bounded memory: the counters of Misra and Gries
 * (1982), halved in number from time to time. Twice as many actors are followed as are guaranteed.
 * When all places are taken, the half with the fewest requests is dropped, and a new actor is
 * assumed to have sent as many as the largest of those. So an actor with more than n / 1000 of n
 * requests is always followed.
 */
export class TopActors<T extends Notes> {
  readonly #note: () => T;
  readonly #sure: number;
  readonly #known = new Map<string, Followed<T>>();
  readonly #spare: T[] = [];
  /** The most requests that an actor may have sent that is not followed. */
  #missed = 0;

  /** @param note creates the notes of an actor */
  constructor(note: () => T, sure = SURE) {
    this.#note = note;
    this.#sure = sure;
  }

  count(actor: string): T {
    const one = this.#known.get(actor) ?? this.#follow(actor);
    one.requests += 1;
    return one.notes;
  }

  /** Sorted by the number of requests that each is certain to have sent. */
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
 * Copies a text. In V8 a slice of a line keeps everything in memory that was read with the line; a
 * new text does not.
 */
function copyOf(text: string): string {
  return ` ${text}`.slice(1);
}
