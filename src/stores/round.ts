/**
 * Goes round a map, one entry at a time, for ever. The iterator is kept: a new one would step over
 * everything that was deleted since the map was last tidied up.
 */
export class Round<Value> {
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
