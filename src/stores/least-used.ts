/**
 * The least used keys that searches have checked: the candidates for eviction. A few are kept, so that a
 * search that finds only heavily used keys can use lighter keys from earlier searches.
 */
const MOST_CANDIDATES = 64;

export interface UsedKey {
  readonly key: string;
  /** See `usage` of `KeyStates`. */
  readonly used: number;
}

export class LeastUsed {
  /** The usage of each key when it was last checked. */
  readonly #used = new Map<string, number>();
  /** The first candidate to be replaced; undefined: must be searched again. */
  #heaviest: UsedKey | undefined;

  /** Adds a candidate. Of candidates with equal usage the one that was added first is kept. */
  offer(key: string, used: number): void {
    if (this.#used.size >= MOST_CANDIDATES && !this.#used.has(key)) {
      this.#heaviest ??= this.#find((one, other) => one >= other);
      if (this.#heaviest === undefined || used >= this.#heaviest.used) return;
      this.#used.delete(this.#heaviest.key);
    }
    this.#used.set(key, used);
    this.#heaviest = undefined;
  }

  /**
   * Adds a new key as a candidate only if all others have used more. Without it the next new key would
   * evict one of the others; if keys with equal usage were added too, keys would be evicted soon after
   * they were created.
   */
  offerLightest(key: string, used: number): void {
    const first = this.#lightest();
    if (first === undefined || used < first.used) this.offer(key, used);
  }

  /**
   * Returns the key with the least usage.
   *
   * @param usedNow returns the current usage of a key; undefined if it must stay or no longer exists
   */
  first(usedNow: (key: string) => number | undefined): UsedKey | undefined {
    for (;;) {
      const first = this.#lightest();
      if (first === undefined) return undefined;
      const used = usedNow(first.key);
      if (used !== undefined && used <= first.used) return first;
      this.delete(first.key);
      if (used !== undefined) this.offer(first.key, used);
    }
  }

  delete(key: string): void {
    this.#used.delete(key);
    this.#heaviest = undefined;
  }

  clear(): void {
    this.#used.clear();
    this.#heaviest = undefined;
  }

  #lightest(): UsedKey | undefined {
    return this.#find((one, other) => one < other);
  }

  #find(isBetter: (one: number, other: number) => boolean): UsedKey | undefined {
    let found: UsedKey | undefined;
    for (const [key, used] of this.#used) {
      if (found === undefined || isBetter(used, found.used)) found = { key, used };
    }
    return found;
  }
}
