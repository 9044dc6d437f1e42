/**
 * Iterates over a map in a cycle, one entry for each call. The iterator is kept: a new one would have to
 * skip all entries deleted since the engine last compacted the map.
 */
export class RoundRobin<Value> {
  readonly #map: ReadonlyMap<string, Value>;
  #entries: Iterator<[string, Value]>;

  constructor(map: ReadonlyMap<string, Value>) {
    this.#map = map;
    this.#entries = map.entries();
  }

  next(): readonly [string, Value] | undefined {
    const next = this.#entries.next();
    if (!next.done) return next.value;
    this.#entries = this.#map.entries();
    const first = this.#entries.next();
    return first.done ? undefined : first.value;
  }
}
