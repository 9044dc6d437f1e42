/**
 * The least used keys that a search has met: the candidates for eviction. A few are remembered, so
 * that a search which meets heavily used neighbours only still knows lighter keys from before.
 */
const MOST_CANDIDATES = 64;

export interface UsedKey {
  readonly key: string;
  /** See `usage` of `KeyStates`. */
  readonly used: number;
}

export class LeastUsed {
  /** What each key had used when it was last looked at. */
  readonly #used = new Map<string, number>();
  /** The first to be replaced; undefined: has to be found again. */
  #heaviest: UsedKey | undefined;

  /** Among equals the key that was offered first is kept. */
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
   * A new key is a candidate only where all others have used more. Without it the next new key would
   * evict one of these; with it among equals, keys would be forgotten soon after they have come.
   */
  offerLightest(key: string, used: number): void {
    const first = this.#lightest();
    if (first === undefined || used < first.used) this.offer(key, used);
  }

  /**
   * The key that has used least.
   *
   * @param usedNow what a key has used by now; undefined where it must stay or is gone
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
