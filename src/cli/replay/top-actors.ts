/** How many are followed at one time: of n requests a count is off by n / 1000 at most. */
const FOLLOWED = 1000;

/** One that is followed. */
export interface Followed<T> {
  readonly actor: string;
  /** Never less than it really sent, and never more than `surplus` above that. */
  requests: number;
  /** What was counted under the name of others that were followed before. */
  readonly surplus: number;
  /** Kept for it since it is followed. */
  readonly notes: T;
  place: number;
}

/**
 * Who sent the most, in bounded memory: the space-saving summary of Metwally, Agrawal and El Abbadi
 * (2005). A newcomer takes the place of whoever sent least, and its count with it, so everybody who
 * sent more than n / 1000 of n requests is among those followed.
 */
export class TopActors<T> {
  readonly #note: () => T;
  readonly #most: number;
  readonly #known = new Map<string, Followed<T>>();
  /** A heap: who sent least first. */
  readonly #heap: Followed<T>[] = [];

  /** @param note makes what is kept for each */
  constructor(note: () => T, most = FOLLOWED) {
    this.#note = note;
    this.#most = most;
  }

  count(actor: string): T {
    const known = this.#known.get(actor);
    const one = known ?? this.#follow(actor);
    one.requests += 1;
    this.#sink(one);
    return one.notes;
  }

  /** Those of which it is certain that they sent the most come first. */
  top(count: number): readonly Followed<T>[] {
    const sure = (one: Followed<T>) => one.requests - one.surplus;
    return this.#heap.toSorted((a, b) => sure(b) - sure(a)).slice(0, count);
  }

  /** All that are followed, in no order. */
  get followed(): readonly Followed<T>[] {
    return this.#heap;
  }

  #follow(actor: string): Followed<T> {
    const [least] = this.#heap;
    const isFull = this.#heap.length >= this.#most && least !== undefined;
    const before = isFull ? least.requests : 0;
    const place = isFull ? 0 : this.#heap.length;
    // a piece of a line keeps the whole of what was read with it in memory: not this copy
    const name = Buffer.from(actor).toString();
    const notes = this.#note();
    const one: Followed<T> = { actor: name, requests: before, surplus: before, notes, place };
    if (isFull) this.#known.delete(least.actor);
    this.#known.set(name, one);
    this.#heap[place] = one;
    this.#rise(one);
    return one;
  }

  #rise(one: Followed<T>): void {
    while (one.place > 0) {
      const above = this.#heap[(one.place - 1) >> 1] as Followed<T>;
      if (above.requests <= one.requests) return;
      this.#swap(one, above);
    }
  }

  #sink(one: Followed<T>): void {
    for (;;) {
      const left = this.#heap[2 * one.place + 1];
      const right = this.#heap[2 * one.place + 2];
      const below =
        right !== undefined && left !== undefined && right.requests < left.requests ? right : left;
      if (below === undefined || below.requests >= one.requests) return;
      this.#swap(one, below);
    }
  }

  #swap(one: Followed<T>, other: Followed<T>): void {
    const { place } = one;
    one.place = other.place;
    other.place = place;
    this.#heap[one.place] = one;
    this.#heap[other.place] = other;
  }
}
