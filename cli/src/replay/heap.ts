/** A binary heap: it always knows its first item, and sorts n items in n log n steps. */
export class Heap<T> {
  readonly #isBefore: (one: T, other: T) => boolean;
  readonly #items: T[] = [];

  constructor(isBefore: (one: T, other: T) => boolean) {
    this.#isBefore = isBefore;
  }

  get first(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const other = items[above] as T;
      if (!this.#isBefore(item, other)) break;
      items[at] = other;
      at = above;
    }
    items[at] = item;
  }

  /** Removes the first item. */
  pop(): void {
    const items = this.#items;
    const last = items.pop();
    if (last === undefined || items.length === 0) return;
    let at = 0;
    for (let below = 1; below < items.length; below = 2 * at + 1) {
      const right = below + 1;
      if (right < items.length && this.#isBefore(items[right] as T, items[below] as T))
        below = right;
      const other = items[below] as T;
      if (!this.#isBefore(other, last)) break;
      items[at] = other;
      at = below;
    }
    items[at] = last;
  }
}
