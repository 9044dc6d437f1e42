/** A binary heap with items that know their index, so that any of them can leave in log n steps. */
export class Heap<Item extends { index: number }> {
  readonly items: Item[] = [];
  readonly #before: (a: Item, b: Item) => boolean;

  /** @param before whether `a` comes out before `b` */
  constructor(before: (a: Item, b: Item) => boolean) {
    this.#before = before;
  }

  get first(): Item | undefined {
    return this.items[0];
  }

  push(item: Item): void {
    item.index = this.items.length;
    this.items.push(item);
    this.update(item);
  }

  remove(item: Item): void {
    const last = this.items.pop() as Item;
    if (last !== item) {
      last.index = item.index;
      this.items[last.index] = last;
      this.update(last);
    }
    item.index = -1;
  }

  /** Called when the order of an item has changed. */
  update(item: Item): void {
    const { items } = this;
    let i = item.index;
    for (let up = (i - 1) >> 1; i > 0 && this.#before(item, items[up] as Item); up = (i - 1) >> 1) {
      this.#set(i, items[up] as Item);
      i = up;
    }
    for (;;) {
      const left = 2 * i + 1;
      const a = items[left];
      const b = items[left + 1];
      const child = a !== undefined && b !== undefined && this.#before(b, a) ? b : a;
      if (child === undefined || !this.#before(child, item)) break;
      const { index } = child;
      this.#set(i, child);
      i = index;
    }
    this.#set(i, item);
  }

  #set(i: number, item: Item): void {
    this.items[i] = item;
    item.index = i;
  }
}
